"""Starts a stack's brokers, watches over them, and stops them in order.

One supervisor owns one data folder for as long as it lives: it holds the folder's lock. It starts
all brokers, waits until all serve, writes the state file, and then only waits: for a request to
stop, or for a broker to end by itself. A broker that ends is reported and not started again; a
crash should be seen. When none is left the stack has failed.

Threads and asyncio are deliberately absent: there is nothing to do but wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stack.broker_process import BrokerOptions, BrokerProcess, stop_all
from stack.errors import EXIT_USAGE, StackError
from stack.folder import StackFolder, StackState, bootstrap
from stack.ports import broker_ports, metrics_port
from stack.processes import identify

BROKERS_MAX = 1
"""More brokers make sense once partitions are replicated between them."""

BROKER_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What `up` was asked for. `first_id` None takes the ids that have data in the folder, or 1."""

    data: Path
    brokers: int = 1
    port: int = 9092
    first_id: int | None = None
    settings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises StackError when this cannot be a stack."""
        if self.brokers < 1:
            raise StackError("--brokers must be at least 1.", EXIT_USAGE)
        if self.brokers > BROKERS_MAX:
            raise StackError(
                f"--brokers {self.brokers}: Tidewheel does not replicate between brokers yet, so a "
                "stack is one broker for now. Leave --brokers out.",
                EXIT_USAGE,
            )
        if self.first_id is not None and not 0 <= self.first_id <= BROKER_ID_MAX:
            raise StackError("--first-id must be a broker id: 0 to 2147483647.", EXIT_USAGE)
        for setting in self.settings:
            name, equals, _ = setting.partition("=")
            if not equals or not name.strip():
                raise StackError(
                    f"--set {setting}: write KEY=VALUE, for example --set num.partitions=3.",
                    EXIT_USAGE,
                )


class Supervisor:
    """A running stack. Use it as a context manager: leaving it stops the brokers."""

    def __init__(
        self, options: StackOptions, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        options.check()
        self.options = options
        self._should_stop = should_stop
        self.folder = StackFolder(options.data)
        self.brokers: list[BrokerProcess] = []
        self.state: StackState | None = None
        self._lock: int | None = None
        self._owns_state = False

    @property
    def bootstrap(self) -> str:
        assert self.state is not None, "the stack has not started"
        return bootstrap(self.state.brokers)

    def __enter__(self) -> Supervisor:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> StackState:
        """Start all brokers and wait until they serve; call `stop` whatever comes of it.

        Raises StackError, or Stopped when `should_stop` said so in the meantime.
        """
        self.folder.prepare()
        self._lock = self.folder.lock()
        if self._lock is None:
            raise StackError(self._in_use_message())
        self._refuse_orphans()
        self._owns_state = True
        self.folder.remove_state()
        first_id = self._first_id()
        supervisor = identify(os.getpid())
        assert supervisor is not None, "this process runs"
        cluster_id = self.folder.cluster_id()
        for index, port in enumerate(broker_ports(self.options.port, self.options.brokers)):
            options = BrokerOptions(
                broker_id=first_id + index,
                port=port,
                metrics_port=metrics_port(port),
                settings=self.options.settings,
            )
            self.brokers.append(BrokerProcess(self.folder, options, cluster_id))
        states = tuple(broker.wait_ready(self._should_stop) for broker in self.brokers)
        self.state = StackState(supervisor, cluster_id, time.time_ns() // 1_000_000, states)
        self.folder.write_state(self.state)
        return self.state

    def _in_use_message(self) -> str:
        state = self.folder.read_state()
        where = f" at {bootstrap(state.brokers)} (pid {state.supervisor.pid})" if state else ""
        return (
            f"A stack already runs with the data in {self.folder.path}{where}.\n"
            "Stop it with ./tidewheel down, or start another one with its own --data and --port."
        )

    def _first_id(self) -> int:
        """The first broker's id. Raises StackError when data in the folder would be left out."""
        present = self.folder.broker_ids()
        first_id = self.options.first_id
        if first_id is None:
            first_id = min(present, default=1)
        left_out = [i for i in present if not first_id <= i < first_id + self.options.brokers]
        if left_out:
            raise StackError(
                f"{self.folder.path} has the data of broker {', '.join(map(str, left_out))}, which "
                f"this start would leave out. Use another --data, or leave --first-id out.",
                EXIT_USAGE,
            )
        return first_id

    def _refuse_orphans(self) -> None:
        """A broker may outlive a killed supervisor. Two on one folder would destroy it."""
        state = self.folder.read_state()
        living = state.living() if state else []
        if living:
            pids = ", ".join(str(broker.process.pid) for broker in living)
            raise StackError(
                f"A broker of an earlier start still runs on {self.folder.path} (pid {pids}). "
                "Stop it with ./tidewheel down."
            )

    def watch(self, on_exit: Callable[[int, int], None]) -> bool:
        """Look once after the brokers: `on_exit(broker_id, status)` for each that has ended.

        True when the stack should go on, False when asked to stop or no broker is left.
        """
        for broker in list(self.brokers):
            status = broker.poll()
            if status is not None:
                self.brokers.remove(broker)
                on_exit(broker.options.broker_id, status)
        return bool(self.brokers) and not self._should_stop()

    def last_words(self) -> list[str]:
        """The last lines of the running brokers' logs."""
        return [line for broker in self.brokers for line in broker.last_words()]

    def stop(self) -> list[int]:
        """Stop the brokers gracefully and let the folder go. Their exit statuses."""
        statuses = stop_all(self.brokers)
        self.brokers.clear()
        if self._owns_state:
            self.folder.remove_state()
            self._owns_state = False
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return statuses

    def kill(self) -> None:
        """kill -9 every broker that has not ended yet; `stop` still has to follow or return."""
        for broker in self.brokers:
            broker.kill_now()
