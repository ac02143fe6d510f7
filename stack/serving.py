"""Does what other commands ask of a running stack (requests.py), where it looks after its parts.

A request to start a broker is answered when that one serves or has ended, and told from time to
time to wait until then; all others at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from stack import requests
from stack.broker_process import BrokerProcess, Stopped
from stack.errors import StackError, describe_os_error
from stack.events import RequestDone, StackEvent
from stack.hints import command

if TYPE_CHECKING:
    from stack.supervisor import Supervisor

Report = Callable[[StackEvent], None]


class RequestServer:
    """The requests to one stack. `report` is told what has been done."""

    def __init__(self, stack: Supervisor) -> None:
        self._stack = stack
        self._folder = stack.folder
        self._starts: list[tuple[BrokerProcess, requests.Request | None]] = []

    def starting(self) -> list[BrokerProcess]:
        """The brokers that somebody has asked for and that do not serve yet."""
        return [broker for broker, _ in self._starts]

    def await_start(self, broker: BrokerProcess) -> None:
        """Look after a broker that the stack itself has started: nobody has asked for it."""
        self._starts.append((broker, None))

    def refuse_all(self, why: str) -> None:
        """Nobody is waited for any more."""
        for _, request in self._starts:
            self._answer(request, StackError(why), lambda _event: None)
        self._starts.clear()

    def serve_next(self, report: Report) -> None:
        """Begin with what is asked next, if anything is."""
        request = requests.take_request(self._folder)
        if request is None:
            return
        done: str | StackError | None
        try:
            if request.action is requests.Action.STOP:
                done = self._stop_part(request, report)
            elif request.action is requests.Action.PUT_ASIDE:
                done = self._put_aside(request)
            elif request.part == requests.POSTGRES:
                self._stack.restart_postgres()
                done = "Postgres runs again."
            elif request.part in requests.CONTROL_PLANE_PARTS:
                self._stack.restart_part(request.part)
                done = f"{request.part.replace('-', ' ').capitalize()} runs again."
            else:
                # `look_at_starts` answers.
                self._starts.append((self._stack.begin_broker(request.broker_id), request))
                done = None
        except StackError as error:
            done = error
        except Stopped:
            done = StackError("The stack is stopping.")
        except OSError as error:
            done = StackError(describe_os_error(error))
        self._stack.record()
        if done is not None:
            self._answer(request, done, report)

    def _answer(
        self,
        request: requests.Request | None,
        done: str | StackError,
        report: Report,
    ) -> None:
        report(RequestDone(str(done)))
        if request is None:
            return
        # Who asked finds no answer on a full disk; that is no reason to end the stack.
        with contextlib.suppress(OSError):
            if isinstance(done, StackError):
                requests.refuse(self._folder, request, done)
            else:
                requests.answer(self._folder, request, done)

    def look_at_starts(self, report: Report) -> None:
        """Answer who has asked for a broker that serves by now, or that has ended."""
        for start in list(self._starts):
            broker, request = start
            done: str | StackError
            try:
                ready = broker.look_ready()
                if ready is None:
                    self._let_wait(broker, request, report)
                    continue
                done = f"Broker {broker.broker_id} is up at 127.0.0.1:{ready.port}."
            except StackError as error:
                done = error
                self._stack.lost(broker)
            self._starts.remove(start)
            self._stack.record()
            self._answer(request, done, report)

    def _let_wait(
        self,
        broker: BrokerProcess,
        request: requests.Request | None,
        report: Report,
    ) -> None:
        still = broker.still_starting()
        if still is None:
            return
        report(still)
        if request is not None:
            with contextlib.suppress(OSError):
                requests.let_wait(self._folder, request, str(still))

    def _stop_part(self, request: requests.Request, report: Report) -> str:
        broker_id = request.broker_id
        broker = next((b for b in self._stack.brokers if b.broker_id == broker_id), None)
        if broker is None:
            running = ", ".join(str(b.broker_id) for b in self._stack.brokers) or "none"
            verb = "do" if len(self._stack.brokers) > 1 else "does"
            raise StackError(f"Broker {broker_id} does not run; {running} {verb}.")
        if len(self._stack.brokers) == 1:
            raise StackError(
                f"This is the last broker; {command('down', self._folder)} stops the stack."
            )
        self._stack.stop_broker(broker)
        for start in [start for start in self._starts if start[0] is broker]:
            self._starts.remove(start)
            refusal = StackError(f"Broker {broker_id} was stopped before it served.")
            self._answer(start[1], refusal, report)
        return f"Broker {broker.broker_id} has stopped. Its data stays."

    def _put_aside(self, request: requests.Request) -> str:
        broker_id = request.broker_id
        if broker_id is None:
            raise StackError("Only a broker can be put aside.")
        if any(broker.broker_id == broker_id for broker in self._stack.brokers):
            raise StackError(
                f"Broker {broker_id} has been started again since it was stopped. Its data stays."
            )
        self._folder.put_aside(broker_id)
        return f"The data of broker {broker_id} is put aside."
