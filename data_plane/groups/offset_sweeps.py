"""Deleting the offsets of one shard that are due for it, however many there are.

Who sweeps looks at the offsets of a group in a topic (`OffsetSweeps.sweep`), chunk by chunk, and
writes tombstones for those that are due: offsets of topics that are gone, which is decided here;
expired ones (`offset_expiry`); all of a large group that is being deleted (`group_deletion`).

Invariants
- A sweep is a chore: it finds the world changed after each piece, and looks again whether an offset
  is due when it is about to write.
- What the log has refused to delete is looked for again at the next check of what has expired.
- No sweep deletes what an append in flight is to change; one of topics that are gone looks again
  when that has settled.
- At most `chore_appends_max` appends of chores are in flight, of `tombstones_per_append_max`
  offsets each: the log sets the pace.

Deliberately absent: why a topic counts as gone; the coordinator is told (`topics_deleted`) or asks
(`IsOrphan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Final
from uuid import UUID

from data_plane.groups.appends import Outcome
from data_plane.groups.chores import WAITING, Pieces
from data_plane.groups.record_formats import OffsetKey, topic_id_of_value
from data_plane.groups.shard import Shard
from data_plane.wire.errors import ErrorCode
from data_plane.wire.primitives import ZERO_UUID

# What pieces of chores are worth: see chores.
TOMBSTONE_WORK: Final = 8
TOPIC_WORK: Final = 2
OFFSETS_PER_WORK: Final = 4

# Whether an offset of this topic, committed while it had this id, is of a topic that is gone.
IsOrphan = Callable[[str, UUID], bool]


class OffsetSweeps:
    """The sweeps of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        # Of chores, in flight.
        self._appends_count = 0
        # Deleted topics, with the ids that they had, whose offsets have not been looked for.
        self._deleted_topics: dict[str, set[UUID]] = {}
        self._is_sweeping_deleted = False
        # The log has refused tombstones of orphans since this was last asked.
        self._are_orphans_left = False

    # ---- offsets of topics that are gone

    def topics_deleted(self, topics: Mapping[str, UUID], now_ms: int) -> None:
        """These topics exist no more, under these ids: nor do offsets in them, in any group."""
        for name, topic_id in topics.items():
            self._deleted_topics.setdefault(name, set()).add(topic_id)
        if not self._is_sweeping_deleted:
            self._is_sweeping_deleted = True
            self._shard.begin(self._sweep_deleted(now_ms), now_ms)

    def _sweep_deleted(self, now_ms: int) -> Pieces:
        while self._deleted_topics:
            deleted, self._deleted_topics = self._deleted_topics, {}

            def is_orphan(
                name: str, topic_id: UUID, deleted: dict[str, set[UUID]] = deleted
            ) -> bool:
                # Whoever commits for a topic made anew says its new id.
                return topic_id in deleted[name] or topic_id == ZERO_UUID

            now_ms = yield from self._sweep_groups(deleted, is_orphan, now_ms)
        self._is_sweeping_deleted = False

    def delete_orphans(self, is_orphan: IsOrphan, now_ms: int) -> None:
        """Delete offsets that no topic has any more. Those that are being committed stay: they are
        of a topic that is there."""
        self._shard.begin(self._sweep_orphans(is_orphan, now_ms), now_ms)

    def take_orphans_left(self) -> bool:
        """Whether to look for orphans again: the log would not have their tombstones."""
        are_left, self._are_orphans_left = self._are_orphans_left, False
        return are_left

    def _note_refusal(self, error: ErrorCode, now_ms: int) -> None:
        self._are_orphans_left |= error is not ErrorCode.NONE

    def _sweep_orphans(self, is_orphan: IsOrphan, now_ms: int) -> Pieces:
        yield from self._sweep_groups(None, is_orphan, now_ms)

    def _sweep_groups(
        self, topics: Collection[str] | None, is_orphan: IsOrphan, now_ms: int
    ) -> Generator[int, int, int]:
        """Delete orphans in these topics, or in all (None), of all groups. What an append in flight
        is to change is judged by what it will be."""
        offsets = self._shard.offsets
        unsettled: list[tuple[str, str]] = []
        group_ids = offsets.group_ids()
        group_ids += [each for each in offsets.pending_group_ids() if not offsets.has_offsets(each)]
        for group_id in group_ids:
            pending = dict.fromkeys(key.topic for key in offsets.pending_of_group(group_id))
            for topic in {**pending, **dict.fromkeys(offsets.topics_of(group_id))}:
                if topics is not None and topic not in topics:
                    continue
                if topic in pending:
                    unsettled.append((group_id, topic))
                now_ms = yield from self._sweep_orphans_of(group_id, topic, is_orphan, now_ms)
            now_ms = yield TOPIC_WORK + len(pending) // OFFSETS_PER_WORK
        while unsettled:
            now_ms = yield WAITING
            still_unsettled = []
            for group_id, topic in unsettled:
                if any(key.topic == topic for key in offsets.pending_of_group(group_id)):
                    still_unsettled.append((group_id, topic))
                else:
                    now_ms = yield from self._sweep_orphans_of(group_id, topic, is_orphan, now_ms)
            unsettled = still_unsettled
        return now_ms

    def _sweep_orphans_of(
        self, group_id: str, topic: str, is_orphan: IsOrphan, now_ms: int
    ) -> Generator[int, int, int]:
        return (
            yield from self.sweep(
                group_id,
                topic,
                lambda value: is_orphan(topic, topic_id_of_value(value)),
                now_ms,
                lambda count: self._note_refusal,
            )
        )

    # ---- what every sweep does

    def sweep(
        self,
        group_id: str,
        topic: str,
        is_due: Callable[[bytes], bool],
        now_ms: int,
        on_append: Callable[[int], Outcome | None] = lambda count: None,
    ) -> Generator[int, int, int]:
        """Delete those of a group's offsets in a topic that are due. Not those that an append in
        flight is about to change: nobody has seen what they will be. `on_append` is called with the
        number of offsets of each append, and returns who is told of its outcome."""
        offsets = self._shard.offsets
        partitions = list(offsets.values_of(group_id, topic))
        chunk_max = self._shard.tombstones_per_append(group_id)
        for start in range(0, len(partitions), chunk_max):
            chunk = partitions[start : start + chunk_max]
            values = offsets.values_of(group_id, topic)
            due = [each for each in chunk if each in values and is_due(values[each])]
            now_ms = yield TOPIC_WORK + len(chunk) // OFFSETS_PER_WORK
            if not due:
                continue
            while not self.has_room:
                now_ms = yield WAITING
            keys = []
            for partition in due:
                key = OffsetKey(group_id, topic, partition)
                value = offsets.value(key)
                if value is not None and not offsets.is_pending(key) and is_due(value):
                    keys.append(key)
            if keys:
                self.delete_keys(keys, now_ms, on_append(len(keys)))
                now_ms = yield len(keys) * TOMBSTONE_WORK
        return now_ms

    # ---- the pace

    @property
    def has_room(self) -> bool:
        """Whether a chore may write."""
        return self._appends_count < self._shard.config.chore_appends_max

    def take_room(self) -> Outcome:
        """A chore begins an append. What this returns must be told of its outcome."""
        self._appends_count += 1
        return self._give_room_back

    def _give_room_back(self, error: ErrorCode, now_ms: int) -> None:
        self._appends_count -= 1

    def delete_keys(
        self, keys: Iterable[OffsetKey], now_ms: int, on_settled: Outcome | None = None
    ) -> None:
        """Write tombstones, for a chore."""
        give_room_back = self.take_room()

        def settled(error: ErrorCode, now_ms: int) -> None:
            give_room_back(error, now_ms)
            if on_settled is not None:
                on_settled(error, now_ms)

        self._shard.append_offsets(dict.fromkeys(keys), now_ms, on_settled=settled)
