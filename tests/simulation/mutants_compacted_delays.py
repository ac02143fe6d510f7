"""Planted bugs of compacted topics with delayed messages: what the cleaner takes for what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.log import compaction
from data_plane.log.fold import StoredBatch
from data_plane.log.key_map import KeyMap
from data_plane.log.record_kinds import RecordKinds
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from features.delayed.fold import DelayedMessages
from features.delayed.held import HeldMessages
from tests.simulation.delays import COMPACTED
from tests.simulation.mutant import Mutant, Patch
from tests.simulation.mutants_delays import LEADERS, TOPIC

# Where a cleaner has something to do all the time, and replicas are away.
COMPACTING = replace(
    LEADERS,
    topics=(replace(TOPIC, configs={**TOPIC.configs, **COMPACTED}),),
    properties={"log.cleaner.enable": "true"},
)


def _fired_facts_go(patch: Patch) -> None:
    original: Any = DelayedMessages.__dict__["facts_in"]

    def facts_in(self: Any, batch: StoredBatch) -> Any:
        return original(self, batch) if batch.header.attributes & HIDDEN_FLAG else False

    patch.set(DelayedMessages, "facts_in", facts_in)


def _pending_is_an_old_value(patch: Patch) -> None:
    patch.set(DelayedMessages, "values_in", lambda self, batch: True)
    patch.set(HeldMessages, "holds", lambda self, offset: False)


def _facts_of_commands_go(patch: Patch) -> None:
    """As all that has no key."""
    original: Any = DelayedMessages.__dict__["facts_in"]

    def facts_in(self: Any, batch: StoredBatch) -> Any:
        return original(self, batch) if batch.header.attributes & FACTS_FLAG else False

    patch.set(DelayedMessages, "facts_in", facts_in)


def _hidden_records_supersede(patch: Patch) -> None:
    def key_map(buffer_bytes: int, aborted: Any, expected: int, kinds: RecordKinds) -> Any:
        return KeyMap(buffer_bytes, aborted, expected)

    patch.set(compaction, "KeyMap", key_map)


COMPACTED_DELAY_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "fired facts compacted away",
        "who was away delivers again what was delivered meanwhile",
        _fired_facts_go,
        options=COMPACTING,
        budget=80,
        is_quick=True,
    ),
    Mutant(
        "pending messages compacted",
        "what is pending goes as its key's old value",
        _pending_is_an_old_value,
        options=COMPACTING,
    ),
    Mutant(
        "commands compacted away",
        "who was away delivers what was cancelled meanwhile",
        _facts_of_commands_go,
        options=COMPACTING,
        budget=80,
    ),
    Mutant(
        "hidden records taken for values",
        "what is pending supersedes the newest value of its key",
        _hidden_records_supersede,
        options=COMPACTING,
    ),
)
