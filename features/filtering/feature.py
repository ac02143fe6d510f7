"""What filtering plugs into a broker: two properties of topics, and what their consumers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final

from data_plane.broker.config.definition import Allowed, Value, define
from data_plane.broker.config.topic_properties import TopicProperties
from data_plane.broker.services import Services
from data_plane.cell.features import VIRTUAL_TOPICS, FeatureRange
from data_plane.cell.virtual_topics import FILTER_PROPERTY, SOURCE_PROPERTY
from data_plane.log.file_system import Buffer
from data_plane.log.record_rules import HidingTerms, RecordRules
from data_plane.server.features import Feature
from data_plane.wire.records import BatchHeader
from features.filtering.language import InvalidFilter, parse_filter
from features.filtering.subscriptions import Subscriptions
from features.filtering.tag_indexes import TagIndexes


def _filter_problem(name: str, value: Value) -> str | None:
    try:
        parse_filter(str(value))
    except InvalidFilter as error:
        return str(error)
    return None


_DEFINITIONS: Final = (
    define(
        SOURCE_PROPERTY,
        "STRING",
        "",
        "The topic whose records are read under this topic's name: this one is a subscription. "
        "Set when the topic is created.",
    ),
    define(
        FILTER_PROPERTY,
        "STRING",
        "",
        "Which of the source's records a subscription shows, by their tags: `checkout or refund`, "
        "`region:eu and not test`, `region:*`. Empty: all of them.",
        Allowed("a filter", _filter_problem),
    ),
)


def _go_together(values: Mapping[str, Value]) -> str | None:
    if SOURCE_PROPERTY in values and not values[SOURCE_PROPERTY]:
        return f"{SOURCE_PROPERTY} names a topic"
    if values.get(FILTER_PROPERTY) and not values.get(SOURCE_PROPERTY):
        return f"{FILTER_PROPERTY} is set for a topic that has no {SOURCE_PROPERTY}"
    return None


class _TakesCommands:
    """The rules of subscriptions: all that they take is judged."""

    takes_commands = True

    dedup_window_ms = 0

    def has_ids(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        return False

    def problems(
        self, buf: Buffer, start: int, end: int, record_count: int
    ) -> list[tuple[int, str]]:
        return [(0, "the topic is a subscription: produce to its source")]

    def hides(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        return False

    def commands_in(self, buf: Buffer, start: int, end: int, record_count: int) -> Set[int]:
        return frozenset()

    def hidden_form(
        self, header: BatchHeader, buf: Buffer, start: int, end: int, terms: HidingTerms
    ) -> bytearray:
        raise AssertionError("there are no records")


_TAKES_COMMANDS: Final = _TakesCommands()


def _make_rules(value_of: Callable[[str], Value]) -> RecordRules | None:
    return _TAKES_COMMANDS if value_of(SOURCE_PROPERTY) else None


def _add_properties(properties: TopicProperties) -> TopicProperties:
    return properties.with_feature(
        _DEFINITIONS, checks=[_go_together], record_rules=_make_rules, fixed=[SOURCE_PROPERTY]
    )


def _plug_in(services: Services) -> None:
    indexes = TagIndexes(services.executor, services.log)
    services.components.append(indexes)
    subscriptions = Subscriptions(services, indexes)
    services.projections.register(subscriptions)
    services.image_listeners.append(subscriptions.image_changed)


FILTERING: Final = Feature(
    levels=FeatureRange(VIRTUAL_TOPICS, 0, 1),
    add_properties=_add_properties,
    plug_in=_plug_in,
)
