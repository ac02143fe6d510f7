"""The fold port: what is derived from a partition's log, batch by batch, and from nothing else.

A log calls `apply` once for each stored batch in offset order: on append after the write has
succeeded, and on replay after a restart. At a segment boundary it stores `snapshot()` next to the
segment; after a restart or a truncation it calls `restore` with the newest snapshot at or below
the wanted offset and applies the batches from there, so that always

    fold(truncate(log, o)) == fold(log[:o])

Invariants
- A fold depends on log bytes only: no clock, no configuration that may differ between replicas.
- `snapshot` is deterministic: equal states give equal bytes.
- `apply` never raises for what a batch says; the append checked it before. Should it raise all the
  same, the append is taken back.

Users: producer state (producer_state.py); tags, delays and retries plug in from their features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from data_plane.log.file_system import Buffer
from data_plane.wire.records import BatchHeader


class Fold(Protocol):
    """State over the batches of one log."""

    @property
    def extension(self) -> str:
        """The suffix of its snapshot files, with the dot; one fold of a log each."""

    def apply(self, header: BatchHeader, buf: Buffer, position: int) -> None:
        """Take in the batch at `buf[position]`; `header` is its header."""

    def snapshot(self) -> bytes:
        """The whole state; never b""."""

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot's; b"" stands for the one before the first
        batch. Raises ValueError for bytes that are not a whole snapshot."""


FoldFactory = Callable[[], Fold]
