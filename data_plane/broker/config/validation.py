"""Whether the values that a client wants for a topic, a broker or a group are allowed.

Pure checks over the definitions; each raises Refusal with Kafka's code and words. Stored are the
texts as the client sent them, shown are the values that they mean.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Mapping

from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS, refusal_of
from data_plane.broker.config.definition import ConfigDefinition, InvalidValue, Update, Value
from data_plane.broker.config.effective import EffectiveConfig, Source
from data_plane.broker.config.group_definitions import GROUP_BOUNDS, GROUP_DEFINITIONS
from data_plane.broker.config.listener_definitions import (
    REFUSES_EVERY_ADDRESS,
    refuses_every_address,
)
from data_plane.broker.config.topic_properties import TopicProperties
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.features import level_of
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode


def effective_config(services: Services) -> EffectiveConfig:
    """The broker's configuration with its sources, which the hot paths need not know."""
    config = services.config
    assert isinstance(config, EffectiveConfig)
    return config


def check_topic_configs(
    topics: TopicProperties, pairs: Iterable[tuple[str, str | None]]
) -> dict[str, str]:
    """The overrides of a new topic. Raises Refusal."""
    values: dict[str, str] = {}
    nulls = []
    for name, value in pairs:
        if value is None:
            nulls.append(name)
        else:
            values[name] = value
    if nulls:
        raise _invalid(f"Null value not supported for topic configs: {','.join(nulls)}")
    check_topic_values(topics, values)
    return values


def check_topic_values(topics: TopicProperties, values: Mapping[str, str]) -> None:
    """All overrides that a topic shall have, together. Raises Refusal."""
    for name in values:
        if name not in topics.definitions:
            raise _invalid(f"Unknown topic config name: {name}")
    parsed = _parse_all(values, topics.definitions, ErrorCode.INVALID_CONFIG)
    for check in topics.checks:
        reason = check(parsed)
        if reason is not None:
            raise _invalid(reason)


def check_levels(topics: TopicProperties, image: MetadataImage, names: Iterable[str]) -> None:
    """That the cell has finalized what these properties, which are to be set, need. Raises
    Refusal."""
    for name in names:
        feature = topics.needs.get(name)
        if feature is not None and level_of(image.features, feature) < 1:
            raise _invalid(
                f"{name} needs the feature {feature} at level 1: `tidewheel features upgrade`, "
                "once all brokers know it."
            )


def check_fixed_values(
    topics: TopicProperties, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """That what a topic is created with stays as it is. Raises Refusal."""
    for name in sorted(topics.fixed):
        definition = topics.definitions[name]
        default = definition.default or ""
        was, shall = before.get(name, default), after.get(name, default)
        if definition.parse(was) != definition.parse(shall):
            raise _invalid(f"{name} cannot change: it is set when the topic is created")


CONNECTIONS_PER_IP = ("max.connections.per.ip", "max.connections.per.ip.overrides")


def check_connections_per_ip(
    config: EffectiveConfig, values: Mapping[str, str], *, for_all_brokers: bool
) -> None:
    """That with `values` of one broker, or of all, some address may connect. Raises Refusal."""
    replaced = {Source.DYNAMIC_BROKER}
    if for_all_brokers:
        replaced.add(Source.DYNAMIC_DEFAULT_BROKER)

    def in_force(name: str) -> Value:
        texts = [values[name]] if name in values else []
        texts += [one.value for one in config.broker_synonyms(name) if one.source not in replaced]
        for text in texts:
            # What an earlier release stored and this one would not is passed over.
            with contextlib.suppress(InvalidValue):
                return BROKER_DEFINITIONS[name].parse(text)
        raise AssertionError(f"{name} has no default")

    limit_name, overrides_name = CONNECTIONS_PER_IP
    if refuses_every_address(in_force(limit_name), str(in_force(overrides_name))):
        raise _invalid_request(
            f"Invalid value 0 for configuration {limit_name}: {REFUSES_EVERY_ADDRESS}"
        )


UNKNOWN_PROPERTIES_MAX = 100
UNKNOWN_PROPERTIES_CHARACTERS_MAX = 65_536
"""Of names and values together: every broker keeps them in memory, and every snapshot."""


def check_broker_values(values: Mapping[str, str], for_all_brokers: bool) -> None:
    """Dynamic values of one broker, or of all. Raises Refusal.

    Names that mean nothing here are stored, as in Kafka, where they may be some plug-in's;
    `similar_broker_property` is what to say of them, `check_unknown_properties` bounds them."""
    for name in values:
        reason = None if name in BROKER_DEFINITIONS else refusal_of(name)
        if reason is not None:
            raise _invalid(f"Broker config {name} is not supported: {reason}")
    values = {name: text for name, text in values.items() if name in BROKER_DEFINITIONS}
    fixed = [name for name in values if BROKER_DEFINITIONS[name].update is Update.READ_ONLY]
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    if for_all_brokers:
        single = [name for name in values if BROKER_DEFINITIONS[name].update is Update.PER_BROKER]
        if single:
            raise _invalid_request(
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: [{', '.join(single)}]"
            )
    _parse_all(values, BROKER_DEFINITIONS, ErrorCode.INVALID_REQUEST)


def check_unknown_properties(values: Mapping[str, str]) -> None:
    """That those without a meaning among all values of one broker, or of the default for all, are
    few and small. Raises Refusal."""
    unknown = {name: text for name, text in values.items() if name not in BROKER_DEFINITIONS}
    if len(unknown) > UNKNOWN_PROPERTIES_MAX:
        raise _invalid(
            f"{len(unknown)} properties have no meaning here; at most "
            f"{UNKNOWN_PROPERTIES_MAX} such can be stored"
        )
    count = sum(len(name) + len(text) for name, text in unknown.items())
    if count > UNKNOWN_PROPERTIES_CHARACTERS_MAX:
        raise _invalid(
            f"the properties that have no meaning here take {count} characters; at most "
            f"{UNKNOWN_PROPERTIES_CHARACTERS_MAX} can be stored"
        )


def similar_broker_property(name: str) -> str:
    """The property that somebody probably meant with a name that has no meaning here, or ""."""
    near = difflib.get_close_matches(name, list(BROKER_DEFINITIONS), n=1, cutoff=0.75)
    return near[0] if near else ""


def check_group_values(config: EffectiveConfig, values: Mapping[str, str]) -> None:
    """Overrides of one group, within the broker's bounds. Raises Refusal."""
    for name in values:
        if name not in GROUP_DEFINITIONS:
            raise _invalid(f"Unknown group config name: {name}")
    parsed = _parse_all(values, GROUP_DEFINITIONS, ErrorCode.INVALID_CONFIG)
    for name, value in parsed.items():
        bounds = GROUP_BOUNDS.get(name)
        if bounds is None:
            continue
        low, high = bounds
        assert isinstance(value, int)
        if value < config.get_int(low):
            raise _invalid(f"{name} must be greater than or equal to {low}")
        if value > config.get_int(high):
            raise _invalid(f"{name} must be less than or equal to {high}")


def _parse_all(
    values: Mapping[str, str], definitions: Mapping[str, ConfigDefinition], code: ErrorCode
) -> dict[str, Value]:
    try:
        return {name: definitions[name].parse(text) for name, text in values.items()}
    except InvalidValue as error:
        raise Refusal(code, str(error)) from error


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, message)


def _invalid_request(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
