"""The fold port: what is derived from a partition's log, batch by batch, and from nothing else.

A log calls `apply` once for each stored batch in offset order: on append after the write has
succeeded, and on replay after a restart. At a segment boundary it stores a snapshot next to the
segment: here and now or, of a large state, by a thread that writes what `freeze` holds. After a
restart or a truncation it calls `restore` with the newest snapshot at or below the wanted offset
and applies the batches from there, so that always

    fold(truncate(log, o)) == fold(log[:o])

Invariants
- A fold depends on log bytes only: no clock, no configuration that may differ between replicas.
- Snapshots are deterministic: equal states give equal bytes, written in either way.
- `freeze` takes no time that grows with the state: it is called between two appends.
- `apply` never raises for what a batch says; the append checked it before. Should it raise all the
  same, the append is taken back.

Users: producer state (producer_state.py); tags, delays and retries plug in from their features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from data_plane.log.file_system import Buffer, File
from data_plane.wire.records import BatchHeader


class FrozenFold(Protocol):
    """A fold's state as it was."""

    def write(self, file: File) -> None:
        """Write the snapshot into an empty file, piece by piece; in a worker thread."""

    def close(self) -> None:
        """Nobody needs it any more; on the loop. May be called twice."""


class FrozenBytes:
    """The FrozenFold of a state that is never large: its snapshot, made at once."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def write(self, file: File) -> None:
        file.write_at(0, self._data)

    def close(self) -> None:
        self._data = b""


class Fold(Protocol):
    """State over the batches of one log."""

    def __len__(self) -> int:
        """How many entries it has: what its snapshot takes to write."""

    @property
    def extension(self) -> str:
        """The suffix of its snapshot files, with the dot; one fold of a log each."""

    def apply(self, header: BatchHeader, buf: Buffer, position: int) -> None:
        """Take in the batch at `buf[position]`; `header` is its header."""

    def snapshot(self) -> bytes:
        """The whole state; never b""."""

    def freeze(self) -> FrozenFold:
        """The whole state as it is now, to be written while the fold goes on."""

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot's; b"" stands for the one before the first
        batch. Raises ValueError for bytes that are not a whole snapshot."""


FoldFactory = Callable[[], Fold]
