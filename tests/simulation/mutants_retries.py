"""Planted bugs of retries and dead letters: lost, said twice, early, or of what never was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.log import loading
from data_plane.log.fold import StoredBatch
from data_plane.log.log import Log
from data_plane.log.log_state import LogState
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import BatchHeader
from features.delayed.fold import DelayedMessages
from features.delayed.times import deliver_at_ms
from features.retry_dlq import delays, judgement, originals, sender, taker, upkeep
from features.retry_dlq.arrivals import Arrivals, TakenDeadLetters
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.originals import StoredDeliveries
from features.retry_dlq.policy import Policy
from features.retry_dlq.positions import FrozenPositions
from features.retry_dlq.sender import _PartitionSender
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch
from tests.simulation.retries import RETRIED

_TOPIC = TopicPlan(RETRIED, 1, 3, {HEADERS_PROPERTY: "true", "segment.ms": "200"})

# Where leaders change and brokers start again.
LEADERS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "relay", "pause", "broken connection"}),
    admin=frozenset({"elections"}),
    topics=(_TOPIC,),
    extras=frozenset({"retries"}),
)
# Where the source forgets what readers have got, and little goes wrong.
DELETIONS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset({"delete records", "elections"}),
    topics=(_TOPIC,),
    extras=frozenset({"retries"}),
)


# Judged


def _begins_at_one(patch: Patch) -> None:
    original: Any = originals._fired
    patch.set(originals, "_fired", lambda *arguments: original(*arguments)._replace(attempt=1))


def _comes_back_for_ever(patch: Patch) -> None:
    patch.set(Policy, "is_last", lambda self, attempt: False)


def _ignores_delays(patch: Patch) -> None:
    original: Any = judgement._outcome
    patch.set(
        judgement,
        "_outcome",
        lambda command, *others: original(command._replace(delay_ms=None), *others),
    )


def _takes_repeats(patch: Patch) -> None:
    patch.set(StoredDeliveries, "nacked", lambda self, positions: set())


def _asks_no_runs(patch: Patch) -> None:
    original: Any = FrozenPositions.__dict__["find"]
    patch.set(
        FrozenPositions,
        "find",
        lambda self, *arguments: original(self._replace(runs=()), *arguments),
    )


def _takes_what_is_not_committed(patch: Patch) -> None:
    original: Any = taker._readable

    def readable(partition: Any) -> Any:
        return original(partition)._replace(high_watermark=partition.log.log_end_offset)

    patch.set(taker, "_readable", readable)


def _comes_too_soon(patch: Patch) -> None:
    patch.set(delays, "deliver_at_ms", lambda value: deliver_at_ms(value) - 3_000)


# Remembered


def _not_replayed(patch: Patch, kind: type, flags: int) -> None:
    original: Any = loading.apply_to_folds

    def apply(folds: Any, starts: Any, header: BatchHeader, data: Any) -> None:
        told = list(range(len(folds)))
        if header.attributes & flags:
            told = [at for at in told if not isinstance(folds[at], kind)]
        original([folds[at] for at in told], [starts[at] for at in told], header, data)

    patch.set(loading, "apply_to_folds", apply)


def _forgets_nacks(patch: Patch) -> None:
    _not_replayed(patch, Nacks, -1)


def _forgets_what_came_back(patch: Patch) -> None:
    _not_replayed(patch, DelayedMessages, FACTS_FLAG)


def _forgets_what_is_pending(patch: Patch) -> None:
    _not_replayed(patch, DelayedMessages, -1)


def _keeps_what_was_cut(patch: Patch) -> None:
    original: Any = LogState.__dict__["set_folds"]

    def set_folds(self: Any, folds: list[Any]) -> None:
        kept = [one for one in self.folds_if_loaded or () if isinstance(one, Nacks)]
        others = [one for one in folds if not (kept and isinstance(one, Nacks))]
        original(self, [*others, *kept])

    patch.set(LogState, "set_folds", set_folds)


def _followers_know_nothing(patch: Patch) -> None:
    following = set[bool]()
    appended: Any = Log.__dict__["append_as_follower"]
    applied: Any = Nacks.__dict__["apply"]

    def append(self: Any, *arguments: Any, **options: Any) -> Any:
        following.add(True)
        try:
            return appended(self, *arguments, **options)
        finally:
            following.clear()

    def apply(self: Any, batch: StoredBatch) -> None:
        if not following:
            applied(self, batch)

    patch.set(Log, "append_as_follower", append)
    patch.set(Nacks, "apply", apply)


def _forgets_too_much(patch: Patch) -> None:
    original: Any = upkeep.RetryUpkeep.__dict__["_source_start"]
    patch.set(
        upkeep.RetryUpkeep,
        "_source_start",
        lambda self, partition: original(self, partition) + 40,
    )


# Dead


def _forgets_arrivals(patch: Patch) -> None:
    """At a start, and when a log is cut."""
    patch.set(Arrivals, "restore", lambda self, pieces: self.last.clear())
    _not_replayed(patch, Arrivals, -1)


def _asks_no_arrivals(patch: Patch) -> None:
    patch.set(TakenDeadLetters, "__init__", lambda self, last: setattr(self, "_last", {}))


class _ToTheEnd:
    """A partition of which all counts as committed."""

    def __init__(self, partition: Any) -> None:
        self._partition = partition

    def __getattr__(self, name: str) -> Any:
        if name == "high_watermark":
            return self._partition.log.log_end_offset
        return getattr(self._partition, name)


def _sends_what_is_not_committed(patch: Patch) -> None:
    original: Any = _PartitionSender.__dict__["look"]

    def look(self: Any, now_ms: int) -> None:
        partition = self._partition
        self._partition = _ToTheEnd(partition)
        try:
            original(self, now_ms)
        finally:
            self._partition = partition

    patch.set(_PartitionSender, "look", look)


def _drops_without_a_topic(patch: Patch) -> None:
    original: Any = _PartitionSender.__dict__["_send"]

    def send(self: Any, read: Any, now_ms: int) -> None:
        if self._services.image.topic("default", read.target[0]) is None:
            self._note_sent(read, now_ms)
        else:
            original(self, read, now_ms)

    patch.set(_PartitionSender, "_send", send)


def _takes_errors_for_arrivals(patch: Patch) -> None:
    patch.set(sender, "error_in", lambda body: ErrorCode.NONE)


def _notes_all_that_waits(patch: Patch) -> None:
    """What is dead and was not in the batch counts as sent with it."""
    original: Any = _PartitionSender.__dict__["_note_sent"]

    def note_sent(self: Any, read: Any, now_ms: int) -> None:
        waiting = self._begun[0].dead_letters.waiting_count
        original(self, read._replace(letters_count=waiting), now_ms)

    patch.set(_PartitionSender, "_note_sent", note_sent)


RETRY_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "attempts begin again",
        "what has failed twice is counted as if it had not",
        _begins_at_one,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "no last attempt",
        "a message comes back for ever",
        _comes_back_for_ever,
        options=LEADERS,
    ),
    Mutant(
        "delays of nacks ignored",
        "a nack's own delay is that of the policy",
        _ignores_delays,
        options=LEADERS,
    ),
    Mutant(
        "repeats of nacks taken",
        "a second nack of a delivery makes a second copy",
        _takes_repeats,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "old nacks not asked",
        "a nack is known while it is in memory only",
        _asks_no_runs,
        options=LEADERS,
    ),
    Mutant(
        "nack of what is not committed",
        "a copy is made of a record that is cut off",
        _takes_what_is_not_committed,
        options=LEADERS,
    ),
    Mutant(
        "retried too soon",
        "a copy comes back before its time",
        _comes_too_soon,
        options=LEADERS,
    ),
    Mutant(
        "nacks not replayed",
        "after a start or a cut a nack is made again",
        _forgets_nacks,
        options=LEADERS,
    ),
    Mutant(
        "retries not replayed",
        "after a start what came back comes back again",
        _forgets_what_came_back,
        options=LEADERS,
    ),
    Mutant(
        "retries lost at a start",
        "what is pending never comes back",
        _forgets_what_is_pending,
        options=LEADERS,
    ),
    Mutant(
        "nacks over a cut",
        "a nack that was cut off is known, and the message lost",
        _keeps_what_was_cut,
        options=LEADERS,
    ),
    Mutant(
        "followers without nacks",
        "a new leader makes a second copy",
        _followers_know_nothing,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "nacks forgotten too early",
        "of what is in the source still nobody knows any more whether it was nacked",
        _forgets_too_much,
        options=DELETIONS,
    ),
    Mutant(
        "arrivals not replayed",
        "after a start or a cut a dead letter arrives again",
        _forgets_arrivals,
        options=LEADERS,
    ),
    Mutant(
        "arrivals not asked",
        "a dead letter that was sent twice arrives twice",
        _asks_no_arrivals,
        options=LEADERS,
    ),
    Mutant(
        "dead letter of what is not committed",
        "a dead letter arrives of a nack that is cut off",
        _sends_what_is_not_committed,
        options=LEADERS,
    ),
    Mutant(
        "dead letter without a topic",
        "it is dropped while its topic is missing",
        _drops_without_a_topic,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "dead letter lost on the way",
        "an answer of the topic's leader is not looked at",
        _takes_errors_for_arrivals,
        options=LEADERS,
    ),
    Mutant(
        "dead letters left behind",
        "what waits behind a batch counts as sent with it",
        _notes_all_that_waits,
        options=LEADERS,
    ),
)
