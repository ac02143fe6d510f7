"""A subscription's configurations for retries, as topics have them: what they may say.

Invariants
- A policy is made of valid values; what a store has that is not valid counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from data_plane.broker.config.definition import (
    Allowed,
    InvalidValue,
    Value,
    at_least,
    between,
    by_name,
    define,
    one_of,
)
from data_plane.broker.config.topic_properties import TopicProperties
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.cell.features import RETRIES
from data_plane.cell.metadata import TopicImage
from data_plane.cell.virtual_topics import (
    DEAD_LETTERS_PROPERTY,
    DEAD_LETTERS_SUFFIX,
    SOURCE_PROPERTY,
)
from features.retry_dlq.policy import (
    ATTEMPTS_PROPERTY,
    BACKOFF_PROPERTY,
    BREAKER_PROPERTY,
    DEFAULT_ATTEMPTS_MAX,
    DEFAULT_BACKOFF,
    JITTER_PROPERTY,
    ORDER_PROPERTY,
    ORDERS,
    InvalidBackoff,
    Policy,
    parse_backoff,
    policy_of,
)


def _backoff_problem(name: str, value: Value) -> str | None:
    try:
        parse_backoff(str(value))
    except InvalidBackoff as error:
        return str(error)
    return None


def _name_problem(name: str, value: Value) -> str | None:
    return invalid_name_reason(str(value)) if value else None


DEFINITIONS: Final = (
    define(
        BACKOFF_PROPERTY,
        "STRING",
        DEFAULT_BACKOFF,
        "After which delay a nacked message of a subscription comes back: `fixed:5s`, "
        "`linear:5s..10m`, `exponential:1s..2h`, or `list:1s,10s,5m`.",
        Allowed("a backoff", _backoff_problem),
    ),
    define(
        JITTER_PROPERTY,
        "DOUBLE",
        "0",
        "By up to which share each such delay is shortened, at random.",
        between(0, 1),
    ),
    define(
        ATTEMPTS_PROPERTY,
        "INT",
        DEFAULT_ATTEMPTS_MAX,
        "How often a subscription delivers a message in all, before it is a dead letter. 0: for "
        "ever.",
        at_least(0),
    ),
    define(
        ORDER_PROPERTY,
        "STRING",
        ORDERS[0],
        "`key`: messages of a subscription wait while an earlier one of their key is retried, "
        "which the SDK's handlers do in their process. `none`: they go on.",
        one_of(*ORDERS),
    ),
    define(
        BREAKER_PROPERTY,
        "BOOLEAN",
        "true",
        "Whether a subscription's retries pause while its handlers fail at nearly everything.",
    ),
    define(
        DEAD_LETTERS_PROPERTY,
        "STRING",
        "",
        "The topic that a subscription's dead letters go to. Empty: the subscription's name with "
        "`.dlq`, which is made when it is first needed.",
        Allowed("a topic's name", _name_problem),
    ),
)
_BY_NAME: Final = by_name(DEFINITIONS)


def _go_together(values: Mapping[str, Value]) -> str | None:
    if values.get(SOURCE_PROPERTY):
        policy = values.get("cleanup.policy")
        if isinstance(policy, list) and "compact" in policy:
            return "a subscription is not compacted (cleanup.policy)"
        return None
    for definition in DEFINITIONS:
        if definition.name in values:
            return f"{definition.name} is set for a topic that has no {SOURCE_PROPERTY}"
    return None


def add_properties(properties: TopicProperties) -> TopicProperties:
    return properties.with_feature(DEFINITIONS, checks=[_go_together], needs=RETRIES)


def policy_for(configs: Mapping[str, str]) -> Policy:
    """What a subscription with these configurations does."""
    return policy_of(lambda name: _value(configs, name))


def _value(configs: Mapping[str, str], name: str) -> Value:
    definition = _BY_NAME[name]
    assert definition.default is not None
    try:
        return definition.parse(configs.get(name, definition.default))
    except InvalidValue:
        return definition.parse(definition.default)


def has_breaker(configs: Mapping[str, str]) -> bool:
    """Whether the retries of a subscription with these configurations may pause."""
    return bool(_value(configs, BREAKER_PROPERTY))


def dead_letter_topic(subscription: TopicImage) -> str:
    """The name of the topic that its dead letters go to."""
    named = subscription.configs.get(DEAD_LETTERS_PROPERTY, "").strip()
    return named or subscription.name + DEAD_LETTERS_SUFFIX
