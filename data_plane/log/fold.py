"""The fold port: what is derived from a partition's log, batch by batch, and from nothing else.

A fold is made for one log, and told which (`FoldContext`); `Log.fold(kind)` finds it again. The log
calls `apply` once for each stored batch in offset order: on append after the write has succeeded,
and on replay after a restart. At a segment boundary it stores a snapshot next to the
segment: here and now or, of a large state, by a thread that writes what `freeze` holds. After a
restart or a truncation it calls `restore` with the newest snapshot at or below the wanted offset,
piece by piece, and applies the batches from there, so that always

    fold(truncate(log, o)) == fold(log[:o])

Invariants
- A fold depends on log bytes only: no clock, no configuration that may differ between replicas.
- All folds of a log see the same StoredBatch: its records are unpacked once, if any of them asks.
- Snapshots are deterministic: equal states give equal bytes, written in either way.
- Nothing here has a large state in one piece of memory: it is written and read in pieces.
- `freeze` takes no time that grows with the state: it is called between two appends.
- `apply` never raises for what a batch says; the append checked it before. Should it raise all the
  same, the append is taken back.
- What a HoldingFold holds on to stays on the disk: no segment goes that reaches `needed_from`, by
  what is settled (committed_needs.py), neither by retention nor by DeleteRecords or a leader's log
  start. Readers do not see it: their log start moves on at once (retention.py).
- A replica that is made, or begins anew, gets what its leader has from there on, before it is in
  sync (disk_start.py). Thinning leaves of what readers do not see the records that folds hold, and
  facts, which say what became of others (thinning.py). So a fold has to come to the same state from
  these as from all, and also where it has had all of the log up to some offset, and goes on from
  there with these: as a replica does that was away, or a log that is cut back to a snapshot. It is
  told facts whose record it has never had.
- Compaction leaves the records that a fold holds, and what shadows them from readers
  (held_records.py). What a fold begins to hold later than the record itself may be gone. Where a
  HidingFold has records that are no values, those go once it does not hold them, and facts stay.

Users: producer state (producer_state.py); tags, delays and retries plug in from their features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.file_system import Buffer, FileSystem
from data_plane.wire.records import BatchHeader, Record, decode_batch


@dataclass(frozen=True, slots=True)
class FoldContext:
    """The log that a fold is made for. `config` is the topic's as it is then, also in a recovery;
    what changes later is the feature's to follow."""

    topic_id: UUID
    topic: str
    partition: int
    folder: str
    config: LogConfig
    # For files of its own in the folder, whose names end otherwise than those of others.
    fs: FileSystem


class StoredBatch:
    """A batch of the log, at `header.position` of `buf`, which is the caller's again afterwards."""

    __slots__ = ("_records", "buf", "header")

    def __init__(self, header: BatchHeader, buf: Buffer) -> None:
        self.header = header
        self.buf = buf
        self._records: list[Record] | None = None

    @property
    def records(self) -> list[Record]:
        """Unpacked and decoded at the first call; control records included."""
        if self._records is None:
            self._records = decode_batch(self.buf, self.header.position)
        return self._records


class SnapshotFile(Protocol):
    """Where a snapshot goes: an empty file of which only this much is asked."""

    def write_at(self, position: int, data: Buffer) -> None: ...


class FrozenFold(Protocol):
    """A fold's state as it was."""

    def write(self, file: SnapshotFile) -> None:
        """Write the snapshot into an empty file, piece by piece; in a worker thread."""

    def close(self) -> None:
        """Nobody needs it any more; on the loop. May be called twice."""


class FrozenBytes:
    """The FrozenFold of a state that is never large: its snapshot, made at once."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def write(self, file: SnapshotFile) -> None:
        file.write_at(0, self._data)

    def close(self) -> None:
        self._data = b""


class RecordHold(Protocol):
    """Which records a fold has held on to when it was asked."""

    def holds(self, offset: int) -> bool:
        """Whether compaction has to leave the record as it is, whatever supersedes it: not if its
        transaction was aborted. In a worker thread, once or twice for each record."""

    def needs(self, offset: int) -> bool:
        """Whether thinning has to leave the record, which readers do not see any more. In a worker
        thread, once for each record."""

    def close(self) -> None:
        """Nobody asks any more; on the loop. May be called twice."""


class HoldsAll:
    """The RecordHold of a fold that holds on to all records from some offset on."""

    def holds(self, offset: int) -> bool:
        return True

    def needs(self, offset: int) -> bool:
        return True

    def close(self) -> None:
        return


class FrozenHolds:
    """What the folds of a log hold, as of `end_offset`: each from an offset of its own on."""

    def __init__(self, holds: list[tuple[int, RecordHold]], end_offset: int) -> None:
        self.holds = holds
        self.end_offset = end_offset

    @property
    def held_from(self) -> int | None:
        return min((start for start, _ in self.holds), default=None)

    def close(self) -> None:
        """Nobody asks any more; on the loop. May be called twice."""
        for _, hold in self.holds:
            hold.close()


class Fold(Protocol):
    """State over the batches of one log."""

    def __len__(self) -> int:
        """How many entries it has: what its snapshot takes to write."""

    @property
    def extension(self) -> str:
        """The suffix of its snapshot files, with the dot; one fold of a log each."""

    def apply(self, batch: StoredBatch) -> None:
        """Take in the next batch."""

    def held_from(self, start_offset: int) -> int | None:
        """From which offset on compaction has to ask which records to leave; None for none. When
        it moves up, what lies before is looked at again. The log begins at `start_offset` on the
        disk: what lies below it has gone. At no cost."""

    def freeze_held(self) -> RecordHold:
        """Which records it holds as of now, at or above `held_from`; as quick as `freeze`."""

    def snapshot(self) -> bytes:
        """The whole state; never b"". Asked of a small one, and where too many wait for a thread:
        it is written at once."""

    def freeze(self) -> FrozenFold:
        """The whole state as it is now, to be written while the fold goes on."""

    def restore(self, pieces: Iterable[Buffer]) -> None:
        """Replace the state by a snapshot's, which comes in pieces of any size; none of them stands
        for the state before the first batch. Raises ValueError for what is not a whole snapshot,
        and whatever is half restored then is thrown away. In the thread that loads the log."""


@runtime_checkable
class HoldingFold(Fold, Protocol):
    """A fold that holds on to records."""

    def needed_from(self, start_offset: int) -> int | None:
        """From which offset on the log has to stay on the disk; None for none. The log begins at
        `start_offset` there: what lies below it has gone. Of what readers do not see that only
        stays in the end which `freeze_held` needs; a fold that has none (`held_from`) needs all of
        it."""

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        """Which records of a batch are facts, that is, let go of others: a byte for each, True for
        all, False for none. By the batch alone; in a worker thread. Nobody may go on without them
        who has the others, so they stay until retention takes them."""


@runtime_checkable
class HidingFold(HoldingFold, Protocol):
    """A fold to which some records of a compacted log are no values of their keys: they supersede
    nothing, and nothing supersedes them. What its facts say is in their headers, so that one may go
    on without its value when that is superseded (record_kinds.py)."""

    def values_in(self, batch: StoredBatch) -> bytes | bool:
        """Which records of a batch are values, that is, seen by readers: a byte for each, True for
        all, False for none. By the batch alone; in a worker thread."""


@runtime_checkable
class DueFold(Fold, Protocol):
    """A fold of a feature that has something to do by a date."""

    @property
    def due_ms(self) -> int | None:
        """When there is something to do next, by the date; None for nothing. At no cost. While it
        says so the log stays in memory, and a start opens the partition before anybody asks for it
        (broker/replicas/due_openings.py)."""


@runtime_checkable
class FlaggedFold(Fold, Protocol):
    """A fold that has to do with few batches: only those are applied to it."""

    @property
    def batch_flags(self) -> int:
        """Bits of attributes: batches that have one of them are applied."""


def flags_of(fold: Fold) -> int:
    """The `batch_flags` of a FlaggedFold; 0 for one that sees all batches."""
    flags: int = getattr(fold, "batch_flags", 0)
    return flags


def sees(fold: Fold, header: BatchHeader) -> bool:
    """Whether the batch is one that is applied to the fold."""
    flags = flags_of(fold)
    return not flags or bool(header.attributes & flags)


# None for a log of which it keeps nothing. That may depend on what the topic's configuration has
# for record rules: when these come or go, the folds are made anew.
FoldFactory = Callable[[FoldContext], Fold | None]
