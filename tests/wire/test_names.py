"""Names in messages: every string is known for what it is, and translators meet each name once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.wire.messages.entity_types import ENTITY_TYPES
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiSpec
from scripts.wire_generator.entity_types import (
    BY_TYPE,
    PATTERNS,
    PRINCIPALS,
    TEXT_FIELDS,
    TEXTS,
    TRANSLATORS,
    ByType,
)
from scripts.wire_generator.model import Field, Message, Struct
from tests.wire.message_cases import (
    Chooser,
    HypothesisChooser,
    RandomChooser,
    all_messages,
    build,
    decoder,
    encoder,
    versions_of,
)

MESSAGES = {name: each for name, each in all_messages().items() if each.api_key is not None}
each_message = pytest.mark.parametrize("name", MESSAGES)
EXAMPLES_PER_MESSAGE = min(100, max(5, settings().max_examples // 20))
KEY_TYPES = (0, 1, 2)


class Marks:
    """A namespace whose inside names end in what they are names of."""

    def __init__(self) -> None:
        self.met: list[tuple[str, str]] = []

    def _mark(self, entity: str, name: str) -> str:
        self.met.append((entity, name))
        return f"{name}/{entity}"

    def topic(self, name: str) -> str:
        return self._mark("topicName", name)

    def group(self, group_id: str) -> str:
        return self._mark("groupId", group_id)

    def transactional_id(self, transactional_id: str) -> str:
        return self._mark("transactionalId", transactional_id)


class Unmarks:
    """The way back."""

    @staticmethod
    def _unmark(entity: str, name: str) -> str:
        assert name.endswith(f"/{entity}"), "not an inside name of this kind"
        return name.removesuffix(f"/{entity}")

    def topic(self, name: str) -> str:
        return self._unmark("topicName", name)

    def group(self, group_id: str) -> str:
        return self._unmark("groupId", group_id)

    def transactional_id(self, transactional_id: str) -> str:
        return self._unmark("transactionalId", transactional_id)


def translator(name: str) -> Callable[..., None]:
    spec: ApiSpec = API_BY_KEY[MESSAGES[name].api_key or 0]
    return spec.translate_request if name.endswith("_request") else spec.translate_response


def selectors(name: str, key_type: int) -> dict[str, int]:
    """What the translator has to know of the request."""
    return {"key_type": key_type} if name == "find_coordinator_response" else {}


def leaves(
    message: Message, struct: Struct, instance: Any, version: int
) -> Iterator[tuple[Field, Any, Any]]:
    """Each string and each bytes value that a version carries, with its field and its struct."""
    for f in struct.fields:
        value = getattr(instance, f.name)
        if version not in f.versions or value is None:
            continue
        for each in value if f.is_array else [value]:
            if f.struct_name is not None:
                yield from leaves(message, message.struct(f.struct_name), each, version)
            elif f.kind in ("string", "bytes", "records"):
                yield f, instance, each


def entity_of(f: Field, instance: Any, key_type: int) -> str | None:
    """What this value is the name of, by the tables."""
    entity = f.entity
    if isinstance(entity, ByType):
        selected = key_type if entity.is_of_request else getattr(instance, entity.selector)
        return dict(entity.entities).get(selected)
    return entity if entity in TRANSLATORS else None


def carried(message: Message, instance: Any, version: int) -> Any:
    """As it comes in: only what the version carries, the rest at its default."""
    writer = Writer()
    encoder(message)(writer, instance, version)
    return decoder(message)(Reader(bytes(writer.buf)), version)


class SelectingChooser:
    """Has small numbers more often: they say what the names beside them are names of."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def integer(self, smallest: int, largest: int) -> int:
        if smallest == -128 and largest == 127:
            return (0, 1, 2, 4, 32)[self._chooser.integer(0, 4)]
        return self._chooser.integer(smallest, largest)

    def number(self) -> float:
        return self._chooser.number()

    def text(self) -> str:
        return self._chooser.text()

    def data(self) -> bytes:
        return self._chooser.data()


def check(name: str, version: int, chooser: Chooser) -> int:
    """How many names there were."""
    message = MESSAGES[name]
    instance = carried(message, build(message, version, SelectingChooser(chooser)), version)
    before = carried(message, instance, version)
    key_type = chooser.integer(0, 2)
    expected = [
        (f, value, entity_of(f, holder, key_type))
        for f, holder, value in leaves(message, message.root, instance, version)
    ]
    marks = Marks()
    translate = translator(name)
    translate(instance, marks, version, **selectors(name, key_type))
    found = [(f, value) for f, _, value in leaves(message, message.root, instance, version)]
    assert len(found) == len(expected)
    for (f, value, entity), (_, now) in zip(expected, found, strict=True):
        if entity is None:
            assert now is value, f"{f.name} is no name"
        else:
            assert now == f"{value}/{entity}", f"{f.name} is met exactly once"
    names = [(entity, value) for _, value, entity in expected if entity is not None]
    assert sorted(marks.met) == sorted(names), "nothing else is asked for"
    translate(instance, Unmarks(), version, **selectors(name, key_type))
    assert instance == before
    return len(names)


@each_message
@settings(max_examples=EXAMPLES_PER_MESSAGE)
@given(data=st.data())
def test_each_name_is_met_once_and_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(MESSAGES[name])))
    check(name, version, HypothesisChooser(data))


@each_message
def test_in_every_version(name: str) -> None:
    message = MESSAGES[name]
    for version in versions_of(message):
        met = [check(name, version, RandomChooser(random.Random(seed))) for seed in range(12)]
        if any(f.is_name for f in message.root.fields_in(version)):
            assert any(met), "the property is about something"


@each_message
def test_every_string_is_known_for_what_it_is(name: str) -> None:
    """A new message, or a new field of one, cannot bring a name that nobody translates."""
    for struct in MESSAGES[name].structs:
        for f in struct.fields:
            if f.kind == "string":
                assert f.entity is not None, f"entity_types.py does not know {struct.name}.{f.name}"
            elif f.kind in ("bytes", "records"):
                assert f.entity is None


def test_the_tables_speak_of_fields_that_exist() -> None:
    strings = {
        (message.module, struct.name, f.name)
        for message in MESSAGES.values()
        for struct in message.structs
        for f in struct.fields
        if f.kind == "string"
    }
    for table in (BY_TYPE, PATTERNS, PRINCIPALS, TEXTS):
        assert set(table) <= strings
    assert {field for _, _, field in strings} >= TEXT_FIELDS


def test_names_are_what_kafkas_schemas_say_and_what_they_fail_to_say() -> None:
    assert ENTITY_TYPES["offset_commit_request"] == {
        "OffsetCommitRequestTopic.name": "topicName",
        "OffsetCommitRequest.group_id": "groupId",
    }
    assert ENTITY_TYPES["produce_request"]["ProduceRequest.transactional_id"] == "transactionalId"
    assert ENTITY_TYPES["metadata_response"]["MetadataResponseBroker.node_id"] == "brokerId"
    assert ENTITY_TYPES["describe_configs_request"] == {
        "DescribeConfigsResource.resource_name": "by resource_type: 2 topicName, 32 groupId"
    }
    assert ENTITY_TYPES["create_acls_request"]["AclCreation.principal"] == "principal"


def test_what_members_of_a_group_say_to_each_other_is_theirs() -> None:
    for name, message in all_messages().items():
        assert (name in MESSAGES) == (message.api_key is not None)
    assert not any(
        "translate" in name
        for name in dir(__import__("data_plane.wire.messages.consumer_protocol_subscription"))
    )


def test_a_message_without_names_has_a_translator_that_does_nothing() -> None:
    marks = Marks()
    spec = API_BY_KEY[18]
    response = build(MESSAGES["api_versions_response"], 4, RandomChooser(random.Random(1)))
    spec.translate_response(response, marks, 4)
    assert not marks.met
