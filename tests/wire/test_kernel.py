"""The kernel's door: which form it opens, and that a stale one is never run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from data_plane.wire import kernel, kernel_sources
from tests.wire.kernel_pairs import needs_compiled

ROOT = Path(__file__).resolve().parents[2]
ASK = "from data_plane.wire import kernel; print(kernel.COMPILED, kernel.WHY_INTERPRETED, sep='|')"


def ask(folder: Path, **environment: str) -> str:
    """What the kernel in `folder` says of itself, in a fresh process where a warning is fatal."""
    kept = {name: value for name, value in os.environ.items() if name != "TIDEWHEEL_PURE"}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", f"import sys; sys.path.insert(0, '.'); {ASK}"],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "data_plane" / "wire", tmp_path / "data_plane" / "wire")
    shutil.copy(ROOT / "data_plane" / "__init__.py", tmp_path / "data_plane")
    return tmp_path


def test_says_why_it_is_interpreted() -> None:
    assert (kernel.WHY_INTERPRETED == "") == kernel.COMPILED


def test_environment_asks_for_the_interpreted_form() -> None:
    assert ask(ROOT, TIDEWHEEL_PURE="1") == "False|TIDEWHEEL_PURE is set"


def test_without_compiled_modules(copied_tree: Path) -> None:
    for module in (copied_tree / "data_plane" / "wire" / "kernel_compiled").iterdir():
        if module.name != "__init__.py" and module.is_file():
            module.unlink()
    assert ask(copied_tree) == "False|it is not compiled"


@needs_compiled
def test_compiled_form_is_used_while_its_sources_are_the_same(copied_tree: Path) -> None:
    assert ask(copied_tree) == "True|"


@needs_compiled
@pytest.mark.parametrize("name", ["kernel_batches.py", "kernel_requests.pxd", "kernel_leaves.pxd"])
def test_stale_compiled_form_is_refused(copied_tree: Path, name: str) -> None:
    with (copied_tree / "data_plane" / "wire" / name).open("a") as source:
        source.write("\n")
    assert ask(copied_tree).startswith("False|its compiled form is older than its source")


def test_every_function_behind_the_door_is_from_one_form() -> None:
    modules = {getattr(kernel, name).__module__ for name in kernel.__all__ if name.islower()}
    expected = "data_plane.wire.kernel_compiled." if kernel.COMPILED else "data_plane.wire.kernel_"
    assert modules == {
        expected.removesuffix("kernel_") + name for name in kernel_sources.COMPILED_NAMES
    }
