"""A compacted topic and who uses it: a producer of keys and tombstones, a reader of the map.

The reader begins at the start again and again. What it gets are committed records; when it comes to
where the end was, the newest record of each key that it has read is the newest committed one.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import (
    NewRecord,
    decode_batch,
    is_crc_valid,
    iter_batch_headers,
)
from tests.simulation.admin import TopicPlan
from tests.simulation.compacted import Key, Said, is_blanked
from tests.simulation.producer import Lane, Outgoing, Producer
from tests.simulation.reader import Position, Reader, Target
from tests.simulation.tagged import TAGGED_TABLE, tags_of_key, with_tags
from tests.simulation.world import EPOCH_MS, US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.partition_history import PartitionHistory

# A few that are superseded soon, and many that are not, so that tombstones come of age.
HOT_KEYS = 12
COLD_KEYS = 400
TOMBSTONE_EVERY = 4
ROUND_PAUSE_US = 300_000


def is_keyed(name: str) -> bool:
    return name.startswith("table")


def plan_table(rng: Random) -> TopicPlan:
    """A compacted topic whose cleaner has something to do every second."""
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": rng.choice(("300", "900")),
        "min.cleanable.dirty.ratio": rng.choice(("0.01", "0.5")),
        "delete.retention.ms": rng.choice(("300", "1500")),
        "file.delete.delay.ms": "500",
    }
    if rng.random() < 0.3:
        configs["durability"] = "fsync"
    return TopicPlan("table3", rng.randint(1, 2), 3, configs)


def plan_brief_table(rng: Random) -> TopicPlan:
    """One that forgets besides (compact,delete): retention takes what is being cleaned."""
    configs = {
        "cleanup.policy": "compact,delete",
        "segment.ms": rng.choice(("150", "400")),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": rng.choice(("200", "600")),
        "file.delete.delay.ms": rng.choice(("0", "500")),
    }
    kind = rng.choice(("ms", "bytes", "both"))
    if kind != "bytes":
        configs["retention.ms"] = rng.choice(("700", "2000"))
    if kind != "ms":
        configs["retention.bytes"] = rng.choice(("1000", "4000"))
    return TopicPlan("tablebrief", 1, 3, configs)


def key_and_value(producer: str, number: int) -> tuple[bytes, bytes | None]:
    """What the record of that number says."""
    scrambled = number * 7919 % 104_729
    key = b"k%d" % (scrambled % (HOT_KEYS if scrambled % 3 else COLD_KEYS))
    if scrambled // 3 % TOMBSTONE_EVERY == 0:
        return key, None
    return key, b"%s/%d" % (producer.encode(), number)


class KeyedProducer(Producer):
    """Idempotent, of records with keys."""

    def _records(self, batch: Outgoing) -> list[NewRecord]:
        timestamp = EPOCH_MS + batch.created_us // US_PER_MS
        records = [
            NewRecord(timestamp, *key_and_value(self.name, number))
            for number in range(batch.first_number, batch.first_number + batch.count)
        ]
        if batch.topic == TAGGED_TABLE:
            records = [with_tags(one, tags_of_key(one.key or b"")) for one in records]
        return records

    def _answered(self, lane: Lane, batch: Outgoing, response: Any) -> None:
        super()._answered(lane, batch, response)
        if response is not None:
            error = response.responses[0].partition_responses[0].error_code
            if error == ErrorCode.NONE:
                self.world.count("keyed batches acknowledged")


class _Round:
    """One reading of a partition from its start to where its end was."""

    __slots__ = ("began_us", "end_offset", "newest")

    def __init__(self, began_us: int, end_offset: int) -> None:
        self.began_us = began_us
        self.end_offset = end_offset
        self.newest: dict[Key, Said] = {}


class MapReader(Reader):
    """See the module."""

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name, wants=is_keyed)
        self._rounds: dict[Target, _Round] = {}
        self._is_last = False

    def calm(self) -> None:
        """One more round, and then stay at the end."""
        self._is_last = True
        for target in list(self.positions):
            self._begin(target)

    def _history(self, target: Target) -> PartitionHistory | None:
        info = self.cell.store.image.topics_of("default").get(target[0])
        if info is None:
            return None
        return self.cell.history.partitions.get((info.topic_id, target[1]))

    def _begin(self, target: Target) -> None:
        partition = self._history(target)
        if partition is None or target not in self.positions:
            return
        self.positions[target] = Position(partition.start_offset)
        self._rounds[target] = _Round(self.world.now_us, partition.end_offset)

    def _check(
        self, node_id: int, target: Target, position: Position, data: bytes, topic_id: Any
    ) -> None:
        partition = self.cell.history.partitions.get((topic_id, target[1]))
        if partition is None or partition.compacted is None:
            self.world.violate(f"{self.name} got records of {target}, where nothing is committed")
        known = self._rounds.setdefault(target, _Round(self.world.now_us, partition.end_offset))
        committed = partition.compacted.committed(partition)
        newest = partition.compacted.newest(partition)
        for header in iter_batch_headers(data, 0, len(data), incomplete_tail=True):
            if header.next_offset <= position.offset:
                continue
            if not is_crc_valid(data, header):
                if f"b{node_id}" in partition.rotten:
                    self.world.count("rotten batches refused")
                    return
                self.world.violate(f"{self.name} got a damaged batch of {target} from b{node_id}")
            for record in decode_batch(data, header.position):
                key = None if record.key is None else bytes(record.key)
                value = None if record.value is None else bytes(record.value)
                said = Said(record.offset, key, value)
                truth = committed.get(said.offset)
                is_true = truth == said or is_blanked(said, truth, newest)
                if not is_true and not partition.is_lossy:
                    self.world.violate(
                        f"{self.name} got {said} from b{node_id} of {target}, committed is {truth}"
                    )
                known.newest[key] = said
            position.offset = header.next_offset
            self.world.count("keyed batches read")
        if position.offset >= known.end_offset:
            self._end(target, position, known, partition)

    def _end(
        self, target: Target, position: Position, known: _Round, partition: PartitionHistory
    ) -> None:
        records = partition.compacted
        assert records is not None
        if not partition.is_lossy:
            self.world.count("maps read")
            for key, said in records.newest(partition).items():
                is_forgotten = records.forgotten_us.get(key, -1) >= known.began_us
                is_deleted = said.offset < partition.start_offset
                if said.offset >= position.offset or is_deleted or is_forgotten:
                    continue
                if key in records.revived:
                    continue
                found = known.newest.get(key)
                is_gone = said.value is None and (found is None or found.value is None)
                if found != said and not is_gone:
                    self.world.violate(
                        f"{self.name} has read {target} up to {position.offset} and found "
                        f"{found}; the newest is {said}"
                    )
        if not self._is_last:
            known.end_offset = 1 << 62
            self.world.at(ROUND_PAUSE_US, self._again, target)

    def _again(self, target: Target) -> None:
        if not self._is_last and not self.is_stopped:
            self._begin(target)
