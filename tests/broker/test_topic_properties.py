"""Topic properties that a feature brings: whatever clients do with properties works for them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from data_plane.broker.config.definition import Value, at_least, define, list_of
from data_plane.broker.config.documentation import configuration_page
from data_plane.broker.config.effective import EffectiveConfig, Source
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.server.configuration import ConfigurationError, load_configuration
from data_plane.wire.errors import ErrorCode
from tests.broker.admin_player import APPEND, DELETE, SET, TOPIC, AdminPlayer, new_topic

DELAY = define("toy.delay.ms", "LONG", 250, "How long a toy waits.", at_least(0))
KINDS = define("toy.kinds", "LIST", "red", "Which toys there are.", list_of("red", "blue"))
SIZE = define("toy.size.bytes", "INT", 1048588, "How large a toy may be.", at_least(0))


def _no_slow_blue_toys(values: Mapping[str, Value]) -> str | None:
    kinds, delay_ms = values.get("toy.kinds"), values.get("toy.delay.ms")
    if isinstance(kinds, list) and "blue" in kinds and isinstance(delay_ms, int) and delay_ms > 9:
        return "blue toys do not wait"
    return None


TOYS = KAFKA_TOPIC_PROPERTIES.with_feature(
    [DELAY, KINDS, SIZE],
    synonyms={"toy.size.bytes": (("message.max.bytes", 1),)},
    checks=[_no_slow_blue_toys],
)


@pytest.fixture
def broker() -> AdminPlayer:
    return AdminPlayer(topics=TOYS)


def test_a_topic_is_made_described_and_altered(broker: AdminPlayer) -> None:
    broker.create(new_topic("t", configs={"toy.delay.ms": "7"}))
    assert broker.value(TOPIC, "t", "toy.delay.ms") == "7"
    assert broker.config(TOPIC, "t", "toy.delay.ms").config_source == Source.DYNAMIC_TOPIC
    assert broker.config(TOPIC, "t", "toy.kinds").config_source == Source.DEFAULT
    described = {one.name for one in broker.describe(TOPIC, "t").configs}
    assert described == TOYS.definitions.keys()
    assert broker.alter(TOPIC, "t", ("toy.kinds", APPEND, "blue")) == (0, None)
    assert broker.value(TOPIC, "t", "toy.kinds") == "red,blue"
    assert broker.alter(TOPIC, "t", ("toy.delay.ms", DELETE, None)) == (0, None)
    assert broker.value(TOPIC, "t", "toy.delay.ms") == "250"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("toy.delay.ms", "-1", "Value must be at least 0"),
        ("toy.kinds", "green", "String must be one of: red, blue"),
        ("toy.colour", "red", "Unknown topic config name: toy.colour"),
    ],
)
def test_what_is_not_allowed_is_refused(
    broker: AdminPlayer, name: str, value: str, says: str
) -> None:
    broker.create(new_topic("t"))
    outcomes = [
        broker.create_outcome(new_topic("other", configs={name: value})),
        broker.alter(TOPIC, "t", (name, SET, value)),
    ]
    for code, message in outcomes:
        assert code == ErrorCode.INVALID_CONFIG
        assert says in (message or "")


def test_what_does_not_go_together_is_refused(broker: AdminPlayer) -> None:
    broker.create(new_topic("t", configs={"toy.kinds": "blue"}))
    code, message = broker.alter(TOPIC, "t", ("toy.delay.ms", SET, "10"))
    assert (code, message) == (ErrorCode.INVALID_CONFIG, "blue toys do not wait")
    # Kafka's own checks are there as before.
    lags = {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}
    code, message = broker.create_outcome(new_topic("other", configs=lags))
    assert code == ErrorCode.INVALID_CONFIG
    assert "conflict topic config" in (message or "")


def test_without_the_feature_its_properties_mean_nothing() -> None:
    broker = AdminPlayer()
    code, message = broker.create_outcome(new_topic("t", configs={"toy.delay.ms": "7"}))
    assert code == ErrorCode.INVALID_CONFIG
    assert message == "Unknown topic config name: toy.delay.ms"


def test_a_broker_property_gives_the_default() -> None:
    settings = load_configuration(flags=["toy.size.bytes=77"], topics=TOYS)
    assert settings.properties == {"message.max.bytes": "77"}
    config = settings.effective()
    assert config.topic_value("toy.size.bytes", {}) == 77
    assert config.topic_value("toy.size.bytes", {"toy.size.bytes": "5"}) == 5
    with pytest.raises(ConfigurationError, match=r"toy\.delay\.ms can only be set on a topic"):
        load_configuration(flags=["toy.delay.ms=1"], topics=TOYS)


def test_the_page_about_configuration_has_them() -> None:
    page = configuration_page(TOYS)
    assert "`toy.delay.ms`" in page
    assert "`toy.delay.ms`" not in configuration_page(KAFKA_TOPIC_PROPERTIES)


@pytest.mark.parametrize(
    ("definitions", "synonyms"),
    [
        ([DELAY], {}),
        ([define("retention.ms", "LONG", 1, "Taken.")], {}),
        ([define("toy.other", "LONG", None, "Without a default.")], {}),
        ([define("toy.other", "LONG", 1, "x")], {"toy.other": (("no.such.property", 1),)}),
        ([define("toy.other", "LONG", 1, "x")], {"toy.others": (("message.max.bytes", 1),)}),
    ],
)
def test_mistakes_of_a_feature_are_found_when_it_is_added(
    definitions: list[object], synonyms: dict[str, tuple[tuple[str, int], ...]]
) -> None:
    with pytest.raises(AssertionError):
        TOYS.with_feature(definitions, synonyms=synonyms)  # type: ignore[arg-type]


def test_the_others_are_left_as_they_were() -> None:
    assert isinstance(TOYS, TopicProperties)
    assert not KAFKA_TOPIC_PROPERTIES.definitions.keys() & {"toy.delay.ms", "toy.kinds"}
    assert EffectiveConfig({}, 0).topics is KAFKA_TOPIC_PROPERTIES
