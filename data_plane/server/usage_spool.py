"""Samples of use on this broker's disk: appended, read from a sequence, dropped when they are old.

    usage/00000000000000000001.use     samples 1 … 812
    usage/00000000000000000813.use     samples 813 …        a file is named by its first sample

    record = size u32 | crc32 u32 | zlib(JSON of the sample)

A sample is counted once: it is on disk, whole, before the next one begins where it ends. What was
not written when a process was killed is in none; the first sample after it says so.

Invariants
- Sequences have no holes, within a file and from one to the next, and grow over restarts.
- An append that failed leaves nothing: it is cut before the next one, and until it could be cut
  nothing is appended.
- What a torn end or damage has taken is not passed over in silence: who reads is told.

Threads: appends by one at a time; reads by any, beside them.

Bounds: FILE_BYTES_MAX for a file, which the last append passes; SPOOL_BYTES_MAX for all, the oldest
go first; KEPT_MS by a date that is vouched for.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from data_plane.cell.files import FileSystem

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
SPOOL_BYTES_MAX: Final = 512 * 1024 * 1024
KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
FOLDER: Final = "usage"

_SUFFIX = ".use"
_HEADER = struct.Struct(">II")

KILLED: Final = "killed"
DROPPED: Final = "dropped"


class UsageSyncSite(Enum):
    """The places that sync, each with what would be lost without it."""

    FOLDER = "the name of the folder of samples"
    APPEND = "a sample, before what it has counted is counted no more"
    FILE = "the name of a new file of samples"


class SpoolFileSystem(FileSystem, Protocol):
    """The part of the log room's port that is needed here."""

    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """Use behind this sample is in none."""

    reason: str
    incarnation: str
    sequence: int
    duration_ms: int


class TopicRow(NamedTuple):
    """As in the contract; the id in hex."""

    tenant: str
    topic: str
    topic_id: str
    bytes_in: int
    bytes_out: int
    records_in: int
    batches_in: int
    reads_out: int
    storage_bytes: int | None


class TenantRow(NamedTuple):
    """As in the contract."""

    tenant: str
    requests: int
    throttle_ms: int
    throttled_requests: int
    connections: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What was used in an interval."""

    incarnation: str
    sequence: int
    start_ms: int
    end_ms: int
    duration_ms: int
    topics: Sequence[TopicRow] = ()
    tenants: Sequence[TenantRow] = ()
    lost: Lost | None = None
    is_final: bool = False


@dataclass(slots=True)
class _FileOfSamples:
    path: str
    first_sequence: int
    size: int
    # Of the last sample in it.
    end_ms: int = 0


@dataclass(slots=True)
class _Found:
    """What a file has, up to where it is whole."""

    samples: list[Sample] = field(default_factory=list)
    size: int = 0


class UsageSpool:
    """See the module. Raises OSError when the folder cannot be had."""

    def __init__(
        self,
        fs: SpoolFileSystem,
        data_directory: str,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
    ) -> None:
        self._fs = fs
        self._folder = f"{data_directory}/{FOLDER}"
        self._file_bytes_max = file_bytes_max
        self._spool_bytes_max = spool_bytes_max
        if fs.make_directory(self._folder):
            fs.sync_directory(data_directory, UsageSyncSite.FOLDER)
        self._files = [
            _FileOfSamples(
                f"{self._folder}/{name}",
                int(name.removesuffix(_SUFFIX)),
                fs.size(f"{self._folder}/{name}"),
                fs.modified_ms(f"{self._folder}/{name}"),
            )
            for name in fs.list_directory(self._folder)
            if name.endswith(_SUFFIX)
        ]
        self._open_file: Any = None
        self._is_torn = False
        # The last sample that is whole.
        self.last: Sample | None = self._recover()

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self._files)

    @property
    def last_sequence(self) -> int:
        return 0 if self.last is None else self.last.sequence

    def append(self, samples: Sequence[Sample]) -> None:
        """Store samples that follow the last one, all or none. Raises OSError."""
        assert samples[0].sequence == self.last_sequence + 1
        data = b"".join(map(_encode, samples))
        one = self._file_to_append_to(samples[0].sequence)
        file = self._open_file
        if self._is_torn:
            file.truncate(one.size)
        self._is_torn = True
        file.write_at(one.size, data)
        self._fs.sync_data(file, UsageSyncSite.APPEND)
        self._is_torn = False
        one.size += len(data)
        one.end_ms = samples[-1].end_ms
        self.last = samples[-1]

    def drop_old(self, date_ms: int | None) -> int:
        """Drop whole files that are too old, by a date that is vouched for, or too many; returns
        how many. The last one stays. Raises OSError."""
        count = 0
        while len(self._files) > 1:
            oldest = self._files[0]
            is_old = date_ms is not None and oldest.end_ms < date_ms - KEPT_MS
            if not is_old and self.size_bytes <= self._spool_bytes_max:
                break
            self._fs.unlink(oldest.path)
            self._files = self._files[1:]
            count += 1
        return count

    def read(self, incarnation: str, sequence: int) -> Iterator[Sample]:
        """What follows this sample, as of now; from the oldest when it is not there, which the
        first sample then says. Raises OSError."""
        files, last_sequence = self._files, self.last_sequence
        is_known = sequence == 0 and not incarnation
        wanted = sequence
        if not is_known:
            there = self._sample_at(files, sequence)
            is_known = there is not None and there.incarnation == incarnation
            wanted = sequence if is_known else 0
        expected = wanted + 1
        for at, one in enumerate(files):
            next_one = files[at + 1] if at + 1 < len(files) else None
            if next_one is not None and next_one.first_sequence <= wanted:
                continue
            for sample in self._samples_of(one, wanted):
                if sample.sequence <= wanted or sample.sequence > last_sequence:
                    continue
                is_hole = not is_known or sample.sequence != expected
                if sample.lost is None and is_hole:
                    lost = Lost(DROPPED, incarnation, sequence, 0)
                    sample = replace(sample, lost=lost)
                is_known, expected = True, sample.sequence + 1
                incarnation, sequence = sample.incarnation, sample.sequence
                yield sample

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file.close()
            self._open_file = None

    def _file_to_append_to(self, sequence: int) -> _FileOfSamples:
        last = self._files[-1] if self._files else None
        if last is None or last.size >= self._file_bytes_max:
            self.close()
            path = f"{self._folder}/{sequence:020d}{_SUFFIX}"
            self._open_file = self._fs.open(path, create=True)
            # One of this name may be left from an append that failed.
            self._open_file.truncate(0)
            self._fs.sync_directory(self._folder, UsageSyncSite.FILE)
            last = _FileOfSamples(path, sequence, 0)
            self._files = [*self._files, last]
        elif self._open_file is None:
            self._open_file = self._fs.open(last.path)
        return last

    def _recover(self) -> Sample | None:
        """The last whole sample, and the last file cut behind it. An empty file was being begun."""
        while self._files:
            one = self._files[-1]
            found = self._look(one)
            if found.samples:
                file = self._fs.open(one.path)
                try:
                    if file.size() != found.size:
                        file.truncate(found.size)
                finally:
                    file.close()
                one.size, one.end_ms = found.size, found.samples[-1].end_ms
                return found.samples[-1]
            self._fs.unlink(one.path)
            self._files = self._files[:-1]
        return None

    def _sample_at(self, files: Sequence[_FileOfSamples], sequence: int) -> Sample | None:
        for one in reversed(files):
            if one.first_sequence <= sequence:
                samples = self._samples_of(one, sequence - 1, count_max=1)
                return next((item for item in samples if item.sequence == sequence), None)
        return None

    def _samples_of(
        self, one: _FileOfSamples, after: int, count_max: int | None = None
    ) -> Sequence[Sample]:
        """Those behind the sample `after`, so many of them at most."""
        try:
            return self._look(one, after, count_max).samples
        except FileNotFoundError:
            # It was dropped while somebody read.
            return ()

    def _look(self, one: _FileOfSamples, after: int = 0, count_max: int | None = None) -> _Found:
        """What is behind the sample `after` is checked and decoded; what is not is passed over by
        its size: a file has no holes, so each record's place says its sequence."""
        data = self._fs.read_file(one.path)
        found = _Found()
        sequence = one.first_sequence - 1
        while len(found.samples) != count_max and found.size + _HEADER.size <= len(data):
            size, checksum = _HEADER.unpack_from(data, found.size)
            body = data[found.size + _HEADER.size : found.size + _HEADER.size + size]
            # Zeros, which a power loss may leave, have the right checksum of nothing.
            if not size or len(body) != size:
                break
            sequence += 1
            if sequence > after:
                if zlib.crc32(body) != checksum:
                    break
                found.samples.append(_decode(body))
            found.size += _HEADER.size + size
        return found


def _encode(sample: Sample) -> bytes:
    body = zlib.compress(json.dumps(asdict(sample), separators=(",", ":")).encode(), 1)
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def _decode(body: bytes) -> Sample:
    fields = json.loads(zlib.decompress(body))
    lost = fields.pop("lost")
    fields["topics"] = [TopicRow(*row) for row in fields["topics"]]
    fields["tenants"] = [TenantRow(*row) for row in fields["tenants"]]
    return Sample(**fields, lost=None if lost is None else Lost(**lost))
