"""What is pending of a log, as a fold: hidden records come in, and go when they are fired.

    batch with HIDDEN_FLAG   its records with `tw-deliver-at` are pending; what its commands have
                             cancelled is not, and what they have moved is at another time
    batch with FACTS_FLAG    the originals that its records name in `tw-source` are fired

It sees no other batches. Beside what is pending it knows from where to where the log has flagged
batches: all other offsets readers may be shown without a look.

Invariants
- The log needs nothing from below the lowest pending offset for it (`needed_from`).
- Of what readers do not see any more it holds the originals that are pending, and nothing else
  (held.py); facts stay beside.
- To compaction what is hidden is no value of its key (`values_in`). What is pending stays; of what
  is not, facts stay.

Deliberately absent: firing (firing.py), upkeep of what is on the disk (fold_upkeep.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, RecordHold, SnapshotFile, StoredBatch
from data_plane.wire.kernel import list_keys, scan_headers
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import BatchHeader, NewRecord, Record, unpacked_records
from features.delayed import snapshot
from features.delayed.commands import (
    CANCELLED_HEADER,
    COMMAND_HEADERS,
    ID_HEADER,
    JUDGED_AT_HEADER,
    MOVED_HEADER,
    Command,
    Fact,
    Headers,
    decode_fact,
)
from features.delayed.held import HeldMessages
from features.delayed.hidden import shown
from features.delayed.names import DUE_MAX_MS, Names, NamesJob, offset_name
from features.delayed.outcomes import Outcomes, outcome_of
from features.delayed.pending_set import PendingSet, UpkeepJob
from features.delayed.snapshot import FoldState
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms

SOURCE_HEADER: Final = b"tw-source"
# Of a dead letter, which also comes in a batch with FACTS_FLAG: what is said in it of the source is
# of another log.
DEAD_HEADER: Final = b"tw-dead"
PRODUCED_AT_HEADER: Final = b"tw-produced-at"
FACT_HEADERS: Final = frozenset({CANCELLED_HEADER, MOVED_HEADER})
_TAKEN_OFF: Final = frozenset({DELIVER_AT_HEADER, SOURCE_HEADER, DEAD_HEADER, PRODUCED_AT_HEADER})
NOTHING: Final = -1

_PREFIX: Final = b"tw-"
# They are many, and mean nothing here.
_TAG_HEADER: Final = b"tw-tag"


class DelayedMessages:
    """The fold of one log."""

    extension = snapshot.SNAPSHOT_SUFFIX
    batch_flags = HIDDEN_FLAG | FACTS_FLAG
    # It says what offset a fired record was at.
    fact_header = SOURCE_HEADER

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.pending = PendingSet(self._context.fs, self._context.folder)
        self.names = Names(self._context.fs, self._context.folder)
        self.outcomes = Outcomes()
        # Flagged batches with hidden records lie in [hidden_from, hidden_end).
        self.hidden_from = NOTHING
        self.hidden_end = NOTHING

    def __len__(self) -> int:
        return len(self.pending)

    def apply(self, batch: StoredBatch) -> None:
        header = batch.header
        records, start, end = unpacked_records(batch.buf, header)
        if header.attributes & HIDDEN_FLAG:
            if self.hidden_from == NOTHING:
                self.hidden_from = header.base_offset
            self.hidden_end = header.next_offset
            deltas = self._deltas(header, records, start, end)
            found = scan_headers(records, start, end, header.record_count, _PREFIX, _TAG_HEADER)
            for index, headers in groupby(found, itemgetter(0)):
                offset = header.base_offset + deltas[index]
                self._apply_record(offset, [(key, value) for _, key, value in headers])
        if header.attributes & FACTS_FLAG and not has_dead_letters(batch):
            for _, _, value in scan_headers(
                records, start, end, header.record_count, self.fact_header
            ):
                self.pending.remove(source_offset(value))

    def _apply_record(self, offset: int, headers: Headers) -> None:
        """A record of a flagged batch, with all that begins with `tw-` but tags."""
        known = dict(headers)
        if DELIVER_AT_HEADER in known:
            due_ms = min(deliver_at_ms(known[DELIVER_AT_HEADER]), DUE_MAX_MS)
            self.pending.add(due_ms, offset)
            message_id = known.get(ID_HEADER)
            if message_id:
                self.names.add(message_id, due_ms, offset)
        elif JUDGED_AT_HEADER in known:
            judged_at_ms = int(known[JUDGED_AT_HEADER] or b"")
            said = next((key, value or b"") for key, value in headers if key in COMMAND_HEADERS)
            last_said: tuple[bytes, bytes, int | None] | None = None
            for key, value in headers:
                if key not in FACT_HEADERS:
                    continue
                fact = decode_fact(value)
                self._apply_fact(fact)
                itself = Command(fact.offset, b"", fact.new_due_ms).header
                self.outcomes.note(outcome_of(itself, fact.new_due_ms), judged_at_ms)
                if said != itself and last_said != (*said, fact.new_due_ms):
                    last_said = (*said, fact.new_due_ms)
                    self.outcomes.note(outcome_of(said, fact.new_due_ms), judged_at_ms)

    def _apply_fact(self, fact: Fact) -> None:
        offset, due_ms, new_due_ms, message_id = fact
        if new_due_ms is None:
            self.pending.remove(offset, due_ms)
        else:
            self.pending.move(offset, due_ms, new_due_ms)
            self.names.add(offset_name(offset), new_due_ms, offset)
            if message_id:
                self.names.add(message_id, new_due_ms, offset)

    def delivered(self, original: Record, wall_ms: int) -> NewRecord:
        """The record that delivers an original at this date. In a worker thread."""
        context = self._context
        headers = (
            *(header for header in original.headers if header[0] not in _TAKEN_OFF),
            (SOURCE_HEADER, source_of(context.topic, context.partition, original.offset)),
            (PRODUCED_AT_HEADER, b"%d" % original.timestamp),
        )
        return NewRecord(wall_ms, original.key, original.value, headers)

    @staticmethod
    def _deltas(header: BatchHeader, buf: Buffer, start: int, end: int) -> Sequence[int]:
        """Of each record; thinning and compaction leave gaps in a batch."""
        count = header.record_count
        if count == header.next_offset - header.base_offset:
            return range(count)
        return [delta for delta, _, _ in list_keys(buf, start, end, count)]

    def shown_whole_until(self, offset: int, end: int) -> int:
        """Up to where, in [offset, end], no record is hidden from `offset` on."""
        if self.hidden_from == NOTHING or offset >= self.hidden_end:
            return end
        return max(offset, min(end, self.hidden_from))

    # What it holds on to

    def needed_from(self, start_offset: int) -> int | None:
        return self.pending.lowest_offset

    @property
    def due_ms(self) -> int | None:
        return self.pending.next_ms

    def held_from(self, start_offset: int) -> int | None:
        return self.pending.lowest_offset

    def freeze_held(self) -> RecordHold:
        return HeldMessages(self._context.fs, self._context.folder, self.pending)

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        header = batch.header
        if header.attributes & FACTS_FLAG:
            return not has_dead_letters(batch)
        if not header.attributes & HIDDEN_FLAG:
            return False
        facts = bytearray(header.record_count)
        place = (*unpacked_records(batch.buf, header), header.record_count)
        for index, _, _ in scan_headers(*place, JUDGED_AT_HEADER):
            facts[index] = 1
        return bytes(facts)

    def values_in(self, batch: StoredBatch) -> bytes | bool:
        header = batch.header
        if not header.attributes & HIDDEN_FLAG:
            return True
        return shown(*unpacked_records(batch.buf, header), header.record_count)

    # Upkeep

    @property
    def wants_upkeep(self) -> bool:
        return self.pending.wants_upkeep or self.names.wants_upkeep

    def upkeep_job(self) -> tuple[UpkeepJob | NamesJob, Callable[[], None]] | None:
        """What is to be done now, to be run in a thread, and what to call on the loop after that,
        whatever came of it; None for nothing. One of a kind at a time."""
        pending, names = self.pending, self.names
        job = pending.upkeep_job(snapshot.runs_named_in)
        if job is not None:
            return job, lambda: pending.finish(job)
        of_names = names.upkeep_job(pending.first_due_ms, snapshot.runs_named_in)
        return None if of_names is None else (of_names, lambda: names.finish(of_names))

    # Snapshots

    def state(self) -> FoldState:
        """As it is now; `release` it when nobody needs it."""
        return FoldState(
            self.hidden_from,
            self.hidden_end,
            self.pending.freeze(),
            self.names.freeze(),
            self.outcomes.copy(),
        )

    def release(self, state: FoldState) -> None:
        self.pending.thaw(state.pending)
        self.names.thaw(state.names)

    def snapshot(self) -> bytes:
        state = self.state()
        try:
            return snapshot.encode(state)
        finally:
            self.release(state)

    def freeze(self) -> FrozenMessages:
        return FrozenMessages(self)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self._begin_anew()
        data = b"".join(pieces)
        if data:
            state = snapshot.decode(data, self._context.fs, self._context.folder)
            self.hidden_from, self.hidden_end = state.hidden_from, state.hidden_end
            self.pending.restore(state.pending)
            self.names.restore(state.names)
            self.outcomes = state.outcomes


class FrozenMessages:
    """The fold as it was."""

    def __init__(self, fold: DelayedMessages) -> None:
        self._fold = fold
        self._state: FoldState | None = fold.state()

    def write(self, file: SnapshotFile) -> None:
        assert self._state is not None
        file.write_at(0, snapshot.encode(self._state))

    def close(self) -> None:
        if self._state is not None:
            self._fold.release(self._state)
            self._state = None


def has_dead_letters(batch: StoredBatch) -> bool:
    """Whether a batch of facts has no delivered messages, but dead letters."""
    place = (*unpacked_records(batch.buf, batch.header), batch.header.record_count)
    return any(key == DEAD_HEADER for _, key, _ in scan_headers(*place, DEAD_HEADER))


def source_of(topic: str, partition: int, offset: int) -> bytes:
    """What `tw-source` says of a record."""
    return f"{topic}/{partition}/{offset}".encode()


def source_offset(value: bytes | None) -> int:
    """The offset that it says."""
    assert value is not None
    return int(value.rpartition(b"/")[2])


def make_fold(context: FoldContext) -> DelayedMessages | None:
    """For topics that read headers, which is a matter of their record rules."""
    rules = context.config.record_rules
    return None if rules is None or rules.takes_commands else DelayedMessages(context)
