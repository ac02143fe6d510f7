"""The files of a data directory that say where its logs stand.

- `recovery-point.checkpoint`: a summary of every log, replaced every minute or so. After a crash a
  log is recovered from its recovery point, or not at all when it is synced and unchanged.
- `clean-shutdown`: the same content, written at the very end of a clean stop. While it is there no
  log needs to be looked at. At the start it is renamed to the first file, in one step, durably and
  before anything is appended: a mark that came back would vouch for bytes that are gone.

When the directory fails, the first file is renamed to `recovery-point.withdrawn`: recovery may use
it, but it vouches for nothing.

The content names the kernel's boot: while that is the same, the page cache has lost nothing, and
only a write that was under way can be torn. It also names the broker epoch under which the process
was registered in its cell. Mark or same boot, the logs have everything that this process ever
acknowledged under that epoch (`read_broker_epoch`), and its registration may say so. It says
how many directories the broker had: where one is missing, what was on it is lost. And it has the
last date that was vouched for and that of the boot (vouched_date.py), by which the next process
judges the clocks that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from data_plane.log import partition_files
from data_plane.log.checkpoints import encode_value, read_value, write_checkpoint
from data_plane.log.file_system import FileSystem, SyncSite
from data_plane.log.lanes import Lane
from data_plane.log.log_directory import CHECKPOINT_FILE, WITHDRAWN_FILE, LogDirectory
from data_plane.log.log_state import LogState
from data_plane.log.log_summary import LogSummary
from data_plane.log.segment_age import newest_ms

CLEAN_MARK_FILE = "clean-shutdown"
FORMAT_VERSION = 1


class LogEntry(NamedTuple):
    """One log in a checkpoint."""

    topic: str
    summary: LogSummary


class DirectoryState(NamedTuple):
    """What a start knows: entries by "<topic id>/<partition>"."""

    logs: Mapping[str, LogEntry]
    boot_id: str | None
    is_clean: bool
    # Counts the checkpoints of the directory; a truncation mark with a lower number is out of date.
    sequence: int
    # The last date that was vouched for; None: never, or by a version that did not note it.
    vouched_date_ms: int | None = None
    # The date of the boot, by that one; None where that was not known.
    boot_date_ms: int | None = None


def summary_of(log: LogState) -> LogSummary:
    """What the directory's checkpoint keeps of a log."""
    if not log.is_loaded and log.opened_from is not None:
        return log.opened_from._replace(high_watermark=log.high_watermark)
    active = log.active
    return LogSummary(
        log.log_start_offset,
        log.log_end_offset,
        log.recovery_point,
        log.high_watermark,
        log.size_bytes,
        active.base_offset,
        active.size,
        active.first_append_ms,
        log.epochs.latest_epoch,
        log.cleaner_offset,
        not log.needs_flush and not log.pending_deletion,
        log.tail_files_offset == log.log_end_offset,
        _first_segment_newest_ms(log),
        max(map(len, log.folds)),
        log.superseded_from,
        -1 if log.due_ms is None else log.due_ms,
    )


def _first_segment_newest_ms(log: LogState) -> int:
    """-1 where that takes a longer look, so that retention has one."""
    if log.log_directory.failure is not None:
        return -1
    # Those before are only held on to.
    start = log.log_start_offset
    first = next((one for one in log.segments if one.next_offset > start), log.active)
    found_ms = newest_ms(first)
    return -1 if found_ms is None else found_ms


def read_directory(fs: FileSystem, path: str) -> DirectoryState:
    """The directory's last state; an empty one when its files are missing or torn."""
    names = ((CLEAN_MARK_FILE, True), (CHECKPOINT_FILE, False), (WITHDRAWN_FILE, False))
    for name, is_clean in names:
        value = read_value(fs, f"{path}/{name}")
        if isinstance(value, dict) and value.get("format_version") == FORMAT_VERSION:
            logs = {
                key: LogEntry(topic, LogSummary(*fields))
                for key, (topic, *fields) in value["logs"].items()
            }
            dates_ms = (value.get("vouched_date_ms"), value.get("boot_date_ms"))
            return DirectoryState(logs, value["boot_id"], is_clean, value["sequence"], *dates_ms)
    return DirectoryState({}, None, False, 0)


def read_broker_epoch(fs: FileSystem, path: str, directories_count: int) -> int | None:
    """Under which broker epoch the last process wrote here, if nothing of it can be lost: it left
    the clean-shutdown mark, or was killed while the machine went on, and had no more directories
    than this one. Else None."""
    for name, is_clean in ((CLEAN_MARK_FILE, True), (CHECKPOINT_FILE, False)):
        value = read_value(fs, f"{path}/{name}")
        if isinstance(value, dict) and value.get("format_version") == FORMAT_VERSION:
            boot_id, epoch = value["boot_id"], value.get("broker_epoch")
            is_whole = is_clean or (boot_id is not None and boot_id == fs.boot_id())
            # Earlier versions did not say how many there were.
            is_whole &= value.get("directories", directories_count) <= directories_count
            return epoch if is_whole and isinstance(epoch, int) else None
    return None


def has_clean_mark(fs: FileSystem, path: str) -> bool:
    """Whether the last process here left the clean-shutdown mark."""
    return isinstance(read_value(fs, f"{path}/{CLEAN_MARK_FILE}"), dict)


def remove_clean_mark(fs: FileSystem, path: str, state: DirectoryState) -> None:
    """Turn the mark into the checkpoint, or remove a torn one; durable on return."""
    if state.is_clean:
        fs.rename(f"{path}/{CLEAN_MARK_FILE}", f"{path}/{CHECKPOINT_FILE}")
    elif CLEAN_MARK_FILE in fs.list_directory(path):
        fs.unlink(f"{path}/{CLEAN_MARK_FILE}")
    else:
        return
    fs.sync_directory(path, SyncSite.CLEAN_MARK_REMOVED)


def encode_directory(
    directory: LogDirectory,
    sequence: int,
    entries: Mapping[LogState, LogSummary],
    broker_epoch: int | None = None,
) -> bytes:
    """The content of both files."""
    logs: dict[str, list[Any]] = {
        f"{log.topic_id}/{log.partition}": [log.topic, *summary.fields_to_store()]
        for log, summary in entries.items()
    }
    value: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "boot_id": directory.fs.boot_id(),
        "sequence": sequence,
        "directories": directory.directories_count,
        "logs": logs,
    }
    if broker_epoch is not None:
        value["broker_epoch"] = broker_epoch
    if directory.vouched_date.last_ms is not None:
        value["vouched_date_ms"] = directory.vouched_date.last_ms
    if directory.vouched_date.boot_date_ms is not None:
        value["boot_date_ms"] = directory.vouched_date.boot_date_ms
    return encode_value(value)


def write_clean_mark(
    directory: LogDirectory, entries: Mapping[LogState, LogSummary], broker_epoch: int | None
) -> None:
    """Leave the clean-shutdown mark. Every log is synced and closed by now."""
    directory.checkpoint_sequence += 1
    write_checkpoint(
        directory.fs,
        f"{directory.path}/{CLEAN_MARK_FILE}",
        encode_directory(directory, directory.checkpoint_sequence, entries, broker_epoch),
        SyncSite.CLEAN_MARK,
        SyncSite.CLEAN_MARK_FOLDER,
    )


class CheckpointJob:
    """Stores the summaries that were taken of `logs`, some of them at a time.

    It has its number before the first one is taken: the mark of a truncation that comes afterwards
    has this number, too, and so holds against this checkpoint."""

    lane = Lane.FLUSH

    def __init__(self, directory: LogDirectory, logs: Iterable[LogState]) -> None:
        self.directory = directory
        self._left = iter(logs)
        self._entries: dict[LogState, LogSummary] = {}
        self._marked: dict[LogState, int] = {}
        directory.checkpoint_sequence += 1
        self._sequence = directory.checkpoint_sequence
        self._is_stored = False

    def take_summaries(self, logs_max: int | None = None) -> bool:
        """Look at so many more logs; on the loop. Whether that were all."""
        looked_at = 0
        for log in islice(self._left, logs_max):
            looked_at += 1
            if log.is_closed:
                continue
            self._entries[log] = summary_of(log)
            if log.truncation_marks:
                self._marked[log] = log.truncation_marks
        return logs_max is None or looked_at < logs_max

    def run(self) -> None:
        """In a worker thread. Raises LogDirFailure."""
        directory = self.directory
        directory.check_online()
        try:
            write_checkpoint(
                directory.fs,
                f"{directory.path}/{CHECKPOINT_FILE}",
                encode_directory(directory, self._sequence, self._entries, directory.broker_epoch),
                SyncSite.DIRECTORY_CHECKPOINT,
                SyncSite.DIRECTORY_CHECKPOINT_FOLDER,
            )
            self._is_stored = True
        except OSError as error:
            raise directory.fail(error) from error
        if directory.failure is not None:
            # It failed in another thread meanwhile.
            directory.withdraw_checkpoint()

    def finish(self) -> None:
        """Truncations before this checkpoint need no mark any more; on the loop."""
        if not self._is_stored:
            return
        deletions = self.directory.deletions
        for key in [key for key, last in deletions.items() if last < self._sequence]:
            del deletions[key]
        for log, summary in self._entries.items():
            # What a truncation in between has lowered stays so, since its mark is for this
            # checkpoint, too.
            if log.truncation_marks == self._marked.get(log, 0):
                log.checkpointed_recovery_point = min(summary.recovery_point, log.recovery_point)
        for log, marks in self._marked.items():
            if log.truncation_marks == marks and not log.is_closed:
                try:
                    self.directory.fs.unlink(f"{log.folder}/{partition_files.TRUNCATION_FILE}")
                except OSError as error:
                    self.directory.fail(error)
                log.truncation_marks = 0
                log.is_successor = False
