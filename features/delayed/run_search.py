"""Looking things up in a run without reading all of it: by halves, chunk by chunk.

    entry  ─► the chunk that has it, log2(chunks) of them are read ─► its place in the chunk

Packed entries sort as the pairs do, since their numbers are unsigned and big-endian: so packed ones
are compared, and only those that are asked for are unpacked.

Deliberately absent: which run has what (pending_set.py, names.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from data_plane.log.file_system import Buffer, File, FileSystem
from features.delayed.runs import ENTRY, Entry, FileRun, Run, read_chunk
from features.run_files import CHUNK_ENTRIES

# Of a run, in memory: 8 KiB each.
CHUNKS_KEPT: Final = 32


class RunSearch:
    """Of one run; in a worker thread, to be closed. All of it raises OSError, also for what is
    damaged."""

    def __init__(self, fs: FileSystem, folder: str, run: Run) -> None:
        self._run = run
        self._file: File | None = None
        if isinstance(run, FileRun):
            self._file = fs.open(f"{folder}/{run.name}", write=False)
        self._chunks: OrderedDict[int, bytes] = OrderedDict()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def place_of(self, entry: Entry, from_place: int = 0) -> int:
        """How many entries are before `entry`, as bisect_left says it; at least `from_place`."""
        wanted = ENTRY.pack(*entry)
        low, high = from_place // CHUNK_ENTRIES, -(-self._run.size // CHUNK_ENTRIES)
        while low < high:
            middle = (low + high) // 2
            if self._chunk(middle)[-ENTRY.size :] < wanted:
                low = middle + 1
            else:
                high = middle
        if low * CHUNK_ENTRIES >= self._run.size:
            return self._run.size
        chunk = self._chunk(low)
        first, end = 0, len(chunk) // ENTRY.size
        while first < end:
            middle = (first + end) // 2
            if chunk[middle * ENTRY.size : (middle + 1) * ENTRY.size] < wanted:
                first = middle + 1
            else:
                end = middle
        return low * CHUNK_ENTRIES + first

    def entries(self, start: int) -> Iterator[Entry]:
        """Those from the `start`-th on."""
        for number in range(start // CHUNK_ENTRIES, -(-self._run.size // CHUNK_ENTRIES)):
            skipped = max(0, start - number * CHUNK_ENTRIES) * ENTRY.size
            found: Iterable[Entry] = ENTRY.iter_unpack(self._chunk(number)[skipped:])
            yield from found

    def count_of(self, entry: Entry, start: int) -> int:
        """How often it stands there, from the `start`-th on."""
        count = 0
        for found in self.entries(max(start, self.place_of(entry))):
            if found != entry:
                break
            count += 1
        return count

    def counts_of(self, entries: Sequence[Entry], start: int) -> Iterator[tuple[Entry, int]]:
        """How often each stands there, from the `start`-th on, of those that do. They ascend, so
        that those near each other are found in one chunk."""
        number, first, chunk = -1, 0, list[Entry]()
        for entry in entries:
            if not chunk or chunk[-1] < entry:
                place = self.place_of(entry, first)
                if place == self._run.size:
                    return
                number = place // CHUNK_ENTRIES
                first = number * CHUNK_ENTRIES
                chunk = list(ENTRY.iter_unpack(self._chunk(number)))
            low, high = bisect_left(chunk, entry), bisect_right(chunk, entry)
            if high == len(chunk):
                # It may go on in the next one.
                count = self.count_of(entry, start)
            else:
                count = max(0, first + high - max(start, first + low))
            if count:
                yield entry, count

    def _chunk(self, number: int) -> bytes:
        found = self._chunks.get(number)
        if found is None:
            found = bytes(self._read(number * CHUNK_ENTRIES))
            if len(self._chunks) >= CHUNKS_KEPT:
                self._chunks.popitem(last=False)
            self._chunks[number] = found
        else:
            self._chunks.move_to_end(number)
        return found

    def _read(self, first: int) -> Buffer:
        run = self._run
        if isinstance(run, FileRun):
            assert self._file is not None
            return read_chunk(self._file, run, first)
        return run.data[first * ENTRY.size : (first + CHUNK_ENTRIES) * ENTRY.size]
