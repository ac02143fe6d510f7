"""Statements that depend on the version, and the `if` chains that they become.

For every field (or run of adjacent fixed-width fields, which one struct call reads) and every
version of its structure we write the statements that this version needs. Versions with the same
statements form one branch, and neighbours that branch at the same versions share an `if`. For a
field that changes at version 12 of 4 to 18 that gives

    if version >= 12:
        message.topic = reader.read_compact_string("topic")
    else:
        message.topic = reader.read_string("topic")

and for one that never changes, a plain statement. So what the code does in one version can be
read off top to bottom, and no branch is tested that makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scripts.wire_generator.model import Field, Struct, VersionRange

INDENT = "    "


@dataclass(slots=True)
class Piece:
    """Statements of one step of a codec: the same for a range of versions, for each range."""

    branches: list[tuple[VersionRange, list[str]]]


def piece_by_version(struct: Struct, statements: Callable[[int], list[str]]) -> Piece:
    """Groups the statements that each version of a struct needs into ranges of versions."""
    branches: list[tuple[VersionRange, list[str]]] = []
    for version in range(struct.versions.first, struct.versions.last + 1):
        lines = statements(version)
        if branches and branches[-1][1] == lines:
            branches[-1] = (VersionRange(branches[-1][0].first, version), lines)
        else:
            branches.append((VersionRange(version, version), lines))
    return Piece(branches)


def joined(pieces: list[Piece]) -> list[str]:
    """The statements of all pieces in order, with neighbours that branch alike under one `if`."""
    lines: list[str] = []
    merged: list[Piece] = []
    for piece in pieces:
        ranges = [r for r, _ in piece.branches]
        if merged and [r for r, _ in merged[-1].branches] == ranges:
            for (_, known), (_, more) in zip(merged[-1].branches, piece.branches, strict=True):
                known += more
        else:
            merged.append(Piece([(r, list(statements)) for r, statements in piece.branches]))
    for piece in merged:
        lines += _branch(piece)
    return lines


def _branch(piece: Piece) -> list[str]:
    """One `if` chain, newest versions first, or oldest first when the newest need nothing."""
    if len(piece.branches) == 1:
        return piece.branches[0][1]
    branches = [(f"version >= {r.first}", lines) for r, lines in reversed(piece.branches)]
    if not branches[0][1]:
        branches = [(f"version <= {r.last}", lines) for r, lines in piece.branches]
    if branches[-1][1]:
        branches[-1] = ("", branches[-1][1])
    else:
        branches.pop()
    chain: list[str] = []
    for index, (condition, statements) in enumerate(branches):
        keyword = "elif" if index else "if"
        if len(branches) == 1 and _is_one_if(statements):
            # Nested conditions with nothing else in them read better as one.
            return [statements[0].replace("if ", f"if {condition} and ", 1), *statements[1:]]
        chain.append(f"{keyword} {condition}:" if condition else "else:")
        chain += [INDENT + line for line in statements or ["pass"]]
    return chain


def _is_one_if(statements: list[str]) -> bool:
    return (
        statements[0].startswith("if ")
        and " or " not in statements[0]
        and all(line.startswith(INDENT) for line in statements[1:])
    )


def field_runs(struct: Struct) -> list[list[Field]]:
    """Untagged fields in wire order, with adjacent fixed-width fields together."""
    runs: list[list[Field]] = []
    for f in struct.fields:
        if f.tag is not None:
            continue
        if runs and f.is_fixed and runs[-1][0].is_fixed:
            runs[-1].append(f)
        else:
            runs.append([f])
    return runs
