"""One simulated broker: real broker code over a simulated machine.

    Node   disk, clock with skew, executor, listeners, timer      this module
     └─ Services, Dispatcher, Log, …                               the real ones, by composition

Lives: off → starting → up → (paused ↔ up) → off. Everything that is scheduled belongs to one life
and dies with it; while the process is paused it piles up and runs at once on resumption, as after
SIGCONT. Every call into broker code is a pass: at its end woken requests run, answers leave, the
timer is set, and the invariants look at what has changed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from data_plane.broker.admin.log_threshold import LogThreshold
from data_plane.broker.cell.controlled_shutdown import ControlledShutdown
from data_plane.broker.cell.image_steps import CHANGES_PER_STEP_MAX
from data_plane.broker.coordinators.groups import service_of
from data_plane.broker.loop_bounds import LoopBounds
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.broker.services import Services
from data_plane.log.fold import FoldFactory
from data_plane.log.lanes import Lane
from data_plane.log.open_files import OPEN_SEGMENTS_MAX
from data_plane.log.sim_file_system import Fault, PowerLoss, SimFileSystem
from data_plane.server.clock import Clock
from data_plane.server.composition import close_services, make_services
from data_plane.server.configuration import BrokerConfig, load_configuration
from data_plane.server.entry import Entry
from data_plane.server.features import Feature, supported_features, topic_properties
from data_plane.server.ports import PlugIn, Ports
from features.delayed.fold import make_fold
from tests.simulation import brief_tables, projected_reader, worn_disks
from tests.simulation.chain_fold import ChainFold
from tests.simulation.client import CLIENT_PORT
from tests.simulation.delays import make_small_fold
from tests.simulation.entrance import Entrance
from tests.simulation.executor import SimExecutor
from tests.simulation.large_states import FLUSH_MS_MEAN, draw_bounds, look
from tests.simulation.network import End
from tests.simulation.node_log import NodeLog
from tests.simulation.peers import SimPeers
from tests.simulation.pin_fold import PinFold
from tests.simulation.retries import SMALL_FOLDS
from tests.simulation.serving import ServerConnection
from tests.simulation.slow_disks import watch_offsets_topic
from tests.simulation.store import StoreClient
from tests.simulation.world import EPOCH_MS, US_PER_MS, Event

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

START_US_MIN = 20_000
START_US_MAX = 150_000
TICK_MS_MAX = 1000


# Where images are followed in small steps: partitions in each.
IMAGE_CHANGES_PER_STEP = (1, 1, 2, 3, CHANGES_PER_STEP_MAX)


class Node:
    """See the module."""

    def __init__(self, cell: Cell, node_id: int, properties: dict[str, str], rack: str) -> None:
        self.cell = cell
        self.world = cell.world
        self.node_id = node_id
        self.name = f"b{node_id}"
        self.random = cell.world.stream(self.name)
        self.fs = new_disk()
        self.settings = _settings(node_id, properties, rack, cell.features)
        self.services: Services | None = None
        self.life = 0
        self.is_on = False
        self.is_paused = False
        self.is_stopping = False
        # Until when something keeps the loop busy (stalls.py); the threads go on.
        self.is_stalled = False
        # Set by what blocks within a work: how much later its outcome comes back.
        self.stall_us = 0
        self._entrance: Entrance | None = None
        # What the wall clock shows: true time times rate plus offset.
        self.skew_ms = 0
        self.clock_rate = 1.0
        # When somebody last set it.
        self.clock_set_us = 0
        self._elapsed_until_set_ns = 0
        # The latest date that a pass of this broker has had.
        self.date_ms_max = 0
        self.clock = Clock(self._wall_ns, self._elapsed_ns)
        self._has_large_states = "large states" in cell.extras
        self.log = NodeLog(self)
        self.unsent: dict[ServerConnection, None] = {}
        self.closing: dict[ServerConnection, None] = {}
        self.connections: dict[ServerConnection, None] = {}
        self._dispatcher: Dispatcher | None = None
        self._connections_made = 0
        self._suspended: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._timer: Event | None = None
        self._timer_ms = 0
        self._make_executors()
        cell.network.listen(self.name, self)

    def _wall_ns(self) -> int:
        return int(EPOCH_MS * 1e6 + self.world.now_us * 1000 * self.clock_rate) + (
            self.skew_ms * 1_000_000
        )

    def _elapsed_ns(self) -> int:
        """What the machine takes for the time that has passed; nobody sets that."""
        passed_us = self.world.now_us - self.clock_set_us
        return self._elapsed_until_set_ns + int(passed_us * 1000 * self.clock_rate)

    def set_clock(self, skew_ms: int, rate: float) -> None:
        """It jumps, and runs differently from now on."""
        self._elapsed_until_set_ns = self._elapsed_ns()
        self.skew_ms = skew_ms
        self.clock_rate = rate
        self.clock_set_us = self.world.now_us

    @property
    def date_ms(self) -> int:
        """What date this broker takes it to be."""
        now_ms = self.clock.now_ms()
        return now_ms if self.services is None else self.services.wall_clock.wall_ms(now_ms)

    def note(self, text: str) -> None:
        self.world.note(self.name, text)

    def stall(self, us: int) -> None:
        """The work that runs now blocks for so long."""
        if self._entrance is None or not self._entrance.block(us):
            self.stall_us += us

    @property
    def is_up(self) -> bool:
        """Whether it serves (it may be paused)."""
        return self.is_on and self.services is not None

    def _make_executors(self) -> None:
        self.executor = SimExecutor(self, is_of_disk=True)
        is_long = "brief tables" in self.cell.extras
        self.maintenance_lanes = {lane: SimExecutor(self, is_serial=True) for lane in Lane}
        if is_long:
            self.maintenance_lanes[Lane.CLEANER] = SimExecutor(
                self, is_serial=True, work_ms_mean=brief_tables.CLEANING_MS_MEAN
            )
        if self._has_large_states:
            self.maintenance_lanes[Lane.FLUSH] = SimExecutor(
                self, is_serial=True, work_ms_mean=FLUSH_MS_MEAN
            )
        self.store_executor = SimExecutor(self, is_serial=True)

    # Running

    def at(self, delay_us: int, action: Callable[..., None], *args: Any) -> Event:
        """Run `action` in this life of the process."""
        return self.world.at(delay_us, self._event, self.life, action, args)

    def _event(self, life: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life == self.life:
            self.world.saw(action.__name__.encode())
            self.run(action, *args)

    def at_thread(self, delay_us: int, action: Callable[..., None], *args: Any) -> Event:
        """Run `action` in this life of the process, on a thread beside the loop."""
        return self.world.at(delay_us, self._thread_event, self.life, action, args)

    def _thread_event(self, life: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life == self.life:
            self.world.saw(action.__name__.encode())
            self._pass(action, args, is_held=self.is_paused)

    def run(self, action: Callable[..., None], *args: Any) -> None:
        """One pass."""
        self._pass(action, args, is_held=self.is_paused or self.is_stalled)

    def _pass(self, action: Callable[..., None], args: tuple[Any, ...], *, is_held: bool) -> None:
        if not self.is_on:
            return
        if is_held:
            self._suspended.append((action, args))
            return
        # What its file system stamps files with.
        self.fs.now_ms = self._wall_ns() // 1_000_000
        try:
            action(*args)
            self._end_pass()
        except PowerLoss:
            pass
        if self.fs.power_loss_at is not None and self.fs.operations >= self.fs.power_loss_at:
            self.cell.disk_stopped(self)

    def _end_pass(self) -> None:
        services = self.services
        if services is None:
            return
        services.wakes.run(self.clock.now_ms())
        self.date_ms_max = max(self.date_ms_max, self.date_ms)
        if self.fs.power_loss_at is not None and self.fs.operations >= self.fs.power_loss_at:
            return
        self.cell.history.pass_ended(self)
        self.cell.jobs.look(self)
        self.cell.promises.look_at_groups(service_of(services).coordinator)
        if self._has_large_states:
            look(self)
        unsent, self.unsent = self.unsent, {}
        for connection in unsent:
            connection.flush()
        closing, self.closing = self.closing, {}
        for connection in closing:
            connection.finish_closing()
            self.connections.pop(connection, None)
        self._set_timer(services)

    def _set_timer(self, services: Services) -> None:
        now_ms = self.clock.now_ms()
        deadline_ms = services.next_deadline_ms()
        latest_ms = now_ms + TICK_MS_MAX
        if deadline_ms is None or deadline_ms > latest_ms:
            deadline_ms = latest_ms
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self.at(max(1, deadline_ms - now_ms) * US_PER_MS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        services = self.services
        if services is not None:
            services.tick(self.clock.now_ms())

    def accept(self, end: End, port: int) -> bool:
        """A connection from outside."""
        if not self.is_up or self._dispatcher is None or self.is_stopping:
            return False
        self._connections_made += 1
        connection = ServerConnection(self, self._dispatcher, end, self._connections_made, port)
        self.connections[connection] = None
        return True

    # Lives

    def start(self) -> None:
        """Begin a new life."""
        assert not self.is_on
        self.is_on = True
        self.life += 1
        self.cell.clock_errors.node_starts(self.node_id)
        self.clock = Clock(self._wall_ns, self._elapsed_ns)
        self._make_executors()
        self.cell.network.host_back(self.name)
        self.note("starts")
        delay_us = self.random.randint(START_US_MIN, START_US_MAX)
        self._entrance = Entrance(self, self._ports, self._entered)
        self.at(delay_us, self._entrance.begin)

    def _ports(self, random: Random) -> Ports:
        return Ports(
            clock_ns=lambda: 0,
            thread_clock_ns=lambda: 0,
            fs=self.fs,
            executor=self.executor,
            maintenance_lanes=self.maintenance_lanes,
            store_executor=self.store_executor,
            now_ms=self.clock.now_ms,
            ahead_ms=self.clock.ahead_ms,
            booted_ms=self.clock.booted_ms,
            random=random,
            log=self.log,
            log_threshold=LogThreshold(),
            make_peers=lambda services: SimPeers(self, services),
            measure_space=lambda path: (1 << 40, 1 << 40),
            shared_store=StoreClient(self),
            sleep_ms=lambda ms: self.stall(ms * US_PER_MS),
            open_segments_max=self._open_segments_max(),
            loop_bounds=self._loop_bounds(),
            fold_factories=self._fold_factories(),
            plug_ins=self._plug_ins(),
            features=supported_features(self.cell.features),
        )

    def _fold_factories(self) -> list[FoldFactory]:
        made = [make for one in self.cell.features for make in one.fold_factories]
        if "delays" in self.cell.extras:
            made = [make_small_fold if make is make_fold else make for make in made]
        if "retries" in self.cell.extras:
            made = [SMALL_FOLDS.get(make, make) for make in made]
        return [ChainFold, *([PinFold] if "pins" in self.cell.extras else []), *made]

    def _plug_ins(self) -> list[PlugIn]:
        made = [one.plug_in for one in self.cell.features if one.plug_in is not None]
        return [*([projected_reader.plug_in] if "projections" in self.cell.extras else []), *made]

    def _loop_bounds(self) -> LoopBounds:
        extras = self.cell.extras
        bounds = LoopBounds()
        if "large states" in extras:
            bounds = draw_bounds(self.world.stream(f"large states {self.name} {self.life}"))
        if "image steps" in extras:
            stream = self.world.stream(f"image steps {self.name} {self.life}")
            bounds = replace(bounds, image_changes_max=stream.choice(IMAGE_CHANGES_PER_STEP))
        return bounds

    def _open_segments_max(self) -> int:
        is_worn = "worn disks" in self.cell.extras
        return worn_disks.OPEN_SEGMENTS_MAX if is_worn else OPEN_SEGMENTS_MAX

    def _entered(self, ports: Ports, entry: Entry) -> None:
        if self.node_id % 2 == 0:
            # What is too small for a thread elsewhere is done by threads here.
            for directory in entry.logs.directories:
                directory.entries_written_at_once_max = 0
                directory.bytes_loaded_at_once_max = 0
                directory.entries_loaded_at_once_max = 0
        services = make_services(self.settings, ports, entry)
        self.services = services
        self._dispatcher = Dispatcher(services)
        services.timers.on_earlier = None
        watch_offsets_topic(self, services)
        self.cell.history.node_opened(self)
        services.start(self.clock.now_ms())
        self.note("is up")

    def die(self, *, keeps_page_cache: bool) -> None:
        """kill -9, or the machine loses power."""
        self.note("is killed" if keeps_page_cache else "loses power")
        self._end_life(says_so=keeps_page_cache)
        if keeps_page_cache:
            self.fs.process_death()
        else:
            self.fs.power_loss(self.random)

    def _end_life(self, *, says_so: bool) -> None:
        self.cell.history.node_stops(self, is_power_lost=not says_so)
        if self._entrance is not None:
            self._entrance.end()
        self.life += 1
        self.is_on = False
        self.is_paused = False
        self.is_stalled = False
        self.is_stopping = False
        self.services = None
        self._dispatcher = None
        self._suspended.clear()
        self._timer = None
        self.unsent.clear()
        self.closing.clear()
        self.connections.clear()
        self.cell.network.host_gone(self.name, says_so=says_so)

    def pause(self) -> None:
        """SIGSTOP."""
        self.note("is paused")
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self.note("goes on")
        self.is_paused = False
        self._catch_up()

    def hold_loop(self) -> None:
        """Something on the loop takes long."""
        self.note("does something that takes long")
        self.is_stalled = True

    def free_loop(self) -> None:
        """It is done."""
        self.note("is done with what took long")
        self.is_stalled = False
        if not self.is_paused:
            self._catch_up()

    def _catch_up(self) -> None:
        suspended, self._suspended = self._suspended, []
        life = self.life
        for action, args in suspended:
            if life == self.life:
                self.run(action, *args)

    def request_stop(self) -> None:
        """SIGTERM."""
        self.note("is asked to stop")
        self.is_stopping = True
        self.at(0, self._leave)

    def _leave(self) -> None:
        services = self.services
        if services is None:
            self.die(keeps_page_cache=True)
            return
        member = services.membership
        assert member is not None
        shutdown = ControlledShutdown(services, member, self._left)
        shutdown.begin(self.clock.now_ms())

    def _left(self, failure: str | None) -> None:
        self.note("leaves" if failure is None else f"leaves: {failure}")
        self.world.count("controlled shutdowns" if failure is None else "hasty shutdowns")
        # Long polls are answered while the listeners are still open.
        self.at(1000, self._stop)

    def _stop(self) -> None:
        services = self.services
        assert services is not None
        services.stop(self.clock.now_ms())
        self.at(20_000, self._close_when_idle)

    def _close_when_idle(self) -> None:
        services = self.services
        assert services is not None
        if any(executor.open_count for executor in self._executors()):
            self.at(20_000, self._close_when_idle)
            return
        close_services(services, self.clock.now_ms())
        self.note("has stopped")
        self.world.count("clean stops")
        self._end_life(says_so=True)
        self.fs.process_death()

    def _executors(self) -> tuple[SimExecutor, ...]:
        return (self.executor, *self.maintenance_lanes.values(), self.store_executor)

    @property
    def maintenance_count(self) -> int:
        """How many jobs of maintenance a thread has, or waits to have."""
        return sum(lane.open_count for lane in self.maintenance_lanes.values())

    def let_go(self) -> None:
        """The run is over."""
        if self._entrance is not None:
            self._entrance.end()

    def wipe(self) -> None:
        """A new, empty disk."""
        self.cell.history.disk_wiped(self)
        self.fs = new_disk()

    def fail_disk(self, operation: str) -> None:
        """The next such operation on a log fails with EIO."""
        self.fs.faults.append(Fault(operation, "Partition-", errno.EIO))


def new_disk() -> SimFileSystem:
    """An empty disk with a mount point."""
    return SimFileSystem()


def _settings(
    node_id: int, properties: dict[str, str], rack: str, features: Sequence[Feature]
) -> BrokerConfig:
    name = f"b{node_id}"
    flags = {
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{name}:{CLIENT_PORT}",
        "log.dirs": f"/data-{name}",
        "broker.rack": rack,
        **properties,
    }
    settings = load_configuration(
        flags=[f"{key}={value}" for key, value in flags.items()],
        topics=topic_properties(features),
    )
    assert settings.data_directories == (Path(f"/data-{name}"),)
    return settings
