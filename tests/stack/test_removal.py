"""`down --broker ID --remove` beside other commands, and after it was interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack.admin_connection import AdminConnection
from stack.errors import StackError
from stack.events import RequestDone, StackEvent
from stack.folder import BrokerState, StackFolder, StackState
from stack.options import StackOptions
from stack.processes import identify
from stack.reassign import running_brokers, unregister
from stack.removal import put_aside, remove_broker
from stack.requests import Action, ask
from stack.supervisor import Supervisor
from tests.stack.test_cell import create_topic
from tests.stack.test_up import until


class Stack:
    """A cell of two brokers without any topic, and threads for who asks something of it."""

    def __init__(self, supervisor: Supervisor, threads: ThreadPoolExecutor) -> None:
        self.supervisor = supervisor
        self.folder = supervisor.folder
        self.said: list[object] = []
        self.events: list[StackEvent] = []
        self.submit = threads.submit

    def done(self, call: Callable[..., object], *arguments: object) -> None:
        """Have it done in a thread, while the stack serves requests."""
        asked = self.submit(call, *arguments)
        until(lambda: self.supervisor.watch(self.events.append) and asked.done())
        asked.result()

    def remove(self, broker_id: int) -> None:
        remove_broker(self.folder, broker_id, tell=self.said.append)

    def running(self) -> set[int]:
        return {broker.broker_id for broker in self.supervisor.brokers}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with (
        Supervisor(StackOptions(tmp_path, brokers=2, port=0)) as supervisor,
        ThreadPoolExecutor() as threads,
    ):
        yield Stack(supervisor, threads)


def test_who_is_started_again_before_its_folder_goes_keeps_it(stack: Stack) -> None:
    data = stack.folder.broker_data(2)
    stack.done(ask, stack.folder, Action.STOP, "broker-2")
    with AdminConnection(stack.supervisor.bootstrap) as connection:
        assert unregister(connection, 2)
    # In this moment somebody else starts it, and it gets a replica.
    stack.done(ask, stack.folder, Action.START, "broker-2")
    create_topic(stack.supervisor.bootstrap, "orders", 1)
    with pytest.raises(StackError, match="started again since"):
        stack.done(put_aside, stack.folder, 2, stack.said.append)
    assert data.exists()
    assert stack.folder.put_aside_of(2) == []
    with pytest.raises(StackError, match="has 1 replicas"):
        stack.done(stack.remove, 2)
    assert stack.running() == {1, 2}


def test_whoever_comes_first_nobody_runs_without_a_folder(stack: Stack) -> None:
    removal = stack.submit(stack.remove, 2)
    started: list[Future[str]] = []

    def on_event(event: StackEvent) -> None:
        if isinstance(event, RequestDone) and "has stopped" in str(event):
            started.append(stack.submit(ask, stack.folder, Action.START, "broker-2"))

    until(lambda: stack.supervisor.watch(on_event) and removal.done() and started[0].done())
    problems = [removal.exception(), *(asked.exception() for asked in started)]
    with AdminConnection(stack.supervisor.bootstrap) as connection:
        # Its number may have been taken away while it started; then it ends by itself.
        until(
            lambda: (
                stack.supervisor.watch(on_event) and running_brokers(connection) == stack.running()
            )
        )
    assert stack.folder.broker_data(2).exists() or 2 not in stack.running(), problems


def test_who_gets_a_replica_while_it_is_removed_stays_and_can_be_started_again(
    stack: Stack,
) -> None:
    def new_admin() -> AdminClient:
        return AdminClient({"bootstrap.servers": first})

    first = stack.supervisor.bootstrap.split(",")[0]

    def on_event(event: StackEvent) -> None:
        if isinstance(event, RequestDone) and "has stopped" in str(event):
            # librdkafka would go on asking the controller that it knows, if that was broker 2.
            until(lambda: new_admin().list_topics(timeout=30).controller_id == 1)
            admin = new_admin()
            topic = NewTopic("orders", 1, replica_assignment=[[1, 2]])
            admin.create_topics([topic])["orders"].result(30)

    removal = stack.submit(stack.remove, 2)
    until(lambda: stack.supervisor.watch(on_event) and removal.done())
    with pytest.raises(StackError, match=r"replica of orders-0(?s:.*)tidewheel up --add 2"):
        removal.result()
    assert stack.folder.broker_data(2).exists()
    stack.done(ask, stack.folder, Action.START, "broker-2")
    assert stack.running() == {1, 2}


def test_an_interrupted_removal_is_gone_on_with(stack: Stack) -> None:
    stack.done(ask, stack.folder, Action.STOP, "broker-2")
    with AdminConnection(stack.supervisor.bootstrap) as connection:
        assert unregister(connection, 2)
    stack.done(put_aside, stack.folder, 2, stack.said.append)
    assert not stack.folder.broker_data(2).exists()
    assert len(stack.folder.put_aside_of(2)) == 1
    assert stack.folder.broker_ids() == [1]
    stack.done(stack.remove, 2)
    assert stack.folder.put_aside_of(2) == []
    assert "has left the cell" in str(stack.said[-1])
    with pytest.raises(StackError, match="nothing to remove"):
        stack.done(stack.remove, 2)


def test_the_last_broker_that_runs_is_not_removed(stack: Stack) -> None:
    stack.done(ask, stack.folder, Action.STOP, "broker-1")
    with pytest.raises(StackError, match="No other broker"):
        stack.done(stack.remove, 2)
    assert stack.running() == {2}


def test_data_that_cannot_be_deleted_is_named(stack: Stack) -> None:
    # No folder, and so nothing that could be deleted as one.
    in_the_way = stack.folder.path / "broker-2.removed-0"
    in_the_way.write_text("")
    with pytest.raises(StackError, match=rf"has left the cell, but .* {in_the_way} could not be"):
        stack.done(stack.remove, 2)
    assert stack.running() == {1}


def test_a_folder_whose_broker_outlived_its_stack_stays(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.broker_data(4).mkdir()
    us = identify(os.getpid())
    assert us is not None
    folder.write_state(StackState(us, "id", 0, (BrokerState(4, us, 1, 1),)))
    with pytest.raises(StackError, match="Broker 4 runs"):
        put_aside(folder, 4, print)
    assert folder.broker_data(4).exists()
    assert not folder.is_locked()


def test_a_folder_without_a_stack_is_put_aside_under_its_lock(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.broker_data(4).mkdir()
    put_aside(folder, 4, print)
    assert [path.name[:17] for path in tmp_path.glob("broker-*")] == ["broker-4.removed-"]
    assert not folder.is_locked()
    # While somebody has the folder, it is his to say.
    lock = folder.lock()
    assert lock is not None
    folder.broker_data(4).mkdir()
    with pytest.raises(StackError, match="No stack runs"):
        put_aside(folder, 4, print)
    assert folder.broker_data(4).exists()
    os.close(lock)
