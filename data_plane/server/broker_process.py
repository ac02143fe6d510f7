"""One broker from start to stop: event loop, listeners, timer, signals.

Start: take the addresses, enter the cell (entry.py), open everything, listen, say `ready`. Stop
(SIGTERM, SIGINT): leave the cell in good order, accept no more, read no more, answer what is in
flight within shutdown.timeout.ms, stop the components, wait for file work, close the logs with the
clean mark, exit 0. Further signals change nothing. A broker that was superseded stops by itself,
with status 1; one whose disks do not let it close the logs in time ends without the mark, with
status 3.

The end of a pass. Whatever runs on the loop (a read, a timer, finished file work) is a pass; at its
end woken long polls are evaluated, and the timer is set anew when a deadline moved forward.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from data_plane.broker.request.peers import Peers
from data_plane.broker.request.principal import SecurityProtocol, listener_settings
from data_plane.broker.services import Logger, Services
from data_plane.cell.metadata_store import MetadataStore, StoreUnavailable
from data_plane.log.file_system import OsFileSystem
from data_plane.log.lanes import Lane
from data_plane.server import configuration, descriptors
from data_plane.server.addresses import TakenAddresses, take_addresses
from data_plane.server.client_connections import ClientConnections
from data_plane.server.clock import Clock
from data_plane.server.composition import close_services, make_services
from data_plane.server.configuration import BrokerConfig
from data_plane.server.connection import Connection
from data_plane.server.disk_space import measure_space
from data_plane.server.entry import Addresses, Entry, enter_cell, new_incarnation_id
from data_plane.server.features import Feature, supported_features
from data_plane.server.http import HttpListener, HttpResponse
from data_plane.server.http_pages import (
    add_process_metrics,
    health_page,
    metrics_page,
    starting_page,
)
from data_plane.server.interpreter import tune_interpreter
from data_plane.server.listener import Listener
from data_plane.server.logging_setup import THRESHOLD
from data_plane.server.loop_watch import LoopWatch
from data_plane.server.ports import NoPeers, Ports
from data_plane.server.ready_pipe import ReadyPipe
from data_plane.server.shared_store import open_shared_store
from data_plane.server.thread_executor import ThreadExecutor
from data_plane.server.tick_timer import TickTimer
from data_plane.server.time_limit import limited, until
from data_plane.wire.kernel import WHY_INTERPRETED

if TYPE_CHECKING:
    from data_plane.server.cell_member import CellMember
    from data_plane.server.control_plane_access import ControlPlaneAccess

TICK_INTERVAL_MS_MAX = 1000
# File work that holds up requests: syncs, metadata commits, followers' reads; and what takes too
# long for the loop.
WORKER_THREADS = 8
# What consumers read from disk, and search by time.
READER_THREADS = 8
# After the last answer, for file work under way and for closing the logs. A disk that hangs would
# hold a stop up for ever; a killed broker loses nothing either.
CLOSING_S_MAX = 60.0
EXIT_STOP_GIVEN_UP = 3
# How soon a broker that may not begin without the metadata store asks again.
ENTRY_RETRY_S = 0.5
# Where the cell uses TLS, who comes through it has proved to be a broker. Nobody asks which.
INTER_BROKER_SETTINGS = listener_settings(configuration.INTER_BROKER, SecurityProtocol.PLAINTEXT)
# At the stop, for requests that were received before it.
BACKLOG_S_MAX = 1.0


class SupersededError(Exception):
    """Another process has taken this broker's number; this one has stopped."""


class BrokerProcess:
    """Everything that needs a loop. `run` returns when the broker has stopped."""

    def __init__(
        self,
        settings: BrokerConfig,
        ready_fd: int | None,
        log: Logger,
        features: Sequence[Feature] = (),
    ) -> None:
        self._settings = settings
        self._features = features
        self._ready_fd = ready_fd
        self._ready_pipe: ReadyPipe | None = None
        self._log = log
        self._clock = Clock()
        self._watch = LoopWatch(log)
        self._watch.is_serving = False
        self._started_s = time.monotonic()
        self._stop_requested = asyncio.Event()
        self._timer: TickTimer
        self._is_pass_due = False
        self._is_open = False
        self._is_ready = False
        self._member: CellMember | None = None
        self._control_plane: ControlPlaneAccess | None = None

    async def run(self) -> None:
        """Raises what `enter_cell` raises, and SupersededError after having stopped."""
        self._loop = loop = asyncio.get_running_loop()
        watch = self._watch
        self._timer = TickTimer(loop, self._clock, self._tick, watch.note_lateness)
        if self._ready_fd is not None:
            self._ready_pipe = ReadyPipe(self._ready_fd, loop, self._abandoned)
        if WHY_INTERPRETED:
            # Several times slower where every record is looked at.
            self._log.warning("kernel_interpreted", reason=WHY_INTERPRETED)
        settings = self._settings
        self._make_workers()
        budget = descriptors.divide(descriptors.raise_limit())
        ports = self._real_ports(budget.open_segments_max)
        http = HttpListener({"/metrics": self._metrics_page, "/healthz": self._health_page}, watch)
        metrics_port = await http.start(settings.http_host, settings.http_port)
        self._install_signals()
        member = self._member
        taken = await take_addresses(
            settings,
            ports.fs,
            self._clients.accept,
            lambda: Connection(self._listeners[1], INTER_BROKER_SETTINGS),
            None if member is None or member.tls is None else member.tls.server,
        )
        entry = await self._enter(ports, taken.addresses)
        if entry is None:
            if self._ready_pipe is not None:
                self._ready_pipe.close()
            self._close_executors()
            http.close()
            return
        services = make_services(settings, ports, entry)
        self._make_listeners(services, taken, budget.connections_max)
        services.timers.on_earlier = self._timer.wake_at
        add_process_metrics(services.metrics, self._listener, self._file_jobs, self._watch)
        self._admit_control_plane(services, ports)
        self._services = services
        self._is_open = True
        services.start(self._clock.now_ms())
        if member is not None:
            member.join(services)
        self._end_pass_now()
        self._timer.tick()
        watch.begin(tune_interpreter)
        huge_pages_bytes = tune_interpreter()
        watch.end()
        end_watch = watch.watch_garbage_collections()
        self._log.debug("interpreter_tuned", huge_pages_bytes=huge_pages_bytes)
        # Only now: a client that comes earlier would be told of a broker that cannot answer yet.
        for listener in self._listeners:
            await listener.serve()
        watch.is_serving = True
        if member is not None:
            await member.until_active(self._stop_requested)
        access = self._control_plane
        cell_admin_port = None if access is None else await access.serve(self._call_from_thread)
        self._is_ready = True
        self._say_ready(taken, metrics_port, cell_admin_port)
        await self._stop_requested.wait()
        if member is not None:
            await member.leave()
        self._is_ready = False
        if access is not None:
            await access.close()
        await self._stop()
        end_watch()
        http.close()
        if member is not None and member.superseded:
            raise SupersededError(f"broker {settings.node_id} has stopped: {member.superseded}")

    def _make_workers(self) -> None:
        loop, pass_ends = self._loop, self._end_pass_now
        self._executor = ThreadExecutor(loop, WORKER_THREADS, "worker", pass_ends, self._watch)
        self._readers = ThreadExecutor(loop, READER_THREADS, "reader", pass_ends, self._watch)
        self._lanes = {lane: self._make_lane(lane) for lane in Lane}
        self._clients = ClientConnections(
            self._settings, lambda: self._listener, self._executor, self._log
        )

    def _make_lane(self, lane: Lane) -> ThreadExecutor:
        # A disk that hangs holds up no flush of another one.
        threads_max = len(self._settings.data_directories) if lane is Lane.FLUSH else 1
        return ThreadExecutor(self._loop, threads_max, lane.value, self._end_pass_now, self._watch)

    def _real_ports(self, open_segments_max: int) -> Ports:
        fs = OsFileSystem()
        features = supported_features(self._features)
        store = open_shared_store(self._settings, fs, self._log, features)
        member = None if store is None else self._make_member(store)
        self._member = member
        return Ports(
            fs=fs,
            executor=self._executor,
            read_executor=self._readers,
            maintenance_lanes=self._lanes,
            now_ms=self._clock.now_ms,
            ahead_ms=self._clock.ahead_ms,
            booted_ms=self._clock.booted_ms,
            random=random.SystemRandom(),
            log=self._log,
            log_threshold=THRESHOLD,
            make_peers=self._no_peers if member is None else member.make_peers,
            measure_space=measure_space,
            turns=self._watch,
            shared_store=store,
            store_executor=None if member is None else member.store_executor,
            sleep_ms=lambda duration_ms: time.sleep(duration_ms / 1000),
            open_segments_max=open_segments_max,
            plug_ins=[one.plug_in for one in self._features if one.plug_in is not None],
            fold_factories=[make for one in self._features for make in one.fold_factories],
            features=features,
        )

    def _no_peers(self, services: Services) -> Peers:
        return NoPeers(services, self._clock.now_ms)

    def _make_member(self, store: MetadataStore) -> CellMember:
        # A broker that is alone starts faster without it.
        from data_plane.server.cell_member import CellMember

        return CellMember(
            self._loop,
            self._settings,
            store,
            self._clock,
            self._end_pass,
            self._end_pass_now,
            self.request_stop,
            self._watch,
        )

    def _make_listeners(
        self, services: Services, taken: TakenAddresses, connections_max: int
    ) -> None:
        """One for clients and, in a cell, one for the other brokers; they share the dispatcher."""
        self._listener = Listener(
            "tenants",
            services,
            self._clock,
            self._end_pass,
            self._end_pass_soon,
            sockets_max=connections_max,
        )
        self._listeners = [self._listener]
        if taken.other_brokers:
            self._listeners.append(
                Listener(
                    "inter-broker",
                    services,
                    self._clock,
                    self._end_pass,
                    self._end_pass_soon,
                    is_inter_broker=True,
                    dispatcher=self._listener.dispatcher,
                )
            )
        servers_of = (taken.clients, taken.other_brokers)
        for listener, servers in zip(self._listeners, servers_of, strict=False):
            for server in servers:
                listener.adopt(server)

    async def _enter(self, ports: Ports, addresses: Addresses) -> Entry | None:
        """Become a member; None when a signal came first. Waits for the store if it must."""
        settings = self._settings
        if ports.shared_store is None:
            return enter_cell(settings, ports, addresses)
        is_told = False
        incarnation_id = new_incarnation_id(ports)
        while not self._stop_requested.is_set():
            try:
                return await asyncio.to_thread(
                    enter_cell, settings, ports, addresses, incarnation_id
                )
            except StoreUnavailable as error:
                if not is_told:
                    self._log.error("waiting_for_metadata_store", error=str(error))
                    is_told = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_requested.wait(), ENTRY_RETRY_S)
        return None

    def _end_pass(self, now_ms: int) -> None:
        services = self._services
        wakes = services.wakes
        try:
            if wakes.woken:
                self._watch.step("wakes")
                wakes.run(now_ms)
        except Exception as error:
            # A bug in what waits must not hurt the connection whose pass this is.
            self._log.error("wake_failed", error=repr(error), exc_info=True)
        dispatcher = self._listener.dispatcher
        if dispatcher.has_called_handlers:
            dispatcher.has_called_handlers = False
            deadline_ms = services.next_deadline_ms()
            if deadline_ms is not None:
                self._timer.wake_at(deadline_ms)

    def _end_pass_now(self) -> None:
        self._listener.dispatcher.has_called_handlers = True
        self._end_pass(self._clock.now_ms())

    def _end_pass_soon(self) -> None:
        """End a pass after what is running now; used where a pass ends inside another."""
        if not self._is_pass_due:
            self._is_pass_due = True
            self._loop.call_soon(self._run_due_pass)

    def _run_due_pass(self) -> None:
        self._is_pass_due = False
        self._watch.begin(self._end_pass_now)
        try:
            self._end_pass_now()
        finally:
            self._watch.end()

    def _tick(self) -> None:
        self._watch.begin(self._services.tick)
        try:
            self._do_what_is_due()
        finally:
            self._watch.end()

    def _do_what_is_due(self) -> None:
        now_ms = self._clock.now_ms()
        services = self._services
        try:
            services.tick(now_ms)
            for listener in self._listeners:
                self._watch.step(listener.sweep)
                listener.sweep(now_ms)
            self._clients.look_for_new_files(now_ms)
        except Exception as error:
            # A timer's bug must not stop the clock for everybody else.
            self._log.error("tick_failed", error=repr(error), exc_info=True)
        self._watch.step(services.next_deadline_ms)
        deadline_ms = services.next_deadline_ms()
        latest_ms = now_ms + TICK_INTERVAL_MS_MAX
        self._timer.wake_at(latest_ms if deadline_ms is None else min(deadline_ms, latest_ms))

    # Starting and stopping.

    def _install_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        # Signals often come in pairs: Ctrl-C reaches the process group, and then its launcher stops
        # it, too. Stopping takes a bounded time anyway; only kill -9 is quicker.
        if not self._stop_requested.is_set():
            self._log.info("stopping", signal=number.name)
            self._stop_requested.set()

    def _abandoned(self) -> None:
        self._log.warning("starter_gone")
        self._stop_requested.set()

    def request_stop(self) -> None:
        self._stop_requested.set()

    def _admit_control_plane(self, services: Services, ports: Ports) -> None:
        if self._settings.cell_admin is not None:
            from data_plane.server.control_plane_access import ControlPlaneAccess

            access = ControlPlaneAccess(services, ports, self._settings, self._listener)
            self._control_plane = access

    def _call_from_thread(self, call: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._run_call, call)

    def _run_call(self, call: Callable[[], None]) -> None:
        self._watch.begin(call)
        try:
            call()
        finally:
            try:
                self._end_pass_now()
            finally:
                self._watch.end()

    def _say_ready(self, taken: TakenAddresses, metrics_port: int, admin_port: int | None) -> None:
        ports: dict[str, int | dict[str, int]] = {
            "port": taken.port,
            "metrics_port": metrics_port,
            "inter_broker_port": taken.addresses.inter_broker_port,
            "listeners": {each.name: each.port for each in taken.addresses.listeners},
        }
        if admin_port is not None:
            ports["cell_admin_port"] = admin_port
        start_ms = int((time.monotonic() - self._started_s) * 1000)
        self._log.info("ready", **ports, start_ms=start_ms)
        if self._ready_pipe is not None:
            self._ready_pipe.say("ready", ports)

    async def _stop(self) -> None:
        services = self._services
        for listener in self._listeners:
            listener.stop_accepting()
        drain_ms_max = services.config.get_int("shutdown.timeout.ms")
        deadline_s = time.monotonic() + drain_ms_max / 1000
        await self._handle_backlogs(min(deadline_s, time.monotonic() + BACKLOG_S_MAX))
        now_ms = self._clock.now_ms()
        services.stop(now_ms)
        services.wakes.run(now_ms)
        await until(lambda: self._is_drained(), deadline_s)
        for connection in self._connections():
            connection.close("the broker stops", is_expected=True)
        await until(lambda: not self._connections(), deadline_s)
        for connection in self._connections():
            if connection.transport is not None:
                connection.transport.abort()
        self._timer.cancel()
        with limited(CLOSING_S_MAX, self._give_up_closing):
            self._close_executors()
            # What the last file work reported back is still queued on the loop.
            await asyncio.sleep(0)
            if self._control_plane is not None:
                self._control_plane.finish()
            close_services(services, self._clock.now_ms())
        if self._member is not None:
            self._member.close()
        self._log.info("stopped")

    def _give_up_closing(self) -> None:
        """In a thread of its own: the loop is blocked."""
        self._log.error("stop_given_up", reason=f"the disk took longer than {CLOSING_S_MAX:.0f} s")
        os._exit(EXIT_STOP_GIVEN_UP)

    async def _handle_backlogs(self, deadline_s: float) -> None:
        """Have what was received handled, before anything that handles it stops."""
        for connection in self._connections():
            connection.stop_reading()
        # Some wait behind polls that wait.
        self._services.fetches.stop(self._clock.now_ms())
        await until(lambda: not any(one.has_backlog for one in self._connections()), deadline_s)
        for connection in self._connections():
            connection.drop_backlog()

    def _close_executors(self) -> None:
        if self._member is not None:
            self._member.disconnect()
        self._executor.close()
        self._readers.close()
        for lane in self._lanes.values():
            lane.close()

    def _is_drained(self) -> bool:
        connections = self._connections()
        is_idle = self._file_jobs() == 0
        return is_idle and all(one.is_answered for one in connections)

    def _file_jobs(self) -> int:
        """What the threads do for requests, or have next."""
        return self._executor.open_count + self._readers.open_count

    def _connections(self) -> list[Connection]:
        return [connection for listener in self._listeners for connection in listener.connections]

    def _metrics_page(self) -> HttpResponse:
        return metrics_page(self._services.metrics) if self._is_open else starting_page()

    def _health_page(self) -> HttpResponse:
        return health_page(
            is_ready=self._is_ready,
            directories=self._services.logs.directories if self._is_open else (),
            why_no_deletion=self._services.deletion_permit.why_not_by_date if self._is_open else "",
        )


def run_broker(
    settings: BrokerConfig, ready_fd: int | None, log: Logger, features: Sequence[Feature] = ()
) -> None:
    """Run a broker until a signal stops it."""
    import uvloop

    async def main() -> None:
        await BrokerProcess(settings, ready_fd, log, features).run()

    uvloop.run(main())
