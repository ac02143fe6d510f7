"""What was nacked of a subscription's partition pair, as a fold of its retry log.

    stored record             in the fold
    tw-nack: 6:100            100 was nacked, of the source (an even partition) or of this log
    tw-dead-letter: 6:100     the same, and one more dead letter waits to be sent
    tw-sent: 340:2            the dead letters up to offset 340 have been sent, two more wait
    tw-forget: 90:20          positions below 90 of the source, and below 20 of this log, are over

It looks at HIDDEN batches, which have all of this, and at no others.

Invariants
- A position is in it from its first nack on until a stored record has said that it is over.
- The log needs nothing from below what was stored for the first of these (`needed_from`), nor from
  below the first dead letter that was not sent.
- All that is needed stays as it is: nothing in between is thinned.

Deliberately absent: what is pending (RetryDelays), judging, upkeep of what is on the disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, HoldsAll, RecordHold, SnapshotFile, StoredBatch
from data_plane.wire.kernel import list_keys, scan_headers
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import unpacked_records
from features.retry_dlq import snapshot
from features.retry_dlq.commands import DEAD_LETTER_HEADER, NACK_HEADER, parse_position
from features.retry_dlq.positions import Positions, UpkeepJob
from features.retry_dlq.snapshot import NOTHING, DeadLetters, FoldState

SENT_HEADER: Final = b"tw-sent"
FORGET_HEADER: Final = b"tw-forget"
REPEAT_HEADER: Final = b"tw-repeat"

_PREFIX: Final = b"tw-"
_PAIR: Final = re.compile(rb"([0-9]{1,19}):([0-9]{1,19})")


class Nacks:
    """The fold of one retry log."""

    extension = snapshot.SNAPSHOT_SUFFIX
    batch_flags = HIDDEN_FLAG

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._begin_anew()

    def _begin_anew(self) -> None:
        fs, folder = self._context.fs, self._context.folder
        self.of_source = Positions(fs, folder)
        self.own = Positions(fs, folder)
        self.dead_letters = DeadLetters(NOTHING, 0)

    def __len__(self) -> int:
        return len(self.of_source) + len(self.own)

    def apply(self, batch: StoredBatch) -> None:
        header = batch.header
        records, start, end = unpacked_records(batch.buf, header)
        count = header.record_count
        found = scan_headers(records, start, end, count, _PREFIX)
        deltas: Sequence[int] = range(count)
        if found and count != header.next_offset - header.base_offset:
            deltas = [delta for delta, _, _ in list_keys(records, start, end, count)]
        for index, key, value in found:
            offset = header.base_offset + deltas[index]
            if key in (NACK_HEADER, DEAD_LETTER_HEADER):
                position = parse_position(value)
                (self.own if position.is_own else self.of_source).add(position.offset, offset)
                if key == DEAD_LETTER_HEADER:
                    self._dead(offset)
            elif key == SENT_HEADER:
                self._sent(*_pair_of(value))
            elif key == FORGET_HEADER:
                source_floor, own_floor = _pair_of(value)
                self.of_source.forget_below(source_floor)
                self.own.forget_below(own_floor)

    def _dead(self, offset: int) -> None:
        first, count = self.dead_letters
        self.dead_letters = DeadLetters(offset if first == NOTHING else first, count + 1)

    def _sent(self, last_offset: int, left_count: int) -> None:
        """How many wait it says itself: who begins with what is held of the log does not have all
        that were sent."""
        first = max(self.dead_letters.first_offset, last_offset + 1) if left_count else NOTHING
        self.dead_letters = DeadLetters(first, left_count)

    # What it holds on to

    def needed_from(self, start_offset: int) -> int | None:
        first = self.dead_letters.first_offset
        needs = [self.of_source.lowest_stored, self.own.lowest_stored]
        needs += [] if first == NOTHING else [first]
        return min((need for need in needs if need is not None), default=None)

    @property
    def due_ms(self) -> int | None:
        """Dead letters that wait are to be sent at any time."""
        return None if self.dead_letters.first_offset == NOTHING else 0

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> RecordHold:
        return HoldsAll()

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        return bool(batch.header.attributes & HIDDEN_FLAG)

    # Upkeep

    @property
    def wants_upkeep(self) -> bool:
        return self.of_source.wants_upkeep or self.own.wants_upkeep

    def upkeep_job(self) -> tuple[UpkeepJob, Callable[[], None]] | None:
        """What is to be done now, and what to call on the loop after that; None for nothing."""
        for positions in (self.of_source, self.own):
            job = positions.upkeep_job(snapshot.runs_named_in)
            if job is not None:
                job.kept_names = self.of_source.kept_names() | self.own.kept_names()
                return job, partial(positions.finish, job)
        return None

    # Snapshots

    def state(self) -> FoldState:
        """As it is now; `release` it when nobody needs it."""
        return FoldState(self.of_source.freeze(), self.own.freeze(), self.dead_letters)

    def release(self, state: FoldState) -> None:
        self.of_source.thaw(state.of_source)
        self.own.thaw(state.own)

    def snapshot(self) -> bytes:
        state = self.state()
        try:
            return snapshot.encode(state)
        finally:
            self.release(state)

    def freeze(self) -> FrozenNacks:
        return FrozenNacks(self)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self._begin_anew()
        data = b"".join(pieces)
        if data:
            state = snapshot.decode(data, self._context.fs, self._context.folder)
            self.of_source.restore(state.of_source)
            self.own.restore(state.own)
            self.dead_letters = state.dead_letters


class FrozenNacks:
    """The fold as it was."""

    def __init__(self, nacks: Nacks) -> None:
        self._nacks = nacks
        self._state: FoldState | None = nacks.state()

    def write(self, file: SnapshotFile) -> None:
        assert self._state is not None
        file.write_at(0, snapshot.encode(self._state))

    def close(self) -> None:
        if self._state is not None:
            self._nacks.release(self._state)
            self._state = None


def _pair_of(value: bytes | None) -> tuple[int, int]:
    """What `tw-sent` and `tw-forget` say."""
    match = None if value is None else _PAIR.fullmatch(value)
    assert match is not None, "what the broker stores itself makes sense"
    return int(match[1]), int(match[2])
