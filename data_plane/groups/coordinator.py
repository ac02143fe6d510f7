"""The group coordinator: classic consumer groups and committed offsets, without any I/O.

Theory of operation
- `__consumer_offsets` is the truth. Each of its partitions that this broker leads has a shard for
  each tenant; a group lives in the shard of its tenant, in the partition that it hashes to. `load`
  folds a partition's records into shards, `unload` gives them up, and in between requests change
  them. Names are as the tenant's clients say them; whose they are comes with each call. `tenant` is
  an id that is never used again, so a tenant that is made anew finds nothing of the one before.
- Every method returns the effects that the call had, in order. What must be durable before
  somebody is told goes out as `AppendRecords`; the answers follow from `append_done`.
- Time comes in with each call. `tick` does what has fallen due, `next_deadline_ms` says when.

Rules of the house
- A reply token is answered exactly once: by the call that brought it, or later by a call that ends
  its wait. `unload` answers whatever waits.
- Requests to a partition that is not led here get NOT_COORDINATOR, to one that is being loaded
  COORDINATOR_LOAD_IN_PROGRESS.
- Memory is bounded by the maxima in `GroupCoordinatorConfig` and by the size of requests; what a
  tenant has of it, by its limits (totals.py).
- No call takes longer because there are many groups or offsets: see chores.

Deliberately absent: authorization, the existence of topics and their ids, versions of answers
(`data_plane.broker.coordinators.groups` does these); transactional commits; KIP-848 groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import UUID

from data_plane.groups.chores import Chores, Pieces
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.deadlines import Deadlines
from data_plane.groups.describe import GroupFilter, describe_group, list_group
from data_plane.groups.effects import AppendRecords, ClientContext, Effect, ReplyToken, Respond
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_deletion import DeletionCountdown
from data_plane.groups.led_partitions import LedPartitions
from data_plane.groups.loaded_shard import LoadedShard
from data_plane.groups.loading import FoldedTenants
from data_plane.groups.offset_commits import commit_error_response
from data_plane.groups.offset_lookups import look_up
from data_plane.groups.partitioning import partition_for_group
from data_plane.groups.record_formats import CommittedOffset, OffsetKey
from data_plane.groups.shard import (
    NO_PAUSE,
    CoordinatorParts,
    ExpiryPause,
    GroupCounters,
    Shard,
)
from data_plane.groups.totals import GroupTotals, LimitOf, no_limit_of
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

# Of a piece of ListGroups: see chores.
LISTED_GROUPS_PER_PIECE: Final = 500


class GroupCoordinator:
    """All groups whose partitions this broker leads."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        *,
        new_uuid: Callable[[], str],
        wall_ms: Callable[[int], int] = lambda now_ms: now_ms,
        expiry_pause: Callable[[str, str], ExpiryPause | None] = lambda tenant, topic: NO_PAUSE,
        limit_of: LimitOf = no_limit_of,
    ) -> None:
        """`new_uuid` returns a fresh random UUID as text; it becomes the end of a member id.
        `wall_ms` is the date at a steady time; `expiry_pause`, `limit_of`: see
        CoordinatorParts."""
        self.config = config
        # While the date or the settings cannot be trusted, nothing expires by them.
        self.may_expire_offsets = True
        self.counters = GroupCounters()
        self.totals = GroupTotals()
        self._outbox: list[Effect] = []
        self._deadlines = Deadlines()
        self._parts = CoordinatorParts(
            config=config,
            outbox=self._outbox,
            deadlines=self._deadlines,
            append_ids=count(1),
            new_uuid=new_uuid,
            counters=self.counters,
            totals=self.totals,
            limit_of=limit_of,
            chores=Chores(config.work_per_turn_max),
            wall_ms=wall_ms,
            may_expire=lambda: self.may_expire_offsets,
            expiry_pause=expiry_pause,
        )
        self._chores = self._parts.chores
        self.partitions = LedPartitions(self._parts)
        # Which shard an append in flight belongs to.
        self._append_shards: dict[int, Shard] = {}

    # ---- partitions come and go

    def start_loading(self, partition: int, epoch: int) -> bool:
        """This broker leads `partition` in `epoch` and is about to read it. False when a newer
        epoch is known already, or when this one is being or has been loaded."""
        return self.partitions.start_loading(partition, epoch)

    def load(self, partition: int, epoch: int, folded: FoldedTenants, now_ms: int) -> list[Effect]:
        """Take over a partition with the state that `fold_records` found in it, and `folded` itself
        with it. Members go on where they were: with their generation, and a full session time-out
        from when `is_loaded` says so. That may be some ticks later."""
        self.partitions.load(partition, epoch, folded, now_ms)
        return self._drain()

    def load_failed(self, partition: int, epoch: int) -> None:
        """The partition could not be read: its groups have no coordinator here."""
        self.partitions.load_failed(partition, epoch)

    def unload(self, partition: int, now_ms: int) -> list[Effect]:
        """This broker leads `partition` no more. Whoever waits is told NOT_COORDINATOR, as soon as
        their turn comes."""
        self.partitions.unload(partition, now_ms)
        return self._drain()

    def append_done(self, append_id: int, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The outcome of an `AppendRecords`; in the order of the log for those that it took."""
        shard = self._append_shards.pop(append_id, None)
        if shard is not None:
            shard.appends.done(append_id, error, now_ms)
            self._chores.wake(now_ms)
        return self._drain()

    def is_loaded(self, partition: int) -> bool:
        return partition in self.partitions.loaded

    def partition_of(self, tenant: str, group_id: str) -> int:
        """The partition that a group lives in."""
        return partition_for_group(tenant, group_id, self.config.offsets_topic_num_partitions)

    # ---- time

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what has fallen due: sessions, rebalances, expiry, appends that take too long; and
        some of what does not fit into one turn of the loop."""
        self._deadlines.expire(now_ms)
        self._chores.run(now_ms)
        return self._drain()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do next; a call may come late, or too early."""
        timer_ms = self._deadlines.next_deadline_ms()
        chore_ms = self._chores.next_deadline_ms()
        if timer_ms is None or chore_ms is None:
            return chore_ms if timer_ms is None else timer_ms
        return min(timer_ms, chore_ms)

    def finish(self, now_ms: int) -> list[Effect]:
        """Do at once what was left for later turns: answer whoever waits, let go of partitions."""
        self._chores.finish(now_ms)
        return self._drain()

    # ---- membership

    def join_group(
        self,
        tenant: str,
        request: JoinGroupRequest,
        client: ClientContext,
        token: ReplyToken,
        now_ms: int,
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
        loaded, error = self._writable(tenant, request.group_id)
        if loaded is None:
            self._queue(token, JoinGroupResponse(error_code=error))
            return self._drain()
        loaded.membership.join(request, client, token, now_ms)
        return self._drain()

    def sync_group(
        self,
        tenant: str,
        request: SyncGroupRequest,
        client: ClientContext,
        token: ReplyToken,
        now_ms: int,
    ) -> list[Effect]:
        error = self._group_id_error(request.group_id)
        loaded = None
        if error is ErrorCode.NONE:
            loaded, error = self._writable(tenant, request.group_id)
        if loaded is None:
            return self._respond(token, SyncGroupResponse(error_code=error))
        loaded.rebalance.sync(request, client.api_version, token, now_ms)
        return self._drain()

    def heartbeat(
        self, tenant: str, request: HeartbeatRequest, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        error = self._beat(tenant, request, now_ms)
        return self._respond(token, HeartbeatResponse(error_code=error))

    def _beat(self, tenant: str, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        loaded, error = self._shard_of(tenant, request.group_id)
        if loaded is not None:
            return loaded.membership.heartbeat(request, now_ms)
        # A member whose group is still being loaded is assumed to be in it.
        return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error

    def leave_group(
        self, tenant: str, request: LeaveGroupRequest, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        """`request.members` names who leaves, also for versions that had a single member id."""
        error = self._group_id_error(request.group_id)
        loaded = None
        if error is ErrorCode.NONE:
            loaded, error = self._writable(tenant, request.group_id)
        if loaded is None:
            return self._respond(token, LeaveGroupResponse(error_code=error))
        loaded.membership.leave(request, token, now_ms)
        return self._drain()

    # ---- offsets

    def commit_offsets(
        self,
        tenant: str,
        request: OffsetCommitRequest,
        client: ClientContext,
        token: ReplyToken,
        now_ms: int,
    ) -> list[Effect]:
        """Commit offsets of topics that exist. The empty group id is allowed, as in Kafka."""
        loaded, error = self._writable(tenant, request.group_id)
        if loaded is None:
            self._queue(token, commit_error_response(request, error))
            return self._drain()
        loaded.commits.commit(request, client.api_version, token, now_ms)
        return self._drain()

    def fetch_offsets(
        self,
        tenant: str,
        groups: Sequence[OffsetFetchRequestGroup],
        token: ReplyToken,
        now_ms: int,
        *,
        require_stable: bool,
    ) -> list[Effect]:
        """Offsets of these groups; the response is a list of OffsetFetchResponseGroup in their
        order. Few offsets are told at once, however much else there is to do."""
        pieces = self._fetch_offsets(tenant, groups, token, require_stable)
        if next(pieces, None) is not None:
            self._chores.begin(None, pieces, now_ms, tenant=tenant)
        return self._drain()

    def _fetch_offsets(
        self,
        tenant: str,
        groups: Sequence[OffsetFetchRequestGroup],
        token: ReplyToken,
        require_stable: bool,
    ) -> Pieces:
        # Who coordinates them is told as of the call: what is loaded later nobody has confirmed.
        shards = [self._shard_of(tenant, group.group_id) for group in groups]
        responses: list[OffsetFetchResponseGroup] = []
        yield from look_up(groups, shards, responses, require_stable=require_stable)
        self._queue(token, responses)

    def delete_offsets(
        self, tenant: str, request: OffsetDeleteRequest, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        error = self._group_id_error(request.group_id)
        loaded = None
        if error is ErrorCode.NONE:
            loaded, error = self._writable(tenant, request.group_id)
        if loaded is None:
            return self._respond(token, OffsetDeleteResponse(error_code=error))
        loaded.commits.delete(request, token, now_ms)
        return self._drain()

    def topics_deleted(self, tenant: str, topics: Mapping[str, UUID], now_ms: int) -> list[Effect]:
        """Delete all groups' offsets in topics of a tenant that exist no more, by name and id."""
        partitions = self.partitions
        for loaded in (*partitions.shards_of(tenant), *partitions.opening_shards_of(tenant)):
            loaded.sweeps.topics_deleted(topics, now_ms)
        return self._drain()

    @property
    def has_chores(self) -> bool:
        """Whether something is left to do that needs no append to settle first."""
        return self._chores.next_deadline_ms() is not None

    @property
    def may_have_orphans(self) -> bool:
        """Whether a partition was loaded in which nobody has looked for offsets without topics."""
        return self.partitions.has_unswept

    def delete_orphans(
        self, is_orphan: Callable[[str, str, UUID], bool], now_ms: int
    ) -> list[Effect]:
        """Look for such offsets, and delete those of which `is_orphan` (of a tenant, a topic's name
        and its id) says so then."""
        for loaded in self.partitions.take_unswept():
            of_tenant = partial(is_orphan, loaded.shard.tenant)
            loaded.sweeps.delete_orphans(of_tenant, now_ms)
        return self._drain()

    # ---- administration

    def describe_groups(
        self, tenant: str, group_ids: Iterable[str], api_version: int
    ) -> DescribeGroupsResponse:
        """Each group once, however often it is named."""
        response = DescribeGroupsResponse()
        for group_id in dict.fromkeys(group_ids):
            loaded, error = self._shard_of(tenant, group_id)
            if loaded is None:
                response.groups.append(DescribedGroup(group_id=group_id, error_code=error))
            else:
                group = loaded.shard.groups.get(group_id)
                response.groups.append(describe_group(group_id, group, api_version))
        return response

    def list_groups(
        self, tenant: str, request: ListGroupsRequest, token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        """All groups of a tenant that are coordinated here and pass the filters."""
        if self.partitions.is_loading:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return self._respond(token, ListGroupsResponse(error_code=error))
        pieces = self._list_groups(tenant, GroupFilter(request), token, now_ms)
        self._chores.begin(None, pieces, now_ms, tenant=tenant)
        return self._drain()

    def _list_groups(
        self, tenant: str, groups: GroupFilter, token: ReplyToken, now_ms: int
    ) -> Pieces:
        response = ListGroupsResponse()
        for loaded in self.partitions.shards_of(tenant):
            group_ids = list(loaded.shard.groups)
            for start in range(0, len(group_ids), LISTED_GROUPS_PER_PIECE):
                piece = group_ids[start : start + LISTED_GROUPS_PER_PIECE]
                for group_id in piece:
                    group = loaded.shard.groups.get(group_id)
                    if group is not None and groups.passes(group):
                        response.groups.append(list_group(group))
                yield len(piece)
        self._queue(token, response)

    def delete_groups(
        self, tenant: str, group_ids: Iterable[str], token: ReplyToken, now_ms: int
    ) -> list[Effect]:
        """Delete Empty groups with their offsets; answered when all of them are settled."""
        results = {each: DeletableGroupResult(group_id=each) for each in group_ids}
        deletable: list[tuple[LoadedShard, str]] = []
        for group_id, result in results.items():
            loaded, error = self._writable(tenant, group_id)
            if loaded is not None:
                error = loaded.deletion.error_of(group_id)
            result.error_code = error
            if loaded is not None and error is ErrorCode.NONE:
                deletable.append((loaded, group_id))
        response = DeleteGroupsResponse(results=list(results.values()))
        answer = DeletionCountdown(len(deletable), lambda: self._queue(token, response))
        for loaded, group_id in deletable:
            on_outcome = partial(answer.note, results[group_id])
            loaded.deletion.delete(group_id, now_ms, on_outcome)
        return self._drain()

    # ---- for metrics and tests

    def groups(self) -> Iterable[ClassicGroup]:
        """All tenants'."""
        for loaded in self.partitions.shards():
            yield from loaded.shard.groups.values()

    def groups_by_state(self) -> dict[str, int]:
        """How many groups are in each state, under Kafka's names; a state may count 0."""
        return {state.value: count for state, count in self.totals.state_counts.items()}

    def offset_count(self) -> int:
        return self.totals.offset_count

    def append_count(self) -> int:
        """Appends in flight."""
        return len(self._append_shards)

    def committed_offsets(self, tenant: str) -> dict[OffsetKey, CommittedOffset]:
        """All committed offsets of a tenant."""
        return {
            key: committed
            for loaded in self.partitions.shards_of(tenant)
            for key, committed in loaded.shard.offsets.snapshot().items()
        }

    # ---- inside

    def _shard_of(self, tenant: str, group_id: str) -> tuple[LoadedShard | None, ErrorCode]:
        return self.partitions.find(tenant, self.partition_of(tenant, group_id))

    def _writable(self, tenant: str, group_id: str) -> tuple[LoadedShard | None, ErrorCode]:
        """Like `_shard_of`, for requests that may have to write: too many writes in flight mean
        that the log does not keep up, and clients had better try again later."""
        loaded, error = self._shard_of(tenant, group_id)
        if loaded is not None and len(loaded.shard.appends) >= self.config.appends_in_flight_max:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        return loaded, error

    def _group_id_error(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def _queue(self, token: ReplyToken, response: Any) -> None:
        self._outbox.append(Respond(token, response))

    def _respond(self, token: ReplyToken, response: Any) -> list[Effect]:
        return [Respond(token, response)]

    def _drain(self) -> list[Effect]:
        effects = self._outbox[:]
        self._outbox.clear()
        for effect in effects:
            if isinstance(effect, AppendRecords):
                of_tenant = self.partitions.loaded[effect.partition].shards[effect.tenant]
                self._append_shards[effect.append_id] = of_tenant.shard
        return effects
