"""The generated modules are those that the generator would write now, and nobody edited them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import data_plane.wire.messages

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = Path(data_plane.wire.messages.__file__ or "").parent


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "generate_wire"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_committed_modules_are_current() -> None:
    result = generate("--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_edited_a_missing_and_a_foreign_file_are_noticed_and_mended(tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    shutil.copytree(MESSAGES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "fetch_request.py").open("a") as edited:
        edited.write("# edited by hand\n")
    (folder / "metadata_response.py").unlink()
    (folder / "foreign.py").write_text("")
    result = generate("--check", "--into", str(folder))
    assert result.returncode == 1
    for name in ("fetch_request.py", "metadata_response.py", "foreign.py"):
        assert name in result.stdout
    assert (folder / "foreign.py").exists(), "--check writes nothing"

    result = generate("--into", str(folder))
    assert result.returncode == 0, result.stderr
    assert "3 changed" in result.stdout
    for path in MESSAGES.glob("*.py"):
        assert (folder / path.name).read_text() == path.read_text()
    assert not (folder / "foreign.py").exists()


@pytest.mark.parametrize("path", sorted(MESSAGES.glob("*.py")), ids=lambda path: path.stem)
def test_a_generated_module_says_so(path: Path) -> None:
    assert "Written by scripts/generate_wire;" in path.read_text()
