"""Producer state: what makes produce idempotent and transactions visible, as a fold.

Per producer id: its epoch, its last five batches, its coordinator's epoch and the offset where its
open transaction began. The rules are those of Kafka 4's ProducerStateManager:

- a batch that repeats one of the five (epoch, first and last sequence) is a duplicate: the append
  is acknowledged with the old offset and stored no second time;
- an older epoch is refused with INVALID_PRODUCER_EPOCH; a new epoch begins at sequence 0;
- within an epoch the sequence goes on by one, from 2^31-1 to 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
- a producer id that is not known (never was, or expired) may begin at any sequence.

Other than in Kafka a producer expires by when it wrote last, not by the timestamps of its records:
one that writes down events of last week would be forgotten between a batch and its repetition.

Worked example: batches (sequence 0..2 → offset 10..12), (3..3 → 13). Sequence 3..3 again → its old
offset 13; 5..5 → out of order; epoch+1 with sequence 1 → out of order, with 0 → accepted.

`check` is called before the write, `apply` after it: a failed write leaves the state alone. The
last stable offset comes from here too: the first offset of the oldest transaction that is open, or
closed by a marker which is not yet below the high watermark.

Deliberately absent: transaction verification (KIP-890) and the coordinator's side.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

from data_plane.log.errors import AppendError
from data_plane.log.file_system import Buffer
from data_plane.log.fold import HoldsAll, SnapshotFile, StoredBatch
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.producer_snapshot import (
    NO_OFFSET,
    ROWS_PER_WRITE,
    SnapshotRow,
    encode_producer_snapshot,
    read_producer_snapshot,
    write_producer_snapshot,
)
from data_plane.log.versioned_map import FrozenView, VersionedMap
from data_plane.log.vouched_date import UNKNOWN_MS
from data_plane.wire.control_batches import EndTransactionMarker, read_end_transaction_marker
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.records import BatchHeader, decode_batch

CACHED_BATCHES = 5
# Sorting holds the interpreter, so it is done in slices.
SORTED_SLICE_ENTRIES = 10_000
# Producers looked at for their age in one go.
EXPIRED_SLICE_ENTRIES = 2_000
SEQUENCE_MASK = 0x7FFFFFFF
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class CachedBatch(NamedTuple):
    """A stored batch as the duplicate check knows it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """State of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
        "written_ms",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.batches: list[CachedBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = NO_OFFSET
        # When this process stored its last batch, -1 if it has not, UNKNOWN_MS if nobody vouched
        # for the date then; no part of the fold.
        self.written_ms = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def copy(self) -> ProducerEntry:
        twin = ProducerEntry(self.producer_id)
        twin.producer_epoch = self.producer_epoch
        twin.batches = self.batches.copy()
        twin.coordinator_epoch = self.coordinator_epoch
        twin.last_timestamp = self.last_timestamp
        twin.transaction_first_offset = self.transaction_first_offset
        twin.written_ms = self.written_ms
        return twin

    def snapshot_rows(self) -> list[SnapshotRow]:
        """One for each cached batch, oldest first; one without batches, too."""
        common = (self.coordinator_epoch, self.transaction_first_offset)
        if not self.batches:
            timestamp = self.last_timestamp
            return [
                SnapshotRow(
                    self.producer_id,
                    self.producer_epoch,
                    NO_SEQUENCE,
                    NO_OFFSET,
                    0,
                    timestamp,
                    *common,
                )
            ]
        return [
            SnapshotRow(
                self.producer_id,
                self.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.first_offset,
                batch.timestamp,
                *common,
            )
            for batch in self.batches
        ]

    def find_duplicate(self, epoch: int, first: int, last: int) -> CachedBatch | None:
        """The cached batch with this epoch and these sequences."""
        if epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        return None

    def enter_epoch(self, epoch: int) -> None:
        """Forget the batches of another epoch."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()


class CompletedTransaction(NamedTuple):
    """A transaction with its marker stored: records [first_offset, last_offset] are decided."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


def decode_marker(buf: Buffer, position: int) -> EndTransactionMarker | None:
    """The end marker in a control batch; None for other control records, and for malformed ones:
    what is stored already is not refused here."""
    records = decode_batch(buf, position)
    try:
        return read_end_transaction_marker(records[0]) if records else None
    except InvalidRecords:
        return None


class ProducerStates:
    """The fold over all producers of one log."""

    __slots__ = ("aborted", "ongoing", "producers", "undecided")

    extension = ".snapshot"

    def __init__(self) -> None:
        self.producers: VersionedMap[int, ProducerEntry] = VersionedMap()
        # First offsets of open transactions, and of those whose marker is stored at the second
        # value but may not be below the high watermark yet. Both by first offset.
        self.ongoing: dict[int, int] = {}
        self.undecided: list[tuple[int, int]] = []
        # What `apply` found aborted since the log last took it, for the transaction index.
        self.aborted: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self.producers)

    # Before the write

    def is_next(self, header: BatchHeader) -> bool:
        """Whether a plain batch simply goes on where its producer's last one ended: the common
        case, in which `check` would find nothing to say."""
        producers = self.producers
        entry = producers.live.get(header[10]) or producers.get(header[10])
        if entry is None or header[6] & 0x30 or not entry.batches:
            return False
        return (
            entry.producer_epoch == header[11]
            and entry.batches[-1][1] + 1 == header[12]
            and entry.transaction_first_offset < 0
        )

    def check(
        self,
        header: BatchHeader,
        pending: dict[int, PendingSequence],
        *,
        is_client: bool,
    ) -> CachedBatch | None:
        """Refuse or accept a batch; returns the stored batch that it repeats.

        `pending` holds the outcome of earlier batches of the same append by producer id, and is
        brought up to date. Raises AppendError.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        epoch = header.producer_epoch
        if header.attributes & 0x20:
            self._check_epoch(entry, producer_id, epoch)
            return None
        first = header.base_sequence
        last = (first + header.last_offset_delta) & SEQUENCE_MASK if first >= 0 else NO_SEQUENCE
        earlier = pending.get(producer_id)
        if entry is not None:
            if is_client and earlier is None:
                duplicate = entry.find_duplicate(epoch, first, last)
                if duplicate is not None:
                    return duplicate
            self._check_epoch(entry, producer_id, epoch)
        if is_client:
            known_epoch, last_sequence = self._known(entry, earlier)
            self._check_sequence(producer_id, epoch, first, known_epoch, last_sequence)
        in_transaction = entry is not None and entry.transaction_first_offset >= 0
        if in_transaction and not header.attributes & 0x10:
            raise AppendError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id}",
            )
        pending[producer_id] = PendingSequence(epoch, last)
        return None

    @staticmethod
    def _known(entry: ProducerEntry | None, earlier: PendingSequence | None) -> PendingSequence:
        if earlier is not None:
            return earlier
        if entry is None:
            return PendingSequence(NO_PRODUCER_EPOCH, NO_SEQUENCE)
        return PendingSequence(entry.producer_epoch, entry.last_sequence)

    @staticmethod
    def _check_epoch(entry: ProducerEntry | None, producer_id: int, epoch: int) -> None:
        if entry is not None and epoch < entry.producer_epoch:
            raise AppendError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last "
                f"seen epoch {entry.producer_epoch}",
            )

    @staticmethod
    def _check_sequence(
        producer_id: int, epoch: int, first: int, known_epoch: int, last_sequence: int
    ) -> None:
        if known_epoch == NO_PRODUCER_EPOCH:
            return
        if epoch != known_epoch:
            if first != 0:
                raise AppendError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {producer_id}: {epoch} "
                    f"(request epoch), {first} (seq. number), {known_epoch} (current epoch)",
                )
        elif not (first == last_sequence + 1 or (first == 0 and last_sequence == SEQUENCE_MASK)):
            raise AppendError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id}: {first} (incoming seq. "
                f"number), {last_sequence} (current end sequence number)",
            )

    # The fold

    def apply(self, batch: StoredBatch) -> None:
        """See Fold.apply."""
        header = batch.header
        if header.producer_id >= 0:
            self.apply_batch(header, batch.buf, header.position)

    def held_from(self, start_offset: int) -> int | None:
        """From none: what compaction keeps for it, it finds by `FrozenProducers`."""
        return None

    def freeze_held(self) -> HoldsAll:
        """See Fold.freeze_held; from no offset on."""
        return HoldsAll()

    def apply_batch(self, header: BatchHeader, buf: Buffer, position: int) -> None:
        """Take in a stored batch. Batches without a producer id change nothing."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        entry = self.producers.own(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        if header.attributes & 0x20:
            self._apply_marker(entry, header, buf, position)
            return
        if header.producer_epoch != entry.producer_epoch:
            entry.enter_epoch(header.producer_epoch)
        first = header.base_sequence
        last_offset = header.base_offset + header.last_offset_delta
        last = (first + header.last_offset_delta) & SEQUENCE_MASK if first >= 0 else NO_SEQUENCE
        batches = entry.batches
        batches.append(CachedBatch(first, last, header.base_offset, last_offset, header[9]))
        if len(batches) > CACHED_BATCHES:
            del batches[0]
        entry.last_timestamp = header.max_timestamp
        if header.attributes & 0x10 and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = header.base_offset
            self.ongoing[header.base_offset] = producer_id

    def note_write(self, producer_id: int, appended_ms: int) -> None:
        """The batch that `apply` has just taken in was stored at that date, or UNKNOWN_MS, whatever
        its timestamps say."""
        self.producers[producer_id].written_ms = appended_ms

    def _apply_marker(
        self, entry: ProducerEntry, header: BatchHeader, buf: Buffer, position: int
    ) -> None:
        marker = decode_marker(buf, position)
        if marker is None:
            return
        entry.enter_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        if entry.batches:
            # A snapshot has one timestamp for the producer and its last batch; the state must not
            # depend on whether it went through one.
            entry.batches[-1] = entry.batches[-1]._replace(timestamp=header.max_timestamp)
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        if first_offset < 0:
            return
        self.ongoing.pop(first_offset, None)
        if not marker.is_commit:
            stable = min(self.ongoing) if self.ongoing else header.base_offset + 1
            self.aborted.append(
                AbortedTransaction(entry.producer_id, first_offset, header.base_offset, stable)
            )
        insort(self.undecided, (first_offset, header.base_offset))

    def snapshot(self) -> bytes:
        """Kafka's snapshot format, with a row for each cached batch (see producer_snapshot.py)."""
        rows: list[SnapshotRow] = []
        for producer_id in sorted(self.producers):
            rows += self.producers[producer_id].snapshot_rows()
        return encode_producer_snapshot(rows)

    def freeze(self) -> FrozenProducers:
        """See Fold.freeze."""
        return FrozenProducers(self.producers.freeze())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        """See Fold.restore."""
        self.producers.clear()
        self.ongoing.clear()
        self.undecided.clear()
        self.aborted.clear()
        left = iter(pieces)
        first = next(left, None)
        if first is None:
            return
        for row in read_producer_snapshot(chain([first], left)):
            entry = self.producers.get(row.producer_id)
            if entry is None:
                entry = self.producers[row.producer_id] = ProducerEntry(row.producer_id)
            entry.enter_epoch(row.producer_epoch)
            entry.coordinator_epoch = row.coordinator_epoch
            entry.last_timestamp = row.timestamp
            entry.transaction_first_offset = row.transaction_first_offset
            if row.last_offset >= 0:
                entry.batches.append(_batch_of(row))
        for entry in self.producers.values():
            if entry.transaction_first_offset >= 0:
                self.ongoing[entry.transaction_first_offset] = entry.producer_id

    # Visibility and housekeeping

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that read_committed must not pass; None when all is decided.

        Forgets the transactions whose marker lies below `high_watermark`."""
        if not self.ongoing and not self.undecided:
            return None
        if self.undecided:
            self.undecided = [pair for pair in self.undecided if pair[1] >= high_watermark]
        first = min(self.ongoing) if self.ongoing else None
        if self.undecided and (first is None or self.undecided[0][0] < first):
            first = self.undecided[0][0]
        return first

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions found since the last call."""
        found, self.aborted = self.aborted, []
        return found

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for `expiration_ms`; returns how many.

        By the date at which their batches were stored, and by their timestamps, which is all that
        is known of batches from before the process started. Of one whose batches have none nothing
        is known then, nor where nobody vouched for the date: it counts from when it is first looked
        at. A retry of a producer that was forgotten too soon would be stored a second time."""
        return sum(self.expire_in_slices(wall_ms, expiration_ms))

    def expire_in_slices(self, wall_ms: int, expiration_ms: int) -> Iterator[int]:
        """As `expire`, EXPIRED_SLICE_ENTRIES at a time, whatever is appended in between."""
        left = list(self.producers)
        while left:
            expired_count = 0
            for producer_id in left[-EXPIRED_SLICE_ENTRIES:]:
                entry = self.producers.get(producer_id)
                if entry is None or entry.transaction_first_offset >= 0:
                    continue
                newest_ms = max(entry.last_timestamp, entry.written_ms)
                if newest_ms < 0 or entry.written_ms == UNKNOWN_MS:
                    entry.written_ms = wall_ms
                elif wall_ms - newest_ms >= expiration_ms:
                    del self.producers[producer_id]
                    expired_count += 1
            del left[-EXPIRED_SLICE_ENTRIES:]
            yield expired_count


class FrozenProducers:
    """The producers as they were; a FrozenFold."""

    __slots__ = ("_view",)

    def __init__(self, view: FrozenView[int, ProducerEntry]) -> None:
        self._view = view

    def write(self, file: SnapshotFile) -> None:
        slices: list[list[tuple[int, ProducerEntry]]] = []
        rows_count = 0
        entries = self._view.items()
        while piece := list(islice(entries, SORTED_SLICE_ENTRIES)):
            piece.sort(key=itemgetter(0))
            rows_count += sum(len(entry.batches) or 1 for _, entry in piece)
            slices.append(piece)
        write_producer_snapshot(file, rows_count, _pieces(slices))

    def last_offsets(self) -> frozenset[int]:
        """Of each producer's last batch."""
        return frozenset(entry.last_offset for _, entry in self._view.items() if entry.batches)

    def close(self) -> None:
        self._view.close()


def _pieces(slices: list[list[tuple[int, ProducerEntry]]]) -> Iterator[list[SnapshotRow]]:
    rows: list[SnapshotRow] = []
    for _, entry in merge(*slices, key=itemgetter(0)):
        rows += entry.snapshot_rows()
        if len(rows) >= ROWS_PER_WRITE:
            yield rows
            rows = []
    yield rows


class PendingSequence(NamedTuple):
    """(epoch, last sequence) of a producer, counting batches not yet written."""

    epoch: int
    last_sequence: int


def _batch_of(row: SnapshotRow) -> CachedBatch:
    first = row.last_sequence
    if first >= 0:
        first = (row.last_sequence - row.offset_delta) & SEQUENCE_MASK
    return CachedBatch(
        first,
        row.last_sequence,
        row.last_offset - row.offset_delta,
        row.last_offset,
        row.timestamp,
    )
