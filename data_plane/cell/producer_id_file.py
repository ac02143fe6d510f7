"""Producer ids that a broker had in reserve when it stopped, for its next life.

A member of a cell that begins without the metadata store has nobody to ask for a block of ids; new
producers would have to wait for the store. So what is left at a clean stop is kept on disk.

    producer-ids.json     CRC-32, space, JSON of the broker epoch and the ranges [first, end)

Invariants
- No id is given out twice: the file is durably gone before `take` returns what it held.
- It counts only for a life that follows the one that wrote it, which the broker epoch tells: a file
  of an older life, or one that came back from a backup, is dropped.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from data_plane.cell.files import CellSyncSite, FileSystem, write_file_atomically

PRODUCER_ID_FILE = "producer-ids.json"

# From the first id on, up to the end, which is not part of it.
Ranges = tuple[tuple[int, int], ...]


class ProducerIdFile:
    """The file in `directory`, which exists. Calls block; one at a time."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory

    @property
    def path(self) -> str:
        return f"{self._directory}/{PRODUCER_ID_FILE}"

    def write(self, ranges: Sequence[tuple[int, int]], broker_epoch: int) -> None:
        """Keep `ranges` for the life after the one of `broker_epoch`. Raises OSError."""
        body = json.dumps([broker_epoch, [list(one) for one in ranges]]).encode()
        write_file_atomically(
            self._fs,
            self._directory,
            PRODUCER_ID_FILE,
            b"%08x %s" % (zlib.crc32(body), body),
            data_site=CellSyncSite.PRODUCER_IDS,
            folder_site=CellSyncSite.PRODUCER_IDS_FOLDER,
        )

    def take(self, broker_epoch: int) -> Ranges:
        """What was kept in the life of `broker_epoch`, and is kept no longer. Raises OSError, and
        nothing may be used then."""
        try:
            data = self._fs.read_file(self.path)
        except FileNotFoundError:
            return ()
        self._fs.unlink(self.path)
        self._fs.sync_directory(self._directory, CellSyncSite.PRODUCER_IDS_TAKEN)
        return _decode(data, broker_epoch)


def _decode(data: bytes, broker_epoch: int) -> Ranges:
    body = data[9:]
    if data[:9] != b"%08x " % zlib.crc32(body):
        # Ids that nobody can read are ids that nobody uses.
        return ()
    epoch, ranges = json.loads(body)
    return tuple((first, end) for first, end in ranges) if epoch == broker_epoch else ()
