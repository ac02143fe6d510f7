"""RETRIES: a subscription whose readers nack, through all that befalls a cell.

    dataretried-0   what producers write
    work-1          [copy of 5, due 300]  [dead: 7]  …  fired: 5, attempt 2      of the subscription
    deadwork-0      dead: 7                                                      or work.dlq-0
    the story       of each message: delivered, nacked, delivered again, dead, arrived

Each batch is looked at when it is committed (tests/features/retry_story.py has what must hold):
a position comes back once or is dead once, an attempt is the one after that which failed, a copy is
due when the policy or its nack says, and delivered once and not before, a dead letter arrives once
and in order. In the end nothing is pending, no dead letter waits, and no nack.

The topic of dead letters is made by itself when it is needed first, or by somebody long after that.
What brokers' folds say is what a replay of their own disks gives, at any time; both sets are small
here, so that they have runs.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.cell.virtual_topics import (
    DEAD_LETTERS_PROPERTY,
    HEADERS_PROPERTY,
    SOURCE_PROPERTY,
)
from data_plane.log.fold import FoldContext, FoldFactory
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.records import BatchHeader, Record
from data_plane.wire.registry import ApiKey
from features.delayed.pending_entries import entries_in as pending_in
from features.delayed.pending_set import PendingSet
from features.retry_dlq.commands import Position
from features.retry_dlq.delays import RetryDelays, make_delays, make_nacks
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.policy import ATTEMPTS_PROPERTY, BACKOFF_PROPERTY
from features.retry_dlq.positions import Positions, entries_in
from tests.features.retry_story import Content, Story, content_of
from tests.simulation.admin import TopicPlan
from tests.simulation.administrator import Administrator
from tests.simulation.delays import EARLY_MS_MAX, EARLY_MS_MAX_OF_STEADY, stored_in
from tests.simulation.held import stored_batch
from tests.simulation.replicas import DiskView, TopicPartition, looking_from_outside

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from tests.simulation.cell import Cell
    from tests.simulation.partition_history import PartitionHistory
    from tests.simulation.replicas import Batch

# Its name says who else writes to it, and reads it.
RETRIED = "dataretried"
WORK = "work"
# Dead letters go to the first where somebody makes it, else to the other, which is made by itself.
NAMED_DEAD = "deadwork"
OWN_DEAD = "work.dlq"
OF_BROKERS = (WORK, NAMED_DEAD, OWN_DEAD)
BACKOFF_MS = (100, 400)
ATTEMPTS_MAX = 3
POLICY = {
    SOURCE_PROPERTY: RETRIED,
    BACKOFF_PROPERTY: "list:100ms,400ms",
    ATTEMPTS_PROPERTY: str(ATTEMPTS_MAX),
}
# Of the topic of dead letters, after which it is made.
LATE_CHANCE = 0.03


def plan_retried(rng: Random) -> TopicPlan:
    configs = {HEADERS_PROPERTY: "true", "segment.ms": rng.choice(("200", "600"))}
    return TopicPlan(RETRIED, rng.randint(1, 2), 3, configs)


class RetryAdmin(Administrator):
    """Makes the subscription, and perhaps the topic of its dead letters."""

    interval_ms = 60

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        self._is_named = self.random.random() < 0.5

    @property
    def is_settled(self) -> bool:
        topics = self.cell.store.image.topics_of("default")
        return WORK in topics and (not self._is_named or NAMED_DEAD in topics)

    def _go_on(self) -> None:
        # Also when it has stopped: in the end both are there.
        if not self.is_settled:
            self._wait()
            self.change()

    def change(self) -> None:
        topics = self.cell.store.image.topics_of("default")
        if WORK not in topics:
            named = {DEAD_LETTERS_PROPERTY: NAMED_DEAD} if self._is_named else {}
            self._make(WORK, -1, POLICY | named)
        elif self._is_stopped or self.random.random() < LATE_CHANCE:
            self._make(NAMED_DEAD, 1, {HEADERS_PROPERTY: "true"})

    def _make(self, name: str, count: int, configs: dict[str, str]) -> None:
        plan = CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=3 if count > 0 else -1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[plan])
        self.ask(self.any_node(), ApiKey.CREATE_TOPICS, request, lambda response: None)


class RetryWatch:
    """The truth about all partitions of the subscription, of its source and its dead letters."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        # Where nobody keeps count any more.
        self._lost: set[TopicPartition] = set()
        self._stories: dict[TopicPartition, Story] = {}
        # Of the source's partitions; and what readers see of the others.
        self._contents: dict[TopicPartition, dict[int, Content]] = {}
        self._shown: dict[TopicPartition, dict[int, Content]] = {}
        # What nacks ask for, by their reasons.
        self.delays_ms: dict[bytes, int] = {}
        faults = cell.options.faults
        is_steady = faults is not None and "clock" not in faults
        self._early_ms_max = EARLY_MS_MAX_OF_STEADY if is_steady else EARLY_MS_MAX
        self._has_clock_errors = "clock errors" in cell.extras

    def _is_counted(self, key: TopicPartition) -> bool:
        partition = self._cell.history.partition(key)
        losers = self._cell.history.held.losers_of(key)
        if partition.is_lossy or len(losers) >= partition.isr_min:
            # So many disks have lost something that what is below the log start may be gone.
            self._lost.add(key)
        return key not in self._lost

    def source_of(self, key: TopicPartition) -> TopicPartition | None:
        """Of a partition of the subscription."""
        topic = self._cell.store.image.topics_by_id.get(key[0])
        return None if topic is None or topic.source_id is None else (topic.source_id, key[1])

    def story(self, key: TopicPartition) -> Story | None:
        """That of a retry partition; None where nobody keeps count."""
        source = self.source_of(key)
        if source is None or not self._is_counted(key) or not self._is_counted(source):
            return None
        story = self._stories.get(key)
        if story is None:
            contents = self._contents.setdefault(source, {})
            name = b"%s/%d" % (RETRIED.encode(), key[1])
            story = Story(name, contents, BACKOFF_MS, ATTEMPTS_MAX, self.delays_ms)
            self._stories[key] = story
        return story

    def shown(self, key: TopicPartition) -> dict[int, Content] | None:
        """What readers see of a partition; None where nobody keeps count."""
        return self._shown.setdefault(key, {}) if self._is_counted(key) else None

    def committed(self, partition: PartitionHistory, log: Log, batch: Batch) -> None:
        """`log` has the batch, which is committed now."""
        key = partition.key
        is_mine = partition.topic == RETRIED or partition.topic in OF_BROKERS
        if not is_mine or batch.is_control or not self._is_counted(key):
            return
        found = stored_batch(log, batch.base_offset)
        if found is None:
            # Retention was as quick as the commit.
            self._lost.add(key)
            return
        header, records = found
        is_hidden = bool(header.attributes & HIDDEN_FLAG)
        for record in records:
            if partition.topic == RETRIED:
                self._contents.setdefault(key, {})[record.offset] = content_of(record)
            if not is_hidden:
                self._shown.setdefault(key, {})[record.offset] = content_of(record)
            try:
                if partition.topic == WORK:
                    self._take(partition, header, record)
                elif partition.topic != RETRIED:
                    self._arrived(record)
            except AssertionError as untrue:
                self._world.violate(f"{partition}: {untrue}")

    def _take(self, partition: PartitionHistory, header: BatchHeader, record: Record) -> None:
        story = self.story(partition.key)
        if story is None:
            return
        story.take(header, record)
        names = {name for name, _ in record.headers}
        for kind in ("nack", "dead-letter", "repeat", "fired"):
            if f"tw-{kind}".encode() in names:
                self._world.count(f"records of retries with tw-{kind}")
        fired = story.fired.get(record.offset)
        if fired is None:
            return
        self._world.count(f"deliveries that are attempt {fired.attempt}")
        is_early = self._world.now_ms < fired.due_ms - self._early_ms_max
        if is_early and not self._has_clock_errors:
            self._world.violate(f"{partition}: {record} is early by the world's time: {fired}")

    def _arrived(self, record: Record) -> None:
        topic_id, index, _, _ = (dict(record.headers)[b"tw-dead"] or b"").decode().split("/")
        story = self.story((UUID(hex=topic_id), int(index)))
        if story is not None:
            story.arrived(record)
            self._world.count("dead letters arrived")

    # What its readers ask

    def is_taken(self, key: TopicPartition, position: Position) -> bool:
        """Whether something was stored for a nack of it, as somebody was told."""
        story = self.story(key)
        return story is None or position in story.said

    def is_over(self, key: TopicPartition, position: Position) -> bool:
        """Whether it may be refused for good: it is below some log's start, or lost."""
        source = self.source_of(key)
        read_from = key if position.is_own else source
        if read_from is None or self.story(key) is None:
            return True
        return position.offset < self._cell.log_start(*read_from)

    def open_ends(self) -> list[str]:
        """What is still to come back, and to arrive."""
        found = []
        for key in self._stories:
            story = self.story(key)
            if story is None:
                continue
            name = f"{WORK}-{key[1]}"
            if story.pending and not self._has_clock_errors:
                found.append(f"{name}: {len(story.pending)} are pending: {min(story.pending)}")
            if story.waiting() and not self._has_lost_letters():
                found.append(f"{name}: dead letters wait: {story.waiting()[0]}")
            try:
                story.check_chains()
            except AssertionError as untrue:
                self._world.violate(f"{name}: {untrue}")
        return found

    def _has_lost_letters(self) -> bool:
        partitions = self._cell.history.partitions
        dead = [one.key for one in partitions.values() if one.topic in (NAMED_DEAD, OWN_DEAD)]
        return not all(self._is_counted(key) for key in dead)


# Small folds, and what they say


class SmallDelays(RetryDelays):
    """Keeps so little in memory that a short log has runs."""

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.pending = PendingSet(
            self._context.fs,
            self._context.folder,
            near_max=16,
            near_low=4,
            run_entries=8,
            runs_merged=2,
            done_max=6,
        )


class SmallNacks(Nacks):
    """The same."""

    def _begin_anew(self) -> None:
        super()._begin_anew()
        fs, folder = self._context.fs, self._context.folder
        self.of_source = Positions(fs, folder, run_entries=8, runs_merged=2)
        self.own = Positions(fs, folder, run_entries=8, runs_merged=2)


def make_small_delays(context: FoldContext) -> SmallDelays | None:
    return None if make_delays(context) is None else SmallDelays(context)


def make_small_nacks(context: FoldContext) -> SmallNacks | None:
    return None if make_nacks(context) is None else SmallNacks(context)


SMALL_FOLDS: dict[FoldFactory, FoldFactory] = {
    make_delays: make_small_delays,
    make_nacks: make_small_nacks,
}


def check_retry_folds(cell: Cell, view: DiskView, log: Log) -> None:
    """The folds of a retry log against a replay of what is on the disk."""
    if log.log_directory.failure is not None:
        return
    if view.node_name in cell.history.partition(view.topic_partition).rotten_below:
        # What is damaged cannot be replayed.
        return
    said, floors, waiting, pending = _replayed(log)
    fs, folder = log.log_directory.fs, log.folder
    nacks, delays = log.fold(Nacks), log.fold(RetryDelays)
    with looking_from_outside(log):
        for is_own, positions in ((False, nacks.of_source), (True, nacks.own)):
            frozen = positions.freeze()
            try:
                found = dict(entries_in(fs, folder, frozen))
            finally:
                positions.thaw(frozen)
            if positions.floor != floors[is_own]:
                cell.world.violate(f"{view}: floor {positions.floor}, a replay gives {floors}")
            expected = {
                one.offset: offset
                for one, offset in said.items()
                if one.is_own is is_own and one.offset >= positions.floor
            }
            if found != expected:
                cell.world.violate(f"{view}: nacked are {found}, a replay gives {expected}")
            cell.world.count("nacked positions compared with a replay", len(found))
        if nacks.dead_letters.waiting_count != waiting:
            cell.world.violate(f"{view}: {nacks.dead_letters}, a replay gives {waiting}")
        frozen_set = delays.pending.freeze()
        try:
            left = {offset for _, offset in pending_in(fs, folder, frozen_set)}
        finally:
            delays.pending.thaw(frozen_set)
    if left != pending:
        cell.world.violate(f"{view}: pending are {left}, a replay gives {pending}")


def _replayed(log: Log) -> tuple[dict[Position, int], list[int], int, set[int]]:
    """(where what was stored for each position is, the floors, dead letters that wait, pending)."""
    said: dict[Position, int] = {}
    floors, waiting, pending = [0, 0], 0, set[int]()
    with looking_from_outside(log):
        batches = list(stored_in(log))
    for header, records in batches:
        for record in records:
            headers = dict(record.headers)
            if not header.attributes & HIDDEN_FLAG:
                pending.discard(int(headers.get(b"tw-fired") or -1))
                continue
            for name in (b"tw-nack", b"tw-dead-letter"):
                if name in headers:
                    partition, offset = (headers[name] or b"").split(b":")
                    said[Position(int(partition), int(offset))] = record.offset
            if b"tw-nack" in headers:
                pending.add(record.offset)
            waiting += b"tw-dead-letter" in headers
            if b"tw-sent" in headers:
                waiting = int((headers[b"tw-sent"] or b"").split(b":")[1])
            if b"tw-forget" in headers:
                told = (headers[b"tw-forget"] or b"").split(b":")
                floors = [max(floor, int(one)) for floor, one in zip(floors, told, strict=True)]
    return said, floors, waiting, pending
