"""A stack whose brokers have all ended starts them again, with pauses that grow."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack import inspect
from stack.events import PartEnded, Restarting, StackEvent
from stack.folder import StackFolder
from stack.options import StackOptions
from stack.requests import Action, ask
from stack.restarts import FIRST_PAUSE_S, PAUSE_S_MAX, STEADY_S, Restarts
from stack.supervisor import Supervisor
from tests.stack.test_up import until


def test_while_some_broker_lives_nothing_is_started() -> None:
    restarts = Restarts()
    restarts.ended(2)
    assert restarts.plan(0.0, lives=True, serves=True) is None
    assert restarts.due(1_000.0) == []


def test_all_that_ended_are_started_after_a_pause_that_is_told_once() -> None:
    restarts = Restarts()
    for broker_id in (3, 1, 2):
        restarts.ended(broker_id)
    restarts.forget(3)
    assert restarts.plan(10.0, lives=False, serves=False) == ([1, 2], FIRST_PAUSE_S)
    assert restarts.plan(10.5, lives=False, serves=False) is None
    assert restarts.due(10.9) == []
    assert restarts.due(10.0 + FIRST_PAUSE_S) == [1, 2]
    assert restarts.due(100.0) == []


def test_without_a_broker_that_ended_by_itself_there_is_nothing_to_start() -> None:
    restarts = Restarts()
    restarts.ended(1)
    restarts.forget(1)
    assert restarts.plan(0.0, lives=False, serves=False) is None


def test_pauses_double_up_to_a_maximum_until_a_broker_has_served_for_long() -> None:
    restarts, now_s, pauses = Restarts(), 0.0, []

    def end() -> float:
        nonlocal now_s
        restarts.ended(1)
        plan = restarts.plan(now_s, lives=False, serves=False)
        assert plan is not None
        now_s += plan[1]
        assert restarts.due(now_s) == [1]
        restarts.forget(1)
        return plan[1]

    for _ in range(7):
        pauses.append(end())
        restarts.plan(now_s, lives=True, serves=True)
        now_s += STEADY_S / 2
        restarts.plan(now_s, lives=True, serves=True)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_S_MAX, PAUSE_S_MAX]
    now_s += STEADY_S / 2
    restarts.plan(now_s, lives=True, serves=True)
    assert end() == FIRST_PAUSE_S


def test_somebody_who_starts_a_broker_himself_ends_the_wait() -> None:
    restarts = Restarts()
    restarts.ended(1)
    restarts.ended(2)
    assert restarts.plan(0.0, lives=False, serves=False) is not None
    restarts.forget(1)
    assert restarts.plan(0.5, lives=True, serves=False) is None
    assert restarts.due(1_000.0) == []


@pytest.mark.timeout(180)
def test_a_cell_outlives_the_death_of_all_its_parts(tmp_path: Path) -> None:
    events: list[StackEvent] = []
    with Supervisor(StackOptions(tmp_path, brokers=2, port=0)) as supervisor:
        before = [broker.ready.port for broker in supervisor.brokers if broker.ready is not None]
        assert supervisor.postgres is not None
        assert supervisor.postgres.identity is not None
        supervisor.postgres.identity.signal(signal.SIGKILL)
        for broker in supervisor.brokers:
            os.kill(broker.pid, signal.SIGKILL)
        until(lambda: supervisor.watch(events.append) and not supervisor.brokers)
        until(
            lambda: (
                supervisor.watch(events.append)
                and len(supervisor.brokers) == 2
                and all(broker.ready is not None for broker in supervisor.brokers)
            )
        )
        after = [broker.ready.port for broker in supervisor.brokers if broker.ready is not None]
        assert after == before
        assert supervisor.postgres is not None
    assert sum(isinstance(event, PartEnded) for event in events) == 3
    assert any(isinstance(event, Restarting) for event in events)
    assert "Postgres runs again." in map(str, events)


@pytest.mark.timeout(120)
def test_a_broker_can_be_asked_for_while_none_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[StackEvent] = []
    options = StackOptions(tmp_path, brokers=1, port=0)
    with Supervisor(options) as supervisor, ThreadPoolExecutor() as threads:
        os.kill(supervisor.brokers[0].pid, signal.SIGKILL)
        until(lambda: supervisor.watch(events.append) and not supervisor.brokers)
        folder = StackFolder(tmp_path)
        assert inspect.describe(folder)["restarting"]
        assert inspect.status(folder, as_json=False) == 1
        assert "starts them again" in capsys.readouterr().out
        asked = threads.submit(ask, StackFolder(tmp_path), Action.START, "broker-1")
        until(lambda: supervisor.watch(events.append) and asked.done())
        assert "Broker 1 is up" in asked.result()
