"""The bytes in __consumer_offsets: as Apache Kafka 4.3.1 wrote them, in old versions, broken."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell import tenants as cell_tenants
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.loading import fold_records
from data_plane.groups.record_formats import (
    DEFAULT_TENANT,
    CommittedOffset,
    GroupKey,
    GroupRecord,
    MemberRecord,
    OffsetKey,
    decode_committed_offset,
    decode_group,
    decode_key,
    encode_committed_offset,
    encode_group,
    encode_key,
)
from data_plane.wire.errors import MalformedFrame
from data_plane.wire.primitives import ZERO_UUID, Writer
from data_plane.wire.records import Record

# From a log of Apache Kafka 4.3.1.
KAFKA_OFFSET_KEY = b"\x00\x01\x00\ndel-opaque\x00\x06orders\x00\x00\x00\x00"
KAFKA_OFFSET_VALUE = (
    b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\x01\x00\x00\x01\xa1\xfeU\xad%"
    b"\x01\x00\x10h\xf84\x8cz\xa0O\x1d\xae\xa4\x06R\x8d/\xe6\xca"
)
KAFKA_GROUP_KEY = b"\x00\x02\x00\x08takeover"
KAFKA_GROUP_VALUE = (
    b"\x00\x03\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x01\xa1\xfeU\x96\x94\x00\x00\x00\x00"
)

texts = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
offsets = st.builds(
    CommittedOffset,
    int64,
    int32,
    texts,
    int64,
    st.none() | st.integers(0, 2**63 - 1),
    st.just(ZERO_UUID) | st.uuids(),
)
members = st.builds(
    MemberRecord,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    int32,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
groups = st.builds(
    GroupRecord,
    texts,
    int32,
    st.none() | texts,
    st.none() | texts,
    st.none() | st.integers(0, 2**62),
    st.lists(members, max_size=3).map(tuple),
)


def test_what_kafka_wrote_is_read_and_written_alike() -> None:
    key = decode_key(KAFKA_OFFSET_KEY)
    assert key == ("default", OffsetKey("del-opaque", "orders", 0))
    assert encode_key(*key) == KAFKA_OFFSET_KEY
    committed = decode_committed_offset(KAFKA_OFFSET_VALUE)
    assert committed == CommittedOffset(
        1, -1, "", 1795268390181, None, UUID("68f8348c-7aa0-4f1d-aea4-06528d2fe6ca")
    )
    assert encode_committed_offset(committed) == KAFKA_OFFSET_VALUE
    group_key = decode_key(KAFKA_GROUP_KEY)
    assert group_key == ("default", GroupKey("takeover"))
    assert encode_key(*group_key) == KAFKA_GROUP_KEY
    group = decode_group(KAFKA_GROUP_VALUE)
    assert group == GroupRecord("", 0, None, None, 1795268384404, ())
    assert encode_group(group) == KAFKA_GROUP_VALUE


@given(offsets)
def test_offsets_survive(committed: CommittedOffset) -> None:
    decoded = decode_committed_offset(encode_committed_offset(committed))
    if committed.expire_timestamp_ms is not None:
        # The old format with an expiry has no place for the rest.
        expected = (committed.offset, committed.metadata, committed.expire_timestamp_ms)
        assert (decoded.offset, decoded.metadata, decoded.expire_timestamp_ms) == expected
    else:
        assert decoded == committed


@given(groups)
def test_groups_survive(group: GroupRecord) -> None:
    assert decode_group(encode_group(group)) == group


@given(st.sampled_from([KAFKA_OFFSET_VALUE, KAFKA_GROUP_VALUE]), st.data())
def test_cut_and_bent_values_are_refused_or_read_but_nothing_else(
    value: bytes, data: st.DataObject
) -> None:
    bent = bytearray(value[: data.draw(st.integers(0, len(value)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if bent:
            bent[data.draw(st.integers(0, len(bent) - 1))] = data.draw(st.integers(0, 255))
    for decode in (decode_committed_offset, decode_group, decode_key):
        with contextlib.suppress(MalformedFrame):
            decode(bytes(bent))


def _old_offset(version: int) -> bytes:
    writer = Writer()
    writer.write_int16(version)
    writer.write_int64(42)
    if version >= 3:
        writer.write_int32(7)
    writer.write_string("note")
    writer.write_int64(1_000)
    if version == 1:
        writer.write_int64(2_000)
    return bytes(writer.buf)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_offset_values(version: int) -> None:
    committed = decode_committed_offset(_old_offset(version))
    assert committed.offset == 42
    assert committed.metadata == "note"
    assert committed.commit_timestamp_ms == 1_000
    assert committed.leader_epoch == (7 if version == 3 else -1)
    assert committed.expire_timestamp_ms == (2_000 if version == 1 else None)


def _old_group(version: int) -> bytes:
    writer = Writer()
    writer.write_int16(version)
    writer.write_string("consumer")
    writer.write_int32(5)
    writer.write_nullable_string("range")
    writer.write_nullable_string("m-1")
    if version >= 2:
        writer.write_int64(900)
    writer.write_int32(1)
    writer.write_string("m-1")
    if version >= 3:
        writer.write_nullable_string("i-1")
    writer.write_string("client")
    writer.write_string("/127.0.0.1")
    if version >= 1:
        writer.write_int32(60_000)
    writer.write_int32(10_000)
    writer.write_bytes(b"subscription")
    writer.write_bytes(b"assignment")
    return bytes(writer.buf)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_group_values(version: int) -> None:
    group = decode_group(_old_group(version))
    assert group.generation_id == 5
    assert group.current_state_timestamp_ms == (900 if version >= 2 else None)
    (member,) = group.members
    assert member.group_instance_id == ("i-1" if version >= 3 else None)
    assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
    assert member.assignment == b"assignment"


def test_group_values_of_version_4() -> None:
    writer = Writer()
    writer.write_int16(4)
    writer.write_compact_string("consumer")
    writer.write_int32(5)
    writer.write_nullable_compact_string(None)
    writer.write_nullable_compact_string("m-1")
    writer.write_int64(-1)
    writer.write_uvarint(2)
    for text in ("m-1", "i-1", "client", "host"):
        writer.write_compact_string(text)
    writer.write_int32(1)
    writer.write_int32(2)
    writer.write_compact_bytes(b"s")
    writer.write_compact_bytes(b"a")
    writer.write_tagged_fields([(9, Writer())])
    writer.write_uvarint(0)
    (member,) = decode_group(bytes(writer.buf)).members
    assert member == MemberRecord("m-1", "i-1", "client", "host", 1, 2, b"s", b"a")


def test_folding_keeps_the_newest_and_skips_what_it_cannot_read() -> None:
    key = encode_key("default", OffsetKey("g", "orders", 0))
    gone = encode_key("default", OffsetKey("g", "orders", 1))
    consumer_group_key = b"\x00\x03\x00\x01g"
    values = [
        (key, encode_committed_offset(CommittedOffset(1, -1, "", 0))),
        (gone, encode_committed_offset(CommittedOffset(1, -1, "", 0))),
        (consumer_group_key, b"whatever"),
        (key, encode_committed_offset(CommittedOffset(2, -1, "", 0))),
        (key, b"\x00\x09"),
        (b"\x00", b""),
        (None, b""),
        (gone, None),
    ]
    records = [Record(i, 0, key, value, ()) for i, (key, value) in enumerate(values)]
    tenants, unreadable_count = fold_records(records)
    (folded,) = tenants.values()
    assert unreadable_count == 3
    assert folded.offsets.snapshot() == {}, "an unreadable value is newer than the one before"
    assert not folded.groups
    assert not folded.simple_groups


def test_one_bad_value_does_not_bring_an_older_one_back() -> None:
    key = encode_key("default", OffsetKey("g", "orders", 0))
    good = encode_committed_offset(CommittedOffset(1, -1, "", 0))
    tenants, _ = fold_records([Record(0, 0, key, b"\x00\x09", ()), Record(1, 0, key, good, ())])
    folded = tenants["default"]
    expected = {OffsetKey("g", "orders", 0): CommittedOffset(1, -1, "", 0)}
    assert folded.offsets.snapshot() == expected
    assert folded.simple_groups == ["g"]


@given(texts.filter(lambda text: text != "default"), texts, texts, int32)
def test_keys_of_tenants_have_versions_of_their_own(
    tenant: str, group: str, topic: str, partition: int
) -> None:
    for key in (OffsetKey(group, topic, partition), GroupKey(group)):
        data = encode_key(tenant, key)
        assert decode_key(data) == (tenant, key)
        # Which brokers that know no tenants pass over, as Kafka does with its newer ones.
        assert data[0] == 0x54
        assert decode_key(encode_key("default", key)) == ("default", key)
        assert encode_key("default", key)[0] == 0


def test_the_bytes_of_a_tenants_keys() -> None:
    expected = b"\x54\x01\x00\x04acme\x00\x01g\x00\x06orders\x00\x00\x00\x07"
    assert encode_key("acme", OffsetKey("g", "orders", 7)) == expected
    assert encode_key("acme", GroupKey("g")) == b"\x54\x02\x00\x04acme\x00\x01g"


def test_tenants_are_folded_apart() -> None:
    key = OffsetKey("g", "orders", 0)
    values = {"default": CommittedOffset(1, -1, "", 0), "acme": CommittedOffset(2, -1, "", 0)}
    records = [
        Record(number, 0, encode_key(tenant, key), encode_committed_offset(value), ())
        for number, (tenant, value) in enumerate(values.items())
    ]
    folded, _ = fold_records(records)
    assert {tenant: found.offsets.snapshot()[key] for tenant, found in folded.items()} == values
    coordinator = GroupCoordinator(
        GroupCoordinatorConfig(offsets_topic_num_partitions=1), new_uuid=lambda: "u"
    )
    assert coordinator.start_loading(0, 1)
    coordinator.load(0, 1, folded, 0)
    for tenant, value in values.items():
        assert coordinator.committed_offsets(tenant) == {key: value}
    assert coordinator.committed_offsets("globex") == {}
    assert DEFAULT_TENANT == cell_tenants.DEFAULT_TENANT
