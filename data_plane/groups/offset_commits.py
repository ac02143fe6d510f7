"""Committing, fetching and deleting the offsets of one shard, as clients ask for it.

A commit is answered when its records are in the log, and only then can it be fetched. Who may
commit: members of the present generation, and anybody (generation -1) while a group has no
members; the first such commit creates a simple group.

Invariants
- Offsets change when their append settles (see `Shard.append_offsets`).
- What is there already can be committed anew, whatever else is in the request: only the offsets
  that there is no room for are refused, each for itself.
- New offsets do not enlarge what all offsets of the broker take beyond `offsets_max_bytes`, nor
  what its tenant has beyond its limits. Those in flight count, once: what is committed again before
  it has settled adds nothing. One whose metadata grows is held against the broker's bound alone.

Deliberately absent: what the broker deletes by itself (`offset_sweeps`, `offset_expiry`), and whole
groups (`group_deletion`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from typing import Final

from data_plane.groups.appends import Reply
from data_plane.groups.effects import ReplyToken
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.offsets import OffsetStore
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.record_formats import (
    CommittedOffset,
    OffsetKey,
    encode_committed_offset,
)
from data_plane.groups.shard import Bound, Shard
from data_plane.groups.totals import COMMITTED_OFFSETS, GROUP_METADATA_BYTES
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

COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9
DEFAULT_RETENTION_TIME_MS: Final = -1
INVALID_OFFSET: Final = -1
# The latest time that a record can name.
NEVER_MS: Final = 2**63 - 1
# The longest value of an offset whose metadata is empty or as short as Kafka Streams' is, in
# whichever version its record is written.
PLAIN_VALUE_BYTES_MAX: Final = 64


class _Growth:
    """By how many bytes a commit enlarges what there is: by offsets that are not there yet, and by
    those whose metadata grows."""

    __slots__ = ("_topics", "larger", "new")

    def __init__(self) -> None:
        self.new: dict[OffsetKey, int] = {}
        # Of those, what is taken once for each topic.
        self._topics: dict[str, int] = {}
        self.larger: dict[OffsetKey, int] = {}

    @property
    def new_bytes(self) -> int:
        return sum(self.new.values()) + sum(self._topics.values())

    @property
    def larger_bytes(self) -> int:
        return sum(self.larger.values())

    def take_new(self) -> list[OffsetKey]:
        """Those that are not there yet are none of it any more."""
        taken = list(self.new)
        self.new.clear()
        self._topics.clear()
        return taken

    def add(self, offsets: OffsetStore, key: OffsetKey, value: bytes) -> None:
        there = offsets.value(key)
        if there is not None:
            more = len(value) - max(len(there), PLAIN_VALUE_BYTES_MAX)
            if more > 0:
                self.larger[key] = more
        elif not offsets.is_pending(key):
            # Else the first commit that is in flight counts for it. What it comes to is counted
            # anew when that settles.
            self.new[key] = offsets.growth_bytes(key, value)
            if key.topic not in self._topics:
                self._topics[key.topic] = offsets.topic_growth_bytes(key.group_id, key.topic)


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
        group = self._shard.groups.get(request.group_id)
        error = self._commit_error(group, request, api_version)
        is_new = error is ErrorCode.NONE and group is None
        if is_new and self._shard.is_one_too_many(request.group_id, now_ms):
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if error is not ErrorCode.NONE:
            self._shard.respond(token, commit_error_response(request, error))
            return
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
        growth = _Growth()
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
                    growth.add(self._shard.offsets, key, value)
        for key in self._take_refused(growth, request.group_id, response, now_ms):
            del commits[key]
        if not commits:
            self._shard.respond(token, response)
            return
        if group is None:
            self._shard.new_group(request.group_id, now_ms).is_made_by_commit = True
        self._shard.counters.offset_commits += len(commits)
        self._shard.append_offsets(
            commits,
            now_ms,
            reply=Reply(token, response, partial(commit_error_response, request)),
            growth=len(growth.new),
            growth_bytes=growth.new_bytes + growth.larger_bytes,
        )

    def _take_refused(
        self, growth: _Growth, group_id: str, response: OffsetCommitResponse, now_ms: int
    ) -> list[OffsetKey]:
        """Take out of `growth` the offsets that there is no room for, and answer so for them."""
        shard = self._shard
        refused: list[OffsetKey] = []
        if growth.larger and not self._has_memory(growth.larger_bytes, group_id, now_ms):
            refused += growth.larger
            growth.larger.clear()
        if growth.new and not (
            self._has_memory(growth.new_bytes + growth.larger_bytes, group_id, now_ms)
            and not shard.refuses(COMMITTED_OFFSETS, len(growth.new), group_id, now_ms)
            and not shard.refuses(GROUP_METADATA_BYTES, growth.new_bytes, group_id, now_ms)
        ):
            refused += growth.take_new()
        if refused:
            _answer_refused(response, group_id, frozenset(refused))
        return refused

    def _has_memory(self, growth_bytes: int, group_id: str, now_ms: int) -> bool:
        """Whether the broker may keep so much more of the tenant's offsets."""
        shard = self._shard
        whole, own = shard.totals.whole, shard.totals.tenant
        bound = Bound(
            "bytes of offsets",
            shard.config.offsets_max_bytes,
            whole.offset_bytes + whole.pending_offset_bytes,
            own.offset_bytes + own.pending_offset_bytes,
        )
        return shard.has_room(bound, growth_bytes, group_id, now_ms)

    def _commit_error(
        self, group: ClassicGroup | None, request: OffsetCommitRequest, api_version: int
    ) -> ErrorCode:
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

    # ---- fetch

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        response: OffsetFetchResponseGroup,
        *,
        require_stable: bool,
    ) -> Iterator[None]:
        """Put into `response` the offsets of the named topics, -1 where there is none; all offsets
        if `topics` is None. A topic id, if given, must be the one that the offset was committed
        for. Yields at each topic and partition: whoever goes on later has made sure that this
        shard is not closed."""
        if request.topics is None:
            yield from self._fetch_all(request.group_id, response, require_stable)
            return
        for topic in request.topics:
            answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            yield
            for index in topic.partition_indexes:
                key = OffsetKey(request.group_id, topic.name, index)
                committed = self._shard.offsets.get(key)
                if committed is not None and not committed.is_of_topic(topic.topic_id):
                    committed = None
                answer.partitions.append(self._fetched(key, committed, require_stable))
                yield

    def _fetch_all(
        self, group_id: str, response: OffsetFetchResponseGroup, require_stable: bool
    ) -> Iterator[None]:
        offsets = self._shard.offsets
        for name in offsets.topics_of(group_id):
            answer = OffsetFetchResponseTopics(name=name)
            yield
            for index in list(offsets.values_of(group_id, name)):
                key = OffsetKey(group_id, name, index)
                committed = offsets.get(key)
                if committed is not None:
                    answer.partitions.append(self._fetched(key, committed, require_stable))
                yield
            # It may have been deleted since its turn came.
            if answer.partitions:
                response.topics.append(answer)

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
        self._shard.append_offsets(
            changes,
            now_ms,
            reply=Reply(token, response, lambda error: OffsetDeleteResponse(error_code=error)),
        )


def _answer_refused(
    response: OffsetCommitResponse, group_id: str, refused: Container[OffsetKey]
) -> None:
    """Say of these offsets that there is no room for them."""
    for topic in response.topics:
        for answer in topic.partitions:
            key = OffsetKey(group_id, topic.name, answer.partition_index)
            if key in refused and answer.error_code == ErrorCode.NONE:
                answer.error_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


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
