"""Whose changes of the metadata are in the next commit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.cell.waiting_writes import (
    COST_MAX,
    WAITING_MAX,
    TooManyWaiting,
    WaitingWrites,
    Wanted,
)
from data_plane.broker.request.refusal import commit_refusal
from data_plane.cell.authors import KAFKA_SOURCE, Author
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import StoreUnavailable
from data_plane.wire.errors import ErrorCode


def nothing(image: MetadataImage) -> Sequence[Change]:
    return ()


def wanted(
    tenant: str | None, epoch: int | None = None, deadline_ms: int = 0, cost: int = 1
) -> Wanted:
    author = None if tenant is None else Author(KAFKA_SOURCE, tenant, "User:alice")
    return Wanted(nothing, lambda error: None, epoch, deadline_ms, author, cost)


def names(taken: Sequence[Wanted]) -> str:
    return "".join("." if each.author is None else each.author.tenant for each in taken)


def test_tenants_take_turns_behind_what_the_cell_decides() -> None:
    waiting = WaitingWrites()
    for _ in range(500):
        waiting.add(wanted("a"))
    for tenant in ("b", "b", "c", None, None):
        waiting.add(wanted(tenant))
    assert names(waiting.take(8)) == "..abcaba"
    assert names(waiting.take(4)) == "aaaa"


def test_the_cell_leaves_half_of_a_commit_to_tenants_that_wait() -> None:
    waiting = WaitingWrites()
    for _ in range(20):
        waiting.add(wanted(None))
    assert names(waiting.take(8)) == "." * 8
    for _ in range(6):
        waiting.add(wanted("a"))
    assert names(waiting.take(8)) == "....aaaa"
    assert names(waiting.take(8)) == "....aa"
    assert names(waiting.take(8)) == "...."
    assert not waiting


def test_commits_of_a_controller_do_not_follow_each_other_while_tenants_wait() -> None:
    waiting = WaitingWrites()
    for epoch in (7, 7, 8, None, 8):
        waiting.add(wanted(None, epoch))
    for _ in range(3):
        waiting.add(wanted("a"))
    assert [each.controller_epoch for each in waiting.take(2)] == [7, 7]
    assert names(waiting.take(2)) == "aa"
    assert [each.controller_epoch for each in waiting.take(2)] == [8]
    assert names(waiting.take(2)) == ".a"
    assert [each.controller_epoch for each in waiting.take(2)] == [8]
    assert not waiting


def test_a_tenant_has_so_many_waiting_and_the_others_go_on() -> None:
    waiting = WaitingWrites()
    for _ in range(WAITING_MAX):
        waiting.add(wanted("a"))
    with pytest.raises(TooManyWaiting, match="1000 changes of the tenant a wait"):
        waiting.add(wanted("a"))
    waiting.add(wanted("b"))
    waiting.add(wanted(None))
    assert names(waiting.take(3)) == ".ab"
    waiting.add(wanted("a"))


def test_whoever_has_too_many_is_told_that_nothing_came_of_the_last_one() -> None:
    refusal = commit_refusal(TooManyWaiting("a"))
    assert refusal.code is ErrorCode.REQUEST_TIMED_OUT, "clients ask again"
    words = "Nothing was changed: 1000 changes of the tenant a wait, which is the maximum"
    assert refusal.message == words
    assert "of control planes wait" in str(TooManyWaiting(""))
    lost = commit_refusal(StoreUnavailable("it is away"))
    assert lost.message == "The metadata store did not commit: it is away"


def test_what_is_decided_together_is_bounded_by_what_it_costs() -> None:
    waiting = WaitingWrites()
    for tenant, cost in (("a", COST_MAX), ("a", 1), ("b", COST_MAX - 1), ("b", 1), ("c", 10)):
        waiting.add(wanted(tenant, cost=cost))
    assert names(waiting.take(9)) == "a"
    assert names(waiting.take(9)) == "bc"
    assert names(waiting.take(9)) == "ab"
    for whose in (None, None, "a"):
        waiting.add(wanted(whose, cost=3 * COST_MAX))
    # However much it costs, one is taken.
    assert [names(waiting.take(9)) for _ in range(3)] == [".", ".", "a"]


def test_who_has_waited_too_long_waits_no_more() -> None:
    waiting = WaitingWrites()
    late = [wanted("a", deadline_ms=5), wanted(None, deadline_ms=5), wanted("b", deadline_ms=5)]
    for each in (*late, wanted("a", deadline_ms=6)):
        waiting.add(each)
    overdue = waiting.take_overdue(5)
    assert len(overdue) == 3
    assert all(each in late for each in overdue)
    assert names(waiting.take(9)) == "a"
    assert not waiting


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), st.sampled_from([None, None, 1, 2]))
    ),
    st.integers(1, 5),
)
def test_everything_is_taken_once_and_each_keeps_its_order(
    asked: list[tuple[str | None, int | None]], most: int
) -> None:
    waiting = WaitingWrites()
    added = [wanted(tenant, None if tenant else epoch) for tenant, epoch in asked]
    for each in added:
        waiting.add(each)
    taken: list[Wanted] = []
    while waiting:
        commit = waiting.take(most)
        assert 1 <= len(commit) <= most
        assert len({each.controller_epoch for each in commit}) == 1
        taken += commit

    def of(writes: list[Wanted], tenant: str | None) -> list[Wanted]:
        return [one for one in writes if (one.author.tenant if one.author else None) == tenant]

    for tenant in (None, "a", "b", "c"):
        assert of(taken, tenant) == of(added, tenant)
