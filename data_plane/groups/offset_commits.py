"""Committing, fetching and deleting the offsets of one shard; expiry is in offset_expiry.

A commit is answered when its records are in the log, and only then can it be fetched. Who may
commit: members of the present generation, and anybody (generation -1) while a group has no
members; the first such commit creates a simple group.

Invariants
- Offsets and deletions take effect when their append settles (see `appends`).
- A group that is being deleted is Dead meanwhile; if the deletion fails, it is Empty again.
- What is done for more offsets than TOMBSTONES_PER_APPEND_MAX is a chore, with at most
  CHORE_APPENDS_MAX of its appends in flight.
- Commits do not enlarge what all offsets of the broker take beyond `offsets_max_bytes`; commits in
  flight count. What is there already can be committed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from data_plane.groups.appends import Outcome, Reply
from data_plane.groups.chores import WAITING, Pieces
from data_plane.groups.effects import ReplyToken
from data_plane.groups.group import ClassicGroup, GroupState
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.record_formats import (
    CommittedOffset,
    OffsetKey,
    encode_committed_offset,
    topic_id_of_value,
)
from data_plane.groups.shard import Shard, group_records, offset_record
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
)
from data_plane.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from data_plane.wire.messages.offset_delete_request import OffsetDeleteRequest
from data_plane.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from data_plane.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
from data_plane.wire.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from data_plane.wire.primitives import ZERO_UUID

COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9
DEFAULT_RETENTION_TIME_MS: Final = -1
INVALID_OFFSET: Final = -1
# The latest time that a record can name.
NEVER_MS: Final = 2**63 - 1

# Tombstones of one append: about a hundred bytes each, so that a batch stays far below
# message.max.bytes however many offsets a group has.
TOMBSTONES_PER_APPEND_MAX: Final = 1_000
# Appends of chores that may be in flight in a shard: the log sets the pace.
CHORE_APPENDS_MAX: Final = 16
# What pieces of chores are worth: see chores.
TOMBSTONE_WORK: Final = 8
TOPIC_WORK: Final = 2
OFFSETS_PER_WORK: Final = 4

# Whether an offset of this topic, committed while it had this id, is of a topic that is gone.
IsOrphan = Callable[[str, UUID], bool]


class OffsetCommits:
    """Everything about offsets, for the groups of one shard."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance
        self._chore_appends_count = 0
        # Deleted topics, with the ids that they had, whose offsets have not been looked for.
        self._deleted_topics: dict[str, set[UUID]] = {}
        self._is_sweeping_deleted = False

    # ---- commit

    def commit(
        self, request: OffsetCommitRequest, api_version: int, token: ReplyToken, now_ms: int
    ) -> None:
        """The topics of `request` exist; whoever calls has answered for the others."""
        error = self._commit_error(request, api_version)
        if error is not ErrorCode.NONE:
            self._shard.respond(token, commit_error_response(request, error))
            return
        group = self._shard.groups.get(request.group_id)
        if group is not None and group.state in (
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        ):
            self._rebalance.renew_session(group, group.members[request.member_id], now_ms)
        wall_ms = self._shard.wall_ms(now_ms)
        expire_timestamp_ms = None
        if request.retention_time_ms != DEFAULT_RETENTION_TIME_MS:
            expire_timestamp_ms = min(wall_ms + request.retention_time_ms, NEVER_MS)
        response = OffsetCommitResponse()
        commits: dict[OffsetKey, bytes | None] = {}
        growth_bytes = 0
        for topic in request.topics:
            answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            for partition in topic.partitions:
                error = self._metadata_error(partition)
                answer.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                )
                if error is ErrorCode.NONE:
                    key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                    value = encode_committed_offset(
                        CommittedOffset(
                            offset=partition.committed_offset,
                            leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.committed_metadata or "",
                            commit_timestamp_ms=wall_ms,
                            expire_timestamp_ms=expire_timestamp_ms,
                            topic_id=topic.topic_id,
                        )
                    )
                    commits[key] = value
                    growth_bytes += max(0, self._shard.offsets.growth_bytes(key, value))
        if not commits:
            self._shard.respond(token, response)
            return
        totals = self._shard.totals
        bytes_max = self._shard.config.offsets_max_bytes
        if growth_bytes and (
            totals.offset_bytes + totals.pending_offset_bytes + growth_bytes > bytes_max
        ):
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            self._shard.respond(token, commit_error_response(request, error))
            return
        if group is None:
            self._shard.new_group(request.group_id, now_ms)
        self._shard.counters.offset_commits += len(commits)
        self._append(
            commits,
            now_ms,
            reply=Reply(token, response, partial(commit_error_response, request)),
            growth_bytes=growth_bytes,
        )

    def _commit_error(self, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
        group = self._shard.groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return ErrorCode.NONE
            if api_version >= COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND:
                return ErrorCode.GROUP_ID_NOT_FOUND
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and group.is_empty:
            return ErrorCode.NONE
        if generation_id < 0 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.validate_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _metadata_error(self, partition: OffsetCommitRequestPartition) -> ErrorCode:
        metadata = partition.committed_metadata
        size_max = self._shard.config.offset_metadata_max_bytes
        if metadata is not None and len(metadata) > size_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _append(
        self,
        changes: dict[OffsetKey, bytes | None],
        now_ms: int,
        *,
        reply: Reply | None = None,
        growth_bytes: int = 0,
        on_settled: Outcome | None = None,
    ) -> None:
        """Write offset changes; apply them when the log has them."""
        wall_ms = self._shard.wall_ms(now_ms)
        batch = [offset_record(key, value, wall_ms) for key, value in changes.items()]
        self._shard.offsets.add_pending(changes)
        self._shard.add_pending_bytes(growth_bytes)
        self._shard.appends.append(
            batch,
            now_ms,
            replies=() if reply is None else (reply,),
            on_settled=partial(self._settle, changes, growth_bytes, on_settled),
        )

    def _settle(
        self,
        changes: dict[OffsetKey, bytes | None],
        growth_bytes: int,
        on_settled: Outcome | None,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        self._shard.offsets.remove_pending(changes)
        self._shard.add_pending_bytes(-growth_bytes)
        if error is ErrorCode.NONE:
            for key, value in changes.items():
                if value is not None and key.group_id not in self._shard.groups:
                    self._shard.new_group(key.group_id, now_ms)
                self._shard.apply_offset(key, value)
        else:
            self._shard.counters.append_failures += 1
        if on_settled is not None:
            on_settled(error, now_ms)

    # ---- fetch

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Offsets of the named topics, -1 where there is none; all offsets if `topics` is None.
        A topic id, if given, must be the one that the offset was committed for."""
        group_id = request.group_id
        response = OffsetFetchResponseGroup(group_id=group_id)
        if request.topics is None:
            topics: dict[str, OffsetFetchResponseTopics] = {}
            for key, committed in self._shard.offsets.of_group(group_id):
                answer = topics.get(key.topic)
                if answer is None:
                    answer = topics[key.topic] = OffsetFetchResponseTopics(name=key.topic)
                answer.partitions.append(self._fetched(key, committed, require_stable))
            response.topics = list(topics.values())
            return response
        for topic in request.topics:
            answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            for index in topic.partition_indexes:
                key = OffsetKey(group_id, topic.name, index)
                committed_or_none = self._shard.offsets.get(key)
                if committed_or_none and not committed_or_none.is_of_topic(topic.topic_id):
                    committed_or_none = None
                answer.partitions.append(self._fetched(key, committed_or_none, require_stable))
        return response

    def _fetched(
        self, key: OffsetKey, committed: CommittedOffset | None, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        is_unstable = require_stable and self._shard.offsets.is_pending(key)
        if committed is None or is_unstable:
            return OffsetFetchResponsePartitions(
                partition_index=key.partition,
                committed_offset=INVALID_OFFSET,
                committed_leader_epoch=-1,
                metadata="",
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
            )
        return OffsetFetchResponsePartitions(
            partition_index=key.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )

    # ---- delete

    def delete(self, request: OffsetDeleteRequest, token: ReplyToken, now_ms: int) -> None:
        """OffsetDelete: offsets of topics that no member is subscribed to."""
        group = self._shard.groups.get(request.group_id)
        error = _offset_delete_error(group)
        if group is None or error is not ErrorCode.NONE:
            self._shard.respond(token, OffsetDeleteResponse(error_code=error))
            return
        response = OffsetDeleteResponse()
        changes: dict[OffsetKey, bytes | None] = {}
        for topic in request.topics:
            error = ErrorCode.NONE
            if group.is_subscribed_to_topic(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            answer = OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(answer)
            for partition in topic.partitions:
                key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                answer.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=key.partition, error_code=error)
                )
                offsets = self._shard.offsets
                if error is ErrorCode.NONE and (offsets.get(key) or offsets.is_pending(key)):
                    changes[key] = None
        if not changes:
            self._shard.respond(token, response)
            return
        self._shard.counters.offset_deletions += len(changes)
        self._append(
            changes,
            now_ms,
            reply=Reply(token, response, lambda error: OffsetDeleteResponse(error_code=error)),
        )

    def delete_group_error(self, group_id: str) -> ErrorCode:
        """Whether DeleteGroups may delete this group."""
        group = self._shard.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP

    def delete_group(self, group_id: str, now_ms: int, on_outcome: Outcome | None) -> None:
        """Delete an Empty group and all its offsets. `on_outcome` is told once."""
        group = self._shard.groups[group_id]
        assert group.is_empty
        while group.pending_join_timers:
            group.take_pending_member(next(iter(group.pending_join_timers)))
        # From now on nobody commits for it: these are all.
        group.transition_to(GroupState.DEAD, now_ms)
        append_id = self._shard.appends.announce(
            now_ms, on_outcome=on_outcome, on_settled=partial(self._end_delete_group, group)
        )
        offsets = self._shard.offsets
        pending = offsets.pending_of_group(group_id)
        if offsets.count_of_group(group_id) + len(pending) > TOMBSTONES_PER_APPEND_MAX:
            self._shard.begin(self._delete_large_group(group_id, append_id, now_ms), now_ms)
            return
        keys = dict.fromkeys(key for key, _ in offsets.of_group(group_id))
        keys.update(dict.fromkeys(pending))
        if keys:
            self._append(dict.fromkeys(keys), now_ms)
        wall_ms = self._shard.wall_ms(now_ms)
        self._shard.appends.append_announced(append_id, group_records(group_id, None, wall_ms))

    def delete_expired_group(self, group_id: str, now_ms: int) -> None:
        """Delete an Empty group, for a chore."""
        self._chore_appends_count += 1
        self.delete_group(group_id, now_ms, self._chore_append_settled)

    def _delete_large_group(self, group_id: str, append_id: int, now_ms: int) -> Pieces:
        pending = self._shard.offsets.pending_of_group(group_id)
        for topic in self._shard.offsets.topics_of(group_id):
            now_ms = yield from self.sweep(group_id, topic, lambda value: True, now_ms)
        for start in range(0, len(pending), TOMBSTONES_PER_APPEND_MAX):
            while not self.has_room:
                now_ms = yield WAITING
            keys = pending[start : start + TOMBSTONES_PER_APPEND_MAX]
            self.delete_keys(keys, now_ms)
            now_ms = yield len(keys) * TOMBSTONE_WORK
        wall_ms = self._shard.wall_ms(now_ms)
        self._shard.appends.append_announced(append_id, group_records(group_id, None, wall_ms))

    def _end_delete_group(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.NONE:
            self._shard.counters.groups_deleted += 1
            self._shard.tell(group.group_id, "deleted", f"generation {group.generation_id}")
            self._shard.drop_group(group, now_ms)
        else:
            # Back to what the log says: the group is there, and nobody is in it.
            self._shard.tell(group.group_id, "append_failed", error.name)
            group.state = GroupState.EMPTY

    # ---- sweeping

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
            pending = {key.topic for key in offsets.pending_of_group(group_id)}
            wanted = pending.union(offsets.topics_of(group_id))
            if topics is not None:
                wanted.intersection_update(topics)
            for topic in wanted:
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
                group_id, topic, lambda value: is_orphan(topic, topic_id_of_value(value)), now_ms
            )
        )

    def sweep(
        self,
        group_id: str,
        topic: str,
        is_due: Callable[[bytes], bool],
        now_ms: int,
        note_count: Callable[[int], None] = lambda count: None,
    ) -> Generator[int, int, int]:
        """Delete those of a group's offsets in a topic that are due. Not those that an append in
        flight is about to change: nobody has seen what they will be."""
        offsets = self._shard.offsets
        partitions = list(offsets.values_of(group_id, topic))
        for start in range(0, len(partitions), TOMBSTONES_PER_APPEND_MAX):
            chunk = partitions[start : start + TOMBSTONES_PER_APPEND_MAX]
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
                self.delete_keys(keys, now_ms)
                note_count(len(keys))
                now_ms = yield len(keys) * TOMBSTONE_WORK
        return now_ms

    @property
    def has_room(self) -> bool:
        """Whether a chore may write."""
        return self._chore_appends_count < CHORE_APPENDS_MAX

    def delete_keys(self, keys: Iterable[OffsetKey], now_ms: int) -> None:
        """Write tombstones, for a chore."""
        self._chore_appends_count += 1
        self._append(dict.fromkeys(keys), now_ms, on_settled=self._chore_append_settled)

    def _chore_append_settled(self, error: ErrorCode, now_ms: int) -> None:
        self._chore_appends_count -= 1


def commit_error_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition of a commit."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_delete_error(group: ClassicGroup | None) -> ErrorCode:
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE
