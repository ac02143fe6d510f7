"""THE FAULT MODEL: what goes wrong in the simulated cell, in plain words.

Processes
- kill: a broker's process ends between any two passes; the page cache of its machine survives.
- stop: a broker is asked to stop (SIGTERM), does so in its own time, and starts again.
- pause: SIGSTOP for up to several session timeouts; afterwards everything that piled up runs with
  clocks that have jumped.
Machines and disks
- power loss, between passes or in the middle of one, before any chosen write, rename or sync: of
  what was not synced every sector and every name keeps its own choice of versions (see
  data_plane/log/sim_file_system.py); a write may be torn.
- wiped: a broker comes back with an empty disk.
- full: writes fail for want of room until there is room again and the broker is started anew.
- bit rot: a byte of a sealed segment changes (bit_rot.py says where and when); scrubbers go round.
- failing: one write, sync or open fails with EIO; the log directory goes offline.
Network
- delay and overtaking between connections, always; for a while all of it up to fifty times slower.
- broken connections: what is under way is lost, both ends learn of it at their own time; whether a
  request was acted on is unknown, and clients ask again: duplicates.
- cuts, one-way and two-way: one broker from all others, from the brokers but not from clients (a
  leader that nobody follows goes on taking records), from the store, from clients, two halves of
  the cell. What is under way arrives after the healing, however late.
Metadata store
- outage; lost replies (the commit has happened, the caller is told otherwise); late calls (the
  caller has given up, and then it happens); lost notifications; a clock that jumps.
- went back: an older backup stands in its place, from before the last recovery perhaps, or a store
  of another identity. Brokers refuse it and serve on. After a while the right one is put back, or
  an operator makes it anew from the brokers' image files.
Clocks
- each broker's clock has an offset of seconds and runs up to 10 % fast or slow; it is set back and
  forth.
Besides, in some cells (extras.py): disks that are slow, or worn; descriptors that run out; loops
that are held; clocks that are hours and weeks off; settings that change while brokers begin with
old images.

What does NOT go wrong: a disk that lies about a sync; messages that are altered or made up (that is
TLS's matter). A broker that has seen nothing newer than a backup finds the store down while that
stands there: it could not know and would carry it on (docs/cell.md), which is for operators to
prevent. And nobody recovers a store from files that lack a commit; what that costs is known, too.

Which faults a seed has is drawn per seed, so that some runs are all crashes and some all cuts; how
often is drawn as well. `Faults.stop` ends them all and heals everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from tests.simulation.store import HOST
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

INTERVAL_MS_CHOICES = (120, 250, 600)
DOWN_MS_MAX = 2500
PAUSE_MS_MAX = 2500
CUT_KINDS = (
    "peers",
    "peers and store",
    "peers and store",
    "all",
    "out",
    "in",
    "pair",
    "half",
    "clients",
)
CUT_MS_MAX = 2500
OUTAGE_MS_MAX = 2500
# How many commits old a backup is, at most.
BACKUP_COMMITS_MAX = 40
ANOTHER_STORE_CHANCE = 0.25
RECOVERY_CHANCE = 0.6
SKEW_MS_MAX = 4000
REVIVE_US = 50_000
# Of all seeds, so many also lose disks when that may cost committed records.
RECKLESS_CHANCE = 0.15


class Faults:
    """Draws faults and undoes them."""

    def __init__(self, cell: Cell, only: frozenset[str] | None = None) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("faults")
        self._is_on = False
        self._is_reckless = self._random.random() < RECKLESS_CHANCE
        self._interval_ms = self._random.choice(INTERVAL_MS_CHOICES)
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill": (8, self._kill),
            "stop": (5, self._stop),
            "power loss": (6, self._power_loss),
            "torn write": (4, self._torn_write),
            "pause": (6, self._pause),
            "cut": (10, self._cut),
            "relay": (5, self._relay),
            "store cut": (5, self._cut_store),
            "store outage": (5, self._store_outage),
            "flaky store": (5, self._flaky_store),
            "store went back": (3, self._store_went_back),
            "slow network": (3, self._slow_network),
            "broken connection": (8, self._break),
            "clock": (4, self._set_clock),
            "wipe": (2, self._wipe),
            "failing disk": (2, self._fail_disk),
            "full disk": (2, self._fill_disk),
        }
        if only is not None:
            kinds = {name: kind for name, kind in kinds.items() if name in only}
        enabled = {name: one for name, one in kinds.items() if self._random.random() < 0.6}
        self._kinds = enabled if only is None else kinds
        self._flaky_until_us = 0

    @property
    def is_on(self) -> bool:
        """Whether anything may go wrong at all."""
        return self._is_on

    def start(self) -> None:
        self._is_on = True
        for node in self._cell.nodes.values():
            skew_ms = self._random.randint(-SKEW_MS_MAX, SKEW_MS_MAX)
            node.set_clock(skew_ms, 1 + self._random.uniform(-0.05, 0.05))
        self._next()

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / self._interval_ms) + 20
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._is_on:
            return
        kinds = self._kinds
        if kinds:
            weights = [weight for weight, _ in kinds.values()]
            name = self._random.choices(list(kinds), weights)[0]
            kinds[name][1]()
        self._next()

    def stop(self) -> None:
        """No more faults; all that were are undone."""
        self._is_on = False
        cell = self._cell
        cell.network.heal()
        cell.network.delay_factor = 1.0
        store = cell.store
        store.is_down = False
        store.clock_offset_ms = max(-SKEW_MS_MAX, min(store.clock_offset_ms, SKEW_MS_MAX))
        store.put_back()
        store.reply_loss_chance = store.late_chance = 0.0
        for node in cell.nodes.values():
            node.fs.faults.clear()
            node.fs.capacity_bytes = None
            node.fs.power_loss_at = None
            node.set_clock(max(-SKEW_MS_MAX, min(node.skew_ms, SKEW_MS_MAX)), 1.0)
            if node.is_paused:
                node.resume()
            if node.is_on and cell.has_failed_disk(node):
                node.die(keeps_page_cache=True)
            self._revive(node)

    def _revive(self, node: Node) -> None:
        """Start it, once it has stopped."""
        if node.is_stopping:
            self._world.at(REVIVE_US, self._revive, node)
        elif not node.is_on:
            node.start()

    # Helpers

    def _some(self, condition: Callable[[Node], bool]) -> Node | None:
        nodes = [node for node in self._cell.nodes.values() if condition(node)]
        return self._random.choice(nodes) if nodes else None

    def _later(self, most_ms: int, action: Callable[..., None], *args: object) -> None:
        delay_ms = self._random.randint(20, most_ms)
        self._world.at(delay_ms * US_PER_MS, self._undo, action, args)

    def _undo(self, action: Callable[..., None], args: tuple[object, ...]) -> None:
        if self._is_on:
            action(*args)

    def _restart(self, node: Node) -> None:
        if not node.is_on:
            node.fs.capacity_bytes = None
            node.start()

    def _may_lose_disk(self) -> bool:
        """Whether a disk may be lost without costing anything that was committed; or anyway, but
        never what another disk holds damaged: no copy would be left to repair that one from."""
        if self._is_reckless:
            return not self._cell.has_bit_rot()
        return self._cell.is_fully_replicated()

    # Processes

    def _kill(self) -> None:
        node = self._some(lambda one: one.is_on and not one.is_paused)
        if node is not None:
            self._world.count("kills")
            node.die(keeps_page_cache=True)
            self._later(DOWN_MS_MAX, self._restart, node)

    def _stop(self) -> None:
        node = self._some(lambda one: one.is_up and not one.is_paused and not one.is_stopping)
        if node is not None:
            self._world.count("stops")
            node.request_stop()
            self._later(DOWN_MS_MAX, self._restart_stopped, node)

    def _restart_stopped(self, node: Node) -> None:
        if node.is_on and node.is_stopping:
            # It takes long; a supervisor loses patience at last.
            self._later(DOWN_MS_MAX, self._restart_stopped, node)
        else:
            self._restart(node)

    def _pause(self) -> None:
        node = self._some(lambda one: one.is_on and not one.is_paused)
        if node is not None:
            self._world.count("pauses")
            node.pause()
            life = node.life
            self._later(PAUSE_MS_MAX, self._resume, node, life)

    def _resume(self, node: Node, life: int) -> None:
        if node.is_paused and node.life == life:
            node.resume()

    # Machines and disks

    def _power_loss(self) -> None:
        node = self._some(lambda one: one.is_on)
        if node is not None and self._may_lose_disk():
            self._world.count("power losses")
            node.die(keeps_page_cache=False)
            self._later(DOWN_MS_MAX, self._restart, node)

    def _torn_write(self) -> None:
        node = self._some(lambda one: one.is_on and one.fs.power_loss_at is None)
        if node is not None and self._may_lose_disk():
            node.fs.power_loss_at = node.fs.operations + self._random.randint(1, 60)

    def machine_stopped(self, node: Node) -> None:
        """The power went in the middle of a pass."""
        self._world.count("power losses within a pass")
        node.die(keeps_page_cache=self._random.random() < 0.3)
        self._later(DOWN_MS_MAX, self._restart, node)

    def _wipe(self) -> None:
        node = self._some(lambda one: one.is_on)
        if node is not None and self._may_lose_disk():
            self._world.count("wiped disks")
            node.die(keeps_page_cache=True)
            node.wipe()
            self._later(DOWN_MS_MAX, self._restart, node)

    def _fail_disk(self) -> None:
        node = self._some(lambda one: one.is_up)
        if node is not None:
            self._world.count("failing disks")
            node.fail_disk(self._random.choice(("write", "sync", "open")))
            self._later(DOWN_MS_MAX, self._replace, node, node.life)

    def _fill_disk(self) -> None:
        node = self._some(lambda one: one.is_up)
        if node is not None:
            self._world.count("full disks")
            node.fs.capacity_bytes = node.fs.used_bytes() + self._random.randint(0, 20_000)
            self._later(DOWN_MS_MAX, self._replace, node, node.life)

    def _replace(self, node: Node, life: int) -> None:
        """Room, or a sound disk: the operator starts the broker anew if that needs it."""
        node.fs.capacity_bytes = None
        node.fs.faults.clear()
        if node.life == life and node.is_on and self._cell.has_failed_disk(node):
            node.die(keeps_page_cache=True)
            self._restart(node)

    # Network

    def _cut(self) -> None:
        cell, rng = self._cell, self._random
        names = list(cell.hosts())
        node = rng.choice(cell.node_ids)
        name = f"b{node}"
        kind = rng.choice(CUT_KINDS)
        self._world.count("cuts")
        self._world.note("network", f"cut {kind} {name}")
        others = [other for other in names if other != name]
        if kind == "pair":
            others = [rng.choice([other for other in others if other.startswith("b")] or others)]
        elif kind.startswith("peers"):
            # Clients go on talking to a leader that nobody follows.
            with_store = kind == "peers and store"
            others = [one for one in others if one.startswith("b") or (with_store and one == HOST)]
        elif kind == "clients":
            others = [other for other in others if not other.startswith("b") and other != HOST]
        elif kind == "half":
            others = [other for other in others if rng.random() < 0.5]
        for other in others:
            if kind != "in":
                cell.network.cut(name, other)
            if kind != "out":
                cell.network.cut(other, name)
        self._later(CUT_MS_MAX, self._heal)

    def _relay(self) -> None:
        """A leader dies while one follower lags, and its successor is cut off at once from all but
        clients: three leaders within a second or two, each with records that the others lack."""
        image = self._cell.store.image
        led = [
            (topic.topic_id, index, state)
            for topic in image.topics_by_id.values()
            for index, state in enumerate(topic.partitions)
            if len(state.isr) > 2 and state.leader >= 0
        ]
        if not led:
            return
        topic_id, index, state = self._random.choice(led)
        laggard = self._random.choice([one for one in state.isr if one != state.leader])
        self._world.count("relays")
        self._isolate(f"b{state.leader}", [f"b{laggard}"])
        delay_ms = self._random.randint(50, 400)
        self._world.at(
            delay_ms * US_PER_MS, self._undo, self._end_lead, (topic_id, index, state.leader)
        )

    def _isolate(self, name: str, others: list[str]) -> None:
        self._world.note("network", f"cut {name} from {others}")
        for other in others:
            self._cell.network.cut(name, other)
            self._cell.network.cut(other, name)

    def _end_lead(self, topic_id: UUID, index: int, leader: int) -> None:
        node = self._cell.nodes[leader]
        if node.is_on and not node.is_paused:
            self._world.count("kills")
            node.die(keeps_page_cache=True)
            self._later(2 * DOWN_MS_MAX, self._restart, node)
            self._await_successor(topic_id, index, leader, 100)

    def _await_successor(self, topic_id: UUID, index: int, leader: int, looks: int) -> None:
        topic = self._cell.store.image.topics_by_id.get(topic_id)
        state = None if topic is None else topic.partitions[index]
        if state is None or not looks:
            self._heal()
        elif state.leader in (-1, leader):
            arguments = (topic_id, index, leader, looks - 1)
            self._world.at(20 * US_PER_MS, self._undo, self._await_successor, arguments)
        else:
            self._heal()
            name = f"b{state.leader}"
            others = [node.name for node in self._cell.nodes.values() if node.name != name]
            self._isolate(name, [*others, HOST])
            self._later(CUT_MS_MAX, self._heal)

    def _cut_store(self) -> None:
        name = f"b{self._random.choice(self._cell.node_ids)}"
        self._world.count("cuts from the store")
        kind = self._random.choice(("both", "both", "there", "back"))
        self._world.note("network", f"cut {kind} {name} and the store")
        if kind != "back":
            self._cell.network.cut(name, HOST)
        if kind != "there":
            self._cell.network.cut(HOST, name)
        self._later(CUT_MS_MAX, self._heal)

    def _heal(self) -> None:
        if self._cell.network.has_cuts:
            self._world.note("network", "heals")
            self._cell.network.heal()

    def _slow_network(self) -> None:
        self._cell.network.delay_factor = self._random.choice((5.0, 20.0, 50.0))
        self._later(1000, self._normal_network)

    def _normal_network(self) -> None:
        self._cell.network.delay_factor = 1.0

    def _break(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._cell.network.break_one(self._random.random())

    # Store and clocks

    def _store_outage(self) -> None:
        store = self._cell.store
        if not store.is_down:
            self._world.count("store outages")
            self._world.note("store", "is down")
            store.is_down = True
            self._later(OUTAGE_MS_MAX, self._store_back)

    def _store_back(self) -> None:
        self._world.note("store", "is back")
        self._cell.store.is_down = False

    def _store_went_back(self) -> None:
        store, rng = self._cell.store, self._random
        if store.stand_in is not None:
            return
        self._world.count("stores that went back")
        if rng.random() < ANOTHER_STORE_CHANCE:
            self._world.note("store", "is another one")
            store.put_another()
        else:
            version = store.backup_version(rng.randint(1, BACKUP_COMMITS_MAX))
            self._world.note("store", f"is the backup of version {version}")
            store.restore(version)
        self._later(OUTAGE_MS_MAX, self._repair_store, rng.random() < RECOVERY_CHANCE)

    def _repair_store(self, is_lost: bool) -> None:
        """The right store again, or where that is lost one that is made from image files."""
        store = self._cell.store
        if store.stand_in is None:
            return
        if is_lost and store.recover():
            self._world.count("stores recovered")
            self._world.note("store", f"is recovered: {store.row}")
        else:
            self._world.note("store", "is the right one again")
            store.put_back()

    def _flaky_store(self) -> None:
        store = self._cell.store
        store.reply_loss_chance = self._random.choice((0.1, 0.3, 0.6))
        store.late_chance = self._random.choice((0.0, 0.1, 0.3))
        self._later(OUTAGE_MS_MAX, self._steady_store)

    def _steady_store(self) -> None:
        self._cell.store.reply_loss_chance = self._cell.store.late_chance = 0.0

    def _set_clock(self) -> None:
        rng = self._random
        self._world.count("clocks set")
        if rng.random() < 0.2:
            self._cell.store.clock_offset_ms = rng.randint(-SKEW_MS_MAX, SKEW_MS_MAX)
            return
        node = self._cell.nodes[rng.choice(self._cell.node_ids)]
        node.set_clock(rng.randint(-SKEW_MS_MAX, SKEW_MS_MAX), 1 + rng.uniform(-0.1, 0.1))
