"""What a Produce request's batches must be, beyond what the log looks at: one for a partition,
sound, no larger than allowed, every record as it must be.

The same checks run on the loop, for what is small, or in a worker thread (request_work.py). What is
compressed may unpack to thousands of times its size, and nobody knows before it is unpacked; so the
loop begins, into memory of a fixed size, and leaves to a thread what does not fit it. Plain records
cost little, but a request has room for many of them.

Invariants
- A thread's part touches the request's own bytes and this object, which the loop does not use
  meanwhile.
- What the loop looks at for one request is at most HERE_BYTES_MAX of batches as they came, and what
  it unpacks at most HERE_UNPACKED_BYTES_MAX (`LoopBounds`), to which a batch that does not fit adds
  once.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

from data_plane.broker.produce.duplicates import DuplicateLook
from data_plane.broker.produce.takers import Taking
from data_plane.log import validation
from data_plane.log.config import COMPRESSION_PRODUCER, LOG_APPEND_TIME, LogConfig
from data_plane.log.errors import AppendError
from data_plane.log.record_rules import HidingTerms, RecordRules
from data_plane.wire.compression import DECOMPRESSED_BYTES_MAX, TooLarge, Unpacker, UnpackerPool
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel import check_batches, too_many_parts, walk_records
from data_plane.wire.kernel_types import (
    CODEC_MASK,
    CONTROL_FLAG,
    MAX_TIMESTAMP_POSITION,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from data_plane.wire.records import read_batch_header, set_max_timestamp

# To name the records at fault their batch is unpacked once more, and each looked at in Python.
RECORDS_OUTLINED_MAX = 1_000
# Records and headers of a batch. A consumer, and now and then the broker, has to make objects of
# all of them, and a compressed megabyte has room for 18 million.
BATCH_PARTS_MAX = 1_000_000
# What all batches of a request together may unpack to: this, and so many times its size.
UNPACKED_BYTES_MAX = 256 << 20
UNPACKED_RATIO_MAX = 32
# Of zstd; the other codecs end far below.
CODEC_RATIO_MAX = 33_000
# On the loop.
HERE_BYTES_MAX = 4 << 20
HERE_UNPACKED_BYTES_MAX = 1 << 20
# What is compressed anew there; levels differ by a factor of a hundred in what they cost.
HERE_RECOMPRESSED_BYTES_MAX = 4 << 10
# Unpacked, of a request's batches for topics whose features have rules for records: those look at
# headers in Python.
HERE_RULED_BYTES_MAX = 64 << 10

CONTROL_RECORDS_REFUSED = "Clients are not allowed to write control records"
TRANSACTIONS_REFUSED = "Transactional records need an open transaction; this broker serves none"
MIXED_REFUSED = (
    "In a topic with dedup.window.ms, commands come in batches without messages that have a tw-id"
)

SPECIAL_BATCH_BITS = TRANSACTIONAL_FLAG | CONTROL_FLAG

_INT64 = struct.Struct(">q")

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview


class Refusal(NamedTuple):
    """Why a partition's records are not stored, in the words of its answer."""

    error_code: ErrorCode
    message: str
    named: Sequence[tuple[int, str]] = ()
    tells_log_start: bool = False


class Checked(NamedTuple):
    """What a thread has found fit to be appended."""

    buf: WritableBuffer
    start: int
    end: int
    batches: list[BatchHeader]
    # The configuration for which they were prepared.
    prepared_for: LogConfig | None
    # Whether it has commands, which are to be judged first (judging.py).
    has_commands: bool = False
    # What was found of duplicates, where the topic looks for them.
    duplicates: DuplicateLook | None = None


class Nothing(enum.Enum):
    """What a thread has found that was to look at no batch."""

    PAUSED = "the others had their turn"
    ABANDONED = "nobody waits for this any more"


class ProduceChecks:
    """Those of one request."""

    __slots__ = (
        "_here_bytes_left",
        "_here_ruled_left",
        "_here_unpacked_left",
        "_outlined_max",
        "_unpacked_left",
    )

    def __init__(
        self,
        request_bytes: int,
        tells_records: bool,
        here_unpacked_bytes_max: int = HERE_UNPACKED_BYTES_MAX,
    ) -> None:
        self._unpacked_left = UNPACKED_BYTES_MAX + UNPACKED_RATIO_MAX * request_bytes
        self._outlined_max = RECORDS_OUTLINED_MAX if tells_records else 0
        self._here_bytes_left = HERE_BYTES_MAX
        self._here_ruled_left = HERE_RULED_BYTES_MAX
        self._here_unpacked_left = here_unpacked_bytes_max

    def check_here(
        self,
        buf: WritableBuffer,
        start: int,
        end: int,
        config: LogConfig,
        unpacker: Unpacker,
        zstd_allowed: bool,
    ) -> list[BatchHeader] | None:
        """On the loop: None when a thread must do it. Special batches (`is_special`) are not looked
        into. Raises InvalidRecords and AppendError."""
        size = end - start
        if size > self._here_bytes_left:
            return None
        self._here_bytes_left -= size
        # `_batches_of`, written out: this is called for every small batch.
        batches = check_batches(
            buf,
            start,
            end,
            batch_bytes_max=config.max_message_bytes,
            zstd_allowed=zstd_allowed,
            walk=True,
            parts_max=BATCH_PARTS_MAX,
        )
        batch = batches[0]
        attributes = batch.attributes
        if attributes & SPECIAL_BATCH_BITS:
            return batches
        if config.compression_type != COMPRESSION_PRODUCER and (
            size > HERE_RECOMPRESSED_BYTES_MAX or attributes & CODEC_MASK
        ):
            return None
        records: Buffer | None = None
        if attributes & CODEC_MASK:
            records = self._unpacked_here(buf, batch, unpacker)
            if records is None:
                return None
            batches = [_walked(records, batch)]
        if config.record_rules is not None:
            self._here_ruled_left -= _unpacked_bytes(records, batch)
            if self._here_ruled_left < 0:
                return None
            rules = config.record_rules
            if _check_rules(rules, buf, records, batch):
                return None
            if rules.dedup_window_ms and rules.has_ids(
                *_place_of(buf, records, batch), batch.record_count
            ):
                return None
        if batches[0].max_timestamp != _INT64.unpack_from(buf, start + MAX_TIMESTAMP_POSITION)[0]:
            return _with_max_timestamp(buf, start, batches)
        return batches

    def _unpacked_here(
        self, buf: WritableBuffer, batch: BatchHeader, unpacker: Unpacker
    ) -> Buffer | None:
        if self._here_unpacked_left <= 0:
            return None
        self._check_parts(batch)
        size_max = min(self._here_unpacked_left, self._unpacked_left)
        with memoryview(buf) as view:
            packed = view[batch.records_position : batch.end_position]
            try:
                records = unpacker.unpack_small(batch.compression, packed, size_max)
            except InvalidRecords:
                self._here_unpacked_left -= self._charge(len(packed), size_max)
                raise
        if records is None:
            # Nothing further is begun in vain.
            self._here_unpacked_left = 0
            return None
        self._here_unpacked_left -= len(records)
        self._unpacked_left -= len(records)
        return records

    def check_in_thread(
        self,
        buf: WritableBuffer,
        start: int,
        end: int,
        config: LogConfig,
        unpackers: UnpackerPool,
        *,
        zstd_allowed: bool,
        wall_ms: int,
        terms: HidingTerms,
        name: str,
        duplicates: DuplicateLook | None = None,
    ) -> Checked | Refusal:
        """All that is proportional to the records, what the log of partition `name` would do for
        `config` included. `wall_ms` is the date, which timestamps are held against. Batches with
        records that are to be hidden become others, by `terms`, and so do those with duplicates."""
        unpacker = unpackers.take()
        try:
            batches = _batches_of(buf, start, end, config, zstd_allowed=zstd_allowed)
            batch = batches[0]
            if batch.attributes & SPECIAL_BATCH_BITS:
                return Checked(buf, start, end, batches, None)
            records: Buffer | None = None
            if batch.attributes & CODEC_MASK:
                records = self._unpacked(buf, batch, unpacker)
                batches = [_walked(records, batch)]
            rules, count = config.record_rules, batch.record_count
            if rules is not None and _check_rules(rules, buf, records, batch):
                place = _place_of(buf, records, batch)
                has_commands = bool(rules.commands_in(*place, count))
                if has_commands and duplicates is not None and rules.has_ids(*place, count):
                    raise AppendError(ErrorCode.INVALID_RECORD, MIXED_REFUSED)
                buf, batches = _hidden(rules, buf, records, batches[0], terms)
                start, end = 0, len(buf)
                if has_commands:
                    return Checked(buf, start, end, batches, None, has_commands=True)
            records = None
            unpacker.forget()
            batches = _with_max_timestamp(buf, start, batches)
            checked = _ready(buf, start, end, batches, config, wall_ms, name)
            return checked if duplicates is None else without_duplicates(checked, duplicates)
        except (AppendError, InvalidRecords) as error:
            return self.refusal(error)
        finally:
            unpackers.give_back(unpacker)

    def judge_in_thread(self, checked: Checked, duplicates: DuplicateLook) -> Checked | Refusal:
        """Look once more for duplicates in what was found fit."""
        try:
            return without_duplicates(checked, duplicates)
        except (AppendError, InvalidRecords) as error:
            return self.refusal(error)

    def take_in_thread(
        self,
        buf: WritableBuffer,
        start: int,
        end: int,
        config: LogConfig,
        unpackers: UnpackerPool,
        *,
        zstd_allowed: bool,
        taking: Taking,
    ) -> Checked | Refusal:
        """What is to be stored in the place of a batch, by its taker (takers.py); an empty buffer
        without batches where nothing is."""
        unpacker = unpackers.take()
        try:
            (batch,) = check_batches(
                buf, start, end, zstd_allowed=zstd_allowed, walk=True, parts_max=BATCH_PARTS_MAX
            )
            records: Buffer | None = None
            if batch.attributes & CODEC_MASK:
                records = self._unpacked(buf, batch, unpacker)
                batch = _walked(records, batch)
            stored = taking.batch_to_store(batch, *_place_of(buf, records, batch))
            batches = [read_batch_header(stored, 0)] if stored else []
            return Checked(stored, 0, len(stored), batches, config)
        except (AppendError, InvalidRecords) as error:
            return self.refusal(error)
        finally:
            unpacker.forget()
            unpackers.give_back(unpacker)

    def refusal(self, error: AppendError | InvalidRecords, *, is_small: bool = True) -> Refusal:
        """What the answer says about `error`; records are named while there are not too many, and
        of small batches only where this runs on the loop."""
        if isinstance(error, AppendError):
            named: Sequence[tuple[int, str]] = ()
            if error.record_count <= self._outlined_max and is_small:
                self._outlined_max -= error.record_count
                named = error.name_records()
            return Refusal(error.error_code, error.message, named, tells_log_start=True)
        code = error.error_code
        if code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            # What Kafka answers in Produce; elsewhere old formats have the other code.
            code = ErrorCode.INVALID_RECORD
        return Refusal(code, str(error))

    def _unpacked(self, buf: WritableBuffer, batch: BatchHeader, unpacker: Unpacker) -> Buffer:
        self._check_parts(batch)
        size_max = min(self._unpacked_left, DECOMPRESSED_BYTES_MAX)
        with memoryview(buf) as view, view[batch.records_position : batch.end_position] as packed:
            try:
                records = unpacker.unpack(batch.compression, packed, size_max)
            except InvalidRecords:
                self._charge(len(packed), size_max)
                raise
        self._unpacked_left -= len(records)
        return records

    def _charge(self, packed_bytes: int, size_max: int) -> int:
        """What a batch counts for that was broken somewhere. How far it got nobody knows; no codec
        gets further than this."""
        charged_bytes = max(0, min(size_max, packed_bytes * CODEC_RATIO_MAX))
        self._unpacked_left -= charged_bytes
        return charged_bytes

    def _check_parts(self, batch: BatchHeader) -> None:
        """Before anything is unpacked."""
        if batch.record_count > BATCH_PARTS_MAX:
            raise too_many_parts(BATCH_PARTS_MAX)
        if self._unpacked_left <= 0:
            raise TooLarge(
                ErrorCode.MESSAGE_TOO_LARGE,
                "the batches before it in the request unpack to all that a request may",
            )


def ready_to_append(buf: bytearray, config: LogConfig, wall_ms: int, name: str) -> Checked:
    """A batch that a feature has made of a client's, held against the date, and as the log of
    partition `name` would make it for `config`. In a worker thread; raises AppendError,
    InvalidRecords."""
    return _ready(buf, 0, len(buf), [read_batch_header(buf, 0)], config, wall_ms, name)


def _ready(
    buf: WritableBuffer,
    start: int,
    end: int,
    batches: list[BatchHeader],
    config: LogConfig,
    wall_ms: int,
    name: str,
) -> Checked:
    timestamp_max = wall_ms + config.message_timestamp_after_max_ms
    stamps = config.message_timestamp_type == LOG_APPEND_TIME
    if not stamps and batches[0].max_timestamp > timestamp_max:
        raise validation.timestamp_error(buf, batches[0], wall_ms, config)
    if validation.needs_preparation(config):
        original = buf
        buf, batches = validation.prepare(buf, batches, config, wall_ms, name)
        if buf is not original:
            start, end = 0, len(buf)
    return Checked(buf, start, end, batches, config)


def without_duplicates(checked: Checked, duplicates: DuplicateLook) -> Checked:
    """What is to be stored of it. Raises AppendError, InvalidRecords."""
    buf, stored = duplicates.judge(checked.buf, checked.batches[0])
    start, end = stored.position, stored.end_position
    return Checked(buf, start, end, [stored], checked.prepared_for, duplicates=duplicates)


def _batches_of(
    buf: WritableBuffer, start: int, end: int, config: LogConfig, *, zstd_allowed: bool
) -> list[BatchHeader]:
    """The one batch of a partition, and its records if they are plain, as they must be; raises
    InvalidRecords."""
    return check_batches(
        buf,
        start,
        end,
        batch_bytes_max=config.max_message_bytes,
        zstd_allowed=zstd_allowed,
        walk=True,
        parts_max=BATCH_PARTS_MAX,
    )


def _unpacked_bytes(records: Buffer | None, batch: BatchHeader) -> int:
    return batch.end_position - batch.records_position if records is None else len(records)


def _place_of(
    buf: WritableBuffer, records: Buffer | None, batch: BatchHeader
) -> tuple[Buffer, int, int]:
    """Where the plain records are; `records` are the unpacked ones of a compressed batch."""
    if records is None:
        return buf, batch.records_position, batch.end_position
    return records, 0, len(records)


def _check_rules(
    rules: RecordRules, buf: WritableBuffer, records: Buffer | None, batch: BatchHeader
) -> bool:
    """Whether some of the records are to be hidden. Raises AppendError."""
    place = _place_of(buf, records, batch)
    problems = rules.problems(*place, batch.record_count)
    if problems:
        index, problem = problems[0]
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"record {index}: {problem}",
            len(problems),
            lambda: problems[:RECORDS_OUTLINED_MAX],
        )
    return rules.hides(*place, batch.record_count)


def _hidden(
    rules: RecordRules,
    buf: WritableBuffer,
    records: Buffer | None,
    batch: BatchHeader,
    terms: HidingTerms,
) -> tuple[bytearray, list[BatchHeader]]:
    """The batch that is stored, and its header. Raises AppendError."""
    if terms.refusal:
        raise AppendError(ErrorCode.INVALID_RECORD, terms.refusal)
    stored = rules.hidden_form(batch, *_place_of(buf, records, batch), terms)
    return stored, [read_batch_header(stored, 0)]


def _walked(records: Buffer, batch: BatchHeader) -> BatchHeader:
    """The header with the highest timestamp of its unpacked records, which are as they must be when
    this returns; raises InvalidRecords."""
    summary = walk_records(
        records,
        0,
        len(records),
        batch.record_count,
        batch.base_timestamp,
        parts_max=BATCH_PARTS_MAX,
    )
    return batch._replace(max_timestamp=summary.max_timestamp)


def _with_max_timestamp(
    buf: WritableBuffer, start: int, batches: list[BatchHeader]
) -> list[BatchHeader]:
    """Put the header's highest timestamp right where it is not that of the records."""
    max_timestamp = batches[0].max_timestamp
    if max_timestamp == _INT64.unpack_from(buf, start + MAX_TIMESTAMP_POSITION)[0]:
        return batches
    set_max_timestamp(buf, start, max_timestamp)
    return [read_batch_header(buf, start)]
