"""One broker's metadata store: a journal of commits and a snapshot, in a folder of their own.

```
<data>/metadata/
   snapshot-00000000000000000120.json   the image at version 120
   journal-00000000000000000120.log     commits 121, 122, … one line each: CRC-32, space, JSON
   lock                                 held while a process uses the folder
```

A commit is one line, written and synced before `apply` returns. When the journal has outgrown the
snapshot, a new snapshot and an empty journal are made, their names are synced, and only then the
old pair goes. Opening reads the newest snapshot and the journal of the same version.

Fault model
- A crash during an append leaves a torn last line: it was never acknowledged, it is cut off.
- A crash while snapshotting leaves the old pair, the new pair or both: the newest complete
  snapshot wins, and it holds all commits, since none is accepted meanwhile.
- A bad line with good ones behind it, or a snapshot that fails its checksum, is no crash but
  damage: StoreCorrupt names file and byte, nothing is repaired by guessing.
- A snapshot or commit that a newer version has written in a way that this one does not know:
  StoreTooNew, and nothing is changed.
- After a failed sync the page cache proves nothing any more: the store refuses all writes until
  the process is started again. A failed write that could be cut off again only fails its commit.

`apply` may run in a worker thread, one call at a time; `read` is safe beside it. Deliberately
absent: sharing with other processes (the lock refuses them), partial reads, leases that could run
out: whoever has the lock is the only broker, and its controller for as long as it runs.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from data_plane.cell.change_codec import decode_change, encode_changes
from data_plane.cell.changes import Change, InvalidChange, apply_changes
from data_plane.cell.features import (
    SUPPORTED_FEATURES,
    SupportedFeatures,
    newest_levels,
    why_unsupported,
)
from data_plane.cell.files import TEMPORARY_SUFFIX, CellSyncSite, FileSystem, write_file_atomically
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from data_plane.cell.metadata_store import (
    ONLY_CONTROLLER_EPOCH,
    BrokerSession,
    Commit,
    CommitHistory,
    ControllerLease,
    Heartbeat,
    StaleControllerEpoch,
    StoreCorrupt,
    StoreTooNew,
    StoreUnavailable,
    VersionConflict,
    decoding,
)

SNAPSHOT_PREFIX = "snapshot-"
SNAPSHOT_SUFFIX = ".json"
JOURNAL_PREFIX = "journal-"
JOURNAL_SUFFIX = ".log"
LOCK_FILE = "lock"
# Replaying 1 MiB takes some 10 ms; smaller journals are not worth a snapshot.
JOURNAL_BYTES_MIN = 1 << 20
# Beyond that the journal may be this many times the snapshot, so that the cost of snapshots stays
# in proportion to what is written.
JOURNAL_TO_SNAPSHOT_RATIO = 2


@dataclass(slots=True)
class _Recovered:
    image: MetadataImage
    history: CommitHistory
    journal_size: int
    snapshot_size: int


class LocalMetadataStore:
    """The MetadataStore adapter for a cell of one broker."""

    def __init__(
        self,
        fs: FileSystem,
        data_directory: str,
        cluster_id: str,
        features: SupportedFeatures = SUPPORTED_FEATURES,
    ) -> None:
        """Open or create the store under `data_directory`, which exists. A new one begins with the
        newest levels of `features`.

        Raises StoreCorrupt, StoreTooNew, StoreUnavailable (locked by another process), OSError."""
        self._fs = fs
        self._features = features
        self._directory = f"{data_directory}/metadata"
        if fs.make_directory(self._directory):
            fs.sync_directory(data_directory, CellSyncSite.METADATA_FOLDER)
        self._lock = fs.lock(f"{self._directory}/{LOCK_FILE}")
        if self._lock is None:
            raise StoreUnavailable(f"{self._directory} is in use by another process")
        self._failure: str | None = None
        self._renewals = 0
        try:
            self._open(cluster_id)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, cluster_id: str) -> None:
        versions = self._snapshot_versions()
        if not versions:
            self._refuse_orphaned_journal()
            image = MetadataImage(cluster_id, features=newest_levels(self._features))
            self._history = CommitHistory(image.version)
            self._start_generation(image)
        else:
            recovered = self._recover(versions[-1])
            self._history = recovered.history
            self._image = recovered.image
            self._snapshot_size = recovered.snapshot_size
            self._base_version = versions[-1]
            self._open_journal(recovered.journal_size)
        if self._image.cluster_id != cluster_id:
            raise StoreCorrupt(
                f"{self._directory} holds the metadata of cluster {self._image.cluster_id}, "
                f"expected cluster {cluster_id}"
            )
        reason = why_unsupported(self._features, self._image.features)
        if reason:
            raise StoreTooNew(f"{self._directory}: {reason}")
        self._remove_older(self._base_version)

    def read(self) -> MetadataImage:
        return self._image

    def feed(self, after_version: int) -> Sequence[Commit]:
        return self._history.after(after_version)

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def identity(self) -> str:
        return self._image.cluster_id

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        self._renewals += 1
        lease = ControllerLease(node_id, incarnation_id, ONLY_CONTROLLER_EPOCH, is_ours=True)
        return Heartbeat(
            self._image.version,
            lease if wants_controller else None,
            {node_id: BrokerSession(node_id, incarnation_id, self._renewals)},
        )

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        return self._image.version > after_version

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        if self._history.knows(request_id):
            return self._image
        if controller_epoch not in (None, ONLY_CONTROLLER_EPOCH):
            raise StaleControllerEpoch(controller_epoch, ONLY_CONTROLLER_EPOCH)
        if expected_version != self._image.version:
            raise VersionConflict(expected_version, self._image.version)
        image = apply_changes(self._image, changes)
        commit = Commit(image.version, request_id, tuple(changes), controller_epoch)
        level_before = self._image.metadata_level
        self._append(_encode_commit(commit, level_before))
        self._history.record(commit)
        self._image = image
        # After a downgrade nothing of the higher level is to be left, and after an upgrade an older
        # version is to be told at once that it is one.
        if image.metadata_level != level_before or self._journal_size > max(
            JOURNAL_BYTES_MIN, JOURNAL_TO_SNAPSHOT_RATIO * self._snapshot_size
        ):
            self._snapshot()
        return image

    def close(self) -> None:
        self._failure = "the metadata store is closed"
        self._journal.close()
        self._lock.close()

    def _append(self, line: bytes) -> None:
        try:
            self._journal.write_at(self._journal_size, line)
        except OSError as error:
            self._cut_failed_append()
            raise StoreUnavailable(f"writing {self._journal_path()}: {error}") from error
        try:
            self._fs.sync_data(self._journal, CellSyncSite.JOURNAL_APPEND)
        except OSError as error:
            self._failure = f"syncing {self._journal_path()}: {error}; restart the broker"
            raise StoreUnavailable(self._failure) from error
        self._journal_size += len(line)

    def _cut_failed_append(self) -> None:
        try:
            self._journal.truncate(self._journal_size)
            self._fs.sync_data(self._journal, CellSyncSite.JOURNAL_CUT)
        except OSError as error:
            self._failure = f"cutting {self._journal_path()}: {error}; restart the broker"

    def _snapshot(self) -> None:
        """Start a new generation. The commit that caused it is durable already, so a failure here
        must not look like one of the commit: it stops later ones."""
        old_journal = self._journal
        old_version = self._base_version
        try:
            self._start_generation(self._image)
            old_journal.close()
            self._remove_older(self._base_version)
        except OSError as error:
            # Once the new snapshot may be visible, appending to the old journal would lose commits.
            self._failure = (
                f"writing a snapshot after version {old_version} in {self._directory}: {error}; "
                "restart the broker"
            )

    def _start_generation(self, image: MetadataImage) -> None:
        """Write the snapshot of `image` and its empty journal, and sync both names."""
        body = json.dumps(self._history.request_ids()).encode() + b"\n" + encode_image(image)
        data = b"%08x %s" % (zlib.crc32(body), body)
        journal = self._fs.open(self._path_of_journal(image.version), create=True)
        # A journal of this version can be there already when a crash came before its snapshot.
        journal.truncate(0)
        write_file_atomically(
            self._fs,
            self._directory,
            f"{SNAPSHOT_PREFIX}{image.version:020d}{SNAPSHOT_SUFFIX}",
            data,
            data_site=CellSyncSite.SNAPSHOT,
            folder_site=CellSyncSite.SNAPSHOT_FOLDER,
        )
        self._journal = journal
        self._journal_size = 0
        self._snapshot_size = len(data)
        self._base_version = image.version
        self._image = image

    def _snapshot_versions(self) -> list[int]:
        return sorted(
            int(name.removeprefix(SNAPSHOT_PREFIX).removesuffix(SNAPSHOT_SUFFIX))
            for name in self._fs.list_directory(self._directory)
            if name.startswith(SNAPSHOT_PREFIX) and name.endswith(SNAPSHOT_SUFFIX)
        )

    def _refuse_orphaned_journal(self) -> None:
        # An empty journal is what a crash during the very first start leaves.
        for name in self._fs.list_directory(self._directory):
            if name.startswith(JOURNAL_PREFIX) and self._fs.read_file(f"{self._directory}/{name}"):
                raise StoreCorrupt(f"{self._directory}/{name} has commits but no snapshot")

    def _recover(self, version: int) -> _Recovered:
        path = f"{self._directory}/{SNAPSHOT_PREFIX}{version:020d}{SNAPSHOT_SUFFIX}"
        data = self._fs.read_file(path)
        body = data[9:]
        if data[:9] != b"%08x " % zlib.crc32(body):
            raise StoreCorrupt(f"{path}: the checksum does not match: the file is damaged")
        with decoding(path):
            request_ids, image_bytes = body.split(b"\n", 1)
            image = decode_image(image_bytes)
            history = CommitHistory(image.version)
            for request_id in json.loads(request_ids):
                history.remember(request_id)
        journal_path = self._path_of_journal(version)
        try:
            journal = self._fs.read_file(journal_path)
        except FileNotFoundError:
            journal = b""
        image, size = _replay(journal_path, journal, image, history)
        return _Recovered(image, history, size, len(data))

    def _open_journal(self, valid_size: int) -> None:
        self._journal = self._fs.open(self._journal_path(), create=True)
        self._journal_size = valid_size
        if self._journal.size() != valid_size:
            self._journal.truncate(valid_size)
        # What was read may only have been in the page cache: nobody may build on it before it is
        # on disk. The name, too, if this opening made it.
        self._fs.sync_data(self._journal, CellSyncSite.JOURNAL_CUT)
        self._fs.sync_directory(self._directory, CellSyncSite.SNAPSHOT_FOLDER)

    def _remove_older(self, version: int) -> None:
        keep = {
            f"{SNAPSHOT_PREFIX}{version:020d}{SNAPSHOT_SUFFIX}",
            f"{JOURNAL_PREFIX}{version:020d}{JOURNAL_SUFFIX}",
        }
        for name in self._fs.list_directory(self._directory):
            ours = name.startswith((SNAPSHOT_PREFIX, JOURNAL_PREFIX))
            if name not in keep and (ours or name.endswith(TEMPORARY_SUFFIX)):
                with contextlib.suppress(FileNotFoundError):
                    self._fs.unlink(f"{self._directory}/{name}")

    def _journal_path(self) -> str:
        return self._path_of_journal(self._base_version)

    def _path_of_journal(self, version: int) -> str:
        return f"{self._directory}/{JOURNAL_PREFIX}{version:020d}{JOURNAL_SUFFIX}"


def _encode_commit(commit: Commit, level: int) -> bytes:
    changes = encode_changes(commit.changes, level)
    document: list[object] = [commit.version, commit.request_id, changes]
    if commit.controller_epoch is not None:
        document.append(commit.controller_epoch)
    body = json.dumps(document, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _decode_commit(line: bytes) -> Commit | None:
    """The commit in a journal line without its newline; None when the checksum does not match."""
    body = line[9:]
    if line[:9] != b"%08x " % zlib.crc32(body):
        return None
    version, request_id, changes, *rest = json.loads(body)
    controller_epoch = rest[0] if rest else None
    return Commit(
        version, request_id, tuple(decode_change(item) for item in changes), controller_epoch
    )


def _replay(
    path: str, journal: bytes, image: MetadataImage, history: CommitHistory
) -> tuple[MetadataImage, int]:
    """Apply all whole commits; returns the image and the size of the journal's valid part."""
    position = 0
    while position < len(journal):
        end = journal.find(b"\n", position)
        with decoding(f"{path}: byte {position}"):
            commit = None if end < 0 else _decode_commit(journal[position:end])
            if commit is None:
                _check_torn_tail(path, journal, position)
                break
        try:
            if commit.version != image.version + 1:
                raise InvalidChange(f"version {commit.version} follows {image.version}")
            image = apply_changes(image, commit.changes)
        except InvalidChange as error:
            raise StoreCorrupt(f"{path}: byte {position}: {error}") from error
        history.record(commit)
        position = end + 1
    return image, position


def _check_torn_tail(path: str, journal: bytes, position: int) -> None:
    """Only the last append can be torn: a whole commit behind the bad bytes means damage."""
    for line in journal[position:].split(b"\n")[1:-1]:
        if _decode_commit(line) is not None:
            raise StoreCorrupt(
                f"{path}: byte {position}: a damaged commit with whole ones after it"
            )
