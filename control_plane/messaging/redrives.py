"""Dead letters of a topic, put back or purged by its cell: begun, changed, listed.

The cell does it by itself once it has begun, and knows how far it is.
"""

from __future__ import annotations

from typing import Any, Final

from control_plane.cells.models import Cell
from control_plane.messaging.cell_calls import answer_of_owner, cell_call, refuse_failure
from control_plane.messaging.models import Topic
from control_plane.operations.facade import Actor, record_audit
from control_plane.tenancy.errors import OutcomeUnknown
from data_plane.contract import cell_operations_pb2 as messages

WISHES: Final = {
    "pause": messages.ChangeRedriveRequest.PAUSE,
    "resume": messages.ChangeRedriveRequest.RESUME,
    "cancel": messages.ChangeRedriveRequest.CANCEL,
}


def list_redrives(
    cell: Cell, request: messages.ListRedrivesRequest
) -> messages.ListRedrivesResponse:
    """Those of a partition. Raises Refused."""
    return answer_of_owner(
        cell,
        lambda operations, timeout_s: operations.ListRedrives(request, timeout=timeout_s),
        "partition",
    )


def list_redriven(
    cell: Cell, request: messages.ListRedrivenRequest
) -> messages.ListRedrivenResponse:
    """What was redriven or purged of a partition. Raises Refused."""
    return answer_of_owner(
        cell,
        lambda operations, timeout_s: operations.ListRedriven(request, timeout=timeout_s),
        "partition",
    )


def do_begin_redrive(
    actor: Actor,
    organization_id: str,
    cell: Cell,
    topic: Topic,
    request: messages.BeginRedriveRequest,
) -> messages.Redrive:
    """Raises Refused; of OutcomeUnknown it may have begun, which is written down as well."""
    action = "dead-letter.purge" if request.is_purge else "dead-letter.redrive"
    changes: dict[str, object] = {
        "as": request.caller.principal,
        "partition": request.partition,
        "operation": request.id,
        "target": request.target_topic,
    }

    def audit(more: dict[str, object]) -> None:
        record_audit(actor, organization_id, action, topic.id, topic.name, changes | more)

    try:
        with cell_call(cell) as call:
            # The same id once more is the same operation.
            answer: Any = call.at_owner(
                lambda operations, timeout_s: operations.BeginRedrive(request, timeout=timeout_s)
            )
        refuse_failure(answer, "partition")
    except OutcomeUnknown:
        audit({"outcome": "unknown"})
        raise
    audit({})
    redrive: messages.Redrive = answer.redrive
    return redrive


def do_change_redrive(
    actor: Actor,
    organization_id: str,
    cell: Cell,
    topic: Topic,
    request: messages.ChangeRedriveRequest,
    wish: str,
) -> messages.Redrive:
    """Raises Refused; of OutcomeUnknown it may be changed, which is written down as well."""
    changes: dict[str, object] = {
        "as": request.caller.principal,
        "partition": request.partition,
        "operation": request.id,
    }

    def audit(more: dict[str, object]) -> None:
        action = f"redrive.{wish}"
        record_audit(actor, organization_id, action, topic.id, topic.name, changes | more)

    try:
        with cell_call(cell) as call:
            answer: Any = call.at_owner(
                lambda operations, timeout_s: operations.ChangeRedrive(request, timeout=timeout_s)
            )
        refuse_failure(answer, "partition")
    except OutcomeUnknown:
        audit({"outcome": "unknown"})
        raise
    audit({})
    redrive: messages.Redrive = answer.redrive
    return redrive
