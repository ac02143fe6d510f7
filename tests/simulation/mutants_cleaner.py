"""Planted bugs of the log cleaner: what it may rewrite, and what has to stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.log import compaction, compaction_writer
from data_plane.log.compaction_writer import GroupWriter
from data_plane.log.key_map import NOT_THERE, KeyMap, OffsetsByKey
from data_plane.log.log import Log
from data_plane.log.maintenance import Maintenance
from data_plane.log.permit import DeletionPermit
from data_plane.wire import records
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

# Where a compacted topic is cleaned all the time, by leaders that are cut off, too.
CLEANER = Options(
    brokers=3,
    faults=frozenset({"cut", "relay", "pause", "kill", "slow network"}),
    admin=frozenset(),
    topics=(
        TopicPlan(
            "table3",
            1,
            3,
            {
                "cleanup.policy": "compact",
                "segment.ms": "200",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "800",
                "file.delete.delay.ms": "500",
            },
        ),
    ),
    properties={"log.cleaner.enable": "true"},
)
# The same under clocks that are days off, with tombstones that stay for an hour.
CLEANER_CLOCKS = Options(
    brokers=3,
    faults=frozenset({"kill", "slow network"}),
    admin=frozenset(),
    topics=(
        TopicPlan(
            "table3",
            1,
            3,
            {
                "cleanup.policy": "compact",
                "segment.ms": "200",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "3600000",
            },
        ),
    ),
    properties={"log.cleaner.enable": "true"},
    extras=frozenset({"clock errors"}),
)


def _cleaner_passes_the_high_watermark(patch: Patch) -> None:
    def cleanable_segments(log: Log, now_ms: int) -> Any:
        return log.segments[:-1]

    patch.set(compaction, "cleanable_segments", cleanable_segments)


def _tombstone_removed_at_once(patch: Patch) -> None:
    patch.set(GroupWriter, "_is_forgotten", lambda self, horizon_ms: True)


def _cleans_by_any_date(patch: Patch) -> None:
    """A cleaner asks whether the image is vouched for, not whether the date is."""
    original: Any = Maintenance.__dict__["_compact"]

    def compact(self: Maintenance, now_ms: int, wall_ms: int) -> None:
        permit, self._permit = self._permit, DeletionPermit(self._permit.why_nothing, "")
        try:
            original(self, now_ms, wall_ms)
        finally:
            self._permit = permit

    patch.set(Maintenance, "_compact", compact)


def _horizon_is_now(patch: Patch) -> None:
    original: Any = GroupWriter.__dict__["__init__"]

    def patched(self: GroupWriter, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self._horizon_ms = self._wall_ms

    patch.set(GroupWriter, "__init__", patched)


def _cleaner_keeps_the_older_value(patch: Patch) -> None:
    original: Any = OffsetsByKey.__dict__["put"]

    def put(self: OffsetsByKey, key: bytes, offset: int) -> None:
        if self.get(key) == NOT_THERE:
            original(self, key, offset)

    def is_superseded(self: KeyMap, key: bytes | None, offset: int) -> bool:
        return key is None or self._last.get(key) not in (NOT_THERE, offset)

    patch.set(OffsetsByKey, "put", put)
    patch.set(KeyMap, "is_superseded", is_superseded)


def _cleaned_producer_state_lost(patch: Patch) -> None:
    original: Any = GroupWriter.__dict__["__init__"]

    def patched(self: GroupWriter, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self._last_offsets = frozenset()

    patch.set(GroupWriter, "__init__", patched)


def _end_of_a_sequence_keeps_its_value(patch: Patch) -> None:
    original: Any = records.filter_batch

    def filter_batch(*arguments: Any, blanks: Any = None, **options: Any) -> Any:
        return original(*arguments, **options)

    patch.set(compaction_writer, "filter_batch", filter_batch)


def _cleaned_offset_forgotten(patch: Patch) -> None:
    """Only what is new is looked through, and what it supersedes stays."""
    original: Any = compaction.CompactionJob.__dict__["__init__"]

    def patched(self: Any, log: Log, segments: Any, now_ms: int) -> None:
        original(self, log, segments, now_ms)
        clean = [one for one in segments if one.next_offset <= self._first_dirty_offset]
        self._segments = [one for one in segments if one not in clean]

    patch.set(compaction.CompactionJob, "__init__", patched)


CLEANER_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "cleaner passes the high watermark",
        "what is not committed supersedes what is",
        _cleaner_passes_the_high_watermark,
        options=CLEANER,
        is_quick=True,
    ),
    Mutant(
        "tombstone removed at once",
        "the first cleaning drops tombstones",
        _tombstone_removed_at_once,
        options=CLEANER,
        is_quick=True,
    ),
    Mutant(
        "tombstone without its time",
        "the second cleaning drops tombstones, whatever delete.retention.ms is",
        _horizon_is_now,
        options=CLEANER,
        is_quick=True,
    ),
    Mutant(
        "cleaner by any date",
        "a tombstone's time is set, and is over, by a clock that is days off",
        _cleans_by_any_date,
        options=CLEANER_CLOCKS,
        is_quick=True,
    ),
    Mutant(
        "cleaner keeps the older value",
        "of each key the first record stays",
        _cleaner_keeps_the_older_value,
        options=CLEANER,
        is_quick=True,
    ),
    Mutant(
        "cleaned producer state lost",
        "the last batch of a producer goes when its records are superseded",
        _cleaned_producer_state_lost,
        options=CLEANER,
        is_quick=True,
    ),
    Mutant(
        "end of a sequence keeps its value",
        "a superseded value outlives the tombstone that superseded it",
        _end_of_a_sequence_keeps_its_value,
        options=CLEANER,
        is_quick=True,
    ),
    Mutant(
        "only what is dirty is cleaned",
        "what was cleaned before is never looked through again",
        _cleaned_offset_forgotten,
        options=CLEANER,
        is_quick=True,
    ),
)
