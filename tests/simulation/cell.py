"""A simulated cell: brokers, store, network and clients, put together from a seed.

    cell = Cell(seed)
    cell.run(5000)          so many events, with faults, checked after each
    cell.settle()           faults end; everything must be served again within bounded time

A seed also decides the shape of its cell: how many brokers, which topics with which settings, how
much load. `Options` pins some of it for scenarios that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from data_plane.cell.features import newest_levels
from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
from data_plane.server.features import Feature, supported_features
from features.catalogue import FEATURES
from tests.simulation import (
    audit,
    brief_tables,
    clock_errors,
    delays,
    large_states,
    leaps,
    slow_disks,
)
from tests.simulation.admin import OFFSETS_TOPIC, TopicPlan
from tests.simulation.bit_rot import BitRot
from tests.simulation.clock_errors import ClockErrors
from tests.simulation.commits import CommitWatch
from tests.simulation.drainer import BROKERS_MIN
from tests.simulation.extras import draw_extras
from tests.simulation.faults import Faults
from tests.simulation.groups_audit import check_groups
from tests.simulation.history import History
from tests.simulation.keyed import is_keyed
from tests.simulation.leaps import Leaps
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.promises import Promises
from tests.simulation.quotas import Rates
from tests.simulation.settings import OldStarts
from tests.simulation.slow_disks import SlowDisks
from tests.simulation.stalls import Stalls
from tests.simulation.store import CLUSTER_ID, HOST, CellStore
from tests.simulation.tagged import SentBatches
from tests.simulation.throttler import is_peaceful
from tests.simulation.undeletes import UndeleteWatch
from tests.simulation.workload import Workload
from tests.simulation.world import World
from tests.simulation.worn_disks import JobWatch, WornDisks

RACKS = ("east", "west", "north")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
HEAVY_CHECK_STEPS = 1500
# Extras with messages that wait for their time.
WITH_DELAYS = ("delays", "retries")
# How long a healthy cell may take until all is as it should be, and how often that is looked at.
SETTLE_US = 30_000_000
SETTLE_LOOK_US = 250_000

# Short times, so that seconds of the cell hold many faults. Their order is that of the defaults.
PROPERTIES = {
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "600",
    "replica.lag.time.max.ms": "500",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "offsets.topic.num.partitions": "2",
    "offsets.commit.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "log.roll.ms": "2500",
    "log.flush.offset.checkpoint.interval.ms": "1500",
    "log.retention.check.interval.ms": "1000",
    # Of clocks that are seconds off: a broker that knows no date, or lost its disk, waits as long.
    "clock.settle.ms": "2000",
    "log.cleaner.backoff.ms": "150",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
}


# Of the cells with more than three brokers, so many get the last one later.
GROWTH_CHANCE = 0.4
GROWTH_US = 2_500_000


def draw_properties(rng: Random) -> dict[str, str]:
    """What the cell's administrators have set differently."""
    return {
        "replica.rebuild.delay.ms": rng.choice(("1500", "600000")),
        "leader.imbalance.check.interval.seconds": rng.choice(("1", "300")),
        "auto.replica.rebalance.enable": rng.choice(("true", "false")),
        "replica.selector.class": rng.choice((RACK_AWARE, "")),
        "log.cleaner.enable": rng.choice(("true", "true", "false")),
    }


@dataclass(frozen=True, slots=True)
class Options:
    """What a scenario pins; None leaves it to the seed."""

    brokers: int | None = None
    faults: frozenset[str] | None = None
    properties: dict[str, str] = field(default_factory=dict)
    # Called after the cell is up, to schedule what the scenario needs.
    script: Callable[[Cell], None] | None = None
    # Kinds of administrative changes.
    admin: frozenset[str] | None = None
    topics: tuple[TopicPlan, ...] | None = None
    # What the cell does besides (extras.py). Where topics are pinned None means nothing.
    extras: frozenset[str] | None = None


class Cell:
    """See the module."""

    def __init__(
        self,
        seed: int,
        options: Options | None = None,
        story: Callable[[str], None] | None = None,
    ) -> None:
        self.options = options or Options()
        self.world = World(seed, story)
        self.extras = self._extras()
        # What its brokers have plugged in, as `python -m features` has.
        has_features = not self.extras.isdisjoint(("subscriptions", "delays", "retries"))
        self.features: Sequence[Feature] = FEATURES if has_features else ()
        self.is_peaceful = is_peaceful(self)
        rng = self.world.stream("cell")
        count = self.options.brokers or rng.choice((3, 3, 3, 4, 5))
        if "drains" in self.extras:
            count = max(count, BROKERS_MIN)
        self.node_ids = list(range(1, count + 1))
        self.network = Network(self.world)
        levels = newest_levels(supported_features(self.features))
        self.store = CellStore(self, MetadataImage(CLUSTER_ID, features=levels))
        self.sent_batches = SentBatches()
        self.history = History(self)
        self.bit_rot = BitRot(self)
        properties = PROPERTIES | draw_properties(rng) | self.bit_rot.properties()
        if "slow disks" in self.extras:
            properties |= slow_disks.PROPERTIES
        if "brief tables" in self.extras:
            properties |= brief_tables.PROPERTIES
        if "clock errors" in self.extras:
            properties |= clock_errors.PROPERTIES
        if not self.extras.isdisjoint(WITH_DELAYS):
            properties |= delays.PROPERTIES
        if "leaps" in self.extras:
            properties |= leaps.PROPERTIES
        if "large states" in self.extras:
            properties |= large_states.PROPERTIES
        properties |= self.options.properties
        self.is_synced = properties.get("log.durability") == "fsync"
        self._is_cleaning = properties["log.cleaner.enable"] == "true"
        session_timeout_ms = int(properties["broker.session.timeout.ms"])
        self.commits = CommitWatch(self, session_timeout_ms)
        self.promises = Promises(self)
        self._suspicions: list[str] = []
        self.nodes: dict[int, Node] = {
            node_id: Node(self, node_id, dict(properties), RACKS[node_id % len(RACKS)])
            for node_id in self.node_ids
        }
        self.slow_disks = SlowDisks(self)
        self.stalls = Stalls(self)
        self.rates = Rates(self)
        self.worn_disks = WornDisks(self)
        self.jobs = JobWatch(self)
        self.old_starts = OldStarts(self)
        self.clock_errors = ClockErrors(self)
        self.leaps = Leaps(self)
        self.undeletes = UndeleteWatch(self)
        only = frozenset[str]() if self.is_peaceful else self.options.faults
        self.faults = Faults(self, only)
        self.workload = Workload(self)

    def _extras(self) -> frozenset[str]:
        if self.options.extras is not None:
            return self.options.extras
        return draw_extras(self.world) if self.options.topics is None else frozenset()

    # Running

    def start(self) -> None:
        """Start all brokers and clients, and the faults once the cell is up. In some cells the
        last broker joins later."""
        nodes = list(self.nodes.values())
        if len(nodes) > 3 and self.world.stream("growth").random() < GROWTH_CHANCE:
            newcomer = nodes.pop()
            self.world.at(GROWTH_US, self._grow, newcomer)
        for node in nodes:
            node.start()
        self.workload.start(self._ready)

    def _grow(self, newcomer: Node) -> None:
        if not newcomer.is_on:
            self.world.count("brokers added")
            newcomer.start()

    def _ready(self) -> None:
        self.world.note("cell", "is ready")
        if self.options.script is not None:
            self.options.script(self)
        self.faults.start()
        if not self.extras.isdisjoint(WITH_DELAYS):
            delays.steady_clocks(self)
        if not self.is_peaceful:
            self.bit_rot.start()
        if "slow disks" in self.extras:
            self.slow_disks.start()
        if "stalls" in self.extras and not self.is_peaceful:
            self.stalls.start()
        if "worn disks" in self.extras and not self.is_peaceful:
            self.worn_disks.start()
        if "settings" in self.extras and not self.is_peaceful:
            self.old_starts.start()
        if "clock errors" in self.extras:
            self.clock_errors.start()
        if "leaps" in self.extras and not self.is_peaceful:
            self.leaps.start()

    def run(self, steps: int) -> None:
        """Run `steps` events."""
        world = self.world
        limit = world.steps + steps
        while world.steps < limit and world.step():
            self._check_step()
            if world.steps % HEAVY_CHECK_STEPS == 0:
                audit.check_folds(self)
                check_groups(self)

    def _check_step(self) -> None:
        if self.world.violation is not None:
            raise self.world.violation
        if self._suspicions:
            self.world.violate(self._suspicions[0])

    def settle(self) -> None:
        """End all faults; within SETTLE_US everything is served again and every wait is over."""
        self.clock_errors.stop()
        self.faults.stop()
        self.slow_disks.stop()
        self.stalls.stop()
        self.workload.calm()
        if not self.extras.isdisjoint(WITH_DELAYS):
            delays.right_clocks(self)
        world = self.world
        limit_us = world.now_us + SETTLE_US
        while True:
            pause_us = world.now_us + SETTLE_LOOK_US
            while world.now_us < pause_us and world.step():
                self._check_step()
            ends = audit.open_ends(self)
            if not ends:
                break
            if world.now_us > limit_us:
                world.violate("not settled: " + "; ".join(ends[:8]))
        audit.check_folds(self)
        check_groups(self)
        audit.check_logs(self)
        audit.check_records(self)

    def close(self) -> None:
        """Let go of threads."""
        for node in self.nodes.values():
            node.let_go()

    def suspect(self, text: str) -> None:
        """Something is wrong that broker code might swallow: fail after this event."""
        self._suspicions.append(text)

    # What parts of the simulation ask each other

    def hosts(self) -> Iterable[str]:
        yield from (node.name for node in self.nodes.values())
        yield HOST
        yield from self.workload.client_names()

    def disk_stopped(self, node: Node) -> None:
        self.faults.machine_stopped(node)

    def has_failed_disk(self, node: Node) -> bool:
        services = node.services
        return services is not None and any(
            directory.failure is not None for directory in services.logs.directories
        )

    def effective_min_isr(self, node: Node, key: tuple[UUID, int], state: PartitionImage) -> int:
        """min.insync.replicas of a partition as that broker's image has it."""
        services = node.services
        assert services is not None
        return self.min_isr_of(services.image, key[0], state)

    def min_isr_of(self, image: MetadataImage, topic_id: UUID, state: PartitionImage) -> int:
        """min.insync.replicas, but never more than the replicas that are there to stay."""
        configs = image.topics_by_id[topic_id].configs
        value = int(configs.get("min.insync.replicas", PROPERTIES["min.insync.replicas"]))
        lasting = len(state.replicas) - len(state.adding_replicas)
        return max(1, min(value, lasting))

    def is_fully_replicated(self) -> bool:
        """Whether every partition has a full ISR, and no disk misses anything."""
        for topic in self.store.image.topics_by_id.values():
            for index, state in enumerate(topic.partitions):
                partition = self.history.partitions.get((topic.topic_id, index))
                if partition is not None and (partition.lost or partition.rotten):
                    return False
                if len(state.isr) < len(state.replicas) or len(state.replicas) < 2:
                    return False
        return True

    def has_bit_rot(self) -> bool:
        """Whether some disk holds what is damaged and not repaired yet."""
        return any(partition.rotten for partition in self.history.partitions.values())

    def is_compacted(self, topic: TopicImage) -> bool:
        """Whether its disks may differ batch by batch (compacted.py)."""
        is_cleaned = self._is_cleaning or is_keyed(topic.name)
        return is_cleaned and "compact" in topic.configs.get("cleanup.policy", "")

    def is_topic_gone(self, name: str) -> bool:
        return name not in self.store.image.topics_of("default")

    def is_current_leader(self, node_id: int, topic_id: UUID, index: int) -> bool:
        topic = self.store.image.topics_by_id.get(topic_id)
        return topic is not None and topic.partitions[index].leader == node_id

    def log_start(self, topic_id: UUID, index: int) -> int:
        """The highest log start of any replica."""
        return max(
            (
                views[(topic_id, index)].start_offset
                for views in self.history.disks.values()
                if (topic_id, index) in views
            ),
            default=0,
        )

    def is_group_lossy(self, group: str) -> bool:
        """Whether a partition of the offsets topic was allowed to lose anything."""
        return any(
            partition.is_lossy
            for partition in self.history.partitions.values()
            if partition.topic == OFFSETS_TOPIC
        )
