"""What of a batch is a duplicate, and what is stored of it.

A record is one whose id another record of the partition had less than the window ago, or an earlier
one of the same batch. It is taken out; the others keep their offsets and sequences:

    produced   a b c       b is known     stored   a - c     offsets 100, 102
    produced   a b c       all are known  stored   nothing; the answer is where they are
    the same, of an idempotent producer   stored   one hidden record with the sequences of three

A thread looks into what the fold knew when the batch came. On the loop, right before the append, it
is asked what has come since: an id that two connections send at once is one of the ordinary cases.

Invariants
- What is appended was held against all that is in the log before it.
- What a producer sends again is answered by its sequences as it was the first time: the log knows
  those before it would store anything.

Deliberately absent: what is forgotten, and when (forgetting.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from data_plane.broker.produce.duplicates import Original, WritableBuffer
from data_plane.broker.services import Services
from data_plane.cell.features import DEDUPLICATION, level_of
from data_plane.log.errors import AppendError, LogError
from data_plane.log.log import AppendResult, Log
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import HIDDEN_FLAG, IDS_FLAG, BatchHeader
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    filter_batch,
    read_batch_header,
    set_flags,
    unpacked_records,
)
from features.dedup.fold import MessageIds, fold_of
from features.dedup.ids import ids_in
from features.dedup.remembered_ids import GROUPS_MAX, IdView, Place, Places
from features.delayed.hidden import FILLER_HEADER

_NO_VIEW: Final = IdView({}, (), (), 0)

# How many duplicates were dropped.
Count = Callable[[int], None]


class Duplicates:
    """The DuplicateFinder of a broker."""

    def __init__(self, services: Services, upkeep: Callable[[Log, MessageIds], None]) -> None:
        """`upkeep` is told of folds that may want it."""
        self._services = services
        self._upkeep = upkeep
        self.dropped_count = 0

    def begin(self, partition: Partition, window_ms: int, now_ms: int) -> DuplicatesOfBatch:
        look = DuplicatesOfBatch(self, window_ms)
        self.prepare(look, partition, now_ms)
        return look

    def prepare(self, look: DuplicatesOfBatch, partition: Partition, now_ms: int) -> None:
        """Give it what is known now."""
        log = partition.log
        look.log, look.fold = log, None
        try:
            log.folds  # noqa: B018 -- loads them
        except LogError as error:
            look.refusal = AppendError(error.error_code, str(error))
            return
        fold = look.fold = fold_of(log)
        look.refusal = self._refusal(log, fold)
        if fold is not None:
            self._upkeep(log, fold)
            look.view = fold.ids.view()
        look.since_ms = self._services.wall_clock.wall_ms(now_ms) - look.window_ms + 1

    def _refusal(self, log: Log, fold: MessageIds | None) -> AppendError | None:
        """Why no ids can be taken now."""
        if level_of(self._services.image.features, DEDUPLICATION) < 1:
            return AppendError(
                ErrorCode.INVALID_RECORD,
                f"dedup.window.ms needs the feature {DEDUPLICATION} at level 1",
            )
        if log.config.compact:
            return AppendError(
                ErrorCode.INVALID_RECORD,
                "a compacted topic (cleanup.policy) has no window for message ids",
            )
        # Who tries again finds a broker that knows.
        if fold is None or log.wants_folds:
            return AppendError(
                ErrorCode.REQUEST_TIMED_OUT, "header tw-id: the ids of the log are being read"
            )
        if len(fold.ids.groups) >= GROUPS_MAX:
            return AppendError(
                ErrorCode.REQUEST_TIMED_OUT, "header tw-id: more ids come than can be stored"
            )
        return None


class DuplicatesOfBatch:
    """The DuplicateLook at one batch."""

    # What is known of the partition; filled in on the loop.
    log: Log
    fold: MessageIds | None = None
    view: IdView = _NO_VIEW
    since_ms = 0
    refusal: AppendError | None = None

    def __init__(self, finder: Duplicates, window_ms: int) -> None:
        self.window_ms = window_ms
        self._finder = finder
        # The batch as it came, once that is known.
        self._batch: tuple[WritableBuffer, BatchHeader] | None = None
        self._ids: list[tuple[int, bytes]] = []
        self._found: Places = {}
        self._dropped_count = 0
        self._is_overtaken = False
        self.stores_nothing = False
        self.original: Original | None = None

    # In a thread

    def judge(self, buf: WritableBuffer, batch: BatchHeader) -> tuple[WritableBuffer, BatchHeader]:
        if self._batch is None:
            self._batch = buf, batch
        buf, batch = self._batch
        records = unpacked_records(buf, batch)
        self._ids = list(ids_in(*records, batch.record_count))
        self.stores_nothing, self.original, self._dropped_count = False, None, 0
        if not self._ids:
            return buf, batch
        if self.refusal is not None:
            raise self.refusal
        self._found = self._look_up()
        kept = self._kept(batch.record_count)
        self._dropped_count = kept.count(0)
        if not self._dropped_count:
            set_flags(buf, batch.position, IDS_FLAG)
            return buf, read_batch_header(buf, batch.position)
        if self._dropped_count < batch.record_count:
            part = filter_batch(buf, batch.position, kept, records=records)
            assert part is not None
            set_flags(part, 0, IDS_FLAG)
            return part, read_batch_header(part, 0)
        self.original = self._original()
        if batch.producer_id < 0:
            self.stores_nothing = True
            return buf, batch
        filler = _filler(batch)
        return filler, read_batch_header(filler, 0)

    def _look_up(self) -> Places:
        self._is_overtaken = False
        log, wanted = self.log, {message_id for _, message_id in self._ids}
        try:
            return self.view.find(log.log_directory.fs, log.folder, wanted, self.since_ms)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._is_replaced():
                # Upkeep has removed a run that the fold has no more, or of a log that was cut.
                self._is_overtaken = True
                return {}
            failure = log.log_directory.fail(error)
            raise AppendError(failure.error_code, str(failure)) from error

    def _is_replaced(self) -> bool:
        fold = fold_of(self.log)
        if self.log.is_closed or fold is None or fold is not self.fold:
            return True
        return fold.ids.runs is not self.view.runs

    def _kept(self, record_count: int) -> bytearray:
        """A byte for each record: 0 for duplicates."""
        kept, seen = bytearray(b"\1") * record_count, set(self._found)
        for index, message_id in self._ids:
            if message_id in seen:
                kept[index] = 0
            seen.add(message_id)
        return kept

    def _original(self) -> Original:
        places: list[Place] = [self._found[message_id] for _, message_id in self._ids]
        base_offset = places[0][0]
        is_run = all(offset == base_offset + number for number, (offset, _) in enumerate(places))
        return Original(
            base_offset if is_run else -1,
            max(offset for offset, _ in places),
            max(time_ms for _, time_ms in places),
        )

    # On the loop

    def judge_again(self, partition: Partition, now_ms: int) -> None:
        self._finder.prepare(self, partition, now_ms)

    def holds(self, partition: Partition) -> bool:
        if not self._ids:
            return True
        fold = fold_of(partition.log)
        if fold is None or fold is not self.fold or self._is_overtaken:
            return False
        ids, end_offset = fold.ids, self.view.end_offset
        if ids.end_offset <= end_offset:
            return True
        if not ids.is_in_memory(end_offset):
            return False
        for _, message_id in self._ids:
            place = ids.find_since(message_id, end_offset)
            if place is not None and place[1] >= self.since_ms and message_id not in self._found:
                return False
        return True

    def taken(self, result: AppendResult | None) -> None:
        if result is None or not result.duplicate:
            self._finder.dropped_count += self._dropped_count


def _filler(batch: BatchHeader) -> bytearray:
    """A hidden record with the sequences, and the offsets, of all of the batch."""
    record = NewRecord(
        batch.max_timestamp, None, None, ((FILLER_HEADER, None),), batch.last_offset_delta
    )
    return build_batch(
        [record],
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        attributes=HIDDEN_FLAG,
    )
