"""Histories of a cell that redrives, and planted bugs that they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from data_plane.broker.dead_letter_operations import Status, Wish
from data_plane.wire.errors import ErrorCode
from features.redrive import letters, runner
from features.redrive.marks import Marks
from features.redrive.operations import Operation, Step
from features.retry_dlq.arrivals import TakenDeadLetters
from tests.features.redrive_cell import play

SEEDS = range(25)
# Within which a planted bug is found.
MUTANT_SEEDS_MAX = 100


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RECORDS_MAX", 3)
    monkeypatch.setattr(runner, "SWEEP_INTERVAL_MS", 20)
    monkeypatch.setattr(runner, "RETRY_MS_MAX", 200)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_planned_arrives_once(seed: int) -> None:
    play(seed)


def test_what_histories_reach() -> None:
    """Without these they would show little."""
    cells = [play(seed) for seed in range(15)]
    ended = Counter(view.status for cell in cells for view in cell.views)
    assert ended[Status.DONE] > 10
    assert ended[Status.CANCELLED] > 10
    assert sum(cell.moved_count for cell in cells) > 150
    assert sum(cell.restarts_count for cell in cells) > 30


def what_has_arrived_is_stored_again(patch: pytest.MonkeyPatch) -> None:
    real = TakenDeadLetters.__init__
    patch.setattr(TakenDeadLetters, "__init__", lambda self, last: real(self, {}))


def a_plan_is_sent_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    real = runner._PartitionRunner.look

    def look(self: Any, now_ms: int) -> None:
        partition = self._partition
        mark, partition.high_watermark = partition.high_watermark, partition.log.log_end_offset
        try:
            real(self, now_ms)
        finally:
            partition.high_watermark = max(mark, 0)

    patch.setattr(runner._PartitionRunner, "look", look)


def a_cancel_does_not_wait_for_what_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    real = runner._PartitionRunner.look

    def look(self: Any, now_ms: int) -> None:
        operation = None if self.is_waiting else self._operation()
        if operation is not None and operation.wish is Wish.CANCEL:
            step = Step(operation.order.id, operation.cursor, operation.counts, ended="cancelled")
            self._note(operation, step, None, now_ms)
            return
        real(self, now_ms)

    patch.setattr(runner._PartitionRunner, "look", look)


def the_next_leader_takes_a_plan_for_done(patch: pytest.MonkeyPatch) -> None:
    real = runner._PartitionRunner._operation

    def operation(self: Any) -> Operation | None:
        before = self._begun
        found = real(self)
        if found is not None and self._begun != before and found.plan is not None:
            self._arrived_offset = found.plan.offset
        return found

    patch.setattr(runner._PartitionRunner, "_operation", operation)


def what_is_not_committed_yet_is_taken_for_gone(patch: pytest.MonkeyPatch) -> None:
    real = runner._PartitionRunner._find

    def find(self: Any, operation: Operation, now_ms: int) -> None:
        partition = self._partition
        mark = partition.high_watermark
        order = operation.order._replace(end_offset=min(operation.order.end_offset, mark))
        if mark < operation.order.end_offset:
            step = Step(order.id, order.end_offset, operation.counts, ended="done")
            self._note(operation, step, None, now_ms)
            return
        real(self, operation, now_ms)

    patch.setattr(runner._PartitionRunner, "_find", find)


def what_was_redriven_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    real = letters.find_letters

    def find(log: Any, operation: Any, choice: Any, outlook: Any) -> Any:
        return real(log, operation, choice, outlook._replace(redriven=Marks()))

    patch.setattr(runner, "find_letters", find)


def an_answer_that_was_lost_counts_as_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "error_in", lambda body: ErrorCode.NONE)


def a_resent_plan_lacks_its_first_letter(patch: pytest.MonkeyPatch) -> None:
    real = letters.read_letters

    def read(*arguments: Any) -> Any:
        found = real(*arguments)
        return found._replace(records=found.records[1:])

    patch.setattr(runner, "read_letters", read)


MUTANTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    what_has_arrived_is_stored_again,
    a_plan_is_sent_before_it_is_committed,
    a_cancel_does_not_wait_for_what_is_on_its_way,
    the_next_leader_takes_a_plan_for_done,
    what_is_not_committed_yet_is_taken_for_gone,
    what_was_redriven_is_not_remembered,
    an_answer_that_was_lost_counts_as_good,
    a_resent_plan_lacks_its_first_letter,
)


def play_all() -> None:
    for seed in range(MUTANT_SEEDS_MAX):
        play(seed)


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all()
