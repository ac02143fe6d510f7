"""Producers of commands, among messages for later, and whether what they are told is true.

    commander   idempotent: a try whose answer is lost is sent again, and is known by its sequence
    repeater    without an id: it is another command, of the same words, and as true

They command what is about to come due, what is far, what was delivered or cancelled, what is not
committed yet and what never was a delayed message; and say again what they have said before.

    done       it is in the committed log; what is cancelled by offset was cancelled and not
               delivered, and of an id nothing is pending that was known when it was sent
    too late   nothing of what it means is pending
    unknown    nothing was when it was sent
    refused    nothing of the batch is in the log; none of what was said before is refused
    unanswered either, for all replicas (delayed_truth.py, and `check_pending`)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord
from features.delayed.commands import (
    CANCEL_HEADER,
    CANCEL_OFFSET_HEADER,
    RESCHEDULE_HEADER,
    RESCHEDULE_OFFSET_HEADER,
)
from features.delayed.times import DELAY_HEADER, DELIVER_AT_HEADER
from tests.simulation.delayed_truth import DelayedTruth, Said, is_cancel, offset_named
from tests.simulation.delays import DELAYS_MS, IDS, DelayingProducer
from tests.simulation.producer import Lane, Outgoing

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.partition_history import PartitionHistory

INTERVAL_MS = 60
# Under way and waiting; more would only be given up with a batch that is refused.
UNSETTLED_MAX = 3
SAID_KEPT = 20
REPEAT_CHANCE = 0.25
MESSAGE_CHANCE = 0.2
CANCEL_CHANCE = 0.4
ID_CHANCE = 0.4
# Of what nobody has committed yet, so far beyond the end.
AHEAD_MAX = 4
RECENT_MAX = 30


class Asked(NamedTuple):
    """A command, with its header for a time, which only re-scheduling has."""

    said: Said
    time: tuple[bytes, bytes] | None

    @property
    def due_ms(self) -> int | None:
        """To which it moves; None for a cancel, and where the leader's clock says it."""
        if self.time is None or self.time[0] != DELIVER_AT_HEADER:
            return None
        return int(self.time[1])

    @property
    def has_known_outcome(self) -> bool:
        return is_cancel(self.said) or self.due_ms is not None


class Batch(NamedTuple):
    """By the index of its record. `known_until`: what was committed when it was first sent."""

    commands: dict[int, Asked]
    known_until: int


class Commander(DelayingProducer):
    """See the module."""

    def __init__(
        self,
        cell: Cell,
        name: str,
        *,
        acks: int,
        interval_ms: int,
        wants: Callable[[str], bool],
        is_idempotent: bool = True,
    ) -> None:
        super().__init__(cell, name, acks=acks, interval_ms=interval_ms, wants=wants)
        self.is_idempotent = is_idempotent
        # By the number of its first record.
        self._commanded: dict[int, Batch] = {}
        self._last: dict[tuple[str, int], deque[Asked]] = {}

    def _make_batch(self) -> None:
        if self.unsettled_count < UNSETTLED_MAX:
            super()._make_batch()

    # What is said

    def _partition(self, topic: str, index: int) -> PartitionHistory | None:
        info = self.topics.get(topic)
        key = None if info is None else (info.topic_id, index)
        return None if key is None else self.cell.history.partitions.get(key)

    def _truth(self, partition: PartitionHistory | None) -> DelayedTruth | None:
        return None if partition is None else self.cell.history.delays.truth(partition)

    def _records(self, batch: Outgoing) -> list[NewRecord]:
        known = self._commanded.get(batch.first_number)
        if known is None:
            known = self._commanded[batch.first_number] = self._draw(batch)
        records = super()._records(batch)
        for index, (said, time) in known.commands.items():
            headers = (said,) if time is None else (said, time)
            records[index] = records[index]._replace(headers=headers)
        return records

    def _draw(self, batch: Outgoing) -> Batch:
        partition = self._partition(batch.topic, batch.index)
        truth = self._truth(partition)
        if partition is None or truth is None:
            return Batch({}, 0)
        last = self._last.setdefault((batch.topic, batch.index), deque(maxlen=SAID_KEPT))
        commands = {}
        for index in range(batch.count):
            # What is sent again without a sequence would be a second message.
            if self.is_idempotent and self.random.random() < MESSAGE_CHANCE:
                continue
            if last and self.random.random() < REPEAT_CHANCE:
                asked = self.random.choice(last)
                self.world.count("commands said again")
            else:
                asked = self._draw_command(truth, partition.end_offset)
            last.append(asked)
            commands[index] = asked
        said = frozenset(asked.said for asked in commands.values())
        truth.sends.sent(self.name, batch.first_number, said, partition.end_offset)
        return Batch(commands, partition.end_offset)

    def _draw_command(self, truth: DelayedTruth, end_offset: int) -> Asked:
        offset = self._draw_offset(truth, end_offset)
        message = truth.pending.get(offset)
        message_id = b"m%d" % self.random.randrange(IDS) if message is None else message.message_id
        is_by_id = bool(message_id) and self.random.random() < ID_CHANCE
        if self.random.random() < CANCEL_CHANCE:
            if is_by_id:
                return Asked((CANCEL_HEADER, message_id), None)
            return Asked((CANCEL_OFFSET_HEADER, b"%d" % offset), None)
        delay_ms = self.random.choice(DELAYS_MS)
        time = DELIVER_AT_HEADER, b"%d" % (self.world.now_ms + delay_ms)
        if delay_ms > 0 and self.random.random() < 0.5:
            time = DELAY_HEADER, b"%dms" % delay_ms
        if is_by_id:
            return Asked((RESCHEDULE_HEADER, message_id), time)
        return Asked((RESCHEDULE_OFFSET_HEADER, b"%d" % offset), time)

    def _draw_offset(self, truth: DelayedTruth, end_offset: int) -> int:
        kind = self.random.random()
        if truth.pending and kind < 0.5:
            return min(truth.pending, key=lambda at: (truth.pending[at].due_ms, at))
        if truth.pending and kind < 0.85:
            return self.random.choice(list(truth.pending))
        if kind < 0.9:
            return end_offset + self.random.randrange(AHEAD_MAX)
        return max(0, end_offset - self.random.randrange(1, RECENT_MAX))

    # What is answered

    def _settle(self, lane: Lane, batch: Outgoing, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is ErrorCode.INVALID_RECORD:
            lane.sent.remove(batch)
            # The sequences behind it are never taken.
            self._must_renew = self.is_idempotent
        elif error is ErrorCode.CORRUPT_MESSAGE:
            # It cannot be read now.
            super()._settle(lane, batch, None)
        else:
            super()._settle(lane, batch, answer)
        known = self._commanded.get(batch.first_number)
        partition = self._partition(batch.topic, batch.index)
        truth = self._truth(partition)
        if known is None or partition is None or truth is None:
            return
        if error is ErrorCode.NONE:
            self._check_done(partition, truth, known, answer.base_offset)
        elif error is ErrorCode.INVALID_RECORD:
            self._check_refused(partition, truth, batch, known, answer)
        else:
            return
        if batch.tries == 1:
            # Nothing of it is under way any more.
            truth.sends.answered(self.name, batch.first_number)

    def _check_done(
        self, partition: PartitionHistory, truth: DelayedTruth, known: Batch, base_offset: int
    ) -> None:
        for index, asked in known.commands.items():
            self.world.count("commands done")
            said = asked.said
            where = f"{self.name} is told that {asked} at {base_offset + index} of {partition}"
            if truth.stored.get(base_offset + index) != said:
                stored = truth.stored.get(base_offset + index)
                self.world.violate(f"{where} is done; committed is {stored}")
            if not is_cancel(said):
                continue
            offset = offset_named(said)
            if offset is not None and offset not in truth.cancelled:
                self.world.violate(f"{where} is done, and nothing has cancelled it")
            left = truth.meant(said, known.known_until)
            if left:
                self.world.violate(f"{where} is done; still pending are {left}")

    def _check_refused(
        self,
        partition: PartitionHistory,
        truth: DelayedTruth,
        batch: Outgoing,
        known: Batch,
        answer: Any,
    ) -> None:
        if self.is_idempotent and any(
            (one.producer_id, one.base_sequence) == (self.producer_id, batch.sequence)
            for one in partition.batches
        ):
            self.world.violate(f"{self.name}'s {known} is refused, and in the log of {partition}")
        if not answer.record_errors:
            self.world.violate(f"{self.name}'s {known} is refused: {answer.error_message}")
        first = answer.record_errors[0]
        self._check_why(partition, truth, known, first.batch_index, first.batch_index_error_message)

    def _check_why(
        self,
        partition: PartitionHistory,
        truth: DelayedTruth,
        known: Batch,
        index: int,
        why: str,
    ) -> None:
        """Of the first that is at fault."""
        asked = known.commands.get(index)
        where = f"{self.name} is told of {asked} to {partition}: {why}; sent"
        where += f" with {known.known_until} committed"
        if asked is None or not ("too late" in why or "unknown" in why):
            self.world.violate(where)
        assert asked is not None
        if any(before < index and is_cancel(one.said) for before, one in known.commands.items()):
            # They would have changed what it means.
            self.world.count("commands refused behind cancels")
            return
        said = asked.said
        left = truth.meant(said, known.known_until)
        if left:
            self.world.violate(f"{where}; pending are {left}")
        outcome_at = truth.outcomes.get((said, asked.due_ms))
        is_remembered = asked.has_known_outcome and not self.cell.history.delays.has_clock_errors
        if is_remembered and outcome_at is not None and outcome_at < known.known_until:
            self.world.violate(f"{where}; it was done at {outcome_at}")
        if "too late" in why:
            self.world.count("commands too late")
            return
        self.world.count("commands unknown")
        offset = offset_named(said)
        if offset is None or not partition.start_offset <= offset < known.known_until:
            return
        if partition.compacted is not None:
            # It is over, as was asked above, and the cleaner may have taken it.
            return
        if offset in truth.messages:
            self.world.violate(f"{where}; it is a message")
