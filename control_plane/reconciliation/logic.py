"""What the reconciler decides; pure.

An answer of the cell about one resource is a verdict:

    IN_FORCE     the cell has what was sent
    GONE         what was deleted is no more
    LATER        the cell has a later generation than the row: take over what it has
    COUNT_ON     the cell has another content in this generation, or a later one of what is deleted
                 here: the next generation is ours
    OVER         its id was deleted in the cell, and is never taken again
    FAILED       refused, for now: tried again, ever more slowly

Invariants
- Generations never go back: each verdict leaves the row's generation, or raises it.
- Whatever a verdict is about a generation that is not the row's any more changes no status.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from data_plane.contract import cell_admin_pb2 as messages

RETRY_FIRST: Final = timedelta(seconds=1)
RETRY_MAX: Final = timedelta(minutes=5)
# A cell that does not answer is asked again soon: everything waits for it.
CELL_RETRY_FIRST: Final = timedelta(milliseconds=500)
CELL_RETRY_MAX: Final = timedelta(seconds=10)

Result = messages.Result


class Verdict(StrEnum):
    IN_FORCE = "in force"
    GONE = "gone"
    LATER = "later"
    COUNT_ON = "count on"
    OVER = "over"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a resource that was sent in a generation. `cell_generation` is what the cell
    has."""

    verdict: Verdict
    generation: int
    reason: str = ""
    cell_generation: int = 0


def answer_to_apply(result: messages.Result, sent: messages.Resource) -> Answer:
    generation, cell = sent.generation, result.generation
    match result.outcome:
        case Result.DONE | Result.UNCHANGED:
            return Answer(Verdict.IN_FORCE, generation)
        case Result.STALE:
            return Answer(Verdict.LATER, generation, cell_generation=cell)
        case Result.GONE:
            reason = f"It was deleted in its cell, in generation {cell}; make another one."
            return Answer(Verdict.OVER, generation, reason, cell)
        case Result.CONFLICT if cell == generation:
            return Answer(Verdict.COUNT_ON, generation, cell_generation=cell)
        case Result.CONFLICT if sent.owner == messages.CLIENT and cell == 0:
            # The cell has no resource of it, so there is nothing to be let go of.
            return Answer(Verdict.IN_FORCE, generation)
    return Answer(Verdict.FAILED, generation, _words(result), cell)


def answer_to_delete(results: Iterable[messages.Result], generation: int) -> Answer:
    """Of all the ids that a resource may have: the one that is least done says how it is."""
    for result in results:
        if result.outcome == Result.STALE:
            return Answer(Verdict.COUNT_ON, generation, cell_generation=result.generation)
        if result.outcome not in (Result.DONE, Result.UNCHANGED):
            return Answer(Verdict.FAILED, generation, _words(result), result.generation)
    return Answer(Verdict.GONE, generation)


def _words(result: messages.Result) -> str:
    words = result.message or Result.Outcome.Name(result.outcome)
    return f"{words} (error {result.error_code})" if result.error_code else words


def retry_after(attempts: int, jitter: float) -> timedelta:
    """How long to wait after so many attempts; `jitter`, from 0 to 1, spreads it from the half of
    that to the whole."""
    return _spread(_doubled(RETRY_FIRST, attempts, RETRY_MAX), jitter)


def cell_retry_after(failures: int, jitter: float) -> timedelta:
    """Likewise for a cell of which no broker has answered so many times in a row."""
    return _spread(_doubled(CELL_RETRY_FIRST, failures, CELL_RETRY_MAX), jitter)


def _doubled(first: timedelta, times: int, most: timedelta) -> timedelta:
    wait = first
    while times > 1 and wait < most:
        wait, times = 2 * wait, times - 1
    return min(wait, most)


def _spread(wait: timedelta, jitter: float) -> timedelta:
    return wait * (0.5 + jitter / 2)
