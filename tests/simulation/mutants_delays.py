"""Planted bugs of delayed messages: shown, delivered and kept wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.broker.produce import hiding
from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.log import loading
from data_plane.log.fold import StoredBatch
from data_plane.log.log import Log
from data_plane.log.log_state import LogState
from data_plane.wire.kernel import scan_headers
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import BatchHeader, NewRecord, build_batch, decode_batch
from features import headers
from features.delayed import firing, hidden, pending_set, runs, visibility
from features.delayed.due_batch import DueBatch
from features.delayed.fold import DelayedMessages
from features.delayed.held import HeldMessages
from features.delayed.pending_set import PendingSet
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms
from features.delayed.wheel import SLOT_BITS, TimingWheel
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.delays import DELAYS
from tests.simulation.mutant import Mutant, Patch
from tests.simulation.world import EPOCH_MS

TOPIC = TopicPlan(DELAYS, 1, 3, {HEADERS_PROPERTY: "true", "segment.ms": "200"})

_FORGETS = {"retention.ms": "300", "file.delete.delay.ms": "0"}

# Where leaders change and brokers start again.
LEADERS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "relay", "pause", "broken connection"}),
    admin=frozenset({"elections"}),
    topics=(TOPIC,),
    extras=frozenset({"delays"}),
)
# Where what readers see is deleted, and little goes wrong.
DELETIONS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset({"delete records", "elections"}),
    topics=(replace(TOPIC, configs={**TOPIC.configs, **_FORGETS}),),
    extras=frozenset({"delays"}),
)


# What readers see


def _shows_what_is_hidden(patch: Patch) -> None:
    patch.set(visibility, "not_hidden", lambda batch: True)


def _shows_at_once_what_is_past(patch: Patch) -> None:
    """A time in the past hides nothing, and is delivered all the same."""
    original: Any = hidden.shown

    def shown(buf: Any, start: int, end: int, record_count: int) -> Any:
        selection = original(buf, start, end, record_count)
        shows = bytearray(record_count) if selection is False else bytearray(selection)
        for index, _, value in scan_headers(buf, start, end, record_count, DELIVER_AT_HEADER):
            shows[index] = deliver_at_ms(value) < EPOCH_MS
        return bytes(shows) if any(shows) else False

    patch.set(visibility, "shown", shown)


def _flags_nothing(patch: Patch) -> None:
    original: Any = hidden.hidden_form

    def unflagged(header: Any, buf: Any, start: int, end: int, terms: Any) -> bytearray:
        stored = original(header, buf, start, end, terms)
        return build_batch(
            [_new(one) for one in decode_batch(stored, 0)],
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    patch.set(headers, "hidden_form", unflagged)


def _new(record: Any) -> NewRecord:
    return NewRecord(record.timestamp, record.key, record.value, record.headers)


# What is delivered, and by whom


def _delivers_without_saying_so(patch: Patch) -> None:
    """The leader remembers what it has delivered, and nobody else does."""
    original: Any = firing._PartitionFiring.__dict__["_append"]

    def append(self: Any, made: DueBatch, now_ms: int) -> None:
        batch = bytearray(build_batch([_new(one) for one in decode_batch(made.batch, 0)]))
        original(self, made._replace(batch=batch), now_ms)
        fold = firing.fold_of(self._partition.log)
        assert fold is not None
        for _, offset in made.entries:
            fold.pending.remove(offset)

    patch.set(firing._PartitionFiring, "_append", append)


def _delivers_by_another_clock(patch: Patch) -> None:
    """By one that is three seconds ahead."""

    def trusted_wall_ms(services: Any, now_ms: int) -> int | None:
        wall_ms = hiding.trusted_wall_ms(services, now_ms)
        return None if wall_ms is None else wall_ms + 3_000

    patch.set(firing, "trusted_wall_ms", trusted_wall_ms)


def _delivers_no_first_one(patch: Patch) -> None:
    """Of the hidden records of a batch only the first one is known."""
    original: Any = DelayedMessages.__dict__["apply"]

    def apply(self: Any, batch: StoredBatch) -> None:
        before = {*self.pending._near, *self.pending._recent}
        original(self, batch)
        added = sorted({*self.pending._near, *self.pending._recent} - before)
        for offset in added[1:]:
            self.pending.remove(offset)

    patch.set(DelayedMessages, "apply", apply)


# Restarts, cuts and followers


def _replays_no_facts(patch: Patch) -> None:
    """After a start what was delivered is pending again."""
    original: Any = loading.apply_to_folds

    def apply(folds: Any, starts: Any, header: BatchHeader, data: Any) -> None:
        told = list(range(len(folds)))
        if header.attributes & FACTS_FLAG:
            told = [at for at in told if not isinstance(folds[at], DelayedMessages)]
        original([folds[at] for at in told], [starts[at] for at in told], header, data)

    patch.set(loading, "apply_to_folds", apply)


def _keeps_what_was_cut(patch: Patch) -> None:
    original: Any = LogState.__dict__["set_folds"]

    def set_folds(self: Any, folds: list[Any]) -> None:
        kept = [one for one in self.folds_if_loaded or () if isinstance(one, DelayedMessages)]
        others = [one for one in folds if not (kept and isinstance(one, DelayedMessages))]
        original(self, [*others, *kept])

    patch.set(LogState, "set_folds", set_folds)


def _followers_keep_nothing(patch: Patch) -> None:
    original: Any = Log.__dict__["append_as_follower"]

    def append(self: Any, *args: Any, **options: Any) -> Any:
        following.add(True)
        try:
            return original(self, *args, **options)
        finally:
            following.clear()

    def apply(self: Any, batch: StoredBatch) -> None:
        if not following:
            applied(self, batch)

    following = set[bool]()
    applied: Any = DelayedMessages.__dict__["apply"]
    patch.set(Log, "append_as_follower", append)
    patch.set(DelayedMessages, "apply", apply)


# What is pending, and what is kept for it


def _loses_what_is_pushed_away(patch: Patch) -> None:
    original: Any = PendingSet.__dict__["_push_away"]

    def push_away(self: Any) -> None:
        kept = self.runs
        original(self)
        self.runs = kept

    patch.set(PendingSet, "_push_away", push_away)


def _merges_all_but_the_last(patch: Patch) -> None:
    original: Any = runs.write_run

    def write_run(fs: Any, folder: str, entries: Any, *rest: Any) -> Any:
        return original(fs, folder, iter(list(entries)[:-1]), *rest)

    patch.set(pending_set, "write_run", write_run)


def _loses_at_the_overflow(patch: Patch) -> None:
    """What comes due as a slot of the next level begins is never due."""
    original: Any = TimingWheel.__dict__["_place"]

    def place(self: Any, due_ms: int, entry: int) -> None:
        is_edge = due_ms & ((1 << SLOT_BITS) - 1) == 0 and due_ms > self._now_ms
        original(self, due_ms + (1 << 40) if is_edge else due_ms, entry)

    patch.set(TimingWheel, "_place", place)


def _drops_what_is_pending(patch: Patch) -> None:
    patch.set(DelayedMessages, "needed_from", lambda self, start_offset: None)


def _thins_what_is_pending(patch: Patch) -> None:
    patch.set(HeldMessages, "needs", lambda self, offset: False)


def _thins_facts(patch: Patch) -> None:
    patch.set(DelayedMessages, "facts_in", lambda self, batch: False)


DELAY_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "hidden messages shown",
        "readers see what is not due",
        _shows_what_is_hidden,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "past messages shown",
        "readers see what was due when it was produced, and see it again",
        _shows_at_once_what_is_past,
        options=LEADERS,
    ),
    Mutant(
        "delayed messages not flagged",
        "a batch with hidden messages is stored as a plain one",
        _flags_nothing,
        options=LEADERS,
    ),
    Mutant(
        "delivered without a fact",
        "the next leader delivers it again",
        _delivers_without_saying_so,
        options=LEADERS,
    ),
    Mutant(
        "delivered too soon",
        "a message is early by three seconds",
        _delivers_by_another_clock,
        options=LEADERS,
    ),
    Mutant(
        "first hidden record only",
        "others of its batch are never delivered",
        _delivers_no_first_one,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "facts not replayed",
        "after a restart what was delivered is delivered again",
        _replays_no_facts,
        options=LEADERS,
    ),
    Mutant(
        "pending over a cut",
        "what was cut off is pending, what was delivered there is not",
        _keeps_what_was_cut,
        options=LEADERS,
    ),
    Mutant(
        "followers without pending",
        "a new leader delivers nothing of what the old one had",
        _followers_keep_nothing,
        options=LEADERS,
    ),
    Mutant(
        "pending lost with the wheel full",
        "what is pushed out of memory is lost",
        _loses_what_is_pushed_away,
        options=LEADERS,
    ),
    Mutant(
        "pending lost in a merge",
        "the last entry of merged runs is lost",
        _merges_all_but_the_last,
        options=LEADERS,
    ),
    Mutant(
        "wheel off at an overflow",
        "what is due as a slot begins is never delivered",
        _loses_at_the_overflow,
        options=LEADERS,
    ),
    Mutant(
        "retention of pending messages",
        "a segment goes with what is pending in it",
        _drops_what_is_pending,
        options=DELETIONS,
    ),
    Mutant(
        "pending messages thinned away",
        "below the log start nothing is left of what is pending",
        _thins_what_is_pending,
        options=DELETIONS,
    ),
    Mutant(
        "facts thinned away",
        "who reads the log again delivers again",
        _thins_facts,
        options=DELETIONS,
        budget=80,
    ),
)
