"""The answer to Produce: versions 3 to 13. The kernel writes the bytes; here is what they say.

A partition that is led elsewhere carries the current leader from version 10 on, and the response
that leader's address (KIP-951).
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.broker.cell.cell_view import own_image, reached_by
from data_plane.broker.request.api import Buffer, CloseConnection, RequestContext
from data_plane.broker.request.frames import begin_frame
from data_plane.broker.request.throttling import throttle_produce
from data_plane.broker.services import Services
from data_plane.cell.metadata import BrokerImage
from data_plane.wire import kernel
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import NodeEndpoint, ProduceTopic

FLEXIBLE_VERSION = 9
# From here on topics are named by their ids alone.
TOPIC_IDS_VERSION = 13
ZSTD_VERSION = 7

_LEADER_ERRORS = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))
_NO_LEADER = (-1, -1)
_NONE = int(ErrorCode.NONE)


class PartitionAnswer:
    """What became of one partition's records."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.error_code = 0
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.record_errors: Sequence[tuple[int, str | None]] = ()
        self.error_message: str | None = None

    def fail(
        self,
        error: ErrorCode,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
    ) -> None:
        self.error_code = int(error)
        self.error_message = message
        self.record_errors = record_errors
        self.base_offset = -1
        self.log_append_time_ms = -1

    def fail_as_too_large(self, batch_bytes: int, tenant_bytes_max: int) -> None:
        """For what the tenant may send."""
        self.fail(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {batch_bytes} bytes, and the tenant may send {tenant_bytes_max} at "
            "most.",
        )


# By topic, in the order of the request.
Answers = list[tuple[ProduceTopic, list[PartitionAnswer]]]


def describe_failures(answers: Answers) -> str:
    """Some of them, for people."""
    failed = [
        f"{topic.name or topic.topic_id.hex()}-{answer.index}: {ErrorCode(answer.error_code).name}"
        for topic, partition_answers in answers
        for answer in partition_answers
        if answer.error_code != 0
    ]
    return ", ".join(failed[:5])


def encode_produce_response(
    services: Services,
    context: RequestContext,
    answers: Sequence[tuple[ProduceTopic, Sequence[PartitionAnswer]]],
    request_bytes: int,
) -> list[Buffer]:
    """The whole frame, as its one buffer; `request_bytes` count for its client's quota."""
    version = context.api_version
    has_ids = version >= TOPIC_IDS_VERSION
    leader_hints: set[int] = set()
    topics = []
    for topic, partition_answers in answers:
        results = []
        for answer in partition_answers:
            leader = None
            if answer.error_code in _LEADER_ERRORS:
                # Rarely: what has no id in this version is looked up by its name once more.
                topic_id = topic.topic_id if has_ids else context.topics.id_of(topic.name)
                leader = services.projections.current_leader(
                    context.tenant, "", topic_id, answer.index
                )
            if leader is None:
                leader = _NO_LEADER
            else:
                leader_hints.add(leader[0])
            results.append(
                (
                    answer.index,
                    answer.error_code,
                    answer.base_offset,
                    answer.log_append_time_ms,
                    answer.log_start_offset,
                    answer.record_errors,
                    answer.error_message,
                    *leader,
                )
            )
        topics.append((topic.name, topic.topic_id, results))
    head = begin_frame(context.correlation_id, version >= FLEXIBLE_VERSION)
    endpoints = node_endpoints(services, context, leader_hints) if leader_hints else ()
    is_throttling = services.quotas.is_active
    throttle_ms = throttle_produce(services, context, request_bytes) if is_throttling else 0
    return [kernel.encode_produce_response(bytes(head), version, topics, throttle_ms, endpoints)]


def answer_nobody(
    services: Services, context: RequestContext, answers: Answers, request_bytes: int
) -> None:
    """What acks=0 comes to. Raises CloseConnection for an error, as Kafka does."""
    if any(answer.error_code != _NONE for _, some in answers for answer in some):
        raise CloseConnection(f"produce with acks=0 failed: {describe_failures(answers)}")
    throttle_produce(services, context, request_bytes)


def node_endpoints(
    services: Services, context: RequestContext, node_ids: set[int]
) -> list[NodeEndpoint]:
    """(id, host, port, rack) of those of `node_ids` that the client may be sent to."""
    endpoints: list[NodeEndpoint] = []
    for node_id in sorted(node_ids):
        if node_id == services.node_id:
            known: BrokerImage | None = own_image(services)
        else:
            known = services.image.brokers.get(node_id)
        if known is None or known.is_fenced:
            continue
        broker = reached_by(services, known, context.listener)
        if broker is not None:
            endpoints.append((node_id, broker.host, broker.port, broker.rack))
    return endpoints
