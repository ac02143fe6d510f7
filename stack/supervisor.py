"""Starts a stack's parts, watches over them, and stops them in order.

One supervisor owns one data folder for as long as it lives: it holds the folder's lock. It starts
Postgres, where the stack has its own, then the control plane and all brokers beside each other,
waits until all serve, and then only waits: for a request to stop, for a part to end by itself, or
for a request of another command to start or stop one. A part that ends is reported and not started
again by itself; a crash should be seen. When no broker is left, all that have ended are started
again (restarts.py).

A broker that lives and does not serve yet is waited for, however long it takes, and the person is
told from time to time: after a crash it looks through its logs. `watch` goes on meanwhile, and the
command that has asked for the broker waits.

The state file names a part from the moment at which it was started, so that `down` finds it
whenever the supervisor is killed. That it cannot be written (a full disk) ends no stack that runs:
it is tried again with the next look.

Stopping goes one by one, so that each broker can hand its leaders over to those that still run,
and Postgres goes last, because a broker that stops tells the metadata store. The control plane goes
first: it needs the others, and they do not need it.

Threads and asyncio are deliberately absent: there is nothing to do but wait.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from stack import requests
from stack.broker_process import (
    STOP_TIMEOUT_S,
    WITH_FEATURES,
    BrokerLaunch,
    BrokerProcess,
    StillStarting,
    Stopped,
    as_variable,
    wait_for_word,
)
from stack.errors import StackError
from stack.events import PartEnded, RequestDone, Restarting, StackEvent
from stack.folder import (
    BrokerState,
    MetadataStoreKind,
    PostgresState,
    StackFolder,
    StackState,
    bootstrap,
)
from stack.listeners import listener_settings
from stack.occupied import in_use_message, refuse_orphans
from stack.options import (
    StackOptions,
    cell_environment,
    cell_settings,
    decide_broker_ids,
    decide_store_kind,
    store_schema,
)
from stack.ports import (
    INTER_BROKER_PORT_DISTANCE,
    METRICS_PORT_DISTANCE,
    POSTGRES_PORT_DISTANCE,
    broker_ports,
    is_free,
    port_beside,
)
from stack.processes import identify
from stack.restarts import Restarts
from stack.serving import RequestServer

if TYPE_CHECKING:
    from stack.certificates import StackCertificates
    from stack.control_plane import ControlPlane
    from stack.postgres import PostgresServer


def _say_nothing(_event: StillStarting) -> None:
    pass


class Supervisor:
    """A running stack. Use it as a context manager: leaving it stops everything."""

    def __init__(
        self,
        options: StackOptions,
        should_stop: Callable[[], bool] = lambda: False,
        tell: Callable[[StillStarting], None] = _say_nothing,
    ) -> None:
        """`tell` is called while `start` waits for brokers."""
        options.check()
        self.options = options
        self._should_stop = should_stop
        self._tell = tell
        self.folder = StackFolder(options.data)
        self.brokers: list[BrokerProcess] = []
        self._requests = RequestServer(self)
        self._restarts = Restarts()
        self.postgres: PostgresServer | None = None
        self.control_plane: ControlPlane | None = None
        self.state: StackState | None = None
        self._store_url: str | None = None
        self._store_schema = ""
        self._broker_count = 1
        self._cluster_id = ""
        self._certificates: StackCertificates | None = None
        self._last_ports: dict[int, int] = {}
        self._has_postgres = False
        self._postgres_port = 0
        self._started_at_ms = 0
        self._is_up = False
        self._is_stopping = False
        self._is_recorded = True
        self._lock: int | None = None
        self._owns_state = False

    @property
    def has_been_up(self) -> bool:
        """Whether all parts have served at once: from then on only the user ends the stack."""
        return self._is_up

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
        """Start all parts and wait until they serve; call `stop` whatever comes of it.

        Raises StackError, or Stopped when `should_stop` said so in the meantime.
        """
        self.folder.prepare()
        self._lock = self.folder.lock()
        if self._lock is None:
            raise StackError(in_use_message(self.folder))
        refuse_orphans(self.folder)
        self._owns_state = True
        self.folder.remove_state()
        requests.forget(self.folder)
        ids = decide_broker_ids(self.options, self.folder.broker_ids())
        kind = decide_store_kind(self.options, self.folder, len(ids))
        ports = broker_ports(self.options.port, len(ids))
        self._started_at_ms = time.time_ns() // 1_000_000
        self.folder.write_store_kind(kind)
        self._cluster_id = self.folder.cluster_id()
        if self.options.more_listeners:
            # Only such a stack needs the packages for it.
            from stack.certificates import StackCertificates

            self._certificates = StackCertificates(self.folder.tls)
            self._certificates.prepare()
        self._broker_count = len(ids)
        self._write_state()
        self._start_database(kind)
        self._store_schema = store_schema(kind, self._cluster_id)
        self._write_state()
        if self.options.control_plane:
            self._begin_control_plane()
            self._write_state()
        for broker_id, port in zip(ids, ports, strict=True):
            self.brokers.append(BrokerProcess(self._launch(broker_id, port)))
            self._write_state()
        self._wait_until_all_serve()
        self._started_at_ms, self._is_up = time.time_ns() // 1_000_000, True
        return self._write_state()

    def _wait_until_all_serve(self) -> None:
        waiting, plane = list(self.brokers), self.control_plane
        is_complete = plane is None
        while waiting or not is_complete:
            if self._should_stop():
                raise Stopped
            if self.postgres is not None and (status := self.postgres.poll()) is not None:
                raise StackError(str(PartEnded(requests.POSTGRES, status, self.postgres.log)))
            wait_for_word([*waiting, *([] if plane is None else plane.starting())])
            for broker in list(waiting):
                if broker.look_ready() is not None:
                    waiting.remove(broker)
                    self._write_state()
                elif (still := broker.still_starting()) is not None:
                    self._tell(still)
            if plane is not None and not is_complete:
                before = plane.states()
                is_complete = plane.step([] if waiting else self.brokers)
                if plane.states() != before:
                    self._write_state()

    def _start_database(self, kind: MetadataStoreKind) -> None:
        """Postgres, where it is needed, and with it the address of the metadata store."""
        # A stack that has its metadata elsewhere brings one for its control plane.
        is_needed = self.options.control_plane and self.options.control_plane_database_url is None
        self._has_postgres = is_needed or kind is MetadataStoreKind.POSTGRES
        if self._has_postgres:
            self._start_postgres(port_beside(self.options.port, POSTGRES_PORT_DISTANCE))
        if kind is MetadataStoreKind.EXTERNAL:
            self._store_url = self.options.database_url
        elif kind is MetadataStoreKind.POSTGRES:
            assert self.postgres is not None, "it has just been started"
            self._store_url = self.postgres.dsn

    def _start_postgres(self, port: int) -> None:
        """`port` 0 is the one that it had, or any."""
        if self._should_stop():
            raise Stopped
        # Only a cell needs it, and the packages that it imports.
        from stack.postgres import PostgresServer

        self.postgres = PostgresServer(self.folder.postgres_data, port=port)
        try:
            self.postgres.start(should_stop=self._should_stop)
            if self.postgres.identity is None:
                raise Stopped
        except BaseException:
            # One that has not come up must not count as one that runs.
            self.postgres.stop()
            self.postgres = None
            raise
        self._postgres_port = self.postgres.port

    def _begin_control_plane(self) -> None:
        # Only such a stack needs it, and what it imports.
        from stack.control_plane import control_plane_of

        assert self._certificates is not None, "such a stack has them"
        self.control_plane = control_plane_of(
            self.options, self.folder, self._certificates, self.postgres
        )
        self.control_plane.begin(self._should_stop)

    def _launch(self, broker_id: int, port: int) -> BrokerLaunch:
        settings, environment = self.options.settings_of(broker_id), {}
        if self._certificates is not None:
            more = listener_settings(
                port, settings, self._certificates, is_secure=self.options.is_secure
            )
            settings = (*more, *settings)
        if self._store_url is not None:
            inter_broker_port = port_beside(port, INTER_BROKER_PORT_DISTANCE)
            settings = (*cell_settings(broker_id, inter_broker_port), *settings)
            environment = cell_environment(broker_id, self._store_url, self._broker_count)
            environment[as_variable("metadata.store.schema")] = self._store_schema
        # What the person sets in the environment stays stronger than our defaults there.
        environment = {k: v for k, v in environment.items() if k not in os.environ}
        return BrokerLaunch(
            broker_id=broker_id,
            data=self.folder.broker_data(broker_id),
            log=self.folder.rolled_log(f"broker-{broker_id}"),
            cluster_id=self._cluster_id,
            port=port,
            metrics_port=port_beside(port, METRICS_PORT_DISTANCE),
            # The foreground view reads the log.
            settings=("logging.format=json", *settings),
            environment=environment,
            module=WITH_FEATURES,
        )

    def _write_state(self) -> StackState:
        supervisor = identify(os.getpid())
        assert supervisor is not None, "this process runs"
        states = [_broker_state(broker) for broker in self.brokers]
        brokers = [broker for broker in states if broker is not None]
        self._last_ports.update({b.broker_id: b.port for b in brokers if b.serves})
        postgres = None
        if self.postgres is not None and self.postgres.identity is not None:
            postgres = PostgresState(self.postgres.identity, self.postgres.port)
        self.state = StackState(
            supervisor,
            self._cluster_id,
            self._started_at_ms,
            tuple(sorted(brokers, key=lambda broker: broker.broker_id)),
            postgres,
            None if self.control_plane is None else self.control_plane.states(),
            is_up=self._is_up,
            is_stopping=self._is_stopping,
        )
        self._is_recorded = False
        self.folder.write_state(self.state)
        self._is_recorded = True
        return self.state

    def record(self) -> None:
        """Write the state file; where that fails (a full disk), `watch` tries again."""
        with contextlib.suppress(OSError):
            self._write_state()

    def watch(self, report: Callable[[StackEvent], None]) -> bool:
        """Look once after the parts and for requests of other commands; tells what happened.

        True when the stack should go on, False when asked to stop.
        """
        self._requests.look_at_starts(report)
        has_changed = False
        starting = self._requests.starting()
        for broker in list(self.brokers):
            status = None if broker in starting else broker.poll()
            if status is not None:
                self.lost(broker)
                has_changed = True
                report(PartEnded(f"broker-{broker.broker_id}", status, broker.log))
        if self.postgres is not None and (status := self.postgres.poll()) is not None:
            report(PartEnded(requests.POSTGRES, status, self.postgres.log))
            self.postgres = None
            has_changed = True
        for ended in [] if self.control_plane is None else self.control_plane.take_ended():
            report(ended)
            has_changed = True
        if has_changed or not self._is_recorded:
            self.record()
        self._requests.serve_next(report)
        self._restart(report)
        return not self._should_stop()

    def lost(self, broker: BrokerProcess) -> None:
        """A broker has ended by itself."""
        self.brokers.remove(broker)
        self._restarts.ended(broker.broker_id)

    def _restart(self, report: Callable[[StackEvent], None]) -> None:
        """Start the brokers again when none is left (restarts.py)."""
        now_s = time.monotonic()
        serves = any(broker.ready is not None for broker in self.brokers)
        plan = self._restarts.plan(now_s, lives=bool(self.brokers), serves=serves)
        if plan is not None:
            report(Restarting(*plan))
        due = [] if self._should_stop() else self._restarts.due(now_s)
        if not due:
            return
        try:
            if self.postgres is None and self._has_postgres:
                self.restart_postgres()
                report(RequestDone("Postgres runs again."))
            for broker_id in due:
                self._requests.await_start(self.begin_broker(broker_id))
        except (StackError, OSError) as error:
            # The brokers still count as ended: the next pause is longer.
            report(RequestDone(f"They could not be started: {error}"))
        except Stopped:
            return

    def restart_postgres(self) -> None:
        """Start the Postgres that has ended, where it was. Raises StackError, Stopped."""
        if not self._has_postgres:
            raise StackError("This stack has no Postgres of its own.")
        if self.postgres is not None:
            raise StackError("Postgres runs already.")
        # The brokers that run look for it where it was.
        if not is_free(self._postgres_port):
            raise StackError(
                f"Port {self._postgres_port}, where the brokers look for Postgres, is in use by "
                "another program."
            )
        self._start_postgres(self._postgres_port)

    def restart_part(self, part: str) -> None:
        """Start a part of the control plane that has ended. Raises StackError, Stopped."""
        if self.control_plane is None:
            raise StackError("This stack has no control plane.")
        self.control_plane.start_part(part, self._should_stop)

    def start_broker(self, broker_id: int) -> BrokerProcess:
        """Start a broker that has ended again, and wait until it serves. Raises StackError when it
        runs already or does not come up, or the stack is stopping."""
        broker = self.begin_broker(broker_id)
        try:
            while broker.look_ready() is None:
                if self._should_stop():
                    raise StackError("The stack is stopping.")
                wait_for_word([broker])
        finally:
            if broker.ready is None:
                self.brokers.remove(broker)
                broker.stop()
        self.record()
        return broker

    def begin_broker(self, broker_id: int | None) -> BrokerProcess:
        """Start one more broker, or one that has ended again, without waiting for it.

        None takes the next id. Raises StackError when it runs already, or the stack is that of a
        single broker.
        """
        known = {broker.broker_id: broker for broker in self.brokers}
        if broker_id in known:
            does = "is starting" if known[broker_id].ready is None else "runs"
            raise StackError(f"Broker {broker_id} {does} already.")
        present = self.folder.broker_ids()
        if self._store_url is None and broker_id not in present:
            raise StackError("A stack of a single broker cannot grow; start one with --brokers 3.")
        if broker_id is None:
            # A broker that has just been started may have no folder yet.
            broker_id = max([*present, *known], default=0) + 1
        broker = BrokerProcess(self._launch(broker_id, self._port_of(broker_id, present)))
        self.brokers.append(broker)
        self._restarts.forget(broker_id)
        self.record()
        return broker

    def stop_broker(self, broker: BrokerProcess) -> None:
        """Stop one for the person: it stays stopped."""
        self.brokers.remove(broker)
        broker.stop()
        self._restarts.forget(broker.broker_id)

    def _port_of(self, broker_id: int, present: list[int]) -> int:
        """Where clients look for a broker: where it was, else the first port from the base on that
        no other broker of this folder has. 0 for any."""
        if broker_id in self._last_ports:
            return self._last_ports[broker_id]
        if self.options.port == 0:
            return 0
        taken = {self._last_ports.get(other) for other in present}
        taken |= {broker.launch.port for broker in self.brokers}
        return next(port for port in count(self.options.port) if port not in taken)

    def last_words(self) -> list[str]:
        """The last lines of the running brokers' logs."""
        return [line for broker in self.brokers for line in broker.last_words()]

    def stop(self) -> list[int]:
        """Stop everything gracefully and let the folder go. The brokers' exit statuses."""
        self._requests.refuse_all("The stack is stopping.")
        self._is_stopping = True
        if self._owns_state:
            self.record()
        if self.control_plane is not None:
            self.control_plane.stop()
            self.control_plane = None
        statuses = [broker.stop(STOP_TIMEOUT_S) for broker in self.brokers]
        self.brokers.clear()
        if self.postgres is not None:
            self.postgres.stop()
            self.postgres = None
        if self._owns_state:
            self.folder.remove_state()
            self._owns_state = False
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return statuses

    def kill(self) -> None:
        """kill -9 every broker that has not ended yet, and the control plane; `stop` still has to
        follow or return."""
        if self.control_plane is not None:
            self.control_plane.kill()
        for broker in self.brokers:
            broker.kill_now()


def _broker_state(broker: BrokerProcess) -> BrokerState | None:
    """A broker for the state file; None when it has ended before it served."""
    if broker.ready is None:
        process = identify(broker.pid)
        return None if process is None else BrokerState(broker.broker_id, process, 0, 0)
    return BrokerState(
        broker.broker_id,
        broker.ready.process,
        broker.ready.port,
        broker.ready.metrics_port,
        broker.ready.inter_broker_port,
        broker.ready.cell_admin_port,
        broker.ready.listeners,
    )
