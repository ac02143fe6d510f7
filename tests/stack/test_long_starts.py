"""Brokers that need long before they serve: they are waited for, however long it takes, and whoever
waits is told so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from stack import broker_process
from stack.broker_process import StillStarting, Stopped
from stack.errors import StackError
from stack.events import PartEnded, StackEvent
from stack.folder import StackFolder
from stack.options import StackOptions
from stack.postgres import PostgresServer, stop_leftover
from stack.requests import Action, ask
from stack.supervisor import Supervisor
from stack.up import read_report
from tests.stack.test_up import COMMAND, TIMEOUT_S, until

STACK_THAT_TELLS_AT_ONCE = """
import sys
from stack import broker_process
from stack.__main__ import main
broker_process.TELL_INTERVAL_S = 0.1
sys.exit(main())
"""


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A database of the user's, which does not run: brokers wait for it."""
    # Not pytest's own folder, which others than its owner may not enter.
    home = Path(tempfile.mkdtemp(prefix="tidewheel-postgres-"))
    home.chmod(0o755)
    made = PostgresServer(home / "postgres", is_durable=False)
    made.start()
    made.stop()
    yield made
    made.stop()
    stop_leftover(home / "postgres")
    shutil.rmtree(home)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_process, "TELL_INTERVAL_S", 0.1)


def options(tmp_path: Path, database: PostgresServer) -> StackOptions:
    return StackOptions(tmp_path, brokers=2, port=0, database_url=database.dsn)


@pytest.mark.timeout(180)
def test_a_stack_waits_for_its_brokers_and_says_so(
    tmp_path: Path, database: PostgresServer
) -> None:
    told: list[StillStarting] = []

    def tell(event: StillStarting) -> None:
        told.append(event)
        if len(told) > 3 and "waiting for metadata store" in str(event) and not database.identity:
            database.start()

    with Supervisor(options(tmp_path, database), tell=tell) as supervisor:
        assert len(supervisor.bootstrap.split(",")) == 2
    ours = [event for event in told if event.broker_id == 2]
    assert [event.waited_s for event in ours] == sorted({event.waited_s for event in ours})
    assert all(str(tmp_path / "logs" / "broker-2.log") in str(event) for event in ours)


def test_a_wait_ends_when_the_user_stops(tmp_path: Path, database: PostgresServer) -> None:
    told: list[StillStarting] = []
    supervisor = Supervisor(options(tmp_path, database), lambda: len(told) > 2, told.append)
    with pytest.raises(Stopped), supervisor:
        pass
    assert supervisor.brokers == []


def test_a_broker_that_ends_while_others_are_waited_for_ends_the_start(
    tmp_path: Path, database: PostgresServer
) -> None:
    def tell(event: StillStarting) -> None:
        # The last one: those before it are waited for, too.
        os.kill(supervisor.brokers[-1].pid, signal.SIGKILL)

    supervisor = Supervisor(options(tmp_path, database), tell=tell)
    with pytest.raises(StackError, match="Broker 2 ended with signal 9 while starting"), supervisor:
        pass
    assert supervisor.brokers == []


@pytest.mark.timeout(180)
def test_a_stack_goes_on_while_a_broker_starts_again(
    tmp_path: Path, database: PostgresServer
) -> None:
    folder, told = StackFolder(tmp_path), list[str]()
    events: list[StackEvent] = []
    database.start()
    with (
        Supervisor(options(tmp_path, database)) as supervisor,
        ThreadPoolExecutor() as threads,
    ):

        def start_2() -> Future[str]:
            """Ask for broker 2, which has crashed, while it cannot come up."""
            database.kill_now()
            _, broker = supervisor.brokers
            os.kill(broker.pid, signal.SIGKILL)
            until(lambda: supervisor.watch(events.append) and len(supervisor.brokers) == 1)
            told.clear()
            asked = threads.submit(ask, folder, Action.START, "broker-2", told.append)
            until(lambda: supervisor.watch(events.append) and len(told) > 2)
            return asked

        def answer(asked: Future[str]) -> str:
            until(lambda: supervisor.watch(events.append) and asked.done())
            return asked.result()

        asked = start_2()
        assert "Broker 2 is still starting" in told[-1]
        state = folder.read_state()
        assert state is not None
        assert [(b.broker_id, b.serves) for b in state.brokers] == [(1, True), (2, False)]
        with pytest.raises(StackError, match="is starting already"):
            answer(threads.submit(ask, folder, Action.START, "broker-2"))
        database.start()
        assert "Broker 2 is up" in answer(asked)
        state = folder.read_state()
        assert state is not None
        assert all(broker.serves for broker in state.brokers)

        asked = start_2()
        assert "has stopped" in answer(threads.submit(ask, folder, Action.STOP, "broker-2"))
        with pytest.raises(StackError, match="stopped before it served"):
            answer(asked)
        assert len(supervisor.brokers) == 1
        asked = threads.submit(ask, folder, Action.START, "broker-2")
        until(lambda: supervisor.watch(events.append) and len(supervisor.brokers) == 2)
        os.kill(supervisor.brokers[1].pid, signal.SIGKILL)
        with pytest.raises(StackError, match="ended with signal 9 while starting"):
            answer(asked)
        assert len(supervisor.brokers) == 1
        # Who has asked for it hears of it; the stack tells of those that have served.
        ended = [event.part for event in events if isinstance(event, PartEnded)]
        assert ended == ["broker-2", "broker-2"]


@pytest.mark.timeout(180)
def test_who_waits_for_a_broker_hears_that_the_stack_stops(
    tmp_path: Path, database: PostgresServer
) -> None:
    told: list[str] = []
    database.start()
    with ThreadPoolExecutor() as threads:
        with Supervisor(options(tmp_path, database)) as supervisor:
            database.kill_now()
            # Without an id they take the next ones, and none has made its folder yet.
            made = [supervisor.begin_broker(None), supervisor.begin_broker(None)]
            assert [broker.broker_id for broker in made] == [3, 4]
            asked = threads.submit(ask, supervisor.folder, Action.START, None, told.append)
            until(lambda: supervisor.watch(lambda event: None) and told != [])
        with pytest.raises(StackError, match="The stack is stopping"):
            asked.result(TIMEOUT_S)


def test_a_postgres_that_ends_while_brokers_start_ends_the_start(tmp_path: Path) -> None:
    def kill_postgres() -> bool:
        if len(supervisor.brokers) == 2 and supervisor.postgres is not None:
            assert supervisor.postgres.identity is not None
            supervisor.postgres.identity.signal(signal.SIGKILL)
        return False

    supervisor = Supervisor(StackOptions(tmp_path, brokers=2, port=0), kill_postgres)
    with pytest.raises(StackError, match="Postgres ended with signal 9"), supervisor:
        pass
    assert supervisor.brokers == []


def test_who_serves_already_is_found_while_another_one_starts(tmp_path: Path) -> None:
    served: list[list[bool]] = []

    def hold_up_2() -> bool:
        if len(supervisor.brokers) < 2 or [True, False] in served:
            return False
        second = supervisor.brokers[1].pid
        os.kill(second, signal.SIGSTOP)
        state = supervisor.folder.read_state()
        assert state is not None
        served.append([broker.serves for broker in state.brokers])
        if served[-1] == [True, False]:
            assert not state.is_up
            os.kill(second, signal.SIGCONT)
        return False

    supervisor = Supervisor(StackOptions(tmp_path, brokers=2, port=0), hold_up_2)
    with supervisor:
        state = supervisor.folder.read_state()
        assert state is not None
        assert state.is_up


@pytest.mark.timeout(180)
def test_a_stack_in_the_background_says_what_it_waits_for(
    tmp_path: Path, database: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    arguments = ["up", "--data", str(tmp_path), "--port", "0", "--brokers", "2", "--detach"]
    arguments.append("--no-control-plane")
    with (
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                STACK_THAT_TELLS_AT_ONCE,
                *arguments,
                "--report-fd",
                str(writer),
            ],
            pass_fds=(writer,),
            env={**os.environ, "DATABASE_URL": database.dsn},
            stdout=subprocess.DEVNULL,
        ) as stack,
        os.fdopen(reader, "rb") as pipe,
    ):
        os.close(writer)
        assert "still starting" in json.loads(pipe.readline())["waiting"]
        database.start()
        report = read_report(pipe)
        assert report is not None
        assert len(report["bootstrap"].split(",")) == 2
        for line in capsys.readouterr().err.splitlines():
            assert "still starting" in line
        subprocess.run([*COMMAND, "down", "--data", tmp_path], timeout=TIMEOUT_S, check=True)
        assert stack.wait(TIMEOUT_S) == 0


def test_what_is_waited_for_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        os.write(writer, b'{"waiting": "first"}\n{"waiting": "second"}\n{"error": "no"}\n')
        assert read_report(pipe) == {"error": "no"}
        assert capsys.readouterr().err == "first\nsecond\n"
        os.write(writer, b'{"waiting": "third"}\n')
        os.close(writer)
        assert read_report(pipe) is None
