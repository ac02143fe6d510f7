"""Committed offsets of one partition of `__consumer_offsets`: a fold over its records.

Only `apply` changes offsets, once per record in log order, while loading and when an append has
settled. So the store after any history equals the store folded from the log. Offsets are kept as
the values of their records: a million of them are a million small strings of bytes, which the
garbage collector does not look at, and which are decoded when somebody asks.

Keys that an append in flight will change are counted as pending: such an offset is not stable yet
(`require_stable`), does not expire, and is deleted even though it is not there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from data_plane.groups.record_formats import CommittedOffset, OffsetKey, decode_committed_offset

# What an offset takes beside the bytes of its value, and a group's topic beside its name's, for the
# bound on all offsets of a broker: measured with CPython.
OFFSET_OVERHEAD_BYTES: Final = 110
TOPIC_OVERHEAD_BYTES: Final = 500

_NO_PARTITIONS: Final[Mapping[int, bytes]] = MappingProxyType({})


class OffsetStore:
    """Offsets by group, topic and partition, in the order of their first commit."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, bytes]]] = {}
        self._pending: dict[str, Counter[tuple[str, int]]] = {}
        self.count = 0
        # About what all of it takes in memory.
        self.size_bytes = 0

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        value = self.value(key)
        return None if value is None else decode_committed_offset(value)

    def value(self, key: OffsetKey) -> bytes | None:
        """An offset as its record has it."""
        topics = self._groups.get(key.group_id)
        partitions = None if topics is None else topics.get(key.topic)
        return None if partitions is None else partitions.get(key.partition)

    def group_ids(self) -> list[str]:
        """Groups with offsets, as they are now."""
        return list(self._groups)

    def topics_of(self, group_id: str) -> list[str]:
        """Topics in which a group has offsets, as they are now."""
        return list(self._groups.get(group_id, ()))

    def values_of(self, group_id: str, topic: str) -> Mapping[int, bytes]:
        """A group's offsets in one topic. Do not keep it: it changes with the store."""
        topics = self._groups.get(group_id)
        return _NO_PARTITIONS if topics is None else topics.get(topic, _NO_PARTITIONS)

    def of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """All offsets of a group. Do not change the store while iterating."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield OffsetKey(group_id, topic, partition), decode_committed_offset(value)

    def count_of_group(self, group_id: str) -> int:
        return sum(map(len, self._groups.get(group_id, {}).values()))

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._groups

    def growth_bytes(self, key: OffsetKey, value: bytes) -> int:
        """By about how much `apply` would enlarge the store by an offset that is not there, were
        nothing applied before."""
        return OFFSET_OVERHEAD_BYTES + len(value)

    def topic_growth_bytes(self, group_id: str, topic: str) -> int:
        """The same for the topic of the group's offset; 0 when it has others in it."""
        return 0 if self.values_of(group_id, topic) else TOPIC_OVERHEAD_BYTES + len(topic)

    def apply(self, key: OffsetKey, value: bytes | None) -> None:
        """Set an offset, or delete it (None), as the newest record with this key says. The value is
        one that can be decoded."""
        if value is not None:
            topics = self._groups.get(key.group_id)
            if topics is None:
                topics = self._groups[key.group_id] = {}
            partitions = topics.get(key.topic)
            if partitions is None:
                partitions = topics[key.topic] = {}
                self.size_bytes += TOPIC_OVERHEAD_BYTES + len(key.topic)
            old = partitions.get(key.partition)
            if old is None:
                self.count += 1
                self.size_bytes += OFFSET_OVERHEAD_BYTES + len(value)
            else:
                self.size_bytes += len(value) - len(old)
            partitions[key.partition] = value
            return
        topics = self._groups.get(key.group_id)
        if topics is None or key.topic not in topics:
            return
        partitions = topics[key.topic]
        old = partitions.pop(key.partition, None)
        if old is None:
            return
        self.count -= 1
        self.size_bytes -= OFFSET_OVERHEAD_BYTES + len(old)
        if not partitions:
            del topics[key.topic]
            self.size_bytes -= TOPIC_OVERHEAD_BYTES + len(key.topic)
            if not topics:
                del self._groups[key.group_id]

    def free_group(self) -> int:
        """Forget some group's offsets; how many they were, 0 when there is no group left. Memory
        is freed group by group, since freeing millions of offsets takes its time."""
        if not self._groups:
            return 0
        _, topics = self._groups.popitem()
        return sum(map(len, topics.values()))

    def add_pending(self, keys: Iterable[OffsetKey]) -> None:
        for group_id, topic, partition in keys:
            pending = self._pending.get(group_id)
            if pending is None:
                pending = self._pending[group_id] = Counter()
            pending[topic, partition] += 1

    def remove_pending(self, keys: Iterable[OffsetKey]) -> None:
        for group_id, topic, partition in keys:
            pending = self._pending[group_id]
            left = pending[topic, partition] - 1
            if left:
                pending[topic, partition] = left
                continue
            del pending[topic, partition]
            if not pending:
                del self._pending[group_id]

    def is_pending(self, key: OffsetKey) -> bool:
        pending = self._pending.get(key.group_id)
        return pending is not None and (key.topic, key.partition) in pending

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._pending

    def pending_group_ids(self) -> list[str]:
        """Groups with offsets that an append in flight will change, as they are now."""
        return list(self._pending)

    def pending_of_group(self, group_id: str) -> list[OffsetKey]:
        return [OffsetKey(group_id, *place) for place in self._pending.get(group_id, ())]

    def snapshot(self) -> dict[OffsetKey, CommittedOffset]:
        """All offsets, flat: for comparisons and dumps."""
        return {key: value for group_id in self._groups for key, value in self.of_group(group_id)}
