"""Delayed messages of a topic, by way of its cell: listed, counted, cancelled.

Bounds: PAGE_BYTES_MAX of a list, COUNTS_MAX counts, CANCEL_MAX messages that one cancel looks at.
"""

from __future__ import annotations

from typing import Final

from control_plane.cells.models import Cell
from control_plane.messaging.cell_calls import answer_of_owner, cell_call, refuse_failure
from control_plane.messaging.models import Topic
from control_plane.operations.facade import Actor, record_audit
from control_plane.tenancy.errors import OutcomeUnknown
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub

PAGE_BYTES_MAX: Final = 1024 * 1024
COUNTS_MAX: Final = 1_000
# So many are cancelled well within the time that one broker has.
CANCEL_MAX: Final = 2_000


def list_delayed(cell: Cell, request: messages.ListDelayedRequest) -> messages.ListDelayedResponse:
    """A page of a partition's, by time. Raises Refused."""
    return answer_of_owner(
        cell,
        lambda operations, timeout_s: operations.ListDelayed(request, timeout=timeout_s),
        "partition",
    )


def count_delayed(
    cell: Cell, request: messages.CountDelayedRequest
) -> messages.CountDelayedResponse:
    """How many of a partition's are pending. Raises Refused."""
    return answer_of_owner(
        cell,
        lambda operations, timeout_s: operations.CountDelayed(request, timeout=timeout_s),
        "partition",
    )


def do_cancel_delayed(
    actor: Actor,
    organization_id: str,
    cell: Cell,
    caller: messages.Caller,
    topic: Topic,
    selection: messages.DelayedSelection,
) -> messages.CancelDelayedResponse:
    """Cancel some of those that match. Raises Refused; of OutcomeUnknown some may be cancelled,
    which is written down as well."""
    request = messages.CancelDelayedRequest(
        caller=caller, selection=selection, messages_max=CANCEL_MAX
    )
    # By all that were asked: a broker may stop leading in the middle, and the next one goes on.
    done = messages.CancelDelayedResponse()

    def ask(operations: CellOperationsStub, timeout_s: float) -> messages.CancelDelayedResponse:
        answer = operations.CancelDelayed(request, timeout=timeout_s)
        done.cancelled.extend(answer.cancelled)
        done.refused.extend(answer.refused)
        return answer

    changes = {
        "as": caller.principal,
        "partition": selection.partition,
        "filter": selection.filter,
    }

    def audit(more: dict[str, object]) -> None:
        record_audit(actor, organization_id, "message.cancel", topic.id, topic.name, changes | more)

    try:
        with cell_call(cell) as call:
            # Doing it twice does no harm, but what the first time has cancelled would be written
            # down nowhere.
            answer = call.at_owner(ask, is_repeatable=False)
        refuse_failure(answer, "partition")
    except OutcomeUnknown:
        audit({"outcome": "unknown"})
        raise
    finally:
        if done.cancelled:
            audit({"cancelled": len(done.cancelled)})
    if answer.HasField("next"):
        done.next.CopyFrom(answer.next)
    return done
