"""A copy that is cut where it has been cleaned begins anew, and no other one does."""

from __future__ import annotations

import random

import pytest

from data_plane.log.cleaned_end import note_cleaned_end
from data_plane.replica import following
from tests.log.sync_scenarios import SECTOR_VALUE_BYTES
from tests.replica.cell import Cell
from tests.replica.cleaned_copy import COMPACT, CleanedCopy, RandomCleanedCopy, compact


def said_twice(first: int, last: int) -> CleanedCopy:
    """Key `k` at offsets `first` and `last`, other keys between and one behind; the copy has it
    all, in a segment of its own for each."""
    world = CleanedCopy()
    for offset in range(last + 2):
        world.say(b"k" if offset in (first, last) else b"%d" % offset, b"%d" % offset)
        world.fetch_all()
        world.copy.log.roll()
    return world


@pytest.mark.parametrize("how", ["kill", "restart"])
@pytest.mark.parametrize("policy", [COMPACT, frozenset({"delete"})])
def test_one_that_was_cleaned_itself_knows_so_after_a_crash(
    how: str, policy: frozenset[str]
) -> None:
    """The checkpoint was written before the records were committed."""
    world = said_twice(0, 3)
    world.copy.checkpoint()
    world.commit()
    world.fetch_all()
    job = world.copy.log.compaction_job(world.copy.now_ms)
    assert job is not None
    job.run()
    job.finish()
    assert world.copy.offsets() == [1, 2, 3, 4]
    world.copy.set_config(cleanup_policy=policy)
    getattr(world.copy, how)()
    world.elect_uncleanly(2)
    world.say(b"new", b"v")
    world.fetch_all()
    assert world.copy.offsets() == [0, 1, 2]


@pytest.mark.parametrize("how", ["kill", "restart"])
@pytest.mark.parametrize("policy", [COMPACT, frozenset({"delete"})])
def test_one_that_got_what_its_leader_had_cleaned_knows_so_after_a_crash(
    how: str, policy: frozenset[str]
) -> None:
    world = CleanedCopy()
    world.copy.set_config(cleanup_policy=policy)
    for offset, key in enumerate((b"k", b"a", b"b", b"k", b"c", b"d")):
        world.say(key, b"%d" % offset)
        world.leader.log.roll()
    world.commit(5)
    world.copy.checkpoint()
    assert compact(world.leader)
    world.fetch_all()
    assert world.copy.offsets() == [1, 2, 3, 4, 5]
    getattr(world.copy, how)()
    world.elect_uncleanly(2)
    world.say(b"new", b"v")
    world.fetch_all()
    assert world.copy.offsets() == [0, 1, 2]


def test_one_is_cut_and_no_more_where_cleaning_never_came() -> None:
    world = said_twice(0, 2)
    world.commit(4)
    world.fetch_all()
    world.copy.checkpoint()
    assert compact(world.copy)
    assert world.copy.offsets() == [1, 2, 3]
    for key in (b"x", b"y", b"z"):
        world.say(key, b"v")
    world.commit()
    world.fetch_all()
    assert world.copy.log.high_watermark == 7
    before = world.copy.log.begun_anew_count
    world.elect_uncleanly(5)
    world.say(b"new", b"v")
    world.fetch_all()
    assert world.copy.log.begun_anew_count == before
    assert world.copy.offsets() == [1, 2, 3, 4, 5]


def test_one_that_was_never_cleaned_is_not_suspected_after_a_restart() -> None:
    world = said_twice(0, 3)
    world.commit()
    world.fetch_all()
    world.copy.restart()
    world.elect_uncleanly(2)
    before = world.copy.log.begun_anew_count
    world.fetch_all()
    assert world.copy.log.begun_anew_count == before


def test_what_was_never_committed_is_cut_from_a_copy_that_others_count_on() -> None:
    """It must not drop what they count on."""
    world = CleanedCopy()
    for offset, key in enumerate((b"k", b"a", b"b", b"k", b"c", b"d")):
        world.say(key, b"%d" % offset)
        world.leader.log.roll()
    world.commit()
    assert compact(world.leader)
    world.say(b"tail", b"1")
    world.fetch_all()
    world.say(b"tail", b"2")
    world.fetch_all()
    assert world.copy.log.cleaned_end == 6
    world.copy.kill()
    assert world.copy.log.cleaned_end == 6
    before = world.copy.log.begun_anew_count
    world.elect_uncleanly(6)
    world.say(b"new", b"v")
    world.fetch_all()
    assert world.copy.log.begun_anew_count == before


def test_a_log_that_nothing_is_on_record_of_is_suspected_as_before() -> None:
    """One that an older version has compacted."""
    world = said_twice(0, 3)
    world.commit()
    world.fetch_all()
    world.copy.checkpoint()
    assert compact(world.copy)
    world.copy.restart()
    world.copy.unlink("cleaned-end.checkpoint")
    world.copy.restart()
    assert world.copy.log.segments
    assert world.copy.log.cleaned_end == 5
    world.elect_uncleanly(2)
    world.fetch_all()
    assert world.copy.offsets() == [0, 1]


def test_a_log_that_nothing_is_on_record_of_is_suspected_no_further_than_it_goes() -> None:
    """Power loss leaves a log that ends below the high watermark of its checkpoint. It is filled
    again and others count on it: what was never committed is cut from it, and nothing else."""
    world = said_twice(0, 3)
    world.commit()
    world.copy.checkpoint()
    world.copy.unlink("cleaned-end.checkpoint")
    for key in (b"x", b"y", b"z"):
        world.say(key, bytes(SECTOR_VALUE_BYTES))
        world.commit()
        world.fetch_all()
    # The directory's checkpoint tells the high watermark, and the disk loses what lay below.
    job = world.copy.manager.checkpoint_job(world.copy.manager.directories[0])
    job.run()
    job.finish()
    assert world.copy.log.high_watermark == 8
    world.copy.lose_power(random.Random(1))
    assert world.copy.log.segments
    end_offset = world.copy.log.log_end_offset
    assert end_offset < 8, "nothing is lost"
    assert world.copy.log.cleaned_end == end_offset


@pytest.mark.parametrize("policy", [COMPACT, frozenset({"delete"})])
def test_a_log_that_begins_anew_forgets_durably_what_was_cleaned_of_its_former_self(
    policy: frozenset[str],
) -> None:
    world = said_twice(0, 3)
    world.commit()
    world.fetch_all()
    world.copy.checkpoint()
    assert compact(world.copy)
    assert world.copy.log.cleaned_end == 5
    world.copy.set_config(cleanup_policy=policy)
    world.copy.log.truncate_fully_and_start_at(0)
    world.fetch_all()
    world.copy.checkpoint()
    for seed in range(8):
        world.copy.lose_power(random.Random(seed))
        assert world.copy.log.segments
        assert world.copy.log.cleaned_end == 0


def test_one_that_can_never_reach_where_its_leader_had_cleaned_begins_anew() -> None:
    """All who had the newer record have lost it, with their power: the older one has to come
    back."""
    world = CleanedCopy()
    for offset, key in enumerate((b"k", b"a", b"b", b"c", b"k", b"d")):
        world.say(key, b"%d" % offset)
        world.leader.log.roll()
    world.commit()
    assert compact(world.leader)
    while world.copy.log.log_end_offset < 3:
        world.fetch(max_bytes=1)
    assert world.copy.log.cleaned_end == 6
    world.copy.checkpoint()
    world.copy.lose_power(random.Random(1))
    world.elect_uncleanly(4)
    world.commit()
    world.fetch_all()
    assert world.copy.offsets() == [0, 1, 2, 3]
    assert world.copy.log.cleaned_end == 0


def test_it_does_so_before_its_leader_counts_on_it() -> None:
    cell = Cell(2, min_insync_replicas=1, isr=(1,))
    for _ in range(4):
        cell.nodes[1].append()
    log = cell.nodes[2].partition.log
    note_cleaned_end(log, 6)
    cell.catch_up(2)
    assert log.begun_anew_count == 1
    assert log.log_end_offset == 4


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_one_that_others_count_on_is_cut_and_never_begins_anew(isr: tuple[int, ...]) -> None:
    """What its former self had been cleaned for is lost with the power of all: it is in the ISR,
    and its log is cut in the ordinary way."""
    cell = Cell(2, min_insync_replicas=1)
    leader, follower = cell.nodes[1], cell.nodes[2].partition
    for _ in range(4):
        leader.append()
    cell.catch_up(2)
    for _ in range(2):
        leader.append()
    cell.fetch(2)
    assert (follower.high_watermark, follower.log.log_end_offset) == (4, 6)
    note_cleaned_end(follower.log, 9)
    cell.commit(isr=isr)
    cell.deliver()
    follower.truncate_for_divergence(0, 5)
    assert follower.log.log_end_offset == (5 if 2 in isr else 0)


def test_damage_is_cut_by_what_is_on_record_although_the_log_is_not_loaded_yet() -> None:
    """Its topic is not compacted any more; who asks first after a start is the repair."""
    world = said_twice(0, 3)
    world.commit()
    world.fetch_all()
    world.copy.checkpoint()
    assert compact(world.copy)
    world.copy.set_config(cleanup_policy=frozenset({"delete"}))
    world.copy.restart()
    log = world.copy.log
    assert not log.is_loaded
    assert following.cut_damaged(log, 2) is None
    world.fetch_all()
    assert world.copy.offsets() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_key_has_its_newest_value(seed: int) -> None:
    RandomCleanedCopy(random.Random(seed)).run(150)


def test_the_histories_of_that_reach_what_they_are_for() -> None:
    worlds = [RandomCleanedCopy(random.Random(seed)) for seed in range(10)]
    for world in worlds:
        world.run(150)
    cuts = sum(world.cuts for world in worlds)
    begun_anew = sum(world.begun_anew for world in worlds)
    assert 0 < begun_anew < cuts
