"""What a property comes to: dynamic, static and default values resolved, and where each came from.

Levels, strongest first: the topic's own value, the value set on this broker, the value set for all
brokers, the value from the broker's start (file, environment, flags), the default. A topic
property that the topic does not set takes its broker property (`log.retention.ms` for
`retention.ms`), and that one may take a coarser one (`log.retention.minutes`, then `.hours`).

>>> config = EffectiveConfig({"log.retention.hours": "2"}, node_id=0)
>>> config.log_config({}).retention_ms
7200000

Invariants
- Values were validated when they were set; a stored value that no longer parses is passed over
  for the next level, so that a broker starts whatever an older version stored.
- Answers change only in `update`, which is called when the metadata image has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.broker.config.definition import INT64_MAX, InvalidValue, Value
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.cell.metadata import NO_CONFIGS, MetadataImage
from data_plane.log.config import LOG_APPEND_TIME, LogConfig

# All topics of a broker rarely use more than a few sets of overrides.
LOG_CONFIGS_CACHED_MAX = 4096

LOG_ROLL = ("log.roll.ms", "log.roll.hours")
LOG_ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
LOG_FLUSH = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
LOG_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


class Source(IntEnum):
    """Where a value comes from; the protocol's numbers."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One level's value for a property. The first of a list is the one in force."""

    name: str
    value: str
    source: Source


class UnknownProperty(KeyError):
    """Somebody asked for a property that has no definition: a bug."""


class EffectiveConfig:
    """The broker's configuration as it is now. Satisfies the `Config` port of Services."""

    def __init__(
        self,
        static: Mapping[str, str],
        node_id: int,
        topics: TopicProperties = KAFKA_TOPIC_PROPERTIES,
    ) -> None:
        """`static` are the validated properties that were given at the start; `topics` are the
        properties that topics can have."""
        self.topics = topics
        self._static = dict(static)
        self._node_id = node_id
        self._on_broker: Mapping[str, str] = NO_CONFIGS
        self._on_all_brokers: Mapping[str, str] = NO_CONFIGS
        self._values: dict[str, Value | None] = {}
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self._topic_values: dict[frozenset[tuple[str, str]], list[tuple[str, str, Source]]] = {}

    def update(self, image: MetadataImage) -> bool:
        """Take over the dynamic values of `image`; whether any of them changed."""
        on_broker = image.config_of_broker(str(self._node_id))
        on_all_brokers = image.config_of_broker("")
        if on_broker == self._on_broker and on_all_brokers == self._on_all_brokers:
            return False
        self._on_broker = on_broker
        self._on_all_brokers = on_all_brokers
        self._values.clear()
        self._log_configs.clear()
        self._topic_values.clear()
        return True

    def get(self, name: str) -> Value | None:
        """The value in force, None for a property without value or default."""
        try:
            return self._values[name]
        except KeyError:
            value = self._resolve(name)
            self._values[name] = value
            return value

    def get_int(self, name: str) -> int:
        value = self._values.get(name)
        if value is None:
            value = self.get(name)
        assert isinstance(value, int), f"{name} is not a number"
        return value

    def get_float(self, name: str) -> float:
        value = self.get(name)
        assert isinstance(value, int | float), f"{name} is not a number"
        return float(value)

    def get_bool(self, name: str) -> bool:
        value = self.get(name)
        assert isinstance(value, bool), f"{name} is not a boolean"
        return value

    def get_str(self, name: str) -> str:
        value = self.get(name)
        assert isinstance(value, str), f"{name} is not a text"
        return value

    def get_list(self, name: str) -> list[str]:
        value = self.get(name)
        assert isinstance(value, list), f"{name} is not a list"
        return value

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a log whose topic has `overrides`."""
        key = frozenset(overrides.items())
        config = self._log_configs.get(key)
        if config is None:
            if len(self._log_configs) >= LOG_CONFIGS_CACHED_MAX:
                self._log_configs.clear()
            config = self._build_log_config(overrides)
            self._log_configs[key] = config
        return config

    def topic_value(self, name: str, overrides: Mapping[str, str]) -> Value:
        """A topic property's value in force."""
        definition = self.topics.definitions[name]
        text = overrides.get(name)
        if text is not None:
            try:
                return definition.parse(text)
            except InvalidValue:
                pass
        for synonym, factor in self.topics.synonyms.get(name, ()):
            value = self.get(synonym)
            if value is not None:
                return _scaled(value, factor) if isinstance(value, int) else value
        assert definition.default is not None
        return definition.parse(definition.default)

    def topic_value_text(self, name: str, overrides: Mapping[str, str]) -> str:
        """As `topic_value`, as DescribeConfigs shows it."""
        return config_text(self.topic_value(name, overrides))

    def topic_values(self, overrides: Mapping[str, str]) -> list[tuple[str, str, Source]]:
        """(name, value as text, source) of all topic properties, by name."""
        key = frozenset(overrides.items())
        values = self._topic_values.get(key)
        if values is None:
            if len(self._topic_values) >= LOG_CONFIGS_CACHED_MAX:
                self._topic_values.clear()
            values = []
            for name in sorted(self.topics.definitions):
                synonyms = self.topic_synonyms(name, overrides)
                source = synonyms[0].source if synonyms else Source.DEFAULT
                values.append((name, self.topic_value_text(name, overrides), source))
            self._topic_values[key] = values
        return values

    def broker_synonyms(self, name: str) -> list[Synonym]:
        """All levels that give a broker property a value, the one in force first."""
        return _from_first_of(name, self._levels(_family(name)))

    def topic_synonyms(self, name: str, overrides: Mapping[str, str]) -> list[Synonym]:
        """All levels that give a topic property a value, the one in force first."""
        synonyms = []
        text = overrides.get(name)
        if text is not None:
            value = self.topic_value_text(name, overrides)
            synonyms.append(Synonym(name, value, Source.DYNAMIC_TOPIC))
        server_names = self.topics.synonyms.get(name)
        if server_names:
            synonyms.extend(self.broker_synonyms(server_names[0][0]))
        return synonyms

    def default_broker_values(self) -> Mapping[str, str]:
        """What is set for all brokers."""
        return self._on_all_brokers

    def broker_values(self) -> Mapping[str, str]:
        """What is set on this broker."""
        return self._on_broker

    def _levels(self, names: tuple[str, ...]) -> list[Synonym]:
        levels = (
            (self._on_broker, Source.DYNAMIC_BROKER),
            (self._on_all_brokers, Source.DYNAMIC_DEFAULT_BROKER),
            (self._static, Source.STATIC_BROKER),
        )
        synonyms = [
            Synonym(name, shown_value(name, values[name]), source)
            for values, source in levels
            for name in names
            if name in values
        ]
        for name in names:
            definition = BROKER_DEFINITIONS.get(name)
            if definition is not None and definition.default is not None:
                synonyms.append(Synonym(name, definition.default, Source.DEFAULT))
        return synonyms

    def _resolve(self, name: str) -> Value | None:
        definition = BROKER_DEFINITIONS.get(name)
        if definition is None:
            raise UnknownProperty(name)
        for level in (self._on_broker, self._on_all_brokers, self._static):
            text = level.get(name)
            if text is not None:
                try:
                    return definition.parse(text)
                except InvalidValue:
                    continue
        return None if definition.default is None else definition.parse(definition.default)

    def _build_log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        def number(name: str) -> int:
            value = self.topic_value(name, overrides)
            assert isinstance(value, int)
            return value

        def text(name: str) -> str:
            value = self.topic_value(name, overrides)
            assert isinstance(value, str)
            return value

        rules = self.topics.rules_for(lambda name: self.topic_value(name, overrides))
        # A window is one of the time of the append.
        is_stamped = rules is not None and rules.dedup_window_ms > 0
        policies = self.topic_value("cleanup.policy", overrides)
        ratio = self.topic_value("min.cleanable.dirty.ratio", overrides)
        assert isinstance(policies, list)
        assert isinstance(ratio, int | float)
        return LogConfig(
            segment_bytes=number("segment.bytes"),
            segment_ms=number("segment.ms"),
            segment_jitter_ms=number("segment.jitter.ms"),
            segment_index_bytes=number("segment.index.bytes"),
            index_interval_bytes=number("index.interval.bytes"),
            retention_ms=number("retention.ms"),
            retention_bytes=number("retention.bytes"),
            cleanup_policy=frozenset(policies),
            max_message_bytes=number("max.message.bytes"),
            message_timestamp_type=LOG_APPEND_TIME
            if is_stamped
            else text("message.timestamp.type"),
            message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
            compression_type=text("compression.type"),
            compression_gzip_level=number("compression.gzip.level"),
            compression_lz4_level=number("compression.lz4.level"),
            compression_zstd_level=number("compression.zstd.level"),
            flush_messages=number("flush.messages"),
            flush_ms=number("flush.ms"),
            durability_fsync=text("durability") == "fsync",
            min_cleanable_dirty_ratio=float(ratio),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            max_compaction_lag_ms=number("max.compaction.lag.ms"),
            delete_retention_ms=number("delete.retention.ms"),
            file_delete_delay_ms=number("file.delete.delay.ms"),
            producer_id_expiration_ms=self.get_int("producer.id.expiration.ms"),
            record_rules=rules,
        )


def config_text(value: Value) -> str:
    """A parsed value as text, in Kafka's spelling: a list's items once each."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(dict.fromkeys(value))
    return str(value)


def shown_value(name: str, text: str) -> str:
    """What a broker property's text means, as DescribeConfigs shows it: " 77 " is 77."""
    definition = BROKER_DEFINITIONS.get(name)
    if definition is None:
        return text
    try:
        value = definition.parse(text)
    except InvalidValue:
        return text
    return text if value is None else config_text(value)


def _scaled(value: int, factor: int) -> int:
    # -1 is "no limit" in every unit. A factor of 1 keeps booleans what they are.
    return value if value < 0 or factor == 1 else min(value * factor, INT64_MAX)


def _family(name: str) -> tuple[str, ...]:
    for family in (LOG_ROLL, LOG_ROLL_JITTER, LOG_FLUSH, LOG_RETENTION):
        if name in family:
            return family
    return (name,)


def _from_first_of(name: str, synonyms: list[Synonym]) -> list[Synonym]:
    """Levels above the first that bears the asked name are not part of its answer."""
    for index, synonym in enumerate(synonyms):
        if synonym.name == name:
            return synonyms[index:]
    return []
