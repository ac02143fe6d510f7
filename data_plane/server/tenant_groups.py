"""Groups on behalf of a principal: which there are, how far behind they are, other offsets.

All of it is Kafka's own requests (kafka_calls.py), sent to the group's coordinator, which is this
broker or another one. Only ends of logs are looked up besides: in this broker's replicas, of topics
that the principal may describe.

Bounds: OFFSETS_MAX partitions of a group, TARGETS_MAX of a reset, GROUPS_MAX on a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from data_plane.broker.fetch.list_offsets import COUNT_FROM
from data_plane.broker.fetch.projection import Projections
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.groups.subscription import decode_assignment
from data_plane.replica.partition import Partition
from data_plane.server.cell_calls import BadRequest, Calls, within
from data_plane.server.kafka_calls import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    Caller,
    KafkaCalls,
)
from data_plane.server.tenant_records import read_caller
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.registry import ApiKey

GROUPS_MAX: Final = 1_000
OFFSETS_MAX: Final = 10_000
TARGETS_MAX: Final = 1_000
# So many look-ups of replicas at a time.
ENDS_AT_ONCE_MAX: Final = 500

_EMPTY_STATES: Final = ("Empty", "Dead")
_COORDINATOR_CODES: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_TIMESTAMPS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
_Key = tuple[str, int]


class Ends(NamedTuple):
    """Of a replica here: where it begins, and where consumers' reading ends."""

    start: int
    end: int


class TenantGroups:
    """ListGroups, DescribeGroup and ResetOffsets."""

    def __init__(self, kafka: KafkaCalls, calls: Calls) -> None:
        self._kafka = kafka
        self._calls = calls

    async def listed(self, request: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
        """Raises BadRequest and Refused."""
        caller = read_caller(request.caller)
        size = within("page_size", request.page_size, GROUPS_MAX, GROUPS_MAX)
        answer = await self._kafka.call(caller, ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        if answer.error_code:
            return messages.ListGroupsResponse(failure=_failure(answer.error_code))
        groups = sorted(answer.groups, key=lambda group: str(group.group_id))
        groups = [group for group in groups if group.group_id > request.page_token]
        response = messages.ListGroupsResponse()
        for group in groups[:size]:
            response.groups.add(
                group_id=group.group_id,
                state=group.group_state,
                type=group.group_type,
                protocol_type=group.protocol_type,
            )
        if len(groups) > size:
            response.next_page_token = groups[size - 1].group_id
        return response

    async def describe(
        self, request: messages.DescribeGroupRequest
    ) -> messages.DescribeGroupResponse:
        """Raises BadRequest and Refused."""
        caller = read_caller(request.caller)
        group = await self._described(caller, request.group_id)
        if group.error_code:
            failure = await self._group_failure(caller, request.group_id, group.error_code)
            return messages.DescribeGroupResponse(failure=failure)
        response = messages.DescribeGroupResponse()
        response.group.group_id = group.group_id
        response.group.state = group.group_state
        response.group.protocol_type = group.protocol_type
        for member in group.members:
            shown = response.members.add(
                member_id=member.member_id,
                instance_id=member.group_instance_id or "",
                client_id=member.client_id,
                host=member.client_host,
            )
            if group.protocol_type == "consumer":
                for topic, partitions in decode_assignment(member.member_assignment) or ():
                    shown.assigned.add(topic=topic, partitions=partitions)
        committed = await self._committed(caller, request.group_id, None)
        if isinstance(committed, int):
            response.failure.CopyFrom(_failure(committed))
            return response
        response.is_cut = len(committed) > OFFSETS_MAX
        committed = committed[:OFFSETS_MAX]
        ends = await self._ends(caller.tenant, [(topic, one) for topic, one, _, _ in committed])
        lags = await self._shown_lags(caller, committed)
        for topic, partition, offset, metadata in committed:
            there = ends.get((topic, partition))
            lag = -1 if there is None else max(0, there.end - offset)
            lag, oldest_ms = lags.get((topic, partition), (lag, -1))
            response.offsets.add(
                topic=topic,
                partition=partition,
                committed_offset=offset,
                end_offset=-1 if there is None else there.end,
                lag=lag,
                oldest_timestamp_ms=oldest_ms,
                leader=self._kafka.leader_of(caller.tenant, topic, partition),
                metadata=metadata,
            )
        return response

    async def reset(self, request: messages.ResetOffsetsRequest) -> messages.ResetOffsetsResponse:
        """All or, where one fails before the commit, none. Raises BadRequest and Refused."""
        caller = read_caller(request.caller)
        targets = _read_targets(request)
        group = await self._described(caller, request.group_id)
        code = group.error_code
        if not code and group.group_state not in _EMPTY_STATES:
            code = int(ErrorCode.NON_EMPTY_GROUP)
        if code:
            failure = await self._group_failure(caller, request.group_id, code)
            return messages.ResetOffsetsResponse(failure=failure)
        # What he may not describe he is told nothing of.
        known = await self._committed(caller, request.group_id, [*targets])
        if isinstance(known, int):
            return messages.ResetOffsetsResponse(failure=_failure(known))
        results = await self._resolve(caller, targets)
        response = messages.ResetOffsetsResponse(results=results.values())
        if request.validate_only or any(one.HasField("failure") for one in response.results):
            return response
        codes = await self._commit(caller, request.group_id, targets, results)
        for result in response.results:
            failed = codes.get((result.topic, result.partition), 0)
            if failed:
                result.offset = -1
                result.failure.CopyFrom(_failure(failed))
        return response

    async def _described(self, caller: Caller, group_id: str) -> Any:
        wanted = DescribeGroupsRequest(groups=[group_id])
        answer = await self._kafka.call(caller, ApiKey.DESCRIBE_GROUPS, 5, wanted)
        (group,) = answer.groups
        return group

    async def _committed(
        self, caller: Caller, group_id: str, keys: Sequence[_Key] | None
    ) -> list[tuple[str, int, int, str]] | int:
        """Committed offsets in order, of all partitions or of these; or why there are none."""
        topics = None
        if keys is not None:
            by_topic = _by_topic(keys)
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic.items()
            ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        wanted = OffsetFetchRequest(groups=[group])
        answer = await self._kafka.call(caller, ApiKey.OFFSET_FETCH, 8, wanted)
        (found,) = answer.groups
        if found.error_code:
            return int(found.error_code)
        committed = []
        for topic in found.topics:
            for one in topic.partitions:
                if one.error_code:
                    return int(one.error_code)
                if one.committed_offset >= 0:
                    row = (topic.name, one.partition_index, one.committed_offset)
                    committed.append((*row, one.metadata or ""))
        return sorted(committed)

    async def _shown_lags(
        self, caller: Caller, committed: Iterable[tuple[str, int, int, str]]
    ) -> dict[_Key, tuple[int, int]]:
        """Of subscriptions: how many records are shown from the committed offset on, and the
        timestamp of the first; -1 where this broker cannot tell."""
        topics = self._calls.services.image.topics_of(caller.tenant)
        asked = {}
        for name, partition, offset, _ in committed:
            topic = topics.get(name)
            if topic is not None and topic.is_virtual:
                asked[name, partition] = COUNT_FROM + offset
        found = await self._kafka.list_offsets(caller, asked, READ_COMMITTED)
        return {
            key: (-1, -1) if one.error_code else (one.offset, one.timestamp)
            for key, one in found.items()
        }

    async def _ends(self, tenant: str, keys: Iterable[_Key]) -> dict[_Key, Ends]:
        """Of those that have a replica here."""
        wanted = list(keys)
        projections = self._calls.services.projections
        ends: dict[_Key, Ends] = {}
        for at in range(0, len(wanted), ENDS_AT_ONCE_MAX):
            some = wanted[at : at + ENDS_AT_ONCE_MAX]
            found = await self._calls.ask(partial(_replicas, projections, tenant, some))
            for key, replica in zip(some, found, strict=True):
                if replica is not None:
                    ends[key] = Ends(replica.log.log_start_offset, replica.high_watermark)
        return ends

    async def _resolve(
        self, caller: Caller, targets: Mapping[_Key, messages.OffsetTarget]
    ) -> dict[_Key, messages.OffsetResult]:
        """From replicas here; by time, and where there is none, as the leader answers."""
        ends = await self._ends(caller.tenant, targets)
        results: dict[_Key, messages.OffsetResult] = {}
        asked: dict[_Key, int] = {}
        for key, target in targets.items():
            result = messages.OffsetResult(
                topic=target.topic, partition=target.partition, offset=-1
            )
            results[key] = result
            there, kind = ends.get(key), target.WhichOneof("to")
            if kind == "offset":
                result.offset = target.offset
                if there is not None:
                    result.offset = min(max(target.offset, there.start), there.end)
            elif kind in _TIMESTAMPS and there is not None:
                result.offset = there.start if kind == "earliest" else there.end
            elif kind != "forget":
                asked[key] = _TIMESTAMPS.get(kind or "", target.timestamp_ms)
        await self._resolve_at_leaders(caller, asked, results)
        # Those at whose time there is no record yet: the end.
        behind = [key for key in asked if _is_open(results[key])]
        await self._resolve_at_leaders(caller, dict.fromkeys(behind, LATEST_TIMESTAMP), results)
        return results

    async def _resolve_at_leaders(
        self, caller: Caller, asked: Mapping[_Key, int], results: dict[_Key, messages.OffsetResult]
    ) -> None:
        """Of those that this broker leads; the others fail, and say who does."""
        for key, found in (await self._kafka.list_offsets(caller, asked)).items():
            if found.error_code:
                leader = self._kafka.leader_of(caller.tenant, *key)
                results[key].failure.CopyFrom(_failure(found.error_code, leader))
            else:
                results[key].offset = found.offset

    async def _commit(
        self,
        caller: Caller,
        group_id: str,
        targets: dict[_Key, messages.OffsetTarget],
        results: dict[_Key, messages.OffsetResult],
    ) -> dict[_Key, int]:
        """Error codes of those that failed."""
        forgotten = [key for key, target in targets.items() if target.WhichOneof("to") == "forget"]
        moved = [key for key, target in targets.items() if target.WhichOneof("to") != "forget"]
        codes: dict[_Key, int] = {}
        if moved:
            commit = OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=results[name, index].offset
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in _by_topic(moved).items()
                ],
            )
            answer = await self._kafka.call(caller, ApiKey.OFFSET_COMMIT, 8, commit)
            codes.update(_codes(answer.topics))
        if forgotten:
            delete = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                        ],
                    )
                    for name, indexes in _by_topic(forgotten).items()
                ],
            )
            answer = await self._kafka.call(caller, ApiKey.OFFSET_DELETE, 0, delete)
            codes.update(dict.fromkeys(forgotten, answer.error_code))
            codes.update(_codes(answer.topics))
        return codes

    async def _group_failure(self, caller: Caller, group_id: str, code: int) -> messages.Failure:
        """With the coordinator, where that is another broker."""
        if code not in _COORDINATOR_CODES:
            return _failure(code)
        wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        answer = await self._kafka.call(caller, ApiKey.FIND_COORDINATOR, 4, wanted)
        (found,) = answer.coordinators
        return _failure(code, -1 if found.error_code else found.node_id)


def _replicas(
    projections: Projections, tenant: str, keys: Iterable[_Key]
) -> list[Partition | None]:
    return [projections.replica(tenant, *key) for key in keys]


def _failure(code: int, node_id: int = -1) -> messages.Failure:
    message = ErrorCode(code).message
    return messages.Failure(error_code=code, message=message, node_id=node_id)


def _is_open(result: messages.OffsetResult) -> bool:
    return result.offset < 0 and not result.HasField("failure")


def _read_targets(request: messages.ResetOffsetsRequest) -> dict[_Key, messages.OffsetTarget]:
    targets: dict[_Key, messages.OffsetTarget] = {}
    if not 1 <= len(request.targets) <= TARGETS_MAX:
        raise BadRequest(f"targets: {len(request.targets)} of them; give 1 to {TARGETS_MAX}")
    for index, target in enumerate(request.targets):
        path = f"targets[{index}]"
        if not target.topic or target.partition < 0 or target.WhichOneof("to") is None:
            raise BadRequest(f"{path}: topic, partition or where to is missing")
        if target.offset < 0 or target.timestamp_ms < 0:
            raise BadRequest(f"{path}: an offset and a time are not less than 0")
        if targets.setdefault((target.topic, target.partition), target) is not target:
            raise BadRequest(f"{path}: the partition is there twice")
    return targets


def _by_topic(keys: Iterable[_Key]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in keys:
        by_topic.setdefault(topic, []).append(index)
    return by_topic


def _codes(topics: Iterable[Any]) -> dict[_Key, int]:
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in topics
        for one in topic.partitions
        if one.error_code
    }
