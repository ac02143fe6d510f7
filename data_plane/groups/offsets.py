"""Committed offsets of one partition of `__consumer_offsets`: a fold over its records.

Only `apply` changes offsets, once per record in log order, while loading and when an append has
settled. So the store after any history equals the store folded from the log.

Keys that an append in flight will change are counted as pending: such an offset is not stable yet
(`require_stable`), does not expire, and is deleted even though it is not there yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from data_plane.groups.record_formats import CommittedOffset, OffsetKey


class OffsetStore:
    """Offsets by group, topic and partition, in the order of their first commit."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: Counter[OffsetKey] = Counter()
        self._pending_groups: Counter[str] = Counter()
        self.count = 0

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self._groups.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """All offsets of a group. Do not change the store while iterating."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield OffsetKey(group_id, topic, partition), committed

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._groups

    def apply(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        """Set an offset, or delete it (None), as the newest record with this key says."""
        if committed is not None:
            partitions = self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})
            if key.partition not in partitions:
                self.count += 1
            partitions[key.partition] = committed
            return
        topics = self._groups.get(key.group_id)
        if topics is None or key.topic not in topics:
            return
        partitions = topics[key.topic]
        if partitions.pop(key.partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[key.topic]
            if not topics:
                del self._groups[key.group_id]

    def of_topics(self, topics: Iterable[str]) -> list[OffsetKey]:
        """Keys of all groups' offsets, present or pending, in any of `topics`."""
        wanted = set(topics)
        keys = {
            OffsetKey(group_id, topic, partition): None
            for group_id, by_topic in self._groups.items()
            for topic in wanted & by_topic.keys()
            for partition in by_topic[topic]
        }
        keys.update((key, None) for key in self._pending if key.topic in wanted)
        return list(keys)

    def add_pending(self, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            self._pending[key] += 1
            self._pending_groups[key.group_id] += 1

    def remove_pending(self, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            _decrement(self._pending, key)
            _decrement(self._pending_groups, key.group_id)

    def is_pending(self, key: OffsetKey) -> bool:
        return key in self._pending

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._pending_groups

    def pending_of_group(self, group_id: str) -> list[OffsetKey]:
        if group_id not in self._pending_groups:
            return []
        return [key for key in self._pending if key.group_id == group_id]

    def snapshot(self) -> dict[OffsetKey, CommittedOffset]:
        """All offsets, flat: for comparisons and dumps."""
        return {key: value for group_id in self._groups for key, value in self.of_group(group_id)}


def _decrement(counter: Counter[OffsetKey] | Counter[str], key: OffsetKey | str) -> None:
    count = counter[key] - 1  # type: ignore[index]
    if count > 0:
        counter[key] = count  # type: ignore[index]
    else:
        del counter[key]
