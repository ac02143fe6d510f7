"""Keys and values of the records in `__consumer_offsets`, byte for byte Kafka's.

Kafka's own dump tool can read what is written here, and a log that Kafka wrote can be loaded.
A key starts with an int16 that says what the record is about:

    0, 1   OffsetCommitKey     group, topic, partition      value: OffsetCommitValue
    2      GroupMetadataKey    group                        value: GroupMetadataValue
    3…     KIP-848 and later coordinators; read as `None` and skipped
    0x5401 as 1, with the tenant before the group
    0x5402 as 2, with the tenant before the group

The last two are Tidewheel's own, for tenants other than `default`: what Kafka's keys name is the
default tenant's. Brokers that do not know them skip them, and no tenant exists while there are any
(metadata.version 3).

A value starts with an int16 version; versions 0 to 4 are read. As Kafka 4.3 does, offsets are
written in version 4, or in 1 when they have an expiry of their own, and groups in version 3. No
value at all is a tombstone. Version 4 is flexible; of its tagged fields only an offset's topic id
is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from data_plane.wire.errors import MalformedFrame
from data_plane.wire.primitives import ZERO_UUID, Reader, Writer

# Whose group it is that a key without a tenant names.
DEFAULT_TENANT: Final = "default"

_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_TENANT_OFFSET_KEY_VERSION: Final = 0x5401
_TENANT_GROUP_KEY_VERSION: Final = 0x5402
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_FLEXIBLE_VALUE_VERSION: Final = 4
_VALUE_VERSION_MAX: Final = 4
_MEMBER_BYTES_MIN: Final = 8
_TOPIC_ID_TAG: Final = 0
# One tagged field, its tag, and sixteen bytes that follow.
_ONE_TOPIC_ID_FIELD: Final = bytes((1, _TOPIC_ID_TAG, 16))
_PLAIN_VERSION_BYTES: Final = bytes((0, _OFFSET_VALUE_VERSION))

_OFFSET_KEY_VERSION_BYTES: Final = bytes((0, _OFFSET_KEY_VERSION))

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_TWO_INT16: Final = Struct(">hh")
_OFFSET_VALUE_HEAD: Final = Struct(">hqi")
# Nearly all values: no metadata, and a topic id.
_PLAIN_OFFSET_VALUE: Final = Struct(">hqiBq3s16s")
_NO_METADATA: Final = 1
_PLAIN_TOPIC_ID_AT: Final = _PLAIN_OFFSET_VALUE.size - 16

TOPIC_IDS_REMEMBERED_MAX: Final = 4_096


class OffsetKey(NamedTuple):
    """The position of which group in which partition of which topic, among one tenant's. A tuple,
    since commits hash many."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


RecordKey: TypeAlias = OffsetKey | GroupKey


class CommittedOffset(NamedTuple):
    """A committed position. `leader_epoch` is -1 when the client did not say; an
    `expire_timestamp_ms` exists only for commits of old clients with a retention of their own;
    `topic_id` is zero where it was not known."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: UUID = ZERO_UUID

    def is_of_topic(self, topic_id: UUID) -> bool:
        """False when both ids are known and differ: the topic was deleted and made anew."""
        return self.topic_id == topic_id or ZERO_UUID in (self.topic_id, topic_id)


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as it is persisted: its metadata for the chosen protocol only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A generation as it is persisted. `current_state_timestamp_ms` is None in old records."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    current_state_timestamp_ms: int | None
    members: tuple[MemberRecord, ...]


def encode_key(tenant: str, key: RecordKey) -> bytes:
    if tenant != DEFAULT_TENANT:
        return _encode_tenant_key(tenant, key)
    group_id = key.group_id.encode()
    if isinstance(key, GroupKey):
        return _TWO_INT16.pack(_GROUP_KEY_VERSION, len(group_id)) + group_id
    topic = key.topic.encode()
    head = _TWO_INT16.pack(_OFFSET_KEY_VERSION, len(group_id))
    return b"".join((head, group_id, _INT16.pack(len(topic)), topic, _INT32.pack(key.partition)))


def _encode_tenant_key(tenant: str, key: RecordKey) -> bytes:
    writer = Writer()
    is_offset = isinstance(key, OffsetKey)
    writer.write_int16(_TENANT_OFFSET_KEY_VERSION if is_offset else _TENANT_GROUP_KEY_VERSION)
    writer.write_string(tenant)
    writer.write_string(key.group_id)
    if isinstance(key, OffsetKey):
        writer.write_string(key.topic)
        writer.write_int32(key.partition)
    return bytes(writer.buf)


def decode_key(data: bytes) -> tuple[str, RecordKey] | None:
    """The tenant and the key, or None for a kind of record that this coordinator does not know.

    Raises MalformedFrame when the bytes end early or say nonsense.
    """
    key = _decode_sound_offset_key(data)
    if key is not None:
        return DEFAULT_TENANT, key
    reader = Reader(data)
    version = reader.read_int16()
    if 0 <= version <= _OFFSET_KEY_VERSION:
        return DEFAULT_TENANT, _read_offset_key(reader)
    if version == _GROUP_KEY_VERSION:
        return DEFAULT_TENANT, GroupKey(reader.read_string())
    if version == _TENANT_OFFSET_KEY_VERSION:
        return reader.read_string(), _read_offset_key(reader)
    if version == _TENANT_GROUP_KEY_VERSION:
        return reader.read_string(), GroupKey(reader.read_string())
    return None


def _read_offset_key(reader: Reader) -> OffsetKey:
    return OffsetKey(reader.read_string(), reader.read_string(), reader.read_int32())


def _decode_sound_offset_key(data: bytes) -> OffsetKey | None:
    """A key of the kind that a partition has millions of, if it is sound to its last byte."""
    size = len(data)
    if size < 10 or data[:2] != _OFFSET_KEY_VERSION_BYTES:
        return None
    topic_at = 6 + (data[2] << 8 | data[3])
    if topic_at > size - 4 or topic_at + (data[topic_at - 2] << 8 | data[topic_at - 1]) != size - 4:
        return None
    try:
        group_id, topic = data[4 : topic_at - 2].decode(), data[topic_at:-4].decode()
    except UnicodeDecodeError:
        return None
    return OffsetKey(group_id, topic, _INT32.unpack_from(data, size - 4)[0])


def encode_committed_offset(committed: CommittedOffset) -> bytes:
    writer = Writer()
    if committed.expire_timestamp_ms is None:
        # By hand, not field by field: a commit may bring thousands of these.
        writer.buf += _OFFSET_VALUE_HEAD.pack(
            _OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch
        )
        if committed.metadata:
            writer.write_compact_string(committed.metadata)
        else:
            writer.buf.append(1)
        writer.buf += _INT64.pack(committed.commit_timestamp_ms)
        if committed.topic_id == ZERO_UUID:
            writer.buf.append(0)
        else:
            writer.buf += _ONE_TOPIC_ID_FIELD
            writer.buf += committed.topic_id.bytes
    else:
        writer.write_int16(_OFFSET_VALUE_VERSION_WITH_EXPIRY)
        writer.write_int64(committed.offset)
        writer.write_string(committed.metadata)
        writer.write_int64(committed.commit_timestamp_ms)
        writer.write_int64(committed.expire_timestamp_ms)
    return bytes(writer.buf)


def decode_committed_offset(data: bytes) -> CommittedOffset:
    if _is_plain(data):
        _, offset, leader_epoch, _, timestamp_ms, _, topic_id = _PLAIN_OFFSET_VALUE.unpack(data)
        return CommittedOffset(
            offset, leader_epoch, "", timestamp_ms, None, _remembered_topic_id(topic_id)
        )
    reader = Reader(data)
    version = _read_value_version(reader)
    offset = reader.read_int64()
    leader_epoch = reader.read_int32() if version >= 3 else -1
    metadata = _read_string(reader, version)
    commit_timestamp_ms = reader.read_int64()
    expire_timestamp_ms = reader.read_int64() if version == 1 else -1
    topic_id = ZERO_UUID
    if version >= _FLEXIBLE_VALUE_VERSION:
        for _ in range(reader.read_uvarint()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == _TOPIC_ID_TAG:
                topic_id = reader.read_uuid()
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        None if expire_timestamp_ms == -1 else expire_timestamp_ms,
        topic_id,
    )


def topic_id_of_value(data: bytes) -> UUID:
    """The topic id of a sound value that `decode_committed_offset` reads; zero if it has none."""
    if _is_plain(data):
        return _remembered_topic_id(data[_PLAIN_TOPIC_ID_AT:])
    return decode_committed_offset(data).topic_id


def _is_plain(data: bytes) -> bool:
    return (
        len(data) == _PLAIN_OFFSET_VALUE.size
        and data[:2] == _PLAIN_VERSION_BYTES
        and data[14] == _NO_METADATA
        and data[23:26] == _ONE_TOPIC_ID_FIELD
    )


@lru_cache(maxsize=TOPIC_IDS_REMEMBERED_MAX)
def _remembered_topic_id(topic_id: bytes) -> UUID:
    return UUID(bytes=topic_id)


def encode_group(group: GroupRecord) -> bytes:
    writer = Writer()
    writer.write_int16(_GROUP_VALUE_VERSION)
    writer.write_string(group.protocol_type)
    writer.write_int32(group.generation_id)
    writer.write_nullable_string(group.protocol_name)
    writer.write_nullable_string(group.leader_id)
    timestamp_ms = group.current_state_timestamp_ms
    writer.write_int64(-1 if timestamp_ms is None else timestamp_ms)
    writer.write_int32(len(group.members))
    for member in group.members:
        writer.write_string(member.member_id)
        writer.write_nullable_string(member.group_instance_id)
        writer.write_string(member.client_id)
        writer.write_string(member.client_host)
        writer.write_int32(member.rebalance_timeout_ms)
        writer.write_int32(member.session_timeout_ms)
        writer.write_bytes(member.subscription)
        writer.write_bytes(member.assignment)
    return bytes(writer.buf)


def decode_group(data: bytes) -> GroupRecord:
    reader = Reader(data)
    version = _read_value_version(reader)
    protocol_type = _read_string(reader, version)
    generation_id = reader.read_int32()
    protocol_name = _read_nullable_string(reader, version)
    leader_id = _read_nullable_string(reader, version)
    timestamp_ms = reader.read_int64() if version >= 2 else -1
    if version >= _FLEXIBLE_VALUE_VERSION:
        count = reader.read_compact_array_length(_MEMBER_BYTES_MIN)
    else:
        count = reader.read_array_length(_MEMBER_BYTES_MIN)
    members = tuple(_read_member(reader, version) for _ in range(max(count, 0)))
    return GroupRecord(
        protocol_type,
        generation_id,
        protocol_name,
        leader_id,
        None if timestamp_ms == -1 else timestamp_ms,
        members,
    )


def _read_member(reader: Reader, version: int) -> MemberRecord:
    member_id = _read_string(reader, version)
    group_instance_id = _read_nullable_string(reader, version) if version >= 3 else None
    client_id = _read_string(reader, version)
    client_host = _read_string(reader, version)
    rebalance_timeout_ms = reader.read_int32() if version >= 1 else -1
    session_timeout_ms = reader.read_int32()
    subscription = _read_bytes(reader, version)
    assignment = _read_bytes(reader, version)
    if version >= _FLEXIBLE_VALUE_VERSION:
        reader.skip_tagged_fields()
    return MemberRecord(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        # Version 0 had one time-out for both purposes.
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _read_value_version(reader: Reader) -> int:
    version = reader.read_int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise MalformedFrame(f"unknown value version {version} in __consumer_offsets")
    return version


def _read_string(reader: Reader, version: int) -> str:
    if version >= _FLEXIBLE_VALUE_VERSION:
        return reader.read_compact_string()
    return reader.read_string()


def _read_nullable_string(reader: Reader, version: int) -> str | None:
    if version >= _FLEXIBLE_VALUE_VERSION:
        return reader.read_nullable_compact_string()
    return reader.read_nullable_string()


def _read_bytes(reader: Reader, version: int) -> bytes:
    if version >= _FLEXIBLE_VALUE_VERSION:
        return bytes(reader.read_compact_bytes())
    return bytes(reader.read_bytes())
