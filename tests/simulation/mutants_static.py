"""Planted bugs of static members: who is fenced, and who is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.groups.group import ClassicGroup
from data_plane.groups.member import Member
from data_plane.groups.offset_commits import OffsetCommits
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.static_members import StaticMembers
from data_plane.wire.errors import ErrorCode
from tests.simulation.mutant import STATICS, Mutant, Patch


def _commits_by_name(patch: Patch) -> None:
    """Whoever names the instance may commit for it."""
    original: Any = OffsetCommits.__dict__["commit"]

    def commit(self: OffsetCommits, request: Any, *rest: Any) -> None:
        group = self._shard.groups.get(request.group_id)
        name = request.group_instance_id
        if group is not None and name in group.static_members:
            request.member_id = group.static_members[name]
        original(self, request, *rest)

    patch.set(OffsetCommits, "commit", commit)


def _replacement_not_written(patch: Patch) -> None:
    def persist(
        self: StaticMembers,
        group: ClassicGroup,
        old: Member,
        new: Member,
        leader_id: str | None,
        api_version: int,
        now_ms: int,
    ) -> None:
        self._end_replacement(group, old, new, leader_id, api_version, ErrorCode.NONE, now_ms)

    patch.set(StaticMembers, "_persist_replacement", persist)


def _static_for_ever(patch: Patch) -> None:
    original: Any = Rebalance.__dict__["_expire_session"]

    def expire_session(self: Rebalance, group: ClassicGroup, member: Member, now_ms: int) -> None:
        if not member.is_static:
            original(self, group, member, now_ms)

    patch.set(Rebalance, "_expire_session", expire_session)


STATIC_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "commits by name",
        "a process that was fenced commits for the one that has its name",
        _commits_by_name,
        options=STATICS,
        is_quick=True,
    ),
    Mutant(
        "replacement not written",
        "a static member's new id is not in the log, and fenced by the next coordinator",
        _replacement_not_written,
        options=STATICS,
        is_quick=True,
    ),
    Mutant(
        "static for ever",
        "sessions of static members do not end",
        _static_for_ever,
        options=STATICS,
        is_quick=True,
    ),
)
