"""Planted bugs of requests that carry many partitions: one partition's fate becomes another's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.produce import produce_handler, produce_waits
from data_plane.wire.errors import ErrorCode
from tests.simulation.mutant import BUNDLES, Mutant, Patch


def _first_commit_answers_all(patch: Patch) -> None:
    original: Any = produce_waits.WaitingProduce.__dict__["_done"]

    def done(self: Any, number: int, error: ErrorCode) -> None:
        if number in self._open:
            for other in list(self._open):
                if other != number:
                    del self._open[other]
            original(self, number, error)

    patch.set(produce_waits.WaitingProduce, "_done", done)


def _refusal_answers_all(patch: Patch) -> None:
    """Those before the refused one are answered as they are appended."""
    original: Any = produce_handler._Produce.__dict__["_append"]

    def append(self: Any, topic: Any, piece: Any, answer: Any, now_ms: int) -> Any:
        is_done = original(self, topic, piece, answer, now_ms)
        if answer.error_code:
            self._waiting.clear()
        return is_done

    patch.set(produce_handler._Produce, "_append", append)


def _timeout_of_one(patch: Patch) -> None:
    original: Any = produce_waits.WaitingProduce.__dict__["_timed_out"]

    def timed_out(self: Any, now_ms: int) -> None:
        for number in list(self._open)[1:]:
            del self._open[number]
        original(self, now_ms)

    patch.set(produce_waits.WaitingProduce, "_timed_out", timed_out)


BUNDLE_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "first commit answers all",
        "a produce is answered when the first of its partitions has its records committed",
        _first_commit_answers_all,
        options=BUNDLES,
        is_quick=True,
    ),
    Mutant(
        "refusal answers all",
        "with one partition refused the others are acknowledged when they are appended",
        _refusal_answers_all,
        options=BUNDLES,
        is_quick=True,
    ),
    Mutant(
        "timeout of one",
        "of the partitions that are late only the first is told so, the others are acknowledged",
        _timeout_of_one,
        options=BUNDLES,
        is_quick=True,
    ),
)
