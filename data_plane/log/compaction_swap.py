"""Putting compacted segments in the place of the originals: a crash leaves one or the other.

    1. `X.log.cleaned` → `X.log.swap` (indexes first); sync the folder: from here on it is decided
    2. unlink the originals above X, and the snapshots at their bases
    3. the indexes' names; sync; `X.log.swap` → `X.log`, over the original X; sync

A start that finds a `.log.swap` does 2 and 3 again; without one it drops the `.cleaned` and stray
`.swap` files, and the originals stand untouched. Which originals a swap replaces is told by the end
offset in its name: `X.log.<end offset>.swap`.
"""

from __future__ import annotations

import contextlib

from data_plane.log.compaction_writer import CLEANED_SUFFIX, CompactedSegment
from data_plane.log.file_system import SyncSite
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import COPY_SUFFIX
from data_plane.log.segment import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SIDE_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

SWAP_SUFFIX = ".swap"
UNDECIDED_SUFFIXES = (SWAP_SUFFIX, CLEANED_SUFFIX, COPY_SUFFIX)
# What a start can do without: it is made again from the `.log`, or is only an estimate. The list of
# aborted transactions is neither, so a swap brings one wherever the original X has one.
INDEX_SUFFIXES = SEGMENT_SUFFIXES - {LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX}


def swap_in(log: LogState, result: CompactedSegment) -> bool:
    """Replace `result.originals` by the new segment; on the loop. Raises LogDirFailure.

    False when the log has changed in between (truncation, retention): nothing happens then."""
    segments = log.segments
    originals = result.originals
    fs = log.log_directory.fs
    path = result.segment.path
    try:
        start = segments.index(originals[0])
    except ValueError:
        return False
    if segments[start : start + len(originals)] != originals:
        return False
    end_offset = originals[-1].next_offset
    with log.log_directory.changing():
        for suffix in result.suffixes:
            fs.rename(path(suffix) + CLEANED_SUFFIX, swap_path(path(suffix), suffix, end_offset))
        fs.sync_directory(log.folder, SyncSite.COMPACTED_NAMES)
        for segment in originals:
            segment.retired = True
            segment.release()
        finish_swap(log, result.segment.base_offset, end_offset)
    kept = [*segments[:start], result.segment, *segments[start + len(originals) :]]
    log.replace_segments(kept)
    return True


def discard(log: LogState, result: CompactedSegment) -> None:
    """Remove what nobody is going to swap in. Raises OSError."""
    for suffix in result.suffixes:
        with contextlib.suppress(FileNotFoundError):
            log.log_directory.fs.unlink(result.segment.path(suffix) + CLEANED_SUFFIX)


def swap_path(path: str, suffix: str, end_offset: int) -> str:
    """The decisive `.log` names the end offset of what it replaces."""
    return f"{path}.{end_offset:020d}{SWAP_SUFFIX}" if suffix == LOG_SUFFIX else path + SWAP_SUFFIX


def finish_swap(log: LogState, base_offset: int, end_offset: int) -> None:
    """Steps 2 and 3 for the swap at `base_offset`."""
    fs, folder = log.log_directory.fs, log.folder
    base = f"{base_offset:020d}"
    names = fs.list_directory(folder)
    suffixes = SEGMENT_SUFFIXES.union(fold.extension for fold in log.new_folds())
    for name in names:
        number, _, suffix = name.partition(".")
        is_side = f".{suffix}".endswith(SIDE_SUFFIX)
        if not number.isdigit() or not (is_side or f".{suffix}" in suffixes):
            continue
        inside = base_offset < int(number) < end_offset
        # Indexes of the original X do not fit the new one. Those of the swap take their place; if
        # they already have, they are made again from the `.log`.
        is_index = int(number) == base_offset and (is_side or f".{suffix}" in INDEX_SUFFIXES)
        if inside or is_index:
            fs.unlink(f"{folder}/{name}")
    decisive = f"{base}{LOG_SUFFIX}.{end_offset:020d}{SWAP_SUFFIX}"
    for name in names:
        if name.startswith(base) and name.endswith(SWAP_SUFFIX) and name != decisive:
            fs.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP_SUFFIX)}")
    # The `.log` last, so that a start goes on with an unfinished swap.
    fs.sync_directory(folder, SyncSite.COMPACTED_INDEX_NAMES)
    fs.rename(f"{folder}/{decisive}", f"{folder}/{base}{LOG_SUFFIX}")
    # A swap of long ago must not meet the next one of this segment.
    fs.sync_directory(folder, SyncSite.COMPACTED_SWAP)


def finish_swaps(log: LogState) -> list[str]:
    """At a start: finish what was decided, drop what was not, copies for a cut as well; returns the
    folder's names."""
    fs, folder = log.log_directory.fs, log.folder
    names = fs.list_directory(folder)
    if not any(name.endswith(UNDECIDED_SUFFIXES) for name in names):
        return names
    for name in names:
        if name.endswith(SWAP_SUFFIX) and f"{LOG_SUFFIX}." in name:
            base, _, rest = name.partition(f"{LOG_SUFFIX}.")
            finish_swap(log, int(base), int(rest.removesuffix(SWAP_SUFFIX)))
    for name in fs.list_directory(folder):
        if name.endswith(UNDECIDED_SUFFIXES):
            fs.unlink(f"{folder}/{name}")
    return fs.list_directory(folder)
