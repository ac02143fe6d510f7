"""Every message in every version: what is written is read back, and is what kio writes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.wire.errors import InvalidMessage, MalformedFrame, UnsupportedVersion
from data_plane.wire.primitives import Reader, Writer
from scripts.wire_generator.model import Field, Message
from scripts.wire_generator.own_apis import OWN_MESSAGES
from tests.wire.kio_messages import encode_with_kio
from tests.wire.message_cases import (
    HypothesisChooser,
    RandomChooser,
    all_messages,
    build,
    decoder,
    encoder,
    versions_of,
)

MESSAGES = all_messages()
each_message = pytest.mark.parametrize("name", MESSAGES)
EXAMPLES_PER_MESSAGE = min(200, max(10, settings().max_examples // 10))


def encoded(message: Message, instance: Any, version: int) -> bytes:
    writer = Writer()
    encoder(message)(writer, instance, version)
    return bytes(writer.buf)


def decoded(message: Message, data: bytes, version: int) -> Any:
    reader = Reader(data)
    instance = decoder(message)(reader, version)
    assert reader.remaining == 0
    return instance


@each_message
@settings(max_examples=EXAMPLES_PER_MESSAGE)
@given(data=st.data())
def test_what_is_written_is_read_back(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    version = data.draw(st.sampled_from(versions_of(message)))
    instance = build(message, version, HypothesisChooser(data))
    assert decoded(message, encoded(message, instance, version), version) == instance


@each_message
def test_every_version_is_read_back_and_is_what_kio_writes(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        for seed in range(4):
            instance = build(message, version, RandomChooser(random.Random(seed)))
            if message in OWN_MESSAGES:
                # kio knows nothing of them.
                theirs = encoded(message, instance, version)
            else:
                theirs = encode_with_kio(message, version, instance)
            ours = encoded(message, instance, version)
            assert ours == theirs, (version, instance)
            assert decoded(message, ours, version) == instance


@each_message
def test_defaults_can_be_written_in_every_version(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        instance = build(message, version, RandomChooser(random.Random(0)))
        empty = type(instance)()
        assert decoded(message, encoded(message, empty, version), version) == empty


@each_message
def test_versions_outside_the_range_are_refused(name: str) -> None:
    message = MESSAGES[name]
    instance = build(message, message.versions.last, RandomChooser(random.Random(0)))
    for version in (-1, message.versions.first - 1, message.versions.last + 1, 32767):
        with pytest.raises(UnsupportedVersion, match=f"{message.name} has no version {version}"):
            decoder(message)(Reader(b"\0" * 100), version)
        with pytest.raises(UnsupportedVersion, match=f"{message.name} has no version {version}"):
            encoder(message)(Writer(), instance, version)


@each_message
def test_every_strict_prefix_is_malformed(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        data = encoded(message, build(message, version, RandomChooser(random.Random(1))), version)
        cuts = random.Random(2).sample(range(len(data)), min(len(data), 60))
        for size in cuts:
            with pytest.raises(MalformedFrame):
                decoder(message)(Reader(data[:size]), version)
            with pytest.raises(MalformedFrame):
                decoder(message)(Reader(data, 0, size), version)


@each_message
def test_null_is_refused_where_the_version_has_none(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        for f in message.root.fields:
            can_be_null = f.nullable is not None and version in f.nullable
            has_prefix = f.is_array or f.kind in ("string", "bytes", "records")
            if version not in f.versions or not has_prefix or f.tag is not None:
                continue
            instance = build(message, version, RandomChooser(random.Random(3)))
            setattr(instance, f.name, None)
            if can_be_null:
                again = decoded(message, encoded(message, instance, version), version)
                assert getattr(again, f.name) is None
            else:
                with pytest.raises(InvalidMessage, match=f.name):
                    encoded(message, instance, version)


def other_value(message: Message, f: Field, version: int) -> Any:
    """A value of the field that is not its default, from a version that has it."""
    for seed in range(100):
        instance = build(message, version, RandomChooser(random.Random(seed)))
        value = getattr(instance, f.name)
        if value != getattr(type(instance)(), f.name):
            return value
    raise AssertionError(f"only defaults for {f.name}")


@each_message
def test_what_a_version_cannot_carry_is_dropped_or_refused(name: str) -> None:
    message = MESSAGES[name]
    for f in message.root.fields:
        value = other_value(message, f, f.versions.first)
        for version in versions_of(message):
            if version in f.versions:
                continue
            instance = build(message, version, RandomChooser(random.Random(4)))
            plain = encoded(message, instance, version)
            setattr(instance, f.name, value)
            if f.ignorable:
                assert encoded(message, instance, version) == plain
            else:
                with pytest.raises(UnsupportedVersion, match=f.name):
                    encoded(message, instance, version)


@each_message
def test_unknown_tagged_fields_are_skipped(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        if not message.is_flexible(version):
            continue
        instance = type(build(message, version, RandomChooser(random.Random(5))))()
        data = encoded(message, instance, version)
        assert data[-1] == 0, "no tagged field has a default that is written"
        with_unknown = data[:-1] + b"\x02\xe7\x07\x03abc\xe8\x07\x00"
        assert decoded(message, with_unknown, version) == instance
        with pytest.raises(MalformedFrame):
            decoder(message)(Reader(data[:-1] + b"\x01\xe7\x07\x04abc"), version)


@each_message
def test_a_huge_array_length_is_refused_at_once(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        fields = message.root.fields_in(version)
        if not fields or not fields[0].is_array:
            continue
        flexible = message.is_flexible(version)
        huge = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
        with pytest.raises(MalformedFrame, match=f"{fields[0].name} claims"):
            decoder(message)(Reader(huge + b"\0" * 8), version)


@each_message
def test_bytes_after_a_message_are_left_alone(name: str) -> None:
    """Apache Kafka 4.3 answers a request with bytes after its last field as if they were not."""
    message = MESSAGES[name]
    for version in versions_of(message):
        instance = build(message, version, RandomChooser(random.Random(6)))
        reader = Reader(encoded(message, instance, version) + b"after")
        assert decoder(message)(reader, version) == instance
        assert reader.remaining == 5
