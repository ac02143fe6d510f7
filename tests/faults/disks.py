"""Small disks that can be filled: a tmpfs of a given size, mounted for one test. Needs root."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


@functools.cache
def why_unavailable() -> str:
    """Why nothing can be mounted here, in a few words; "" when it can."""
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    with tempfile.TemporaryDirectory(prefix="tw-probe-") as folder:
        if not _mount(Path(folder), 1):
            return "this machine allows no mounts"
        _unmount(Path(folder))
    return ""


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """`folder` as a file system of its own with this much room."""
    folder.mkdir(parents=True, exist_ok=True)
    assert _mount(folder, mebibytes), f"cannot mount a tmpfs on {folder}"
    try:
        yield folder
    finally:
        _unmount(folder)


def fill(disk: Path) -> Path:
    """Leave no byte free; the file that does it. Deleting it makes room again."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65_536))
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    return filler


def _mount(folder: Path, mebibytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unmount(folder: Path) -> None:
    # Lazily: a broker that a failed test has just killed may still hold a file.
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=True)
