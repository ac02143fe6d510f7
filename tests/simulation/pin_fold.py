"""A fold that holds on to records, as a feature with something to do later would.

Each record has a key: its own, or a class of its producer's numbers. Where the newest record of a
key has a number of the right kind, it is pinned: retention leaves its segment, until the next one
of that key comes or somebody orders it to be deleted.

    p1/8 pinned   p1/9 …   p1/16 of the same class as 8, and not of the kind: it is free

Without a key every so many-th number is pinned besides, in one of a few slots of its producer,
until the next one of that slot comes: for long, or for ever where its producer writes elsewhere.

The newest record of a key is what compaction leaves, so the pins of a compacted log, too, are those
that a replay of what it holds now gives, and it need not be told of them. audit.py compares them,
retention.py knows what they hold, held.py that nobody who may lead lacks one.
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FrozenBytes, StoredBatch

# What is due was due long ago.
DUE_MS = 1
HEAD = b"pins"
# Of a producer's numbers.
CLASSES = 4
# Of the numbers of a class every so many-th is pinned.
PINNED_EVERY = 2
# Of all numbers of a producer, for long, and so many at a time.
FAR_EVERY = 16
FAR_SLOTS = 4


def numbered(value: bytes | None) -> tuple[bytes, int]:
    """Producer and number of a record; -1 where it has none."""
    parts = (value or b"").split(b"/", 2)
    number = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else -1
    return parts[0], number


def is_pinned(number: int) -> bool:
    """Whether it is of the kind that is pinned; any other one frees its key."""
    return number >= 0 and number // CLASSES % PINNED_EVERY == 0


class Pins:
    """Key → the offset of its newest record, if that is pinned."""

    def __init__(self) -> None:
        self.offsets: dict[bytes, int] = {}

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        producer, number = numbered(value)
        if key is None:
            if number >= 0 and number % FAR_EVERY == 0:
                slot = number // FAR_EVERY % FAR_SLOTS
                self.offsets[b"%s/far/%d" % (producer, slot)] = offset
            key = b"%s/%d" % (producer, number % CLASSES)
        if is_pinned(number):
            self.offsets[key] = offset
        else:
            self.offsets.pop(key, None)

    def since(self, start_offset: int) -> dict[bytes, int]:
        """Those that the log may still have."""
        return {key: offset for key, offset in self.offsets.items() if offset >= start_offset}


class HeldPins:
    """A RecordHold: the offsets that are pinned."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets = frozenset(offsets)

    def holds(self, offset: int) -> bool:
        return offset in self._offsets

    needs = holds

    def close(self) -> None:
        self._offsets = frozenset()


class PinFold(Pins):
    """See the module."""

    extension = ".pins"

    def __init__(self, context: FoldContext) -> None:
        super().__init__()
        self.context = context

    def needed_from(self, start_offset: int) -> int | None:
        return min(self.since(start_offset).values(), default=None)

    def held_from(self, start_offset: int) -> int | None:
        return None if self.context.config.compact else self.needed_from(start_offset)

    def facts_in(self, batch: StoredBatch) -> bytes:
        """Those that free their keys. One that is pinned in the place of another one is held
        itself, or freed later."""
        values = [None if one.value is None else bytes(one.value) for one in batch.records]
        return bytes(not is_pinned(numbered(value)[1]) for value in values)

    def freeze_held(self) -> HeldPins:
        return HeldPins(self.offsets.values())

    @property
    def due_ms(self) -> int | None:
        """Some day: whoever is pinned waits for something."""
        return DUE_MS if self.offsets else None

    def __len__(self) -> int:
        return len(self.offsets)

    def apply(self, batch: StoredBatch) -> None:
        if not batch.header.is_control:
            for record in batch.records:
                key, value = record.key, record.value
                self.add(
                    record.offset,
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                )

    def snapshot(self) -> bytes:
        pins = (b"%s %d" % (key.hex().encode(), self.offsets[key]) for key in sorted(self.offsets))
        return b"\n".join([HEAD, *pins])

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        data = b"".join(pieces)
        head, *lines = data.split(b"\n") if data else [HEAD]
        if head != HEAD:
            raise ValueError("no pins")
        pairs = [line.split(b" ") for line in lines]
        self.offsets = {bytes.fromhex(key.decode()): int(offset) for key, offset in pairs}
