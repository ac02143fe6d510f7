"""Committing, fetching, deleting and expiring the offsets of one shard.

A commit is answered when its records are in the log, and only then can it be fetched. Who may
commit: members of the present generation, and anybody (generation -1) while a group has no
members; the first such commit creates a simple group.

Offsets expire `offsets.retention.minutes` after (KIP-211)
- the group became Empty, for groups with a protocol type, or their commit if that came later (an
  administrator has set them; Kafka expires these with the others);
- their commit, for simple groups, and for topics that no member of a Stable consumer group reads;
- never while the group is in any other state; at their own time, if a client of old gave one.
An Empty group whose last offset goes is deleted with it.

Invariants
- Offsets and deletions take effect when their append settles (see `appends`).
- A group that is being deleted is Dead meanwhile; if the deletion fails, it is Empty again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from data_plane.groups.appends import Reply
from data_plane.groups.effects import ReplyToken
from data_plane.groups.group import ClassicGroup, GroupState
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.record_formats import CommittedOffset, OffsetKey
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
from data_plane.wire.records import NewRecord

COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9
DEFAULT_RETENTION_TIME_MS: Final = -1
INVALID_OFFSET: Final = -1
# The latest time that a record can name.
NEVER_MS: Final = 2**63 - 1

# Tombstones of one append: about a hundred bytes each, so that a batch stays far below
# message.max.bytes however many offsets a group has.
TOMBSTONES_PER_APPEND_MAX: Final = 1_000


class OffsetCommits:
    """Everything about offsets, for the groups of one shard."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

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
        commits: dict[OffsetKey, CommittedOffset] = {}
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
                    commits[key] = CommittedOffset(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata or "",
                        commit_timestamp_ms=wall_ms,
                        expire_timestamp_ms=expire_timestamp_ms,
                        topic_id=topic.topic_id,
                    )
        if not commits:
            self._shard.respond(token, response)
            return
        if group is None:
            self._shard.new_group(request.group_id, now_ms)
        self._shard.counters.offset_commits += len(commits)
        self._append(
            {**commits},
            now_ms,
            reply=Reply(token, response, partial(commit_error_response, request)),
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
        changes: dict[OffsetKey, CommittedOffset | None],
        now_ms: int,
        *,
        reply: Reply | None = None,
        records: Iterable[NewRecord] = (),
        on_settled: Callable[[ErrorCode, int], None] | None = None,
    ) -> None:
        """Write offset changes (and then other `records`); apply them when the log has them."""
        wall_ms = self._shard.wall_ms(now_ms)
        batch = [offset_record(key, committed, wall_ms) for key, committed in changes.items()]
        batch.extend(records)
        self._shard.offsets.add_pending(changes)
        self._shard.appends.append(
            batch,
            now_ms,
            replies=() if reply is None else (reply,),
            on_settled=partial(self._settle, changes, on_settled),
        )

    def _settle(
        self,
        changes: dict[OffsetKey, CommittedOffset | None],
        on_settled: Callable[[ErrorCode, int], None] | None,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        self._shard.offsets.remove_pending(changes)
        if error is ErrorCode.NONE:
            for key, committed in changes.items():
                if committed is not None and key.group_id not in self._shard.groups:
                    self._shard.new_group(key.group_id, now_ms)
                self._shard.offsets.apply(key, committed)
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
        changes: dict[OffsetKey, CommittedOffset | None] = {}
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

    def delete_topics(self, topics: Iterable[str], now_ms: int) -> None:
        """These topics exist no more: nor do offsets in them, in any group."""
        self.delete_keys(self._shard.offsets.of_topics(topics), now_ms)

    def delete_group_error(self, group_id: str) -> ErrorCode:
        """Whether DeleteGroups may delete this group."""
        group = self._shard.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP

    def delete_group(
        self, group_id: str, now_ms: int, on_outcome: Callable[[ErrorCode, int], None] | None
    ) -> None:
        """Delete an Empty group and all its offsets. `on_outcome` is told once."""
        group = self._shard.groups[group_id]
        assert group.is_empty
        keys = dict.fromkeys(key for key, _ in self._shard.offsets.of_group(group_id))
        keys.update(dict.fromkeys(self._shard.offsets.pending_of_group(group_id)))
        while group.pending_join_timers:
            group.take_pending_member(next(iter(group.pending_join_timers)))
        group.transition_to(GroupState.DEAD, now_ms)
        self.delete_keys(list(keys), now_ms)
        self._shard.appends.append(
            group_records(group_id, None, self._shard.wall_ms(now_ms)),
            now_ms,
            on_outcome=on_outcome,
            on_settled=partial(self._end_delete_group, group),
        )

    def _end_delete_group(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.NONE:
            self._shard.counters.groups_deleted += 1
            self._shard.tell(group.group_id, "deleted", f"generation {group.generation_id}")
            self._shard.drop_group(group, now_ms)
        else:
            # Back to what the log says: the group is there, and nobody is in it.
            self._shard.tell(group.group_id, "append_failed", error.name)
            group.state = GroupState.EMPTY

    def delete_keys(self, keys: list[OffsetKey], now_ms: int) -> None:
        """Write tombstones for `keys`, some at a time."""
        for start in range(0, len(keys), TOMBSTONES_PER_APPEND_MAX):
            chunk = keys[start : start + TOMBSTONES_PER_APPEND_MAX]
            self._append(dict.fromkeys(chunk), now_ms)

    # ---- expiry

    def expire(self, now_ms: int) -> None:
        """Write tombstones for everything that has expired; empty groups go with their offsets."""
        wall_ms = self._shard.wall_ms(now_ms)
        expired: list[OffsetKey] = []
        deletable: list[str] = []
        for group in self._shard.groups.values():
            keys, is_all = self._expired_of_group(group, wall_ms)
            is_idle = group.is_empty and not group.pending_join_timers
            if is_all and is_idle and not self._shard.offsets.has_pending(group.group_id):
                deletable.append(group.group_id)
            else:
                expired.extend(keys)
            self._shard.counters.offset_expirations += len(keys)
        self.delete_keys(expired, now_ms)
        for group_id in deletable:
            self.delete_group(group_id, now_ms, None)

    def _expired_of_group(self, group: ClassicGroup, wall_ms: int) -> tuple[list[OffsetKey], bool]:
        """The offsets of a group that have expired, and whether that is all of them."""
        if not self._shard.offsets.has_offsets(group.group_id):
            return [], True
        if group.protocol_type is None:
            since_ms = None
        elif group.is_empty:
            since_ms = group.current_state_timestamp_ms
        elif (
            group.state is GroupState.STABLE
            and group.uses_consumer_protocol
            and group.subscribed_topics is not None
        ):
            since_ms = None
        else:
            return [], False
        retention_ms = self._shard.config.offsets_retention_ms
        expired: list[OffsetKey] = []
        is_all = True
        for key, committed in self._shard.offsets.of_group(group.group_id):
            if committed.expire_timestamp_ms is not None:
                due_ms = committed.expire_timestamp_ms
            else:
                due_ms = max(committed.commit_timestamp_ms, since_ms or 0) + retention_ms
            is_in_use = group.is_subscribed_to_topic(key.topic)
            if is_in_use or wall_ms < due_ms or self._shard.offsets.is_pending(key):
                is_all = False
            else:
                expired.append(key)
        return expired, is_all


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
