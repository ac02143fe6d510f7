"""Elections when everybody may have lost something: the longest log leads (docs/adr/0016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.election import elect, without_brokers
from data_plane.cell.metadata import PartitionImage
from data_plane.cell.recover import EPOCH_JUMP, jumped_ahead
from data_plane.cell.recovery_waits import REPORT_WAIT_MS
from tests.cell.cell_images import cell, orders, partition
from tests.cell.controller_player import HEARTBEAT_MS, ControllerPlayer

NODES = (1, 2, 3, 4)


def recovering(
    known: Sequence[int],
    ends: Sequence[tuple[int, int, int]],
    replicas: Sequence[int] = (1, 2, 3),
) -> PartitionImage:
    return partition(replicas, (), -1, last_known_elr=known, ends=ends)


def leader_of(
    state: PartitionImage,
    electable: Sequence[int] = (1, 2, 3),
    minimum: int = 2,
    *,
    unclean: bool = False,
    awaited: Sequence[int] = (),
) -> int:
    new = elect(
        state, frozenset(electable), minimum, is_unclean_allowed=unclean, awaited=frozenset(awaited)
    )
    if new is None:
        return -1
    assert (new.isr, new.elr, new.log_ends) == ((new.leader,), (), ())
    assert set(new.last_known_elr) == (
        set(state.last_known_elr) - {new.leader} if minimum > 1 else set()
    )
    return new.leader


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ([], -1),
        ([(1, 4, 90)], -1),
        ([(1, 4, 90), (2, 4, 100)], 2),
        ([(1, 5, 90), (2, 4, 100)], 1),
        ([(2, 4, 90), (1, 4, 90)], 1),
        ([(1, -1, 0), (2, -1, 0)], 1),
        ([(1, 4, 90), (2, 4, 100), (3, 4, 101)], 3),
        # Nobody knows what lies on a disk that has failed.
        ([(1, 4, 90), (2, -1, -1)], -1),
        ([(1, 4, 90), (2, -1, -1), (3, 4, 80)], 1),
    ],
)
def test_the_longest_of_enough_logs_leads(
    ends: Sequence[tuple[int, int, int]], leader: int
) -> None:
    assert leader_of(recovering((1, 2, 3), ends)) == leader


def test_all_have_to_report_where_they_are_fewer_than_min_isr() -> None:
    assert leader_of(recovering((2,), [(2, 4, 100)])) == 2
    assert leader_of(recovering((1, 2), [(2, 4, 100)]), minimum=3) == -1
    assert leader_of(recovering((1, 2), [(2, 4, 100), (1, 5, 0)]), minimum=3) == 1


def test_one_is_enough_where_the_topic_asks_for_one() -> None:
    assert leader_of(recovering((1, 2, 3), [(3, 4, 100)]), minimum=1) == 3


def test_who_reported_and_died_still_says_what_there_was() -> None:
    ends = [(1, 4, 100), (2, 4, 90)]
    # 1 may have what 2 has lost; and 2, which has less, is no reason to wait.
    assert leader_of(recovering((1, 2, 3), ends), electable=(2, 3)) == -1
    assert leader_of(recovering((1, 2, 3), ends), electable=(1, 3)) == 1
    assert leader_of(recovering((1, 2, 3), [*ends, (3, 4, 95)]), electable=(2, 3)) == 3


def test_who_may_yet_report_or_lead_is_waited_for() -> None:
    ends = [(1, 4, 100), (2, 4, 90)]
    state = recovering((1, 2, 3), ends)
    assert leader_of(state, awaited=(1, 2, 3)) == -1
    assert leader_of(state, awaited=(1, 2)) == 1
    assert leader_of(state, electable=(1, 3), awaited=(1, 2)) == -1
    # What others say does not matter, they are no members.
    assert leader_of(recovering((1, 2), ends), awaited=(1, 2, 3)) == 1


@pytest.mark.parametrize(("electable", "leader"), [((3, 4), 3), ((2, 3, 4), 2), ((4,), 4)])
def test_an_unclean_election_takes_no_copy_in_the_making_where_there_is_another(
    electable: tuple[int, ...], leader: int
) -> None:
    """The broker 1 is lost, and 4 is being filled in its place; then the leader is lost, too."""
    state = partition((4, 2, 3, 1), (), -1, elr=(2,), adding=(4,), removing=(1,))
    new = elect(state, frozenset(electable), 2, is_unclean_allowed=True)
    assert new is not None
    assert new.leader == leader


def test_an_unclean_election_prefers_who_had_everything_before_its_power_loss() -> None:
    """3 has been behind for long, 2 has lost its last moments, and 1, which has all, is gone."""
    state = partition((3, 2, 1), (), -1, elr=(1,), last_known_elr=(2,))
    new = elect(state, frozenset((2, 3)), 2, is_unclean_allowed=True)
    assert new is not None
    assert new.leader == 2
    # Unless its log cannot be read.
    state = partition((3, 2, 1), (), -1, last_known_elr=(1, 2), ends=[(2, -1, -1)])
    new = elect(state, frozenset((2, 3)), 2, is_unclean_allowed=True)
    assert new is not None
    assert new.leader == 3


def test_an_unclean_election_prefers_the_longest_log_that_is_known() -> None:
    assert leader_of(recovering((1, 2, 3), []), unclean=True) == 1
    assert leader_of(recovering((1, 2, 3), [(3, 4, 10)]), unclean=True) == 3
    assert leader_of(recovering((1, 2, 3), [(3, 4, 10)]), electable=(2,), unclean=True) == 2
    assert leader_of(recovering((1, 2, 3), []), unclean=True, awaited=(3,)) == -1


def test_images_from_before_are_led_by_the_last_known_leader() -> None:
    state = partition((1, 2, 3), (), -1, last_known_leader=2)
    assert leader_of(state, electable=(1, 3)) == -1
    assert leader_of(state) == 2


@given(
    lengths=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=4, max_size=4),
    known=st.sets(st.sampled_from(NODES), min_size=1),
    reported=st.sets(st.sampled_from(NODES)),
    electable=st.sets(st.sampled_from(NODES)),
    minimum=st.integers(1, 4),
)
def test_what_fewer_than_min_isr_disks_have_lost_is_led(
    lengths: list[tuple[int, int]],
    known: set[int],
    reported: set[int],
    electable: set[int],
    minimum: int,
) -> None:
    """Whatever log the committed one is: if fewer members than min.insync.replicas (or than there
    are) have less, then so has the leader not."""
    ends = [(node_id, *lengths[node_id - 1]) for node_id in sorted(reported & known)]
    state = recovering(sorted(known), ends, NODES)
    leader = leader_of(state, sorted(electable), minimum)
    if leader == -1:
        return
    assert leader in known & reported & electable
    for committed in lengths:
        losers = [one for one in known if lengths[one - 1] < committed]
        if len(losers) < min(minimum, len(known)):
            assert lengths[leader - 1] >= committed


def lost_power(*node_ids: int) -> ControllerPlayer:
    """All of (1, 2, 3) lost power, and these are back."""
    player = ControllerPlayer(cell([1, 2, 3], [partition((1, 2, 3), leader=2)]))
    player.settle()
    player.kill(1, 2, 3)
    player.settle()
    assert set(player.orders().elr) == {1, 2, 3}
    for node_id in node_ids:
        player.restart(node_id, clean=False)
    return player


def test_nobody_leads_before_the_reports_however_long_it_takes() -> None:
    player = lost_power(1, 2, 3)
    player.pass_time(60_000)
    assert player.orders().leader == -1
    player.report(2, 5, 10)
    player.pass_time(60_000)
    assert player.orders().leader == -1


def test_when_all_have_reported_the_longest_leads_at_once() -> None:
    player = lost_power(1, 2, 3)
    player.settle()
    for node_id, end_offset in ((1, 10), (2, 20), (3, 30)):
        player.report(node_id, 5, end_offset)
    player.step()
    assert player.state() == ((3,), (), 3)
    assert set(player.orders().last_known_elr) == {1, 2}
    assert player.orders().log_ends == ()


def test_who_lives_and_does_not_report_is_waited_for_but_not_for_ever() -> None:
    player = lost_power(1, 2, 3)
    player.settle()
    player.report(1, 5, 10)
    player.report(2, 5, 20)
    player.step()
    player.pass_time(REPORT_WAIT_MS - HEARTBEAT_MS)
    assert player.orders().leader == -1
    player.step()
    assert player.orders().leader == 2


def test_what_else_happens_in_the_cell_does_not_make_the_wait_longer() -> None:
    player = lost_power(1, 2, 3)
    player.settle()
    player.report(1, 5, 10)
    player.report(2, 5, 20)
    for _ in range(REPORT_WAIT_MS // HEARTBEAT_MS + 1):
        player.image = replace(player.image, version=player.image.version + 1)
        player.step()
    assert player.orders().leader == 2


@pytest.mark.parametrize("unclean", [False, True])
def test_who_is_just_starting_is_waited_for_too(unclean: bool) -> None:
    """Nobody may elect it yet, but it will report in a moment."""
    state = recovering((1, 2, 3), [(1, 4, 90), (2, 4, 100)])

    def elected(gone: int = -1, *, is_overdue: bool = False) -> int:
        new = without_brokers(
            state,
            frozenset({gone}),
            frozenset(),
            frozenset({1, 2}),
            2,
            is_unclean_allowed=unclean,
            is_overdue=is_overdue,
        )
        return new.leader

    assert elected() == -1
    assert elected(is_overdue=True) == 2
    assert elected(gone=3) == 2


def test_a_dead_member_is_not_waited_for_as_soon_as_enough_have_reported() -> None:
    player = lost_power(1, 2)
    # 3 might have lost nothing: then it is eligible.
    player.settle()
    assert player.orders().elr == (3,)
    player.restart(3, clean=False)
    player.kill(3)
    player.settle()
    player.report(1, 5, 10)
    player.report(2, 5, 20)
    player.step()
    assert player.orders().leader == 2


def test_while_an_eligible_replica_is_away_nobody_reports_and_nobody_is_elected() -> None:
    player = lost_power(1, 2)
    player.settle()
    assert player.orders().elr == (3,)
    assert player.orders().leader == -1
    player.restart(3, clean=True)
    player.settle()
    assert player.state() == ((3,), (), 3)
    assert set(player.orders().last_known_elr) == {1, 2}


def test_a_new_store_wants_new_reports() -> None:
    old = recovering((1, 2), [(1, 4, 90)])
    new = orders(jumped_ahead(cell([1, 2, 3], [old])))
    assert (new.last_known_elr, new.log_ends) == ((1, 2), ())
    assert new.partition_epoch == old.partition_epoch + EPOCH_JUMP
