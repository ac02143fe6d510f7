"""Histories of a cell with delayed messages, and planted bugs that they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby, islice
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from data_plane.broker.produce import hiding
from data_plane.log import loading, log_appends
from data_plane.log.log_state import LogState
from data_plane.log.record_rules import HidingTerms
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import BatchHeader, NewRecord, Record, build_batch, decode_batch
from features.delayed import firing, hidden, judging, pending_set, runs, visibility
from features.delayed import fold as fold_module
from features.delayed.commands import Fact, decode_fact
from features.delayed.due_batch import DueBatch
from features.delayed.fold import DelayedMessages
from features.delayed.pending_set import PendingSet, UpkeepJob
from features.delayed.runs import Entry
from features.delayed.wheel import SLOT_BITS, TimingWheel
from tests.features.delayed_cell import play
from tests.features.delayed_player import DelayedPlayer
from tests.features.test_delayed_messages import (
    test_delete_records_does_not_take_what_is_pending as delete_records,
)
from tests.features.test_timing_wheel import AgainstAHeap

SEEDS = range(40)
# The same histories in every run, and enough of them.
FOR_BUGS = settings(max_examples=1_000, derandomize=True, database=None, deadline=None)
# Within which a planted bug is found.
MUTANT_SEEDS_MAX = 200


class SmallSet(PendingSet):
    """So that short histories have runs."""

    def __init__(self, fs: Any, folder: str) -> None:
        super().__init__(
            fs, folder, near_max=6, near_low=2, run_entries=4, runs_merged=2, done_max=2
        )


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "PendingSet", SmallSet)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_delivered_once_and_never_early(seed: int) -> None:
    play(seed)


def test_what_histories_reach() -> None:
    """Without these they would show little."""
    cells = [play(seed) for seed in range(25)]
    acknowledged = sum(sent.is_acknowledged for one in cells for sent in one.sent)
    refused_or_lost = sum(not sent.is_acknowledged for one in cells for sent in one.sent)
    assert acknowledged > 100
    assert refused_or_lost > 100
    assert sum(len(one.delivered) for one in cells) > 20
    assert sum(one.thinned_count for one in cells) > 3
    assert any(one.cell.replica(1).leader_epoch > 3 for one in cells)
    answers = Counter((said.due_ms is None, said.error_code) for one in cells for said in one.said)
    for is_cancel in (True, False):
        assert answers[is_cancel, ErrorCode.NONE] > 20
        assert answers[is_cancel, ErrorCode.INVALID_RECORD] > 20


def test_facts_about_what_was_never_here_hold_nothing_up() -> None:
    """A thinned log has more of them than of what is pending; and all of that is delivered."""
    player = DelayedPlayer()
    for number in range(20):
        player.delayed(b"%d" % number, b"%ds" % (100 + number))
    pending = player.orders.log.fold(DelayedMessages).pending
    for offset in [*pending._near, *pending._recent]:
        pending.remove(offset)
    in_runs = sum(one.size for one in pending.runs)
    assert in_runs
    # As if offsets had gaps, and facts spoke of these.
    pending._done.update(range(1 << 20, (1 << 20) + in_runs))
    assert len(pending) == 0
    player.pass_ms(200_000)
    player.pass_ms(1_000)
    assert len(player.values()) == in_runs
    assert pending.is_empty


# Planted bugs. Each patches real code.

Plant = Callable[[pytest.MonkeyPatch], None]


def facts_forgotten_in_a_replay(patch: pytest.MonkeyPatch) -> None:
    real = loading.apply_to_folds

    def apply(folds: Any, starts: Any, header: BatchHeader, data: Any) -> None:
        if not header.attributes & FACTS_FLAG:
            real(folds, starts, header, data)

    patch.setattr(loading, "apply_to_folds", apply)
    patch.setattr("data_plane.log.recovery.loading.apply_to_folds", apply)


def pending_kept_over_a_cut(patch: pytest.MonkeyPatch) -> None:
    real = LogState.set_folds

    def set_folds(self: LogState, folds: list[Any]) -> None:
        kept = [one for one in self.folds_if_loaded or () if isinstance(one, DelayedMessages)]
        others = [one for one in folds if not (kept and isinstance(one, DelayedMessages))]
        real(self, [*others, *kept])

    patch.setattr(LogState, "set_folds", set_folds)


def followers_keep_nothing(patch: pytest.MonkeyPatch) -> None:
    real = log_appends.append_as_follower

    def append(log: Any, *args: Any, **options: Any) -> Any:
        flags, log.fold_flags = log.fold_flags, 0
        try:
            return real(log, *args, **options)
        finally:
            log.fold_flags = flags

    patch.setattr("data_plane.log.log.Log.append_as_follower", append)


def hidden_records_are_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(visibility, "not_hidden", lambda batch: True)


def batches_are_not_flagged(patch: pytest.MonkeyPatch) -> None:
    real = hidden.hidden_form

    def unflagged(
        header: BatchHeader, buf: Any, start: int, end: int, terms: HidingTerms
    ) -> bytearray:
        stored = real(header, buf, start, end, terms)
        return build_batch([_new(one) for one in decode_batch(stored, 0)])

    patch.setattr("features.headers.hidden_form", unflagged)


def _new(record: Record) -> NewRecord:
    return NewRecord(record.timestamp, record.key, record.value, record.headers)


def fires_a_while_too_soon(patch: pytest.MonkeyPatch) -> None:
    real = hiding.trusted_wall_ms

    def ahead(services: Any, now_ms: int) -> int | None:
        wall_ms = real(services, now_ms)
        return None if wall_ms is None else wall_ms + 150

    patch.setattr(firing, "trusted_wall_ms", ahead)


def fires_by_a_clock_that_is_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        firing, "trusted_wall_ms", lambda services, now_ms: services.wall_clock.wall_ms(now_ms)
    )


def retention_drops_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelayedMessages, "needed_from", lambda self, start_offset: None)


def a_batch_is_appended_whatever_has_happened(patch: pytest.MonkeyPatch) -> None:
    def run(self: Any, now_ms: int) -> None:
        (made, _, _), self._made = self._made, None
        self._is_making = False
        if made.entries and self._partition.is_leader:
            self._append(made, now_ms)
        self._firing.wake(self._partition)

    patch.setattr(firing._PartitionFiring, "run", run)


def what_is_pushed_away_is_lost(patch: pytest.MonkeyPatch) -> None:
    real = PendingSet._push_away

    def push_away(self: PendingSet) -> None:
        kept = self.runs
        real(self)
        self.runs = kept

    patch.setattr(PendingSet, "_push_away", push_away)


def loading_forgets_what_is_recent(patch: pytest.MonkeyPatch) -> None:
    real = PendingSet._take_loaded

    def take_loaded(self: PendingSet, job: UpkeepJob) -> None:
        recent, self._recent = self._recent, {}
        real(self, job)
        self._recent = recent

    patch.setattr(PendingSet, "_take_loaded", take_loaded)


def merging_loses_the_last_entry(patch: pytest.MonkeyPatch) -> None:
    real = runs.write_run

    def write_run(fs: Any, folder: str, entries: Iterable[Entry]) -> Any:
        return real(fs, folder, iter(list(entries)[:-1]))

    patch.setattr(pending_set, "write_run", write_run)


def delivered_batches_are_no_facts(patch: pytest.MonkeyPatch) -> None:
    """On one broker's own log the fold is told by hand, so that it does not deliver for ever."""
    real_append = firing._PartitionFiring._append

    def append(self: Any, made: DueBatch, now_ms: int) -> None:
        batch = bytearray(build_batch([_new(one) for one in decode_batch(made.batch, 0)]))
        fold = firing.fold_of(self._partition.log)
        real_append(self, made._replace(batch=batch), now_ms)
        assert fold is not None
        for _, offset in made.entries:
            fold.pending.remove(offset)

    patch.setattr(firing._PartitionFiring, "_append", append)


def only_the_first_hidden_record_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold_module, "groupby", lambda *args: islice(groupby(*args), 1))


def a_verdict_holds_whatever_has_happened(patch: pytest.MonkeyPatch) -> None:
    """Cancel races fire, and both win."""
    patch.setattr(judging._Judgement, "still_holds", lambda self, partition: True)


def what_is_moved_is_delivered_with_what_was_due_before(patch: pytest.MonkeyPatch) -> None:
    class AnyTime(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    def near_due_ms(self: PendingSet, offset: int) -> int | None:
        return AnyTime(0) if offset in self._near else None

    patch.setattr(PendingSet, "near_due_ms", near_due_ms)


def commands_are_taken_at_their_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("data_plane.broker.produce.judging.needs_judgement", lambda checked, log: False)


def moves_are_not_applied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingSet, "move", lambda self, offset, due_ms, new_due_ms: None)


def cancels_of_what_is_far_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = PendingSet.remove

    def remove(self: PendingSet, offset: int, due_ms: int | None = None) -> None:
        if offset in self._near or offset in self._recent:
            real(self, offset, due_ms)

    patch.setattr(PendingSet, "remove", remove)


def what_has_moved_stands_at_its_old_time_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingSet, "_note_stale", lambda self, entry: None)


def facts_are_taken_for_those_of_the_next_message(patch: pytest.MonkeyPatch) -> None:
    def decode_next(value: bytes | None) -> Fact:
        fact = decode_fact(value)
        return fact._replace(offset=fact.offset + 1)

    patch.setattr(fold_module, "decode_fact", decode_next)


PLANTED: list[Plant] = [
    facts_forgotten_in_a_replay,
    pending_kept_over_a_cut,
    followers_keep_nothing,
    hidden_records_are_shown,
    batches_are_not_flagged,
    fires_a_while_too_soon,
    fires_by_a_clock_that_is_off,
    a_batch_is_appended_whatever_has_happened,
    what_is_pushed_away_is_lost,
    loading_forgets_what_is_recent,
    merging_loses_the_last_entry,
    delivered_batches_are_no_facts,
    only_the_first_hidden_record_counts,
    a_verdict_holds_whatever_has_happened,
    what_is_moved_is_delivered_with_what_was_due_before,
    commands_are_taken_at_their_word,
    moves_are_not_applied,
    cancels_of_what_is_far_are_forgotten,
    what_has_moved_stands_at_its_old_time_too,
    facts_are_taken_for_those_of_the_next_message,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS_MAX):
        try:
            play(seed)
        except (AssertionError, KeyError, ValueError):
            return
    pytest.fail(f"{plant.__name__} is not found")


def test_retention_that_drops_what_is_pending_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_drops_what_is_pending(monkeypatch)
    with pytest.raises(AssertionError):
        delete_records()


def off_by_one_at_the_end_of_a_slot(patch: pytest.MonkeyPatch) -> None:
    real = TimingWheel._place

    def place(self: TimingWheel, due_ms: int, entry: int) -> None:
        ends = due_ms & ((1 << SLOT_BITS) - 1) == 0 and due_ms > self._now_ms
        real(self, due_ms + 1 if ends else due_ms, entry)

    patch.setattr(TimingWheel, "_place", place)


def nothing_moves_down(patch: pytest.MonkeyPatch) -> None:
    """What is in a slot of a higher level is due when the slot begins."""
    real = TimingWheel._vacate

    def vacate(self: TimingWheel, level: int, number: int) -> None:
        slot = self._slots[level, number]
        begins_ms = number << (SLOT_BITS * level)
        if level:
            slot.update(dict.fromkeys(slot, begins_ms))
        real(self, level, number)

    patch.setattr(TimingWheel, "_vacate", vacate)


@pytest.mark.parametrize(
    "plant",
    [off_by_one_at_the_end_of_a_slot, nothing_moves_down],
    ids=lambda plant: plant.__name__,
)
def test_a_bug_of_the_wheel_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        run_state_machine_as_test(AgainstAHeap, settings=FOR_BUGS)
