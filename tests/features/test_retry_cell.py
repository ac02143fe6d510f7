"""Histories of a cell with nacks, and planted bugs that they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from data_plane.log import loading, log_appends
from data_plane.log.fold import StoredBatch
from data_plane.log.log_state import LogState
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import BatchHeader
from features.delayed import fold as fold_module
from features.delayed.fold import DelayedMessages
from features.delayed.pending_set import PendingSet
from features.delayed.times import deliver_at_ms
from features.retry_dlq import judgement, originals, positions, sender, sending, taker, upkeep
from features.retry_dlq.arrivals import Arrivals, TakenDeadLetters
from features.retry_dlq.judgement import Original
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.originals import ReadableLog, StoredDeliveries
from features.retry_dlq.policy import Policy
from features.retry_dlq.positions import FrozenPositions
from features.retry_dlq.sender import DeadLetterSender, _PartitionSender
from tests.features.retry_cell import PAY_ID, play

SEEDS = range(25)
# Within which a planted bug is found.
MUTANT_SEEDS_MAX = 100


class SmallSet(PendingSet):
    """So that short histories have runs."""

    def __init__(self, fs: Any, folder: str) -> None:
        super().__init__(
            fs, folder, near_max=6, near_low=2, run_entries=4, runs_merged=2, done_max=2
        )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "PendingSet", SmallSet)
    monkeypatch.setattr(
        positions.Positions.__init__, "__kwdefaults__", {"run_entries": 4, "runs_merged": 2}
    )
    monkeypatch.setattr(sender, "RETRY_MS_MAX", 200)
    monkeypatch.setattr(upkeep, "SWEEP_INTERVAL_MS", 20)
    monkeypatch.setattr(upkeep, "FORGET_INTERVAL_MS", 60)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_done_or_dead_once(seed: int) -> None:
    play(seed)


def test_what_histories_reach() -> None:
    """Without these they would show little."""
    cells = [play(seed) for seed in range(20)]
    answers = Counter((said.are_delivered, said.error_code) for cell in cells for said in cell.said)
    assert answers[True, ErrorCode.NONE] > 200
    assert answers[True, ErrorCode.NOT_LEADER_OR_FOLLOWER] > 100
    assert answers[True, None] > 50
    assert answers[False, ErrorCode.NOT_ENOUGH_REPLICAS] > 20
    assert answers[False, ErrorCode.INVALID_RECORD] > 20
    stories = [cell.story for cell in cells if cell.story is not None]
    attempts = Counter(one.attempt for story in stories for one in story.fired.values())
    assert attempts[2] > 150
    assert attempts[3] > 10
    assert sum(len(story.dead) for story in stories) > 20
    held: Counter[str] = Counter()
    for cell in cells:
        for broker in cell.cell.brokers.values():
            for one in broker.services.components:
                if isinstance(one, DeadLetterSender):
                    held.update(one.metrics.held_counts)
    assert held["no_such_topic"] > 0
    assert sum(cell.restarts_count for cell in cells) > 20
    assert any(cell.replica(1, PAY_ID).leader_epoch > 3 for cell in cells)


# Planted bugs. Each patches real code.

Plant = Callable[[pytest.MonkeyPatch], None]


def attempts_begin_again(patch: pytest.MonkeyPatch) -> None:
    real = originals._fired

    def fired(record: Any, headers: Any) -> Original:
        return real(record, headers)._replace(attempt=1)

    patch.setattr(originals, "_fired", fired)


def the_last_attempt_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Policy, "is_last", lambda self, attempt: False)


def delays_of_nacks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    real = judgement._outcome

    def outcome(command: Any, *others: Any) -> Any:
        return real(command._replace(delay_ms=None), *others)

    patch.setattr(judgement, "_outcome", outcome)


def all_comes_back_after_the_first_delay(patch: pytest.MonkeyPatch) -> None:
    real = Policy.delay_ms
    patch.setattr(Policy, "delay_ms", lambda self, attempt, share: real(self, 1, share))


def repeats_are_not_recognised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredDeliveries, "nacked", lambda self, positions: set())


def repeats_are_looked_for_in_memory_only(patch: pytest.MonkeyPatch) -> None:
    real = FrozenPositions.find

    def find(self: FrozenPositions, *args: Any) -> set[int]:
        return real(self._replace(runs=()), *args)

    patch.setattr(FrozenPositions, "find", find)


def what_is_not_committed_is_taken(patch: pytest.MonkeyPatch) -> None:
    real = taker._readable

    def readable(partition: Any) -> ReadableLog:
        return real(partition)._replace(high_watermark=partition.log.log_end_offset)

    patch.setattr(taker, "_readable", readable)


def nacks_are_kept_over_a_cut(patch: pytest.MonkeyPatch) -> None:
    real = LogState.set_folds

    def set_folds(self: LogState, folds: list[Any]) -> None:
        kept = [one for one in self.folds_if_loaded or () if isinstance(one, Nacks)]
        others = [one for one in folds if not (kept and isinstance(one, Nacks))]
        real(self, [*others, *kept])

    patch.setattr(LogState, "set_folds", set_folds)


def _not_replayed(patch: pytest.MonkeyPatch, kind: type, flags: int) -> None:
    """Such a fold has nothing of what a log had when it was opened, or cut."""
    real = loading.apply_to_folds

    def apply(folds: Any, starts: Any, header: BatchHeader, data: Any) -> None:
        told = list(range(len(folds)))
        if header.attributes & flags:
            told = [at for at in told if not isinstance(folds[at], kind)]
        real([folds[at] for at in told], [starts[at] for at in told], header, data)

    patch.setattr(loading, "apply_to_folds", apply)
    patch.setattr("data_plane.log.recovery.loading.apply_to_folds", apply)


def nacks_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Nacks, "restore", lambda self, pieces: self._begin_anew())
    _not_replayed(patch, Nacks, -1)


def what_came_back_is_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    _not_replayed(patch, DelayedMessages, FACTS_FLAG)


def what_is_pending_is_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelayedMessages, "restore", lambda self, pieces: self._begin_anew())
    _not_replayed(patch, DelayedMessages, -1)


def followers_know_no_nacks(patch: pytest.MonkeyPatch) -> None:
    following: set[bool] = set()
    appended, applied = log_appends.append_as_follower, Nacks.apply

    def append(log: Any, *args: Any, **options: Any) -> Any:
        following.add(True)
        try:
            return appended(log, *args, **options)
        finally:
            following.clear()

    def apply(self: Nacks, batch: StoredBatch) -> None:
        if not following:
            applied(self, batch)

    patch.setattr("data_plane.log.log.Log.append_as_follower", append)
    patch.setattr(Nacks, "apply", apply)


def positions_are_forgotten_before_they_are_over(patch: pytest.MonkeyPatch) -> None:
    real = upkeep.RetryUpkeep._source_start

    def start(self: Any, partition: Any) -> int:
        return real(self, partition) + 10

    patch.setattr(upkeep.RetryUpkeep, "_source_start", start)


def arrivals_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Arrivals, "restore", lambda self, pieces: self.last.clear())
    _not_replayed(patch, Arrivals, -1)


def arrivals_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    real = TakenDeadLetters.__init__
    patch.setattr(TakenDeadLetters, "__init__", lambda self, last: real(self, {}))


class _ToTheEnd:
    """A partition of which all counts as committed."""

    def __init__(self, partition: Any) -> None:
        self._partition = partition

    def __getattr__(self, name: str) -> Any:
        if name == "high_watermark":
            return self._partition.log.log_end_offset
        return getattr(self._partition, name)


def dead_letters_are_sent_before_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    real = _PartitionSender.look

    def look(self: _PartitionSender, now_ms: int) -> None:
        partition = self._partition
        self._partition = _ToTheEnd(partition)  # type: ignore[assignment]
        try:
            real(self, now_ms)
        finally:
            self._partition = partition

    patch.setattr(_PartitionSender, "look", look)


def dead_letters_are_sent_with_less_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    real = sending.request_for

    def request(topic: Any, index: int, batch: bytearray) -> bytearray:
        made = real(topic, index, batch)
        # Behind the transactional id, which is null.
        assert made[1:3] == b"\xff\xff"
        made[1:3] = b"\x00\x01"
        return made

    patch.setattr(sender, "request_for", request)


def dead_letters_without_a_topic_are_dropped(patch: pytest.MonkeyPatch) -> None:
    real = _PartitionSender._send

    def send(self: _PartitionSender, read: Any, now_ms: int) -> None:
        if self._services.image.topic("default", read.target[0]) is None:
            self._note_sent(read, now_ms)
        else:
            real(self, read, now_ms)

    patch.setattr(_PartitionSender, "_send", send)


def an_error_of_the_topic_is_taken_for_an_arrival(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sender, "error_in", lambda body: ErrorCode.NONE)


def a_copy_is_fired_before_its_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "features.retry_dlq.delays.deliver_at_ms", lambda value: deliver_at_ms(value) - 150
    )


PLANTS: list[Plant] = [
    attempts_begin_again,
    the_last_attempt_comes_back,
    delays_of_nacks_are_ignored,
    all_comes_back_after_the_first_delay,
    repeats_are_not_recognised,
    repeats_are_looked_for_in_memory_only,
    what_is_not_committed_is_taken,
    nacks_are_kept_over_a_cut,
    nacks_are_forgotten_at_a_restart,
    what_came_back_is_forgotten_at_a_restart,
    what_is_pending_is_forgotten_at_a_restart,
    followers_know_no_nacks,
    positions_are_forgotten_before_they_are_over,
    arrivals_are_forgotten_at_a_restart,
    arrivals_are_not_asked,
    dead_letters_are_sent_before_they_are_committed,
    dead_letters_are_sent_with_less_acknowledgement,
    dead_letters_without_a_topic_are_dropped,
    an_error_of_the_topic_is_taken_for_an_arrival,
    a_copy_is_fired_before_its_time,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS_MAX):
        try:
            play(seed)
        except (AssertionError, KeyError, ValueError):
            return
    pytest.fail(f"{plant.__name__} is not found")
