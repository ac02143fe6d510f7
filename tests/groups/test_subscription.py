"""What the broker reads of consumers' own bytes, and that it minds none that are no consumer's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.groups.subscription import decode_assignment, decode_subscribed_topics
from data_plane.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
    encode_consumer_protocol_assignment,
)
from data_plane.wire.primitives import Writer
from tests.groups.requests import subscription

ASSIGNED = st.lists(st.tuples(st.text(max_size=20), st.lists(st.integers(0, 1 << 30), max_size=9)))


def encoded(assigned: list[tuple[str, list[int]]], version: int) -> bytes:
    topics = [TopicPartition(topic=topic, partitions=some) for topic, some in assigned]
    writer = Writer()
    writer.write_int16(version)
    encode_consumer_protocol_assignment(
        writer, ConsumerProtocolAssignment(assigned_partitions=topics, user_data=b"own"), 0
    )
    return bytes(writer.buf)


@given(ASSIGNED, st.integers(0, 9), st.binary(max_size=9))
def test_an_assignment_of_any_version_is_read(
    assigned: list[tuple[str, list[int]]], version: int, later_fields: bytes
) -> None:
    assert decode_assignment(encoded(assigned, version) + later_fields) == assigned


@given(ASSIGNED, st.data())
def test_what_is_cut_or_of_a_version_below_0_is_no_assignment(
    assigned: list[tuple[str, list[int]]], data: st.DataObject
) -> None:
    whole = encoded(assigned, 0)
    assert decode_assignment(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert decode_assignment(encoded(assigned, -1)) is None


@given(st.binary(max_size=99))
def test_other_bytes_are_read_or_are_none(other: bytes) -> None:
    decode_assignment(other)
    decode_subscribed_topics(other)


def test_a_subscription_is_read() -> None:
    assert decode_subscribed_topics(subscription("a", "b")) == frozenset({"a", "b"})
    assert decode_subscribed_topics(subscription("a")[:-1]) is None
    assert decode_subscribed_topics(b"") is None
