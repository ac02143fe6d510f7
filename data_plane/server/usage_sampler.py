"""Takes samples of what tenants use, each SAMPLE_INTERVAL_MS, and has them stored.

The numbers are counted on the hot paths and only grow (data_plane/replica/topic_use.py). The loop
hands over references to them; a thread compares them with what they were in the last sample that
was stored, and stores the next one. So a sample that could not be stored is not lost: the next one
has its use, too. And no use is in two samples.

    loop      list(uses) ─► thread    now - last stored ─► spool, synced ─► last stored = now

A killed process loses what it had not stored, at most LOST_MS_MAX of it; the next one says so in
its first sample. One that stops in order stores a last sample, which says that nothing is lost.

Bounds: ROWS_MAX rows in a sample, more come in several; one sample in the making.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.broker.request.namespaces import TenantUse
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage, is_internal_topic
from data_plane.log.file_system import FileSystem
from data_plane.replica.partition import Partition
from data_plane.replica.topic_use import TopicUse
from data_plane.server.usage_spool import KILLED, Lost, Sample, TenantRow, TopicRow, UsageSpool

SAMPLE_INTERVAL_MS: Final = 4_000
STORAGE_INTERVAL_MS: Final = 60_000
# The interval, and what it takes to store a sample.
LOST_MS_MAX: Final = 10_000
ROWS_MAX: Final = 2_000

_TopicNumbers = tuple[int, int, int, int, int]
_TenantNumbers = tuple[int, int, int]
_NO_TOPIC_USE: _TopicNumbers = (0, 0, 0, 0, 0)
_NO_TENANT_USE: _TenantNumbers = (0, 0, 0)


class Taken(NamedTuple):
    """What the loop hands over: references. `leading` when storage is to be measured, `date_ms`
    when the date is vouched for."""

    image: MetadataImage
    topics: Sequence[TopicUse]
    tenants: Sequence[TenantUse]
    connections: Mapping[str, int]
    leading: Sequence[Partition] | None
    now_ms: int
    wall_ms: int
    date_ms: int | None


class UsageSamples:
    """What is in samples already, and the next ones. In one thread at a time."""

    def __init__(self, spool: UsageSpool, incarnation: str, now_ms: int) -> None:
        self.spool = spool
        self._incarnation = incarnation
        self._sampled_ms = now_ms
        self._topics: dict[bytes, _TopicNumbers] = {}
        self._tenants: dict[str, _TenantNumbers] = {}
        self._connections: dict[str, int] = {}
        self._storage: dict[bytes, int] = {}
        last = spool.last
        self._lost: Lost | None = None
        if last is not None and not last.is_final:
            self._lost = Lost(KILLED, last.incarnation, last.sequence, LOST_MS_MAX)

    def store(self, taken: Taken, *, is_final: bool = False) -> list[TopicUse]:
        """Store what was used since the last time, if anything was; returns the topics that are no
        more, and whose use is stored. Raises OSError; then it is in the next one."""
        # First: where it fails, nothing of this sample is stored.
        self.spool.drop_old(taken.date_ms)
        topics = {
            use.topic_id: (use, _topic_numbers(use))
            for use in taken.topics
            if not is_internal_topic(use.tenant, use.topic)
        }
        tenants = {use.tenant: _tenant_numbers(use) for use in taken.tenants}
        storage = None if taken.leading is None else _storage_of(taken.leading)
        rows = self._topic_rows(topics, storage)
        tenant_rows = self._tenant_rows(tenants, taken.connections)
        if rows or tenant_rows or is_final:
            self.spool.append(self._samples(rows, tenant_rows, taken, is_final))
            self._lost = None
        self._sampled_ms = taken.now_ms
        self._topics = {topic_id: numbers for topic_id, (_, numbers) in topics.items()}
        self._tenants = tenants
        self._connections = dict(taken.connections)
        if storage is not None:
            self._storage = storage
        there = taken.image.topics_by_id
        return [use for use in taken.topics if UUID(bytes=use.topic_id) not in there]

    def _topic_rows(
        self,
        topics: Mapping[bytes, tuple[TopicUse, _TopicNumbers]],
        storage: Mapping[bytes, int] | None,
    ) -> list[TopicRow]:
        rows: list[TopicRow] = []
        for topic_id, (use, numbers) in topics.items():
            before = self._topics.get(topic_id, _NO_TOPIC_USE)
            stored = None
            if storage is not None:
                # Once more when nothing is left.
                stored = storage.get(topic_id)
                if stored is None and topic_id in self._storage:
                    stored = 0
            if numbers != before or stored is not None:
                used = (now - then for now, then in zip(numbers, before, strict=True))
                names = (use.tenant, use.topic, topic_id.hex())
                rows.append(TopicRow._make((*names, *used, stored)))
        return rows

    def _tenant_rows(
        self, tenants: Mapping[str, _TenantNumbers], connections: Mapping[str, int]
    ) -> list[TenantRow]:
        rows: list[TenantRow] = []
        for tenant, numbers in tenants.items():
            before = self._tenants.get(tenant, _NO_TENANT_USE)
            opened = connections.get(tenant, 0)
            if numbers != before or opened != self._connections.get(tenant, 0):
                used = (now - then for now, then in zip(numbers, before, strict=True))
                rows.append(TenantRow._make((tenant, *used, opened)))
        return rows

    def _samples(
        self,
        rows: Sequence[TopicRow],
        tenant_rows: Sequence[TenantRow],
        taken: Taken,
        is_final: bool,
    ) -> list[Sample]:
        duration_ms = taken.now_ms - self._sampled_ms
        first = self.spool.last_sequence + 1
        count = max(1, -(-max(len(rows), len(tenant_rows)) // ROWS_MAX))
        return [
            Sample(
                self._incarnation,
                first + number,
                taken.wall_ms - duration_ms,
                taken.wall_ms,
                duration_ms,
                rows[number * ROWS_MAX : (number + 1) * ROWS_MAX],
                tenant_rows[number * ROWS_MAX : (number + 1) * ROWS_MAX],
                self._lost if number == 0 else None,
                is_final and number == count - 1,
            )
            for number in range(count)
        ]


def _topic_numbers(use: TopicUse) -> _TopicNumbers:
    return use.bytes_in, use.bytes_out, use.records_in, use.batches_in, use.reads_out


def _tenant_numbers(use: TenantUse) -> _TenantNumbers:
    return use.requests, use.throttle_ms, use.throttled_requests


def _storage_of(leading: Sequence[Partition]) -> dict[bytes, int]:
    """By topic. A log's size is a number that its thread keeps."""
    storage: dict[bytes, int] = {}
    for partition in leading:
        topic_id = partition.use.topic_id
        storage[topic_id] = storage.get(topic_id, 0) + partition.log.size_bytes
    return storage


class UsageSampler:
    """A component. `connections` counts a tenant's open ones."""

    def __init__(
        self,
        services: Services,
        spool: UsageSpool,
        incarnation: str,
        now_ms: int,
        connections: Callable[[], Mapping[str, int]],
    ) -> None:
        self._services = services
        self._connections = connections
        self._samples = UsageSamples(spool, incarnation, now_ms)
        self._is_storing = False
        self._is_stopped = False
        self._is_failing = False
        self._next_ms = now_ms + SAMPLE_INTERVAL_MS
        self._storage_next_ms = now_ms
        services.partitions.uses.is_sampled = True
        services.namespaces.is_sampled = True

    @property
    def spool(self) -> UsageSpool:
        return self._samples.spool

    def start(self, now_ms: int) -> None:
        """The numbers begin with the process."""

    def next_deadline_ms(self) -> int | None:
        return None if self._is_storing or self._is_stopped else self._next_ms

    def tick(self, now_ms: int) -> None:
        if self._is_stopped or self._is_storing or now_ms < self._next_ms:
            return
        self._is_storing = True
        self._next_ms = now_ms + SAMPLE_INTERVAL_MS
        taken = self._take(now_ms)
        if taken.leading is not None:
            self._storage_next_ms = now_ms + STORAGE_INTERVAL_MS

        def done(gone: list[TopicUse] | None, error: BaseException | None) -> None:
            self._is_storing = False
            self._note(error)
            if gone is not None:
                self._forget(gone)
            elif taken.leading is not None:
                self._storage_next_ms = now_ms

        self._services.executor.submit(lambda: self._samples.store(taken), done)

    def stop(self, now_ms: int) -> None:
        """No more samples but the last."""
        self._is_stopped = True

    def finish(self, now_ms: int) -> None:
        """Store what is left; blocks. For the end, when nothing runs any more."""
        if self._is_storing:
            # It is not known what is stored: the next process says that it may miss something.
            return
        try:
            self._samples.store(self._take(now_ms), is_final=True)
        except OSError as error:
            self._note(error)
        self._samples.spool.close()

    def _take(self, now_ms: int) -> Taken:
        services = self._services
        is_due = now_ms >= self._storage_next_ms
        wall_ms = services.wall_clock.wall_ms(now_ms)
        vouched_ms = services.wall_clock.vouched_offset_ms
        return Taken(
            services.image,
            list(services.partitions.uses.by_id.values()),
            list(services.namespaces.uses.values()),
            self._connections(),
            list(services.partitions.leading()) if is_due else None,
            now_ms,
            wall_ms,
            None if vouched_ms is None else now_ms + vouched_ms,
        )

    def _forget(self, topics: Sequence[TopicUse]) -> None:
        """Let go of what is stored and over. Tenants are few enough to be kept."""
        for use in topics:
            self._services.partitions.uses.forget(use.topic_id)

    def _note(self, error: BaseException | None) -> None:
        if error is not None and not self._is_failing:
            self._services.log.error("usage_not_stored", error=repr(error))
        self._is_failing = error is not None


def make_usage_sampler(
    services: Services,
    fs: FileSystem,
    folder: str,
    now_ms: int,
    connections: Callable[[], Mapping[str, int]],
) -> UsageSampler | None:
    """One that stores in `folder`, a component of the broker from now on; None where nothing can be
    stored."""
    try:
        spool = UsageSpool(fs, folder)
    except OSError as error:
        # Its disk is about to be given up, or has no room; that is no reason not to serve.
        services.log.error("usage_not_stored", error=repr(error))
        return None
    incarnation = f"{services.random.getrandbits(128):032x}"
    sampler = UsageSampler(services, spool, incarnation, now_ms, connections)
    services.components.append(sampler)
    return sampler
