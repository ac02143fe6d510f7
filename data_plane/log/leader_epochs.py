"""Leader epochs of a log: where each one's first batch stands (KIP-101, KIP-279).

A fold over `partition_leader_epoch` of the batches, kept as a sorted list. Of what the log has
deleted it remembers the last epoch. On disk Kafka's text file, written before a recovery point
passes what is new in it: a version line, a count line, then "epoch start_offset" lines.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
VERSION = 0


class EpochEntry(NamedTuple):
    """`epoch` begins at `start_offset`."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Epochs strictly increase, start offsets do not decrease."""

    __slots__ = ("entries", "latest_epoch")

    def __init__(self) -> None:
        self.entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH

    def replace(self, entries: list[EpochEntry]) -> None:
        """Have these instead."""
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that a batch of `epoch` stands at `start_offset`; no news is fine."""
        if epoch < 0 or epoch <= self.latest_epoch:
            return
        self.entries.append(EpochEntry(epoch, start_offset))
        self.latest_epoch = epoch

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch at `offset`, -1 when unknown."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[index].epoch if index >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch ≤ `epoch`; (-1, -1) when none can be told.

        The requested epoch with the next one's start when it is older than all known ones.
        """
        if epoch < 0 or not self.entries or epoch > self.entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.entries[-1].epoch:
            return epoch, log_end_offset
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self.entries[index].start_offset
        return (self.entries[index - 1].epoch if index else epoch), end_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or above `end_offset`."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) != len(self.entries):
            self.replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Let the log begin at `start_offset`: older epochs go than that of the record before it.

        That one stays, and where it began. Another log that ends at `start_offset` may have parted
        from this one below it, and Kafka, which lets the oldest epoch begin at the log start, takes
        it for the same."""
        last_deleted = start_offset - 1
        index = bisect_right(self.entries, last_deleted, key=lambda entry: entry.start_offset) - 1
        if index > 0:
            self.replace(self.entries[index:])

    def encode(self) -> bytes:
        lines = [f"{entry.epoch} {entry.start_offset}\n" for entry in self.entries]
        return f"{VERSION}\n{len(lines)}\n{''.join(lines)}".encode("ascii")

    def restore(self, data: bytes) -> None:
        """Read a file; ValueError when it is not whole."""
        lines = data.decode("ascii", "replace").splitlines()
        if len(lines) < 2 or lines[0] != str(VERSION) or int(lines[1]) != len(lines) - 2:
            raise ValueError("not a whole leader epoch checkpoint")
        entries = []
        for line in lines[2:]:
            epoch, start_offset = line.split(" ")
            entries.append(EpochEntry(int(epoch), int(start_offset)))
        self.replace(entries)
