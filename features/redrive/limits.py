"""How often a dead letter may be redriven: a property of its topic, or of the subscription."""

from __future__ import annotations

from typing import Final

from data_plane.broker.config.definition import InvalidValue, at_least, define
from data_plane.broker.config.topic_properties import TopicProperties
from data_plane.cell.metadata import TopicImage

LIMIT_PROPERTY: Final = "tidewheel.redrive.max"
LIMIT_DEFAULT: Final = 5

_DEFINITION: Final = define(
    LIMIT_PROPERTY,
    "INT",
    str(LIMIT_DEFAULT),
    "How often a dead letter is redriven before it is left where it is. 0: for ever. What a "
    "dead-letter topic says goes before what the subscription says.",
    at_least(0),
)


def add_properties(properties: TopicProperties) -> TopicProperties:
    return properties.with_feature([_DEFINITION])


def limit_of(*topics: TopicImage) -> int:
    """What the first of these says that says anything valid, or the default."""
    for topic in topics:
        text = topic.configs.get(LIMIT_PROPERTY)
        if text is not None:
            try:
                value = _DEFINITION.parse(text)
            except InvalidValue:
                continue
            assert isinstance(value, int)
            return value
    return LIMIT_DEFAULT
