"""Consumer groups of a tenant, as its cell has them: which there are, how far behind they are, and
other offsets. Nothing of it is kept here.

Bounds: ENDS_ASKED_MAX partitions of a group whose end another broker is asked for, TARGETS_MAX of a
reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from control_plane.cells.models import Cell
from control_plane.messaging.cell_calls import (
    NOT_LEADER,
    CellCall,
    cell_call,
    refusal_of,
    refuse_failure,
)
from control_plane.operations.facade import Actor, record_audit
from control_plane.tenancy.errors import CellDown, OutcomeUnknown
from control_plane.tenancy.models import NAME_CHARACTERS_MAX
from data_plane.contract import cell_operations_pb2 as messages

ENDS_ASKED_MAX: Final = 20
TARGETS_MAX: Final = 1_000
AUDITED_MAX: Final = 100

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
FORGOTTEN: Final = "forgotten"
POSITIONS: Final = (EARLIEST, LATEST, FORGOTTEN)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group goes on in a partition: exactly one of `offset`, `timestamp`, `position`."""

    topic: str
    partition: int
    offset: int | None = None
    timestamp: datetime | None = None
    position: str | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """What a reset comes to in a partition; None for no committed offset."""

    topic: str
    partition: int
    committed_offset: int | None
    offset: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """`is_complete`: all brokers have answered. What another one coordinates may be missing."""

    groups: Sequence[messages.GroupSummary]
    last: str | None
    is_complete: bool


def list_groups(cell: Cell, caller: messages.Caller, limit: int, after: str) -> GroupPage:
    """The groups behind the one called `after`, by id. Raises Refused."""
    found: dict[str, messages.GroupSummary] = {}
    is_complete, has_more = True, False
    request = messages.ListGroupsRequest(caller=caller, page_size=limit, page_token=after)
    answers = 0
    with cell_call(cell) as call:
        for answer in call.at_all(
            lambda operations, timeout_s: operations.ListGroups(request, timeout=timeout_s)
        ):
            if answer is None:
                is_complete = False
                continue
            refuse_failure(answer, "group")
            answers += 1
            has_more |= bool(answer.next_page_token)
            found |= {group.group_id: group for group in answer.groups}
    if not answers:
        raise CellDown("The organization's cell does not answer.")
    ordered = [found[group_id] for group_id in sorted(found)]
    has_more |= len(ordered) > limit
    page = ordered[:limit]
    return GroupPage(page, page[-1].group_id if has_more and page else None, is_complete)


def show_group(
    cell: Cell, caller: messages.Caller, group_id: str
) -> messages.DescribeGroupResponse:
    """The group with members, offsets and lag; ends that its coordinator does not know are asked
    of the leaders. Raises Refused."""
    with cell_call(cell) as call:
        group = _described(call, caller, group_id)
        asked = [offset for offset in group.offsets if offset.end_offset < 0]
        for offset in asked[:ENDS_ASKED_MAX]:
            request = messages.PeekRequest(
                caller=caller, topic=offset.topic, partition=offset.partition, last=0
            )
            answer = _peeked(call, request)
            if not answer.HasField("failure"):
                offset.end_offset = answer.end_offset
                offset.lag = max(0, answer.end_offset - offset.committed_offset)
    return group


def do_reset_offsets(
    actor: Actor,
    organization_id: str,
    cell: Cell,
    caller: messages.Caller,
    group_id: str,
    targets: Sequence[Target],
    *,
    dry_run: bool,
) -> list[Moved]:
    """Have a group without members go on elsewhere; with `dry_run` only say where. What cannot be
    found out, or is refused, changes nothing. Raises Refused."""
    with cell_call(cell) as call:
        before = {
            (offset.topic, offset.partition): offset.committed_offset
            for offset in _described(call, caller, group_id).offsets
        }
        wanted = [_wanted(target) for target in targets]
        tried = _reset(call, caller, group_id, wanted, validate_only=True)
        _resolve(call, caller, wanted, tried)
        moved = [
            Moved(
                result.topic,
                result.partition,
                before.get((result.topic, result.partition)),
                None if target.WhichOneof("to") == "forget" else result.offset,
            )
            for target, result in zip(wanted, tried, strict=True)
        ]
        if dry_run:
            return moved
        for target, result in zip(wanted, tried, strict=True):
            if target.WhichOneof("to") != "forget":
                target.offset = result.offset
        try:
            done = _reset(call, caller, group_id, wanted, validate_only=False)
        except OutcomeUnknown as unknown:
            moved = [replace(move, error=unknown.detail) for move in moved]
            _audit(actor, organization_id, caller, group_id, moved)
            raise
    results = [
        replace(move, error=result.failure.message if result.HasField("failure") else None)
        for move, result in zip(moved, done, strict=True)
    ]
    _audit(actor, organization_id, caller, group_id, results)
    return results


def _audit(
    actor: Actor,
    organization_id: str,
    caller: messages.Caller,
    group_id: str,
    moved: Sequence[Moved],
) -> None:
    written = [
        {"topic": move.topic, "partition": move.partition, "offset": move.offset}
        | {"from": move.committed_offset, "error": move.error}
        for move in moved[:AUDITED_MAX]
    ]
    changes: dict[str, Any] = {"targets": written, "partitions": len(moved)}
    account_id = caller.principal.removeprefix("User:")
    name = group_id[:NAME_CHARACTERS_MAX]
    record_audit(actor, organization_id, "group.reset", account_id, name, changes)


def _described(
    call: CellCall, caller: messages.Caller, group_id: str
) -> messages.DescribeGroupResponse:
    request = messages.DescribeGroupRequest(caller=caller, group_id=group_id)
    group = call.at_owner(
        lambda operations, timeout_s: operations.DescribeGroup(request, timeout=timeout_s)
    )
    refuse_failure(group, "group")
    return group


def _peeked(call: CellCall, request: messages.PeekRequest) -> messages.PeekResponse:
    return call.at_owner(lambda operations, timeout_s: operations.Peek(request, timeout=timeout_s))


def _wanted(target: Target) -> messages.OffsetTarget:
    wanted = messages.OffsetTarget(topic=target.topic, partition=target.partition)
    if target.offset is not None:
        wanted.offset = target.offset
    elif target.timestamp is not None:
        wanted.timestamp_ms = max(0, round(target.timestamp.timestamp() * 1000))
    elif target.position == FORGOTTEN:
        wanted.forget = True
    elif target.position == EARLIEST:
        wanted.earliest = True
    else:
        wanted.latest = True
    return wanted


def _reset(
    call: CellCall,
    caller: messages.Caller,
    group_id: str,
    targets: Sequence[messages.OffsetTarget],
    *,
    validate_only: bool,
) -> list[messages.OffsetResult]:
    request = messages.ResetOffsetsRequest(
        caller=caller, group_id=group_id, targets=targets, validate_only=validate_only
    )
    answer = call.at_owner(
        lambda operations, timeout_s: operations.ResetOffsets(request, timeout=timeout_s),
        is_repeatable=validate_only,
    )
    refuse_failure(answer, "group")
    return list(answer.results)


def _resolve(
    call: CellCall,
    caller: messages.Caller,
    targets: Sequence[messages.OffsetTarget],
    results: Sequence[messages.OffsetResult],
) -> None:
    """Ask the leaders where the coordinator could not find out. Raises Refused."""
    for index, (target, result) in enumerate(zip(targets, results, strict=True)):
        if not result.HasField("failure"):
            continue
        field = f"/targets/{index}"
        if result.failure.error_code != NOT_LEADER:
            raise refusal_of(result.failure, "topic or partition", field=field)
        request = messages.PeekRequest(
            caller=caller, topic=target.topic, partition=target.partition, records_max=1
        )
        request.value_bytes_max = 1
        kind = target.WhichOneof("to")
        if kind == "timestamp_ms":
            request.timestamp_ms = target.timestamp_ms
        elif kind == "latest":
            request.last = 0
        answer = _peeked(call, request)
        refuse_failure(answer, "topic or partition", field=field)
        result.ClearField("failure")
        if kind == "earliest":
            result.offset = answer.log_start_offset
        elif kind == "timestamp_ms" and answer.records:
            result.offset = answer.records[0].offset
        else:
            result.offset = answer.end_offset
