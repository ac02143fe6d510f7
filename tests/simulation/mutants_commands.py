"""Planted bugs of commands: cancels and new times that are forgotten, untrue, or too late.

That a leader which is deposed and has all committed says *unknown* of what its successor has is not
among them: what is due has such leaders append at once. tests/features/test_delayed_verdicts.py has
that history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from data_plane.broker.produce import judging as produce_judging
from data_plane.broker.produce.judging import Judged as JudgedBatch
from data_plane.broker.produce.produce_handler import _Produce
from data_plane.log import loading
from data_plane.log.log import Log
from data_plane.log.log_state import LogState
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import scan_headers
from data_plane.wire.kernel_types import FACTS_FLAG
from features.delayed import hidden, judgement, visibility
from features.delayed.commands import COMMAND_HEADERS, COMMAND_PREFIXES
from features.delayed.fold import DelayedMessages
from features.delayed.judging import _Judgement
from features.delayed.outcomes import Outcomes
from features.delayed.pending_set import PendingSet
from features.delayed.stored_messages import StoredMessages
from tests.simulation.mutant import Mutant, Patch
from tests.simulation.mutants_delays import DELETIONS, LEADERS

# Where threads take their time.
SLOW = replace(LEADERS, extras=frozenset({"delays", "slow disks"}))

# Who wins


def _delivers_what_is_cancelled_meanwhile(patch: Patch) -> None:
    """What was pending when its batch was begun is delivered."""
    removed: dict[tuple[PendingSet, int], int] = {}
    remove: Any = PendingSet.__dict__["remove"]
    near_due_ms: Any = PendingSet.__dict__["near_due_ms"]

    def forgetful(self: PendingSet, offset: int, due_ms: int | None = None) -> None:
        known_ms = near_due_ms(self, offset)
        if known_ms is not None and due_ms is not None:
            removed[self, offset] = known_ms
        remove(self, offset, due_ms)

    def remembered(self: PendingSet, offset: int) -> int | None:
        known: int | None = near_due_ms(self, offset)
        return removed.get((self, offset)) if known is None else known

    patch.set(PendingSet, "remove", forgetful)
    patch.set(PendingSet, "near_due_ms", remembered)


def _cancels_what_is_delivered_meanwhile(patch: Patch) -> None:
    patch.set(_Judgement, "still_holds", lambda self, partition: True)


def _judges_what_is_stored(patch: Patch) -> None:
    """A batch that its producer sends again is judged again."""
    patch.set(produce_judging, "needs_judgement", lambda checked, log: checked.has_commands)


# What is answered


def _waits_for_no(patch: Patch, is_left_out: Callable[[Any], bool]) -> None:
    """Of a batch with commands."""
    original: Any = _Produce.__dict__["_take_up"]

    def take_up(self: Any, found: Any, now_ms: int) -> bool:
        count = len(self._waiting)
        is_over: bool = original(self, found, now_ms)
        if isinstance(found, JudgedBatch):
            new = [one for one in self._waiting[count:] if not is_left_out(one[1])]
            self._waiting[count:] = new
        return is_over

    patch.set(_Produce, "_take_up", take_up)


def _answers_before_it_is_committed(patch: Patch) -> None:
    _waits_for_no(patch, lambda answer: answer.error_code == ErrorCode.NONE)


def _refuses_by_what_is_not_committed(patch: Patch) -> None:
    _waits_for_no(patch, lambda answer: answer.error_code != ErrorCode.NONE)


def _remembers_nothing(patch: Patch) -> None:
    patch.set(Outcomes, "note", lambda self, outcome, date_ms: None)


def _remembers_nothing_after_a_restart(patch: Patch) -> None:
    """Or a cut."""
    original: Any = DelayedMessages.__dict__["restore"]

    def restore(self: Any, pieces: Any) -> None:
        original(self, pieces)
        self.outcomes = Outcomes()

    patch.set(DelayedMessages, "restore", restore)


def _remembers_other_words_only(patch: Patch) -> None:
    """Who has cancelled by id is told that it is too late to cancel by offset."""
    original: Any = Outcomes.__dict__["note"]
    noted: list[Any] = []

    def apply_record(self: Any, offset: int, headers: Any) -> None:
        noted.clear()
        applied(self, offset, headers)
        # The first is what follows for a message, the second what was said.
        for outcome, date_ms in noted[1:] if len(noted) > 1 else noted:
            original(self.outcomes, outcome, date_ms)

    applied: Any = DelayedMessages.__dict__["_apply_record"]
    patch.set(DelayedMessages, "_apply_record", apply_record)
    patch.set(Outcomes, "note", lambda self, outcome, date_ms: noted.append((outcome, date_ms)))


def _stores_what_it_can(patch: Patch) -> None:
    """Commands that are refused are left out, and the others of the batch are done."""
    original: Any = judgement._facts

    def facts(command: Any, so_far: Any) -> Any:
        try:
            return original(command, so_far)
        except judgement.Refused:
            return ()

    patch.set(judgement, "_facts", facts)


def _judges_each_by_itself(patch: Patch) -> None:
    """Commands of a batch know nothing of those before them."""
    patch.set(judgement._SoFar, "take", lambda self, command, facts: None)


# Whom a command means


def _means_the_first(patch: Patch) -> None:
    original: Any = StoredMessages.__dict__["with_id"]

    def with_id(self: Any, message_id: bytes) -> Any:
        return original(self, message_id)[:1]

    patch.set(StoredMessages, "with_id", with_id)


def _means_what_is_in_memory(patch: Patch) -> None:
    original: Any = StoredMessages.__dict__["with_id"]

    def with_id(self: Any, message_id: bytes) -> Any:
        near = self._state.pending.near
        return [offset for offset in original(self, message_id) if offset in near]

    patch.set(StoredMessages, "with_id", with_id)


def _means_any_of_a_mark(patch: Patch) -> None:
    """What the index of ids finds is not held against the record."""
    original: Any = StoredMessages.__dict__["_with_id"]

    def with_id(self: Any, message_id: bytes, from_ms: int, found_max: int) -> list[int]:
        found: list[int] = original(self, message_id, from_ms, found_max)
        others = [offset + 1 for offset in found if self._message(offset + 1) is not None]
        return sorted({*found, *others})

    patch.set(StoredMessages, "_with_id", with_id)


# What follows


def _ignores_facts(patch: Patch, owner: Any, name: str) -> None:
    """While that runs."""
    original: Any = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    applied: Any = DelayedMessages.__dict__["_apply_fact"]
    within: list[bool] = []

    @contextmanager
    def running() -> Any:
        within.append(True)
        try:
            yield
        finally:
            within.pop()

    def run(*args: Any, **options: Any) -> Any:
        with running():
            return original(*args, **options)

    def apply_fact(self: Any, fact: Any) -> None:
        if not within:
            applied(self, fact)

    patch.set(owner, name, run)
    patch.set(DelayedMessages, "_apply_fact", apply_fact)


def _forgets_at_a_start(patch: Patch) -> None:
    _ignores_facts(patch, loading, "apply_to_folds")


def _followers_forget(patch: Patch) -> None:
    _ignores_facts(patch, Log, "append_as_follower")


def _keeps_what_was_cut(patch: Patch) -> None:
    """A message stays cancelled though the cancel is cut off."""
    # By its broker's disk.
    cancelled: dict[Any, set[int]] = {}
    applied: Any = DelayedMessages.__dict__["_apply_fact"]
    original: Any = LogState.__dict__["set_folds"]

    def apply_fact(self: Any, fact: Any) -> None:
        applied(self, fact)
        if fact.new_due_ms is None:
            cancelled.setdefault((self._context.fs, self._context.folder), set()).add(fact.offset)

    def set_folds(self: Any, folds: list[Any]) -> None:
        for fold in folds:
            if isinstance(fold, DelayedMessages) and self.folds_if_loaded:
                for offset in cancelled.get((fold._context.fs, fold._context.folder), ()):
                    fold.pending.remove(offset)
        original(self, folds)

    patch.set(DelayedMessages, "_apply_fact", apply_fact)
    patch.set(LogState, "set_folds", set_folds)


def _forgets_what_is_in_runs(patch: Patch) -> None:
    """What is cancelled or moved while its entry is on the disk is delivered when it was due."""
    patch.set(PendingSet, "_note_stale", lambda self, entry: None)


def _moves_nothing(patch: Patch) -> None:
    patch.set(PendingSet, "move", lambda self, offset, due_ms, new_due_ms: None)


def _loses_what_is_moved(patch: Patch) -> None:
    def move(self: PendingSet, offset: int, due_ms: int, new_due_ms: int) -> None:
        self.remove(offset, due_ms)

    patch.set(PendingSet, "move", move)


def _moves_to_later_only(patch: Patch) -> None:
    original: Any = PendingSet.__dict__["move"]

    def move(self: Any, offset: int, due_ms: int, new_due_ms: int) -> None:
        original(self, offset, due_ms, max(due_ms, new_due_ms))

    patch.set(PendingSet, "move", move)


def _delivers_at_both_times(patch: Patch) -> None:
    """What is moved to a later time comes at the old one, too."""
    moved: dict[tuple[PendingSet, int], int] = {}
    remove: Any = PendingSet.__dict__["remove"]
    original: Any = PendingSet.__dict__["move"]

    def move(self: PendingSet, offset: int, due_ms: int, new_due_ms: int) -> None:
        if new_due_ms > due_ms:
            moved[self, offset] = new_due_ms
        else:
            original(self, offset, due_ms, new_due_ms)

    def removed(self: PendingSet, offset: int, due_ms: int | None = None) -> None:
        remove(self, offset, due_ms)
        later_ms = moved.pop((self, offset), None)
        if due_ms is None and later_ms is not None:
            self.add(later_ms, offset)

    patch.set(PendingSet, "move", move)
    patch.set(PendingSet, "remove", removed)


def _thins_commands(patch: Patch) -> None:
    def facts_in(self: Any, batch: Any) -> bool:
        return bool(batch.header.attributes & FACTS_FLAG)

    patch.set(DelayedMessages, "facts_in", facts_in)


def _shows_commands(patch: Patch) -> None:
    original: Any = hidden.shown

    def shown(buf: Any, start: int, end: int, record_count: int) -> Any:
        selection = original(buf, start, end, record_count)
        shows = bytearray(record_count) if selection is False else bytearray(selection)
        for prefix in COMMAND_PREFIXES:
            for index, key, _ in scan_headers(buf, start, end, record_count, prefix):
                shows[index] = key in COMMAND_HEADERS
        return bytes(shows) if any(shows) else False

    patch.set(visibility, "shown", shown)


def _mutant(name: str, wrong: str, plant: Callable[[Patch], None], **more: Any) -> Mutant:
    return Mutant(name, wrong, plant, **{"options": LEADERS, **more})


COMMAND_MUTANTS: Iterable[Mutant] = (
    _mutant(
        "delivered past a cancel",
        "what is cancelled while its batch is made is delivered",
        _delivers_what_is_cancelled_meanwhile,
        options=SLOW,
    ),
    _mutant(
        "cancelled past a delivery",
        "what is delivered while a command is judged is cancelled",
        _cancels_what_is_delivered_meanwhile,
    ),
    _mutant(
        "command answered too soon",
        "a cancel is done before it is committed, and is cut off",
        _answers_before_it_is_committed,
        is_quick=True,
    ),
    _mutant(
        "refused by the uncommitted",
        "a command is too late for what is cut off later",
        _refuses_by_what_is_not_committed,
    ),
    _mutant(
        "stored commands judged again",
        "what is sent again is too late, though it is done",
        _judges_what_is_stored,
        budget=80,
    ),
    _mutant(
        "outcomes not remembered",
        "a cancel that is sent again is too late",
        _remembers_nothing,
        is_quick=True,
    ),
    _mutant(
        "outcomes lost at a restart",
        "a cancel that is sent again after it is too late",
        _remembers_nothing_after_a_restart,
    ),
    _mutant(
        "outcomes by their words",
        "what was cancelled by id is not cancelled by offset",
        _remembers_other_words_only,
    ),
    _mutant(
        "refused commands left out",
        "a batch is done of which some commands were refused",
        _stores_what_it_can,
    ),
    _mutant(
        "commands judged apart",
        "a batch cancels the same message twice",
        _judges_each_by_itself,
        is_quick=True,
    ),
    _mutant("first of an id", "others of the id are delivered", _means_the_first, is_quick=True),
    _mutant("near ones of an id", "those in runs are delivered", _means_what_is_in_memory),
    _mutant("id not verified", "a message of another id is cancelled", _means_any_of_a_mark),
    _mutant("commands not replayed", "a start forgets what is cancelled", _forgets_at_a_start),
    _mutant(
        "followers without commands",
        "a new leader delivers what was cancelled",
        _followers_forget,
        is_quick=True,
    ),
    _mutant(
        "cancelled over a cut",
        "what a cut-off command has cancelled is never delivered",
        _keeps_what_was_cut,
    ),
    _mutant(
        "cancelled in runs",
        "what is cancelled while it is on the disk is delivered",
        _forgets_what_is_in_runs,
    ),
    _mutant("nothing moves", "a message comes when it was due first", _moves_nothing),
    _mutant("moved away", "a message that is moved is lost", _loses_what_is_moved),
    _mutant("moved to later only", "an earlier time is ignored", _moves_to_later_only),
    _mutant("moved and delivered twice", "it comes at both times", _delivers_at_both_times),
    _mutant("commands shown", "readers see commands", _shows_commands),
    _mutant(
        "commands thinned away",
        "who reads the log again delivers what was cancelled",
        _thins_commands,
        options=DELETIONS,
        budget=80,
    ),
)
