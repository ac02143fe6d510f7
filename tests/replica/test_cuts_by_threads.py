"""A follower whose log a thread cuts: it is not fetched meanwhile, and its role may change."""

from __future__ import annotations

import errno

import pytest

from data_plane.log.errors import LogDirFailure
from data_plane.log.sim_file_system import Fault
from data_plane.wire.errors import ErrorCode
from tests.replica.cell import Cell, Node
from tests.replica.test_truncation import assert_equal


class Changes:
    """A watcher that counts."""

    count = 0

    def partition_changed(self) -> None:
        self.count += 1


def copies(node: Node) -> list[str]:
    names = node.fs.list_directory(node.partition.log.folder)
    return [name for name in names if name.endswith(".copy")]


def parted() -> tuple[Cell, Node, Node]:
    """Broker 2 leads; a thread of broker 1 is to cut what only that one has, from offset 1 on."""
    cell = Cell(2, min_insync_replicas=1, cutting=(1,))
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    one.append()
    one.append()
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    two.append()
    assert cell.fetch(1).diverging == (0, 1)
    assert one.cuts
    assert one.end == 3
    return cell, one, two


def test_a_follower_is_busy_while_a_thread_cuts_its_log() -> None:
    cell, one, two = parted()
    told: list[int] = []
    one.partition.when_free(lambda: told.append(one.end))
    assert one.partition.is_busy
    assert one.ask() is None
    one.partition.truncate_for_divergence(0, 0)
    assert len(one.cuts) == 1, "one at a time"
    one.cut()
    assert one.partition.is_busy
    assert one.end == 3
    one.cut()
    assert not one.partition.is_busy
    assert told == [1]
    cell.catch_up(1)
    assert_equal(one, two)
    assert copies(one) == []


def test_watchers_hear_of_a_cut_and_the_high_watermark_goes_back_with_the_log() -> None:
    _, one, _ = parted()
    partition = one.partition
    partition.log.high_watermark = partition.high_watermark = 2
    changed = Changes()
    partition.watchers[changed] = None
    one.cut()
    assert not changed.count
    one.cut()
    assert changed.count
    assert partition.high_watermark == partition.log.high_watermark == 1


@pytest.mark.parametrize("is_run", [False, True])
@pytest.mark.parametrize("what", ["leads", "another epoch", "closes", "leads and follows"])
def test_what_a_thread_has_made_is_not_used_in_another_role(what: str, is_run: bool) -> None:
    """Who leads now has not said that anything is to go."""
    cell, one, two = parted()
    told: list[int] = []
    one.partition.when_free(lambda: told.append(1))
    if is_run:
        one.cut()
    if what == "closes":
        one.partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        if what != "another epoch":
            cell.commit(isr=(1, 2), leader=1)
            one.deliver()
        if what != "leads":
            cell.commit(isr=(2,), leader=2)
            cell.commit(leader=1)
            cell.commit(leader=2)
            one.deliver()
    while one.cuts:
        one.cut()
    assert told == [1]
    assert not one.partition.is_busy
    assert one.end == 3
    assert copies(one) == []
    if what in ("another epoch", "leads and follows"):
        cell.deliver()
        while one.cuts or cell.fetch(1).diverging:
            while one.cuts:
                one.cut()
        cell.catch_up(1)
        assert_equal(one, two)


def test_who_fetches_hears_once_why_a_cut_has_failed() -> None:
    cell, one, two = parted()
    (job,) = one.cuts
    one.cuts.clear()
    one.partition.cut_finished(job, LogDirFailure("/data", "out of descriptors"))
    job.tidy()
    assert not one.partition.is_busy
    with pytest.raises(LogDirFailure, match="out of descriptors"):
        one.partition.fetch_state()
    cell.fetch(1)
    one.cut()
    one.cut()
    cell.catch_up(1)
    assert_equal(one, two)


def test_a_disk_that_fails_as_the_cut_is_put_in_place_is_told_too() -> None:
    _, one, _ = parted()
    one.cut()
    one.fs.faults.append(Fault("sync", "truncation.checkpoint", errno.EIO))
    one.cut()
    assert not one.partition.is_busy
    with pytest.raises(LogDirFailure):
        one.partition.fetch_state()
