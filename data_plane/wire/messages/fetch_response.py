"""FetchResponse (API key 1), versions 4 to 18, flexible from 12.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_version,
)

_2XINT32 = Struct(">ii")
_2XINT64 = Struct(">qq")
_INT32_INT16_2XINT64 = Struct(">ihqq")
_INT32_INT16_3XINT64 = Struct(">ihqqq")
_INT32_INT16_INT32 = Struct(">ihi")
_INT32_INT64 = Struct(">iq")
_INT64_INT32 = Struct(">qi")


class EpochEndOffset(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "end_offset",
        "epoch",
    )

    def __init__(
        self,
        *,
        epoch: int = -1,
        end_offset: int = -1,
    ) -> None:
        self.epoch = epoch
        self.end_offset = end_offset


class LeaderIdAndEpoch(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "leader_epoch",
        "leader_id",
    )

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.leader_id = leader_id  # brokerId
        self.leader_epoch = leader_epoch


class SnapshotId(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "end_offset",
        "epoch",
    )

    def __init__(
        self,
        *,
        end_offset: int = -1,
        epoch: int = -1,
    ) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class AbortedTransaction(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "first_offset",
        "producer_id",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        first_offset: int = 0,
    ) -> None:
        self.producer_id = producer_id  # producerId
        self.first_offset = first_offset


class PartitionData(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "aborted_transactions",
        "current_leader",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition_index",
        "preferred_read_replica",
        "records",
        "snapshot_id",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
        aborted_transactions: list[AbortedTransaction] | None = EMPTY,
        preferred_read_replica: int = -1,
        records: bytes | memoryview | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset  # versions 5 to 18
        self.diverging_epoch = (
            EpochEndOffset() if diverging_epoch is None else diverging_epoch
        )  # versions 12 to 18, tag 0
        self.current_leader = (
            LeaderIdAndEpoch() if current_leader is None else current_leader
        )  # versions 12 to 18, tag 1
        self.snapshot_id = (
            SnapshotId() if snapshot_id is None else snapshot_id
        )  # versions 12 to 18, tag 2
        self.aborted_transactions = [] if aborted_transactions is EMPTY else aborted_transactions
        self.preferred_read_replica = preferred_read_replica  # versions 11 to 18, brokerId
        self.records = records


class FetchableTopicResponse(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "partitions",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic = topic  # versions 4 to 12, topicName
        self.topic_id = topic_id  # versions 13 to 18
        self.partitions = [] if partitions is EMPTY else partitions


class NodeEndpoint(Message):
    """Part of FetchResponse."""

    __slots__ = (
        "host",
        "node_id",
        "port",
        "rack",
    )

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
    ) -> None:
        self.node_id = node_id  # brokerId
        self.host = host
        self.port = port
        self.rack = rack


class FetchResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "node_endpoints",
        "responses",
        "session_id",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchableTopicResponse] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code  # versions 7 to 18
        self.session_id = session_id  # versions 7 to 18
        self.responses = [] if responses is EMPTY else responses
        self.node_endpoints = (
            [] if node_endpoints is EMPTY else node_endpoints
        )  # versions 16 to 18, tag 0


def _decode_epoch_end_offset(reader: Reader, version: int) -> EpochEndOffset:
    message = object.__new__(EpochEndOffset)
    (message.epoch, message.end_offset) = reader.unpack(_INT32_INT64)
    reader.skip_tagged_fields()
    return message


def _decode_leader_id_and_epoch(reader: Reader, version: int) -> LeaderIdAndEpoch:
    message = object.__new__(LeaderIdAndEpoch)
    (message.leader_id, message.leader_epoch) = reader.unpack(_2XINT32)
    reader.skip_tagged_fields()
    return message


def _decode_snapshot_id(reader: Reader, version: int) -> SnapshotId:
    message = object.__new__(SnapshotId)
    (message.end_offset, message.epoch) = reader.unpack(_INT64_INT32)
    reader.skip_tagged_fields()
    return message


def _decode_aborted_transaction(reader: Reader, version: int) -> AbortedTransaction:
    message = object.__new__(AbortedTransaction)
    (message.producer_id, message.first_offset) = reader.unpack(_2XINT64)
    if version >= 12:
        reader.skip_tagged_fields()
    return message


def _decode_partition_data(reader: Reader, version: int) -> PartitionData:
    message = object.__new__(PartitionData)
    if version >= 5:
        (
            message.partition_index,
            message.error_code,
            message.high_watermark,
            message.last_stable_offset,
            message.log_start_offset,
        ) = reader.unpack(_INT32_INT16_3XINT64)
    else:
        (
            message.partition_index,
            message.error_code,
            message.high_watermark,
            message.last_stable_offset,
        ) = reader.unpack(_INT32_INT16_2XINT64)
        message.log_start_offset = -1
    if version >= 12:
        count = reader.read_nullable_compact_array_length(17, "aborted_transactions")
        message.aborted_transactions = (
            None
            if count < 0
            else [_decode_aborted_transaction(reader, version) for _ in range(count)]
        )
    else:
        count = reader.read_nullable_array_length(16, "aborted_transactions")
        message.aborted_transactions = (
            None
            if count < 0
            else [_decode_aborted_transaction(reader, version) for _ in range(count)]
        )
    if version >= 11:
        message.preferred_read_replica = reader.read_int32()
    else:
        message.preferred_read_replica = -1
    if version >= 12:
        message.records = reader.read_nullable_compact_records("records")
    else:
        message.records = reader.read_nullable_records("records")
    message.diverging_epoch = EpochEndOffset()
    message.current_leader = LeaderIdAndEpoch()
    message.snapshot_id = SnapshotId()
    if version >= 12:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0:
                message.diverging_epoch = _decode_epoch_end_offset(reader, version)
            elif tag == 1:
                message.current_leader = _decode_leader_id_and_epoch(reader, version)
            elif tag == 2:
                message.snapshot_id = _decode_snapshot_id(reader, version)
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _decode_fetchable_topic_response(reader: Reader, version: int) -> FetchableTopicResponse:
    message = object.__new__(FetchableTopicResponse)
    if version >= 13:
        message.topic = ""
    elif version >= 12:
        message.topic = reader.read_compact_string("topic")
    else:
        message.topic = reader.read_string("topic")
    if version >= 13:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 12:
        message.partitions = [
            _decode_partition_data(reader, version)
            for _ in range(reader.read_compact_array_length(37, "partitions"))
        ]
    else:
        message.partitions = [
            _decode_partition_data(reader, version)
            for _ in range(reader.read_array_length(30, "partitions"))
        ]
    if version >= 12:
        reader.skip_tagged_fields()
    return message


def _decode_node_endpoint(reader: Reader, version: int) -> NodeEndpoint:
    message = object.__new__(NodeEndpoint)
    message.node_id = reader.read_int32()
    message.host = reader.read_compact_string("host")
    message.port = reader.read_int32()
    message.rack = reader.read_nullable_compact_string("rack")
    reader.skip_tagged_fields()
    return message


def decode_fetch_response(reader: Reader, version: int) -> FetchResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 4 <= version <= 18:
        raise unsupported_version("FetchResponse", version)
    message = object.__new__(FetchResponse)
    if version >= 7:
        (message.throttle_time_ms, message.error_code, message.session_id) = reader.unpack(
            _INT32_INT16_INT32
        )
    else:
        message.throttle_time_ms = reader.read_int32()
        message.error_code = 0
        message.session_id = 0
    if version >= 12:
        message.responses = [
            _decode_fetchable_topic_response(reader, version)
            for _ in range(reader.read_compact_array_length(3, "responses"))
        ]
    else:
        message.responses = [
            _decode_fetchable_topic_response(reader, version)
            for _ in range(reader.read_array_length(6, "responses"))
        ]
    message.node_endpoints = []
    if version >= 12:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0 and version >= 16:
                message.node_endpoints = [
                    _decode_node_endpoint(reader, version)
                    for _ in range(reader.read_compact_array_length(11, "node_endpoints"))
                ]
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _encode_epoch_end_offset(writer: Writer, message: EpochEndOffset, version: int) -> None:
    writer.buf += _INT32_INT64.pack(message.epoch, message.end_offset)
    writer.buf.append(0)


def _encode_leader_id_and_epoch(writer: Writer, message: LeaderIdAndEpoch, version: int) -> None:
    writer.buf += _2XINT32.pack(message.leader_id, message.leader_epoch)
    writer.buf.append(0)


def _encode_snapshot_id(writer: Writer, message: SnapshotId, version: int) -> None:
    writer.buf += _INT64_INT32.pack(message.end_offset, message.epoch)
    writer.buf.append(0)


def _encode_aborted_transaction(writer: Writer, message: AbortedTransaction, version: int) -> None:
    writer.buf += _2XINT64.pack(message.producer_id, message.first_offset)
    if version >= 12:
        writer.buf.append(0)


def _encode_partition_data(writer: Writer, message: PartitionData, version: int) -> None:
    if version >= 5:
        writer.buf += _INT32_INT16_3XINT64.pack(
            message.partition_index,
            message.error_code,
            message.high_watermark,
            message.last_stable_offset,
            message.log_start_offset,
        )
    else:
        writer.buf += _INT32_INT16_2XINT64.pack(
            message.partition_index,
            message.error_code,
            message.high_watermark,
            message.last_stable_offset,
        )
    if version >= 12:
        writer.write_nullable_compact_array_length(
            message.aborted_transactions, "aborted_transactions"
        )
        if message.aborted_transactions:
            for aborted_transaction in message.aborted_transactions:
                _encode_aborted_transaction(writer, aborted_transaction, version)
    else:
        writer.write_nullable_array_length(message.aborted_transactions, "aborted_transactions")
        if message.aborted_transactions:
            for aborted_transaction in message.aborted_transactions:
                _encode_aborted_transaction(writer, aborted_transaction, version)
    if version >= 11:
        writer.write_int32(message.preferred_read_replica)
    if version >= 12:
        writer.write_nullable_compact_bytes(message.records, "records")
    else:
        writer.write_nullable_bytes(message.records, "records")
    if version >= 12:
        tagged: list[tuple[int, Writer]] = []
        if not _is_default_epoch_end_offset(message.diverging_epoch):
            content = Writer()
            _encode_epoch_end_offset(content, message.diverging_epoch, version)
            tagged.append((0, content))
        if not _is_default_leader_id_and_epoch(message.current_leader):
            content = Writer()
            _encode_leader_id_and_epoch(content, message.current_leader, version)
            tagged.append((1, content))
        if not _is_default_snapshot_id(message.snapshot_id):
            content = Writer()
            _encode_snapshot_id(content, message.snapshot_id, version)
            tagged.append((2, content))
        writer.write_tagged_fields(tagged)


def _encode_fetchable_topic_response(
    writer: Writer, message: FetchableTopicResponse, version: int
) -> None:
    if version <= 11:
        writer.write_string(message.topic, "topic")
    elif version <= 12:
        writer.write_compact_string(message.topic, "topic")
    if version >= 13:
        writer.write_uuid(message.topic_id)
    if version >= 12:
        writer.write_compact_array_length(message.partitions, "partitions")
        for partition_data in message.partitions:
            _encode_partition_data(writer, partition_data, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partitions, "partitions")
        for partition_data in message.partitions:
            _encode_partition_data(writer, partition_data, version)


def _encode_node_endpoint(writer: Writer, message: NodeEndpoint, version: int) -> None:
    writer.write_int32(message.node_id)
    writer.write_compact_string(message.host, "host")
    writer.write_int32(message.port)
    writer.write_nullable_compact_string(message.rack, "rack")
    writer.buf.append(0)


def encode_fetch_response(writer: Writer, message: FetchResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 4 <= version <= 18:
        raise unsupported_version("FetchResponse", version)
    if version >= 7:
        writer.buf += _INT32_INT16_INT32.pack(
            message.throttle_time_ms, message.error_code, message.session_id
        )
    else:
        writer.write_int32(message.throttle_time_ms)
    if version >= 12:
        writer.write_compact_array_length(message.responses, "responses")
        for fetchable_topic_response in message.responses:
            _encode_fetchable_topic_response(writer, fetchable_topic_response, version)
    else:
        writer.write_array_length(message.responses, "responses")
        for fetchable_topic_response in message.responses:
            _encode_fetchable_topic_response(writer, fetchable_topic_response, version)
    if version >= 12:
        tagged: list[tuple[int, Writer]] = []
        if version >= 16 and message.node_endpoints:
            content = Writer()
            content.write_compact_array_length(message.node_endpoints, "node_endpoints")
            for node_endpoint in message.node_endpoints:
                _encode_node_endpoint(content, node_endpoint, version)
            tagged.append((0, content))
        writer.write_tagged_fields(tagged)


def _is_default_epoch_end_offset(message: EpochEndOffset) -> bool:
    return message.epoch == -1 and message.end_offset == -1


def _is_default_leader_id_and_epoch(message: LeaderIdAndEpoch) -> bool:
    return message.leader_id == -1 and message.leader_epoch == -1


def _is_default_snapshot_id(message: SnapshotId) -> bool:
    return message.end_offset == -1 and message.epoch == -1
