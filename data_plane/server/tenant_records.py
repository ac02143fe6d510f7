"""Records of a partition on behalf of a principal: a few to read, a few to append.

Each is one or two of Kafka's requests (kafka_calls.py). Records are packed and unpacked in a
thread.

Bounds: PEEK_BYTES_MAX and RECORDS_MAX of a peek, PRODUCE_BYTES_MAX and PRODUCE_RECORDS_MAX of a
produce; a batch unpacks to UNPACKED_BYTES_MAX at most.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any, Final, NamedTuple

import grpc

from data_plane.broker.request.principal import Principal
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_calls import BadRequest, Refused, within
from data_plane.server.kafka_calls import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Caller,
    KafkaCalls,
)
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import NewRecord
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import build_batch, decode_batch, iter_batch_headers
from data_plane.wire.registry import ApiKey

RECORDS_DEFAULT: Final = 100
RECORDS_MAX: Final = 1_000
PEEK_BYTES_DEFAULT: Final = 1024 * 1024
PEEK_BYTES_MAX: Final = 4 * 1024 * 1024
# Beside a value that is cut come its key and headers, and the next batch is none of it.
UNPACKED_BYTES_MAX: Final = 32 * 1024 * 1024
PRODUCE_RECORDS_MAX: Final = 100
PRODUCE_BYTES_MAX: Final = 1024 * 1024
PRODUCE_TIMEOUT_MS: Final = 15_000

# Those that name topics, not ids.
_FETCH_VERSION: Final = 12
_PRODUCE_VERSION: Final = 12
_ACKS_ALL: Final = -1


class Failed(Exception):
    """What Kafka answered, for the Failure of the response."""

    def __init__(self, code: int, message: str | None = None, leader: int = -1) -> None:
        super().__init__(message or "")
        words = message or ErrorCode(code).message
        self.failure = messages.Failure(error_code=code, message=words, node_id=leader)


class Where(NamedTuple):
    """A partition, and on whose behalf it is asked for."""

    caller: Caller
    topic: str
    partition: int


def read_caller(caller: messages.Caller) -> Caller:
    """Raises BadRequest."""
    kind, separator, name = caller.principal.partition(":")
    if not caller.tenant:
        raise BadRequest("caller.tenant: is missing")
    if not separator or kind != "User" or not name:
        raise BadRequest(f"caller.principal: {caller.principal[:64]!r} is not like User:alice")
    host = caller.host or "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise BadRequest(f"caller.host: {host[:64]!r} is no address") from None
    return Caller(caller.tenant, Principal(kind, name), host)


def read_where(caller: messages.Caller, topic: str, partition: int) -> Where:
    """Raises BadRequest."""
    if not topic:
        raise BadRequest("topic: is missing")
    if partition < 0:
        raise BadRequest(f"partition: {partition} is less than 0")
    return Where(read_caller(caller), topic, partition)


def failed_at(kafka: KafkaCalls, where: Where, code: int, message: str | None = None) -> Failed:
    """With the leader where that is another broker."""
    leader = -1
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = kafka.leader_of(where.caller.tenant, where.topic, where.partition)
    return Failed(code, message, leader)


class TenantRecords:
    """Peek and Produce."""

    def __init__(self, kafka: KafkaCalls) -> None:
        self._kafka = kafka

    async def peek(self, request: messages.PeekRequest) -> messages.PeekResponse:
        """Raises BadRequest and Refused."""
        where = read_where(request.caller, request.topic, request.partition)
        count = within("records_max", request.records_max, RECORDS_DEFAULT, RECORDS_MAX)
        size = within("bytes_max", request.bytes_max, PEEK_BYTES_DEFAULT, PEEK_BYTES_MAX)
        numbers = (request.value_bytes_max, request.last, request.offset, request.timestamp_ms)
        if min(numbers) < 0:
            raise BadRequest("value_bytes_max, last, offset, timestamp_ms: none is less than 0")
        try:
            offset = await self._start(where, request)
            data = await self._fetch(where, offset, size)
        except Failed as failed:
            return messages.PeekResponse(failure=failed.failure)
        response = messages.PeekResponse(
            next_offset=offset,
            log_start_offset=data.log_start_offset,
            end_offset=data.last_stable_offset,
        )
        if data.records:
            buf = bytes(data.records)
            cut = _Cut(count, size, request.value_bytes_max)
            try:
                await asyncio.to_thread(_unpack, buf, offset, cut, response)
            except InvalidRecords as error:
                words = f"what is stored cannot be shown: {error}"
                raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, words) from error
        return response

    async def produce(self, request: messages.ProduceRequest) -> messages.ProduceResponse:
        """Raises BadRequest and Refused."""
        if not request.HasField("partition"):
            raise BadRequest("partition: is missing")
        where = read_where(request.caller, request.topic, request.partition)
        records = request.records
        if not 1 <= len(records) <= PRODUCE_RECORDS_MAX:
            raise BadRequest(f"records: {len(records)} of them; give 1 to {PRODUCE_RECORDS_MAX}")
        size = sum(record.ByteSize() for record in records)
        if size > PRODUCE_BYTES_MAX:
            words = f"records: {size} bytes, allowed are {PRODUCE_BYTES_MAX}"
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        now_ms = self._kafka.wall_ms()
        batch = await asyncio.to_thread(_pack, request, now_ms)
        data = PartitionProduceData(index=where.partition, records=batch)
        wanted = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[data])],
        )
        answer = await self._kafka.call(where.caller, ApiKey.PRODUCE, _PRODUCE_VERSION, wanted)
        ((result,),) = (topic.partition_responses for topic in answer.responses)
        try:
            self._check(where, result.error_code, result.error_message)
        except Failed as failed:
            return messages.ProduceResponse(failure=failed.failure)
        return messages.ProduceResponse(partition=where.partition, base_offset=result.base_offset)

    async def _start(self, where: Where, request: messages.PeekRequest) -> int:
        """Where to begin, as the request says. Raises Failed."""
        match request.WhichOneof("start"):
            case "offset":
                return request.offset
            case "timestamp_ms":
                found = await self._offset_at(where, request.timestamp_ms)
                return await self._offset_at(where, LATEST_TIMESTAMP) if found < 0 else found
            case "last":
                end = await self._offset_at(where, LATEST_TIMESTAMP)
                start = await self._offset_at(where, EARLIEST_TIMESTAMP)
                return max(start, end - request.last)
        return await self._offset_at(where, EARLIEST_TIMESTAMP)

    async def _offset_at(self, where: Where, timestamp: int) -> int:
        """-1 when there is no such record. Raises Failed."""
        key = (where.topic, where.partition)
        result = (await self._kafka.list_offsets(where.caller, {key: timestamp}))[key]
        self._check(where, result.error_code)
        offset: int = result.offset
        return offset

    async def _fetch(self, where: Where, offset: int, size: int) -> Any:
        """Raises Failed, and Refused where a quota makes it wait: then there are no records."""
        partition = FetchPartition(
            partition=where.partition, fetch_offset=offset, partition_max_bytes=size
        )
        wanted = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=size,
            session_epoch=-1,
            topics=[FetchTopic(topic=where.topic, partitions=[partition])],
        )
        answer = await self._kafka.call(where.caller, ApiKey.FETCH, _FETCH_VERSION, wanted)
        if answer.error_code:
            raise Failed(answer.error_code)
        if not answer.responses and answer.throttle_time_ms:
            words = f"a quota makes this wait; ask again in {answer.throttle_time_ms} ms"
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        ((result,),) = (topic.partitions for topic in answer.responses)
        self._check(where, result.error_code)
        return result

    def _check(self, where: Where, code: int, message: str | None = None) -> None:
        """Raises Failed."""
        if code != ErrorCode.NONE:
            raise failed_at(self._kafka, where, code, message)


class _Cut(NamedTuple):
    records_max: int
    bytes_max: int
    value_bytes_max: int


def _unpack(buf: bytes, offset: int, cut: _Cut, response: messages.PeekResponse) -> None:
    """The records from `offset` on, and where to go on. In a thread; raises InvalidRecords."""
    left = cut.bytes_max
    for header in iter_batch_headers(buf, 0, len(buf), incomplete_tail=True):
        if header.is_control:
            response.next_offset = max(response.next_offset, header.last_offset + 1)
            continue
        for record in decode_batch(buf, header.position, size_max=UNPACKED_BYTES_MAX):
            if record.offset < offset:
                continue
            message = write_record(record, cut.value_bytes_max)
            size = message.ByteSize()
            if response.records and (size > left or len(response.records) == cut.records_max):
                return
            if size > left:
                message = write_record(record, max(1, left // 2))
                del message.headers[:]
                message.is_cut = True
                if message.ByteSize() > left:
                    message.ClearField("key")
            left -= size
            response.records.append(message)
            response.next_offset = record.offset + 1
        response.next_offset = max(response.next_offset, header.last_offset + 1)


def write_record(record: Any, value_bytes_max: int) -> messages.Record:
    """Its value cut to so many bytes, or whole with 0."""
    message = messages.Record(offset=record.offset, timestamp_ms=record.timestamp)
    if record.key is not None:
        message.key = record.key
    if record.value is not None:
        message.value_bytes = len(record.value)
        message.is_cut = 0 < value_bytes_max < len(record.value)
        message.value = record.value[:value_bytes_max] if message.is_cut else record.value
    for key, value in record.headers:
        header = message.headers.add(key=key.decode(errors="replace"))
        if value is not None:
            header.value = value
    return message


def _pack(request: messages.ProduceRequest, now_ms: int) -> bytes:
    """In a thread."""
    return bytes(
        build_batch(
            [
                NewRecord(
                    record.timestamp_ms or now_ms,
                    record.key if record.HasField("key") else None,
                    record.value if record.HasField("value") else None,
                    tuple(
                        (header.key.encode(), header.value if header.HasField("value") else None)
                        for header in record.headers
                    ),
                )
                for record in request.records
            ]
        )
    )
