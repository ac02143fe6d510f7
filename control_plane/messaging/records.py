"""A few messages of a topic, read and written by way of its cell. Nothing of them is kept here, nor
written into audit events or logs.

Bounds: PEEK_BYTES_MAX of a look; PRODUCE_RECORDS_MAX and PRODUCE_BYTES_MAX of what is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from control_plane.cells.models import Cell
from control_plane.messaging.cell_calls import answer_of_owner, cell_call, refuse_failure
from control_plane.messaging.models import Topic
from control_plane.operations.facade import Actor, record_audit
from control_plane.tenancy.errors import Invalid, OutcomeUnknown
from data_plane.contract import cell_operations_pb2 as messages

PEEK_BYTES_MAX: Final = 1024 * 1024
PRODUCE_RECORDS_MAX: Final = 100
PRODUCE_BYTES_MAX: Final = 1024 * 1024


def peek(cell: Cell, request: messages.PeekRequest) -> messages.PeekResponse:
    """Messages of a partition, as they are read by a consumer. Raises Refused."""
    return answer_of_owner(
        cell,
        lambda operations, timeout_s: operations.Peek(request, timeout=timeout_s),
        "partition",
    )


def do_produce(
    actor: Actor,
    organization_id: str,
    cell: Cell,
    caller: messages.Caller,
    topic: Topic,
    partition: int,
    records: Sequence[messages.Record],
) -> messages.ProduceResponse:
    """Append messages in one batch. Raises Refused; of OutcomeUnknown they may have been appended,
    which is written down as well."""
    request = messages.ProduceRequest(
        caller=caller, topic=topic.name, partition=partition, records=records
    )
    size = sum(record.ByteSize() for record in records)
    if size > PRODUCE_BYTES_MAX:
        words = f"These are {size} bytes, and may be {PRODUCE_BYTES_MAX} together."
        raise Invalid(words, field="/messages")
    changes = {"as": caller.principal, "partition": partition, "messages": len(records)}

    def audit(more: dict[str, object]) -> None:
        record_audit(
            actor, organization_id, "message.produce", topic.id, topic.name, changes | more
        )

    try:
        with cell_call(cell) as call:
            answer = call.at_owner(
                lambda operations, timeout_s: operations.Produce(request, timeout=timeout_s),
                is_repeatable=False,
            )
        refuse_failure(answer, "partition")
    except OutcomeUnknown:
        audit({"outcome": "unknown"})
        raise
    audit({"base_offset": answer.base_offset})
    return answer
