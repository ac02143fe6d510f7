"""The documents: links lead somewhere, decisions have numbers of their own."""

from __future__ import annotations

import re

from tests.repository.source_tree import ROOT, name_of, tracked_files

FRAGMENT_KINDS = {"added", "changed", "fixed", "removed", "security"}


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in tracked_files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{name_of(path)} → {target}")
    assert not broken


def test_decisions_are_numbered_without_gaps_or_doubles() -> None:
    files = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in files]
    assert numbers == list(range(1, len(files) + 1))
    for path, number in zip(files, numbers, strict=True):
        first_line = path.read_text(encoding="utf-8").splitlines()[0]
        assert re.match(rf"# (ADR )?0*{number}\b", first_line), f"{path.name}: {first_line}"


def test_change_fragments_are_of_a_known_kind() -> None:
    for path in (ROOT / "changes").glob("*.md"):
        if path.name != "README.md":
            assert path.name.split(".")[-2] in FRAGMENT_KINDS, path.name
            assert path.read_text(encoding="utf-8").strip()
