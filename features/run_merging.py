"""What folds have in common that merge their runs: which of them, when, and whose files go then.

Invariants
- A file goes only when neither the fold nor a snapshot in the folder refers to it: what snapshots
  name is read before the merge begins.

Deliberately absent: what is merged, and how (each fold's), files (run_files.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from data_plane.log.file_system import FileSystem

# The names of run files that snapshots in a folder refer to. In a worker thread; raises OSError.
NamedInSnapshots = Callable[[FileSystem, str], set[str]]


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


class _Named(Protocol):
    @property
    def name(self) -> str: ...


SizedRun = TypeVar("SizedRun", bound=_Sized)
NamedRun = TypeVar("NamedRun", bound=_Named)


def enough_of_a_size(runs: Iterable[SizedRun], unit: int, enough: int) -> tuple[SizedRun, ...]:
    """Those of the smallest size of which there are `enough`, in their order; () for none. Sizes
    are told apart by powers of eight, of `unit` entries."""
    by_size: dict[int, list[SizedRun]] = {}
    for run in runs:
        size = max(run.size // unit, 1).bit_length() // 3
        by_size.setdefault(size, []).append(run)
    for size in sorted(by_size):
        if len(by_size[size]) >= enough:
            return tuple(by_size[size])
    return ()


def write_merged(
    fs: FileSystem,
    folder: str,
    suffix: str,
    kept_names: set[str],
    named_in_snapshots: NamedInSnapshots,
    write: Callable[[], NamedRun | None],
) -> NamedRun | None:
    """What `write` has written, if anything. Then files with the suffix are removed that nobody
    refers to: what was merged, and what a crash or a cut has left behind. Those of `kept_names`
    stay. In a worker thread; raises OSError."""
    # First, so that a snapshot which goes meanwhile counts: a cut may have begun with it.
    kept = kept_names | named_in_snapshots(fs, folder)
    result = write()
    if result is not None:
        kept.add(result.name)
    for name in fs.list_directory(folder):
        if name.endswith(suffix) and name not in kept:
            fs.unlink(f"{folder}/{name}")
    return result
