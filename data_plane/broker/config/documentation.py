"""The page about configuration, made from the definitions, so that no property is left out.

scripts/generate_configuration_doc writes it to docs/configuration.md; the checks compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_plane.broker.config.broker_definitions import (
    COMPATIBILITY_DEFINITIONS,
    EFFECTIVE_DEFINITIONS,
)
from data_plane.broker.config.definition import INT64_MAX, ConfigDefinition, Update
from data_plane.broker.config.group_definitions import GROUP_DEFINITIONS
from data_plane.broker.config.refused_properties import REFUSED_PROPERTIES
from data_plane.broker.config.topic_properties import TopicProperties

_INTRODUCTION = """\
# Configuration

<!-- Written by scripts/generate_configuration_doc; do not edit. -->

Names, types, defaults and meanings are Apache Kafka's (4.3) unless a property says otherwise.

## Where a broker's properties come from

Strongest first:

1. `--set KEY=VALUE` on the command line (`./tidewheel up --set num.partitions=3`),
2. environment variables: `TIDEWHEEL_BROKER_` and the name in capitals with `_` for `.`
   (`TIDEWHEEL_BROKER_NUM_PARTITIONS=3`),
3. the properties file (`--config FILE`), in Java's `.properties` syntax, UTF-8,
4. the default.

A topic property given here (`--set retention.ms=3600000`) sets its default for all topics: it
stands for the broker property named beside it below. Where a value can be given in several units
the finest one that is set counts, whatever source it comes from (`log.retention.ms`, then
`log.retention.minutes`, then `log.retention.hours`).

An unknown name, a value that is not allowed and settings that contradict each other stop the start;
all mistakes are reported at once, each with its place. The command then exits with status 2.

## Changing properties at run time

Topic properties and the broker properties marked *any time* can be changed while the broker runs,
with any Kafka client (`kafka-configs`, AlterConfigs, IncrementalAlterConfigs). Such values are kept
in the cell's metadata, survive restarts, and are stronger than the four sources above: first the
topic's own value, then the one set on this broker, then the one set for all brokers.
"""


def configuration_page(topics: TopicProperties) -> str:
    """The whole page as Markdown; `topics` are the properties that topics can have."""
    parts = [
        _INTRODUCTION,
        "## Broker properties\n",
        _table(
            ("property", "type", "default", "allowed", "change", "what it does"),
            (_broker_row(definition) for _, definition in sorted(EFFECTIVE_DEFINITIONS.items())),
        ),
        "## Topic properties\n",
        _table(
            ("property", "default from", "type", "default", "allowed", "what it does"),
            (
                _topic_row(topics, definition)
                for _, definition in sorted(topics.definitions.items())
            ),
        ),
        "## Group properties\n",
        _table(
            ("property", "type", "default", "allowed", "what it does"),
            (_group_row(definition) for _, definition in sorted(GROUP_DEFINITIONS.items())),
        ),
        "## Accepted without effect\n\n"
        "These properties of Apache Kafka may be set, so that existing files and scripts work. At\n"
        "its start the broker names each one that is set, with the reason.\n",
        _table(
            ("property", "why it has no effect"),
            (
                (f"`{name}`", definition.moot)
                for name, definition in sorted(COMPATIBILITY_DEFINITIONS.items())
            ),
        ),
        "## Refused\n\n"
        "These properties of Apache Kafka stop the start, because ignoring them would mislead. A\n"
        "name that ends in `.` stands for all others that begin so.\n",
        _table(
            ("property", "why it is refused"),
            ((f"`{name}`", reason) for name, reason in sorted(REFUSED_PROPERTIES.items())),
        ),
    ]
    return "\n".join(parts)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _broker_row(definition: ConfigDefinition) -> Sequence[str]:
    change = "at start" if definition.update is Update.READ_ONLY else "any time"
    return (
        f"`{definition.name}`",
        definition.type.name.lower(),
        _default(definition),
        _allowed(definition),
        change,
        definition.description,
    )


def _topic_row(topics: TopicProperties, definition: ConfigDefinition) -> Sequence[str]:
    synonyms = topics.synonyms.get(definition.name, ())
    return (
        f"`{definition.name}`",
        ", ".join(f"`{name}`" for name, _ in synonyms),
        definition.type.name.lower(),
        _default(definition),
        _allowed(definition),
        definition.description,
    )


def _group_row(definition: ConfigDefinition) -> Sequence[str]:
    return (
        f"`{definition.name}`",
        definition.type.name.lower(),
        _default(definition),
        _allowed(definition),
        definition.description,
    )


def _default(definition: ConfigDefinition) -> str:
    if definition.default is None:
        return "not set"
    if definition.default == str(INT64_MAX):
        return f"{INT64_MAX} (no limit)"
    return f"`{definition.default}`" if definition.default else "empty"


def _allowed(definition: ConfigDefinition) -> str:
    return "" if definition.allowed is None else definition.allowed.text
