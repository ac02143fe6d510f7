"""Who may append what a Produce request brings.

It is asked when the request comes. Where a batch has waited for a thread, or for its turn, it is
asked once more for each partition that is left: rights, the tenant's state and what it stores may
be others by then, and what was revoked meanwhile is not appended.

Nothing is appended, either, for whom nobody waits any more (`is_abandoned`).
"""

from __future__ import annotations

from uuid import UUID

from data_plane.broker.produce.produce_checks import (
    CONTROL_RECORDS_REFUSED,
    TRANSACTIONS_REFUSED,
)
from data_plane.broker.produce.produce_response import TOPIC_IDS_VERSION, PartitionAnswer
from data_plane.broker.request.api import RequestContext
from data_plane.broker.services import Services
from data_plane.cell.acls import AclOperation, AclResourceType
from data_plane.cell.virtual_topics import shown_count
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import BatchHeader, ProduceTopic

# Batches that wait for a thread while those of acks=0 from closed connections are still taken.
UNANSWERED_WORK_MAX = 64


def may_write(context: RequestContext, topic: ProduceTopic) -> bool:
    """Whether he who asks may append to the topic at all. To a virtual one go commands of those who
    read it."""
    if context.api_version >= TOPIC_IDS_VERSION:
        known = context.topics.by_id(UUID(bytes=topic.topic_id))
        if known is None:
            # Which is what it will be told.
            return True
        name = known.name
    else:
        name = topic.name
        known = context.topics.by_name(name)
    is_virtual_topic = known is not None and known.is_virtual
    needed = AclOperation.READ if is_virtual_topic else AclOperation.WRITE
    return context.may_to_topic(needed, name)


def may_still_append(context: RequestContext, topic: ProduceTopic, answer: PartitionAnswer) -> bool:
    """Whether he may after all that has changed since; else the answer says why not."""
    names = context.names
    refusal = names.refused_by_state or names.storage_refusal
    if not (names.rights.is_open or may_write(context, topic)):
        answer.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif refusal:
        answer.fail(ErrorCode.POLICY_VIOLATION, refusal)
    else:
        return True
    return False


def refuse_special_batch(
    context: RequestContext,
    transactional_id: str | None,
    batch: BatchHeader,
    partition: Partition,
    answer: PartitionAnswer,
) -> None:
    """Of control records, which clients do not write, or of a transaction, which nobody serves yet;
    who may not write in it hears that."""
    if batch.is_control:
        answer.fail(ErrorCode.INVALID_RECORD, CONTROL_RECORDS_REFUSED)
        answer.log_start_offset = partition.log.log_start_offset
    elif transactional_id is not None and context.may(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        answer.fail(ErrorCode.INVALID_TXN_STATE, TRANSACTIONS_REFUSED)
    else:
        answer.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def is_abandoned(services: Services, context: RequestContext, wants_answer: bool) -> bool:
    """Whether nobody waits for a request any more, or nobody speaks. Who wants no answer may close
    after sending; what he has sent is taken, unless there is much to do for his tenant."""
    connection = context.connection
    gate = connection.gate
    return gate.is_revoked or (
        gate.is_closed
        and (
            wants_answer
            or services.request_work.count_of(connection.namespace) > UNANSWERED_WORK_MAX
        )
    )


def is_virtual(
    context: RequestContext, topic_id: bytes, index: int, answer: PartitionAnswer
) -> bool:
    """Whether the partition is a virtual topic's; the answer says that nobody takes records then,
    wherever they are sent."""
    topic = context.topics.by_id(UUID(bytes=topic_id))
    if topic is None or not topic.is_virtual or not 0 <= index < shown_count(topic):
        return False
    message = f"Topic '{topic.name}' reads from another one: produce to its source."
    answer.fail(ErrorCode.INVALID_RECORD, message)
    return True
