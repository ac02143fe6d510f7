"""Which properties a topic can have: Kafka's, and those that features bring.

A feature that plugs into the broker (a filter, delayed messages) has settings of its own for each
topic. It hands in their definitions, the composition root adds them up (`with_feature`), and
everything that clients do with properties works for them, too: CreateTopics, DescribeConfigs,
AlterConfigs, the defaults on the command line, docs/configuration.md.

Invariants
- A name is defined once.
- A broker property that gives a topic property its default is one that is defined
  (broker_definitions.py).

Deliberately absent: what the values are used for. A feature asks with
`EffectiveConfig.topic_value`, or for all of them with the topic's overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.broker.config.definition import ConfigDefinition, Value, by_name
from data_plane.broker.config.topic_definitions import SYNONYMS, TOPIC_DEFINITIONS
from data_plane.log.file_system import Buffer
from data_plane.log.record_rules import HidingTerms, RecordRules
from data_plane.wire.records import BatchHeader

# A broker property, and the factor from its unit to the topic property's; the finest unit first.
Synonyms = tuple[tuple[str, int], ...]
# Given a topic's value of a property, by name: what its records have to be like.
MakeRules = Callable[[Callable[[str], Value]], RecordRules | None]
# Given all values that a topic sets, by name: None, or why they do not go together.
Check = Callable[[Mapping[str, Value]], str | None]


@dataclass(frozen=True, slots=True)
class TopicProperties:
    """All topic properties of one broker."""

    definitions: Mapping[str, ConfigDefinition]
    synonyms: Mapping[str, Synonyms]
    checks: tuple[Check, ...] = ()
    record_rules: tuple[MakeRules, ...] = ()
    # Those that are as they were when the topic was created.
    fixed: frozenset[str] = frozenset()
    # The feature that a property needs at level 1, of those that need one.
    needs: Mapping[str, str] = field(default_factory=dict)

    def with_feature(
        self,
        definitions: Sequence[ConfigDefinition],
        *,
        synonyms: Mapping[str, Synonyms] = MappingProxyType({}),
        checks: Sequence[Check] = (),
        record_rules: MakeRules | None = None,
        fixed: Collection[str] = (),
        needs: str = "",
    ) -> TopicProperties:
        """These, and a feature's. A property without a broker property has its own default; one
        that is `fixed` does not change while the topic is there; none is set before the cell has
        finalized the feature of the name `needs`."""
        added = by_name(definitions)
        twice = added.keys() & self.definitions.keys()
        assert not twice, f"defined twice: {', '.join(sorted(twice))}"
        for name, levels in synonyms.items():
            assert name in added, f"{name} is not defined"
            for broker_name, _ in levels:
                assert broker_name in BROKER_DEFINITIONS, f"{broker_name} is not defined"
        for definition in definitions:
            assert definition.default is not None, f"{definition.name} has no default"
        assert added.keys() >= set(fixed), f"not defined: {set(fixed) - added.keys()}"
        return TopicProperties(
            MappingProxyType({**self.definitions, **added}),
            MappingProxyType({**self.synonyms, **synonyms}),
            (*self.checks, *checks),
            self.record_rules if record_rules is None else (*self.record_rules, record_rules),
            self.fixed | set(fixed),
            MappingProxyType({**self.needs, **dict.fromkeys(added if needs else (), needs)}),
        )

    def rules_for(self, value_of: Callable[[str], Value]) -> RecordRules | None:
        """What the records of a topic with these values have to be like; None for any records."""
        found = [rules for make in self.record_rules if (rules := make(value_of)) is not None]
        return found[0] if len(found) == 1 else _AllRules(found) if found else None


class _AllRules:
    """Those of several features."""

    def __init__(self, rules: Sequence[RecordRules]) -> None:
        self._rules = rules
        self.takes_commands = any(one.takes_commands for one in rules)

    @property
    def dedup_window_ms(self) -> int:
        return max(rules.dedup_window_ms for rules in self._rules)

    def has_ids(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        return any(rules.has_ids(buf, start, end, record_count) for rules in self._rules)

    def problems(
        self, buf: Buffer, start: int, end: int, record_count: int
    ) -> Sequence[tuple[int, str]]:
        found = [
            problem
            for rules in self._rules
            for problem in rules.problems(buf, start, end, record_count)
        ]
        return sorted(found, key=lambda problem: problem[0])

    def hides(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        return any(rules.hides(buf, start, end, record_count) for rules in self._rules)

    def commands_in(self, buf: Buffer, start: int, end: int, record_count: int) -> Set[int]:
        found = (rules.commands_in(buf, start, end, record_count) for rules in self._rules)
        return frozenset().union(*found)

    def hidden_form(
        self, header: BatchHeader, buf: Buffer, start: int, end: int, terms: HidingTerms
    ) -> bytearray:
        for rules in self._rules:
            if rules.hides(buf, start, end, header.record_count):
                return rules.hidden_form(header, buf, start, end, terms)
        raise AssertionError("none of the rules hides a record of the batch")


def _compaction_lags(values: Mapping[str, Value]) -> str | None:
    low, high = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({low}) > "
            f"max.compaction.lag.ms ({high})"
        )
    return None


def _remote_storage(values: Mapping[str, Value]) -> str | None:
    if values.get("remote.storage.enable") is True:
        return (
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
    return None


KAFKA_TOPIC_PROPERTIES: Final = TopicProperties(
    TOPIC_DEFINITIONS, SYNONYMS, (_compaction_lags, _remote_storage)
)
