"""The group coordinator: classic consumer groups and committed offsets, without any I/O.

Theory of operation
- `__consumer_offsets` is the truth. Each of its partitions that this broker leads is a shard; a
  group lives in the shard that its id hashes to. `load` folds a partition's records into a shard,
  `unload` gives it up, and in between requests change it.
- Every method returns the effects that the call had, in order. What must be durable before
  somebody is told goes out as `AppendRecords`; the answers follow from `append_done`.
- Time comes in with each call. `tick` does what has fallen due, `next_deadline_ms` says when.

Rules of the house
- A reply token is answered exactly once: by the call that brought it, or later by a call that ends
  its wait. `unload` answers whatever waits.
- Requests to a partition that is not led here get NOT_COORDINATOR, to one that is being loaded
  COORDINATOR_LOAD_IN_PROGRESS.
- Memory is bounded by the maxima in `GroupCoordinatorConfig` and by the size of requests.

Deliberately absent: authorization, the existence of topics and their ids, versions of answers
(`data_plane.broker.groups` does these); transactional commits; KIP-848 groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

from data_plane.groups.appends import response_error_of_append
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.deadlines import Deadlines
from data_plane.groups.describe import describe_group, list_groups
from data_plane.groups.effects import AppendRecords, ClientContext, Effect, ReplyToken, Respond
from data_plane.groups.group import ClassicGroup, GroupState
from data_plane.groups.loading import Folded
from data_plane.groups.membership import Membership
from data_plane.groups.offset_commits import OffsetCommits, commit_error_response
from data_plane.groups.partitioning import partition_for_group
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.record_formats import (
    CommittedOffset,
    GroupKey,
    GroupRecord,
    OffsetKey,
)
from data_plane.groups.shard import CoordinatorParts, GroupCounters, Shard
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_response import (
    DeletableGroupResult,
    DeleteGroupsResponse,
)
from data_plane.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribeGroupsResponse,
)
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.heartbeat_response import HeartbeatResponse
from data_plane.wire.messages.join_group_request import JoinGroupRequest
from data_plane.wire.messages.join_group_response import JoinGroupResponse
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest
from data_plane.wire.messages.leave_group_response import LeaveGroupResponse
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.list_groups_response import ListGroupsResponse
from data_plane.wire.messages.offset_commit_request import OffsetCommitRequest
from data_plane.wire.messages.offset_delete_request import OffsetDeleteRequest
from data_plane.wire.messages.offset_delete_response import OffsetDeleteResponse
from data_plane.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
from data_plane.wire.messages.offset_fetch_response import OffsetFetchResponseGroup
from data_plane.wire.messages.sync_group_request import SyncGroupRequest
from data_plane.wire.messages.sync_group_response import SyncGroupResponse


class _LoadedShard:
    """A shard and the parts that work on it."""

    __slots__ = ("commits", "membership", "rebalance", "shard")

    def __init__(self, partition: int, epoch: int, parts: CoordinatorParts) -> None:
        self.shard = Shard(partition, epoch, parts)
        self.rebalance = Rebalance(self.shard)
        self.membership = Membership(self.shard, self.rebalance)
        self.commits = OffsetCommits(self.shard, self.rebalance)


class GroupCoordinator:
    """All groups whose partitions this broker leads."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        *,
        new_uuid: Callable[[], str],
        wall_ms: Callable[[int], int] = lambda now_ms: now_ms,
    ) -> None:
        """`new_uuid` returns a fresh random UUID as text; it becomes the end of a member id.
        `wall_ms` is the date at a steady time."""
        self.config = config
        # While the date or the settings cannot be trusted, nothing expires by them.
        self.may_expire_offsets = True
        self.counters = GroupCounters()
        self._outbox: list[Effect] = []
        self._deadlines = Deadlines()
        self._parts = CoordinatorParts(
            config=config,
            outbox=self._outbox,
            deadlines=self._deadlines,
            append_ids=count(1),
            new_uuid=new_uuid,
            counters=self.counters,
            wall_ms=wall_ms,
        )
        self._loading: dict[int, int] = {}
        self._loaded: dict[int, _LoadedShard] = {}
        # Which shard an append in flight belongs to.
        self._append_partitions: dict[int, int] = {}

    # ---- partitions come and go

    def start_loading(self, partition: int, epoch: int) -> bool:
        """This broker leads `partition` in `epoch` and is about to read it. False when a newer
        epoch is known already, or when this one is being or has been loaded."""
        loaded = self._loaded.get(partition)
        known_epoch = self._loading.get(partition, -1) if loaded is None else loaded.shard.epoch
        if epoch <= known_epoch:
            return False
        if loaded is not None:
            raise AssertionError(f"partition {partition} must be unloaded before it is loaded")
        self._loading[partition] = epoch
        return True

    def load(self, partition: int, epoch: int, folded: Folded, now_ms: int) -> list[Effect]:
        """Take over a partition with the state that `fold_records` found in it. Members go on
        where they were: with their generation, and a full session time-out from now."""
        if self._loading.get(partition) != epoch:
            return []  # Given up, or given anew, while it was read.
        del self._loading[partition]
        loaded = self._loaded[partition] = _LoadedShard(partition, epoch, self._parts)
        for key, value in folded.items():
            if isinstance(key, GroupKey) and isinstance(value, GroupRecord):
                loaded.membership.restore(key.group_id, value, now_ms)
        for key, value in folded.items():
            if isinstance(key, OffsetKey) and isinstance(value, CommittedOffset):
                loaded.shard.offsets.apply(key, value)
                if key.group_id not in loaded.shard.groups:
                    loaded.shard.new_group(key.group_id, now_ms)
        self._schedule_expiry(loaded, now_ms)
        return self._drain()

    def load_failed(self, partition: int, epoch: int) -> None:
        """The partition could not be read: its groups have no coordinator here."""
        if self._loading.get(partition) == epoch:
            del self._loading[partition]

    def unload(self, partition: int, now_ms: int) -> list[Effect]:
        """This broker leads `partition` no more. Whoever waits is told NOT_COORDINATOR."""
        self._loading.pop(partition, None)
        loaded = self._loaded.pop(partition, None)
        if loaded is None:
            return []
        shard = loaded.shard
        shard.expiry_timer.cancel()
        for group in list(shard.groups.values()):
            for member in group.members.values():
                loaded.rebalance.answer_parked(group, member, ErrorCode.NOT_COORDINATOR)
            shard.drop_group(group, now_ms)
        shard.appends.abandon(now_ms)
        effects = self._drain()
        in_flight = self._append_partitions
        for append_id in [key for key, each in in_flight.items() if each == partition]:
            del in_flight[append_id]
        return effects

    def append_done(self, append_id: int, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The outcome of an `AppendRecords`; in the order of the log for those that it took."""
        partition = self._append_partitions.pop(append_id, None)
        loaded = None if partition is None else self._loaded.get(partition)
        if loaded is not None:
            loaded.shard.appends.done(append_id, error, now_ms)
        return self._drain()

    def is_loaded(self, partition: int) -> bool:
        return partition in self._loaded

    def partition_of(self, group_id: str) -> int:
        """The partition that a group lives in."""
        return partition_for_group(group_id, self.config.offsets_topic_num_partitions)

    # ---- time

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what has fallen due: sessions, rebalances, expiry, appends that take too long."""
        self._deadlines.expire(now_ms)
        return self._drain()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do next; a call may come late, or too early."""
        return self._deadlines.next_deadline_ms()

    # ---- membership

    def join_group(
        self, request: JoinGroupRequest, client: ClientContext, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        error = self._group_id_error(request.group_id)
        config = self.config
        if error is ErrorCode.NONE and not (
            config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is not ErrorCode.NONE:
            return self._respond(
                token, JoinGroupResponse(member_id=request.member_id, error_code=error)
            )
        loaded, error = self._writable(request.group_id)
        if loaded is not None and self._is_full(loaded, request.group_id):
            loaded, error = None, ErrorCode.POLICY_VIOLATION
        if loaded is None:
            return self._respond(token, JoinGroupResponse(error_code=error))
        loaded.membership.join(request, client, token, now_ms)
        return self._drain()

    def sync_group(
        self, request: SyncGroupRequest, client: ClientContext, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        error = self._group_id_error(request.group_id)
        loaded = None
        if error is ErrorCode.NONE:
            loaded, error = self._writable(request.group_id)
        if loaded is None:
            return self._respond(token, SyncGroupResponse(error_code=error))
        loaded.rebalance.sync(request, client.api_version, token, now_ms)
        return self._drain()

    def heartbeat(self, request: HeartbeatRequest, token: ReplyToken, now_ms: int) -> list[Effect]:
        return self._respond(token, HeartbeatResponse(error_code=self._beat(request, now_ms)))

    def _beat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        loaded, error = self._shard_of(request.group_id)
        if loaded is not None:
            return loaded.membership.heartbeat(request, now_ms)
        # A member whose group is still being loaded is assumed to be in it.
        return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error

    def leave_group(
        self, request: LeaveGroupRequest, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        """`request.members` names who leaves, also for versions that had a single member id."""
        error = self._group_id_error(request.group_id)
        loaded = None
        if error is ErrorCode.NONE:
            loaded, error = self._writable(request.group_id)
        if loaded is None:
            return self._respond(token, LeaveGroupResponse(error_code=error))
        loaded.membership.leave(request, token, now_ms)
        return self._drain()

    # ---- offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, client: ClientContext, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        """Commit offsets of topics that exist. The empty group id is allowed, as in Kafka."""
        loaded, error = self._writable(request.group_id)
        if loaded is not None and self._is_full(loaded, request.group_id):
            loaded, error = None, ErrorCode.POLICY_VIOLATION
        if loaded is None:
            return self._respond(token, commit_error_response(request, error))
        loaded.commits.commit(request, client.api_version, token, now_ms)
        return self._drain()

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """One group's offsets. Changes nothing, so that there are no effects."""
        loaded, error = self._shard_of(request.group_id)
        if loaded is None:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        return loaded.commits.fetch(request, require_stable=require_stable)

    def delete_offsets(
        self, request: OffsetDeleteRequest, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        error = self._group_id_error(request.group_id)
        loaded = None
        if error is ErrorCode.NONE:
            loaded, error = self._writable(request.group_id)
        if loaded is None:
            return self._respond(token, OffsetDeleteResponse(error_code=error))
        loaded.commits.delete(request, token, now_ms)
        return self._drain()

    def topics_deleted(self, topics: Iterable[str], now_ms: int) -> list[Effect]:
        """Delete all groups' offsets in topics that exist no more."""
        names = list(topics)
        for loaded in self._loaded.values():
            loaded.commits.delete_topics(names, now_ms)
        return self._drain()

    def delete_committed(self, keys: Iterable[OffsetKey], now_ms: int) -> list[Effect]:
        """Delete these offsets as they are now, whoever uses them: not those that an append in
        flight is about to change, which the caller has not seen."""
        by_shard: dict[str, list[OffsetKey]] = {}
        for key in keys:
            by_shard.setdefault(key.group_id, []).append(key)
        for group_id, group_keys in by_shard.items():
            loaded, _ = self._shard_of(group_id)
            if loaded is not None:
                is_pending = loaded.shard.offsets.is_pending
                settled_keys = [key for key in group_keys if not is_pending(key)]
                loaded.commits.delete_keys(settled_keys, now_ms)
        return self._drain()

    # ---- administration

    def describe_groups(self, group_ids: Iterable[str], api_version: int) -> DescribeGroupsResponse:
        """Each group once, however often it is named."""
        response = DescribeGroupsResponse()
        for group_id in dict.fromkeys(group_ids):
            loaded, error = self._shard_of(group_id)
            if loaded is None:
                response.groups.append(DescribedGroup(group_id=group_id, error_code=error))
            else:
                group = loaded.shard.groups.get(group_id)
                response.groups.append(describe_group(group_id, group, api_version))
        return response

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """All groups that are coordinated here and pass the filters."""
        if self._loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ListGroupsResponse(groups=list_groups(self.groups(), request))

    def delete_groups(
        self, group_ids: Iterable[str], token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        """Delete Empty groups with their offsets; answered when all of them are settled."""
        results = {each: DeletableGroupResult(group_id=each) for each in group_ids}
        deletable: list[tuple[_LoadedShard, str]] = []
        for group_id, result in results.items():
            loaded, error = self._writable(group_id)
            if loaded is not None:
                error = loaded.commits.delete_group_error(group_id)
            result.error_code = error
            if loaded is not None and error is ErrorCode.NONE:
                deletable.append((loaded, group_id))
        response = DeleteGroupsResponse(results=list(results.values()))
        answer = _Countdown(len(deletable), lambda: self._queue(token, response))
        for loaded, group_id in deletable:
            on_outcome = partial(answer.note, results[group_id])
            loaded.commits.delete_group(group_id, now_ms, on_outcome)
        return self._drain()

    # ---- for metrics and tests

    def groups(self) -> Iterable[ClassicGroup]:
        for loaded in self._loaded.values():
            yield from loaded.shard.groups.values()

    def groups_by_state(self) -> dict[str, int]:
        """How many groups are in each state, under Kafka's names; a state may count 0."""
        counts = {state.value: 0 for state in GroupState}
        for group in self.groups():
            counts[group.state.value] += 1
        return counts

    def offset_count(self) -> int:
        return sum(loaded.shard.offsets.count for loaded in self._loaded.values())

    def append_count(self) -> int:
        """Appends in flight."""
        return len(self._append_partitions)

    def committed_offsets(self) -> dict[OffsetKey, CommittedOffset]:
        """All committed offsets."""
        return {
            key: committed
            for loaded in self._loaded.values()
            for key, committed in loaded.shard.offsets.snapshot().items()
        }

    # ---- inside

    def _shard_of(self, group_id: str) -> tuple[_LoadedShard | None, ErrorCode]:
        partition = self.partition_of(group_id)
        loaded = self._loaded.get(partition)
        if loaded is not None:
            return loaded, ErrorCode.NONE
        if partition in self._loading:
            return None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None, ErrorCode.NOT_COORDINATOR

    def _writable(self, group_id: str) -> tuple[_LoadedShard | None, ErrorCode]:
        """Like `_shard_of`, for requests that may have to write: too many writes in flight mean
        that the log does not keep up, and clients had better try again later."""
        loaded, error = self._shard_of(group_id)
        if loaded is not None and len(loaded.shard.appends) >= self.config.appends_in_flight_max:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        return loaded, error

    def _is_full(self, loaded: _LoadedShard, group_id: str) -> bool:
        """Whether `group_id` would be one group too many."""
        if group_id in loaded.shard.groups:
            return False
        group_count = sum(len(each.shard.groups) for each in self._loaded.values())
        return group_count >= self.config.groups_max

    def _group_id_error(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def _schedule_expiry(self, loaded: _LoadedShard, now_ms: int) -> None:
        check_ms = now_ms + self.config.offsets_retention_check_interval_ms
        action = partial(self._expire, loaded)
        self._deadlines.schedule(loaded.shard.expiry_timer, check_ms, action)

    def _expire(self, loaded: _LoadedShard, now_ms: int) -> None:
        if self.may_expire_offsets:
            loaded.commits.expire(now_ms)
        self._schedule_expiry(loaded, now_ms)

    def _queue(self, token: ReplyToken, response: Any) -> None:
        self._outbox.append(Respond(token, response))

    def _respond(self, token: ReplyToken, response: Any) -> list[Effect]:
        return [Respond(token, response)]

    def _drain(self) -> list[Effect]:
        effects = self._outbox[:]
        self._outbox.clear()
        for effect in effects:
            if isinstance(effect, AppendRecords):
                self._append_partitions[effect.append_id] = effect.partition
        return effects


class _Countdown:
    """Calls `on_zero` when `count` outcomes have been noted; at once when there are none."""

    def __init__(self, expected_count: int, on_zero: Callable[[], None]) -> None:
        self._left = expected_count
        self._on_zero = on_zero
        if expected_count == 0:
            on_zero()

    def note(self, result: DeletableGroupResult, error: ErrorCode, now_ms: int) -> None:
        result.error_code = error if error is ErrorCode.NONE else response_error_of_append(error)
        self._left -= 1
        if self._left == 0:
            self._on_zero()
