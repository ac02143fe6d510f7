"""The files of this repository, as version control has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def tracked_files() -> list[Path]:
    """Every file under version control that is there; new files count before they are added."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = (ROOT / line for line in listing.splitlines())
    return sorted(path for path in paths if path.is_file())


def name_of(path: Path) -> str:
    """The path as it is written in the repository."""
    return path.relative_to(ROOT).as_posix()


def is_generated(path: Path) -> bool:
    """Whether a generator of ours writes this file; `./tidewheel check` compares it."""
    name = name_of(path)
    return name.startswith("data_plane/wire/messages/") or path.stem.endswith(("_pb2", "_pb2_grpc"))


def python_modules() -> list[Path]:
    """All Python source, the launcher included."""
    return [
        path for path in tracked_files() if path.suffix == ".py" or name_of(path) == "tidewheel"
    ]
