"""What other partitions' leaders have sent, as a fold of the log that it has arrived in: of each
partition the last position.

    dead letter   tw-dead: <subscription's id>/<partition>/<leader epoch>/<offset>, in a FACTS batch
    redriven      tw-dead: <topic's id>/<partition>/<leader epoch>/<operation's offset>/<offset>

The leader of a retry partition sends its dead records in the order of their offsets, each batch
when the one before it is safe here. So one that is not behind the last is new, and what was sent
twice is known by that alone. The leader epoch of the dead record comes first: after an election of
one that lacked some, offsets are given anew. The same holds for what an operation redrives, and of
the operations of a partition one comes after the other (features/redrive).

Invariants
- Of each retry partition the positions of what is stored grow.
- In a compacted topic dead letters stay as they are: nobody has asked for them to be superseded,
  and who reads the log anew has to know of the last one. What was redriven to it is a value.

Deliberately absent: sending (sender.py); forgetting partitions of topics that are no more, some
dozen bytes each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from data_plane.log.errors import AppendError
from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FrozenBytes, HoldsAll, RecordHold, StoredBatch
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import decode_records, scan_headers
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import BatchHeader, NewRecord, build_batch, unpacked_records
from features.delayed.fold import DEAD_HEADER, has_dead_letters
from features.retry_dlq.stored_form import FAILED_HEADER

_MAGIC: Final = b"TWARRIV1"
_VALUE: Final = re.compile(rb"([0-9a-f]{32}/[0-9]{1,10})((?:/[0-9]{1,19}){2,3})")
_NOTHING: Final = (-1,)


class Arrival(NamedTuple):
    """`origin`: the topic's id and its own partition; `position`: leader epoch, perhaps the offset
    of an operation, and the offset."""

    origin: bytes
    position: tuple[int, ...]


def encode_arrival(topic_id: bytes, partition: int, *position: int) -> bytes:
    """What `tw-dead` says."""
    return "/".join((topic_id.hex(), str(partition), *map(str, position))).encode()


def read_arrival(value: bytes | None) -> Arrival | None:
    match = None if value is None else _VALUE.fullmatch(value)
    if match is None:
        return None
    return Arrival(match[1], tuple(map(int, match[2][1:].split(b"/"))))


class Arrivals:
    """The fold of one log."""

    extension = ".arrived"
    batch_flags = FACTS_FLAG

    def __init__(self) -> None:
        self.last: dict[bytes, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.last)

    def apply(self, batch: StoredBatch) -> None:
        place = unpacked_records(batch.buf, batch.header)
        for _, key, value in scan_headers(*place, batch.header.record_count, DEAD_HEADER):
            if key != DEAD_HEADER:
                continue
            arrival = read_arrival(value)
            assert arrival is not None, "what the broker stores itself makes sense"
            self.last[arrival.origin] = arrival.position

    def needed_from(self, start_offset: int) -> int | None:
        return None

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        return has_dead_letters(batch)

    def values_in(self, batch: StoredBatch) -> bytes | bool:
        # What was redriven to another topic is a message like any other there.
        return not has_dead_letters(batch) or not _has_failed(batch)

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> RecordHold:
        return HoldsAll()

    def snapshot(self) -> bytes:
        lines = (
            b"/".join((origin, *(b"%d" % number for number in self.last[origin])))
            for origin in sorted(self.last)
        )
        return b"\n".join((_MAGIC, *lines, b"."))

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self.last = {}
        data = b"".join(pieces)
        if not data:
            return
        magic, *lines, end = data.split(b"\n")
        if magic != _MAGIC or end != b".":
            raise ValueError("the snapshot is torn, or of another version")
        for line in lines:
            arrival = read_arrival(line)
            if arrival is None:
                raise ValueError("the snapshot has a line that is none of its own")
            self.last[arrival.origin] = arrival.position


def _has_failed(batch: StoredBatch) -> bool:
    place = (*unpacked_records(batch.buf, batch.header), batch.header.record_count)
    return any(key == FAILED_HEADER for _, key, _ in scan_headers(*place, FAILED_HEADER))


def make_arrivals(context: FoldContext) -> Arrivals | None:
    """For subscriptions, and for all topics that may be one's for dead letters: those that read
    headers."""
    return None if context.config.record_rules is None else Arrivals()


class TakenDeadLetters:
    """The Taking of a batch that another partition's leader sends: what has arrived before is left
    out."""

    doubts: Sequence[Partition] = ()

    def __init__(self, last: dict[bytes, tuple[int, ...]]) -> None:
        self._last = dict(last)

    def batch_to_store(self, header: BatchHeader, buf: Buffer, start: int, end: int) -> bytearray:
        """See Taking."""
        kept: list[NewRecord] = []
        for record in decode_records(
            buf, start, end, header.record_count, header.base_offset, header.base_timestamp
        ):
            arrival = read_arrival(dict(record.headers).get(DEAD_HEADER))
            if arrival is None:
                raise AppendError(ErrorCode.INVALID_RECORD, "other brokers send dead letters only")
            if arrival.position > self._last.get(arrival.origin, _NOTHING):
                self._last[arrival.origin] = arrival.position
                kept.append(NewRecord(record.timestamp, record.key, record.value, record.headers))
        if not kept:
            return bytearray()
        return build_batch(kept, compression=header.compression, attributes=FACTS_FLAG)

    def close(self) -> None:
        """See Taking."""
