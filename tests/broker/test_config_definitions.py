"""The tables of properties, and what they come to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_plane
from data_plane.broker.config.broker_definitions import (
    BROKER_DEFINITIONS,
    COMPATIBILITY_DEFINITIONS,
    EFFECTIVE_DEFINITIONS,
    refusal_of,
)
from data_plane.broker.config.definition import (
    ConfigDefinition,
    InvalidValue,
    Update,
    define,
    parse_list,
)
from data_plane.broker.config.effective import EffectiveConfig, UnknownProperty, config_text
from data_plane.broker.config.group_definitions import (
    GROUP_BOUNDS,
    GROUP_DEFINITIONS,
    GROUP_SYNONYMS,
)
from data_plane.broker.config.refused_properties import REFUSED_PROPERTIES
from data_plane.broker.config.topic_bounds import TOPIC_BOUNDS
from data_plane.broker.config.topic_definitions import SYNONYMS, TOPIC_DEFINITIONS
from data_plane.cell.changes import AlterConfigs, apply_changes
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.log.config import LogConfig

ALL = [
    *TOPIC_DEFINITIONS.values(),
    *BROKER_DEFINITIONS.values(),
    *GROUP_DEFINITIONS.values(),
]
NODE_ID = 3
HOUR_MS = 3_600_000


def identify(definition: ConfigDefinition) -> str:
    return definition.name


@pytest.mark.parametrize("definition", ALL, ids=identify)
def test_a_default_is_allowed_by_its_own_definition(definition: ConfigDefinition) -> None:
    if definition.default is not None:
        definition.parse(definition.default)


@pytest.mark.parametrize("definition", ALL, ids=identify)
def test_every_property_is_documented(definition: ConfigDefinition) -> None:
    assert definition.documentation.endswith((".", "…"))
    assert len(definition.documentation) > 6


def test_what_has_no_effect_says_why() -> None:
    assert {"background.threads", "num.io.threads"} <= COMPATIBILITY_DEFINITIONS.keys()
    assert not COMPATIBILITY_DEFINITIONS.keys() & EFFECTIVE_DEFINITIONS.keys()
    assert all(
        definition.description.endswith(f"{definition.moot}.")
        for definition in COMPATIBILITY_DEFINITIONS.values()
    )


def test_every_property_that_should_have_an_effect_is_read_somewhere() -> None:
    folder = Path(data_plane.__file__).parent
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in folder.rglob("*.py")
        if path.parent.name != "config"
    )
    defaults_of_topics = {name for servers in SYNONYMS.values() for name, _ in servers}
    # The latter by its constant, which stands where its values are parsed.
    read_otherwise = {"producer.id.expiration.ms", TOPIC_BOUNDS}
    assert [
        name
        for name in EFFECTIVE_DEFINITIONS
        if name not in defaults_of_topics | read_otherwise and f'"{name}"' not in sources
    ] == []


def test_no_property_is_both_known_and_refused() -> None:
    assert not BROKER_DEFINITIONS.keys() & REFUSED_PROPERTIES.keys()
    assert refusal_of("ssl.keystore.password")
    assert refusal_of("process.roles")
    assert refusal_of("num.partitions") is None
    assert all(REFUSED_PROPERTIES.values())


def test_synonyms_are_properties_and_the_defaults_agree() -> None:
    config = EffectiveConfig({}, NODE_ID)
    for name, servers in SYNONYMS.items():
        topic = TOPIC_DEFINITIONS[name]
        assert all(server in BROKER_DEFINITIONS for server, _ in servers)
        assert topic.default is not None
        assert config.topic_value(name, {}) == topic.parse(topic.default), name
    for name, server in GROUP_SYNONYMS.items():
        assert GROUP_DEFINITIONS[name].default == BROKER_DEFINITIONS[server].default
    for low, high in GROUP_BOUNDS.values():
        assert low in BROKER_DEFINITIONS
        assert high in BROKER_DEFINITIONS


def test_the_defaults_make_the_default_log() -> None:
    assert EffectiveConfig({}, NODE_ID).log_config({}) == LogConfig()


@pytest.mark.parametrize(
    ("static", "overrides", "expected_ms"),
    [
        ({}, {}, 14 * 24 * HOUR_MS),
        ({"log.retention.hours": "2"}, {}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, {}, 4),
        ({"log.retention.hours": "-1"}, {}, -1),
        ({"log.retention.minutes": "-1"}, {}, -1),
        ({"log.retention.ms": "4"}, {"retention.ms": "5"}, 5),
    ],
)
def test_the_finest_unit_and_the_nearest_level_win(
    static: dict[str, str], overrides: dict[str, str], expected_ms: int
) -> None:
    config = EffectiveConfig(static, NODE_ID)
    assert config.log_config(overrides).retention_ms == expected_ms
    assert config.topic_value_text("retention.ms", overrides) == str(expected_ms)


def image_with(**values: dict[str, str]) -> MetadataImage:
    names = {"broker": str(NODE_ID), "everybody": "", "other": "9"}
    return apply_changes(
        MetadataImage("c"),
        [
            AlterConfigs("default", ResourceType.BROKER, names[key], tuple(one.items()))
            for key, one in values.items()
        ],
    )


def test_this_brokers_value_is_stronger_than_everybodys_and_the_start() -> None:
    config = EffectiveConfig({"message.max.bytes": "1"}, NODE_ID)
    assert config.get_int("message.max.bytes") == 1
    everybody = {"message.max.bytes": "2"}
    assert config.update(image_with(everybody=everybody, other={"message.max.bytes": "9"}))
    assert config.get_int("message.max.bytes") == 2
    both = image_with(everybody=everybody, broker={"message.max.bytes": "3"})
    assert config.update(both)
    assert config.get_int("message.max.bytes") == 3
    assert config.log_config({}).max_message_bytes == 3
    assert not config.update(both)
    assert config.update(MetadataImage("c"))
    assert config.get_int("message.max.bytes") == 1


def test_a_stored_value_of_another_version_is_passed_over() -> None:
    config = EffectiveConfig({"message.max.bytes": "7"}, NODE_ID)
    config.update(image_with(broker={"message.max.bytes": "many"}))
    assert config.get_int("message.max.bytes") == 7
    assert config.topic_value("retention.ms", {"retention.ms": "long"}) == 14 * 24 * HOUR_MS


def test_asking_for_a_property_that_is_not_defined_is_a_bug() -> None:
    with pytest.raises(UnknownProperty):
        EffectiveConfig({}, NODE_ID).get_int("no.such.property")


def test_typed_reads() -> None:
    config = EffectiveConfig({"log.dirs": "/a, /b"}, NODE_ID)
    assert config.get_list("log.dirs") == ["/a", "/b"]
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_str("compression.type") == "producer"


@pytest.mark.parametrize(
    ("type_name", "good", "bad"),
    [
        ("BOOLEAN", {"true": True, " FALSE ": False}, ["", "yes", "1"]),
        (
            "INT",
            {"0": 0, "-2147483648": -(1 << 31), "+7": 7, " 2147483647 ": (1 << 31) - 1},
            ["", "2147483648", "1.0", "0x1", "1_0", "٣", "9" * 1000],
        ),
        ("SHORT", {"32767": 32767}, ["32768"]),
        ("LONG", {"9223372036854775807": (1 << 63) - 1}, ["9223372036854775808"]),
        ("DOUBLE", {"0.5": 0.5, "1e3": 1000.0}, ["", "half"]),
        ("LIST", {"": [], "a, b": ["a", "b"], "a": ["a"]}, []),
    ],
)
def test_texts_of_each_type(type_name: str, good: dict[str, object], bad: list[str]) -> None:
    definition = define("p", type_name, None, "A property.")
    for text, value in good.items():
        assert definition.parse(text) == value
    for text in bad:
        with pytest.raises(InvalidValue, match="for configuration p:"):
            definition.parse(text)


@given(st.lists(st.text("abc=:/", min_size=1), max_size=5, unique=True))
def test_lists_survive_their_text(items: list[str]) -> None:
    assert parse_list(config_text(items)) == items


@given(st.text(max_size=30), st.sampled_from(ALL))
def test_any_text_is_parsed_or_refused_in_kafkas_words(
    text: str, definition: ConfigDefinition
) -> None:
    try:
        definition.parse(text)
    except InvalidValue as error:
        words = str(error)
    else:
        return
    assert f"for configuration {definition.name}: " in words or words == (
        f"Configuration '{definition.name}' values must not be empty."
    )


def test_topic_defaults_can_be_changed_without_a_restart() -> None:
    fixed = {
        "log.retention.minutes",
        "log.retention.hours",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.flush.scheduler.interval.ms",
    }
    for servers in SYNONYMS.values():
        for name, _ in servers:
            expected = Update.READ_ONLY if name in fixed else Update.CLUSTER_WIDE
            assert BROKER_DEFINITIONS[name].update is expected, name
