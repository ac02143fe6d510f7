"""What a leader commits, whom it takes into its ISR and whom it leaves out."""

from __future__ import annotations

import pytest

from data_plane.log.config import LogConfig
from data_plane.replica.errors import StaleLeaderEpoch
from data_plane.replica.followers import Follower
from data_plane.replica.leadership import IsrProposal
from data_plane.wire.errors import ErrorCode
from tests.replica.cell import LAG_MS, Broker, Cell, Node

NONE = ErrorCode.NONE
Fates = list[tuple[int, ErrorCode]]


def appended(node: Node, count: int = 1) -> Fates:
    """Append `count` batches with acks=all; what became of them, as it becomes known."""
    fates: Fates = []
    for _ in range(count):
        node.append(lambda offset, error: fates.append((offset, error)))
    return fates


def propose(node: Node, *, may_shrink: bool = True) -> IsrProposal | None:
    return node.partition.propose_isr(node.cell.now_ms, may_shrink=may_shrink)


class Counting:
    """A consumer's watcher and a follower's in one."""

    def __init__(self) -> None:
        self.changes = 0
        self.high_watermarks = 0
        self.reports = 0

    def partition_changed(self) -> None:
        self.changes += 1

    def high_watermark_changed(self) -> None:
        self.high_watermarks += 1

    def report_again(self) -> None:
        self.reports += 1


def test_a_record_is_committed_when_the_whole_isr_has_it() -> None:
    cell = Cell(3)
    leader = cell.leader
    cell.catch_up(2, 3)
    fates = appended(leader)
    cell.fetch(2, 2)
    assert (fates, leader.partition.high_watermark) == ([], 0)
    cell.fetch(3)
    assert fates == []
    cell.fetch(3)
    assert (fates, leader.partition.high_watermark) == ([(0, NONE)], 1)
    assert cell.nodes[3].partition.high_watermark == 1


def test_nothing_is_committed_before_the_isr_has_shown_itself() -> None:
    """A new leader knows nothing of its followers."""
    cell = Cell(3)
    cell.leader.append()
    cell.catch_up(2, 3)
    assert cell.leader.partition.high_watermark == 1
    cell.lead(2)
    leader = cell.leader
    assert leader.partition.high_watermark == 0
    fates = appended(leader)
    cell.catch_up(3)
    assert fates == []
    cell.catch_up(1)
    assert fates == [(1, NONE)]


def test_nothing_is_committed_below_min_isr() -> None:
    """KIP-966: with one of two in sync the high watermark stands still, the log goes on."""
    cell = Cell(3, isr=(1,))
    leader = cell.leader
    assert leader.partition.is_under_min_isr
    fates = appended(leader)
    assert (fates, leader.partition.high_watermark, leader.end) == ([], 0, 1)
    cell.catch_up(2)
    assert fates == []
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    # Proposed is not confirmed.
    cell.catch_up(2)
    assert fates == []
    assert cell.commit_proposal(leader, proposal)
    leader.deliver()
    assert (fates, leader.partition.high_watermark) == ([(0, NONE)], 1)


def test_min_isr_is_bounded_by_the_replicas() -> None:
    cell = Cell(1, min_insync_replicas=3)
    assert appended(cell.leader) == [(0, NONE)]


def test_a_proposed_follower_counts_from_the_proposal_on() -> None:
    """The store may have taken it, and whoever elects would believe that it has everything."""
    cell = Cell(2, min_insync_replicas=1, isr=(1,))
    leader = cell.leader
    cell.catch_up(2)
    assert appended(leader, 1) == []
    cell.now_ms += LAG_MS + 1
    leader.partition.review(cell.now_ms)
    assert leader.partition.high_watermark == 1
    cell.catch_up(2)
    assert propose(leader) is not None
    fates = appended(leader)
    cell.now_ms += LAG_MS + 1
    leader.partition.review(cell.now_ms)
    assert fates == []
    cell.catch_up(2)
    assert fates == [(1, NONE)]


def test_a_leader_with_the_image_of_its_disk_waits_for_all_replicas() -> None:
    """The store may have taken what the leader's life before had proposed."""
    cell = Cell(3, min_insync_replicas=2, isr=(1, 2))
    leader = cell.leader
    leader.stop()
    leader.is_image_old = True
    leader.start()
    fates = appended(leader)
    cell.catch_up(2)
    assert fates == []
    cell.catch_up(3)
    assert fates == [(0, NONE)]
    appended(leader)
    leader.is_image_old = False
    cell.commit(isr=(1, 2))
    cell.deliver()
    assert leader.partition.leadership is not None
    assert leader.partition.leadership.maximal_isr() == {1, 2}


def test_a_follower_that_may_join_counts_before_it_is_proposed() -> None:
    """The high watermark waits for it; so nobody may make it wait, a throttle above all."""
    cell = Cell(3, min_insync_replicas=1, isr=(1,))
    leader = cell.leader
    leadership = leader.partition.leadership
    assert leadership is not None
    appended(leader, 1)
    assert not leadership.counts(2, leader.end)
    cell.catch_up(2)
    fates = appended(leader, 1)
    assert leader.partition.high_watermark == 1
    assert leadership.counts(2, leader.end)
    assert not leadership.counts(3, leader.end)
    cell.now_ms += LAG_MS + 1
    leader.partition.review(cell.now_ms)
    assert fates == [(1, NONE)]
    assert not leadership.counts(2, leader.end)


def test_a_follower_that_is_to_leave_counts_until_that_is_confirmed() -> None:
    cell = Cell(3)
    leader = cell.leader
    cell.catch_up(2, 3)
    fates = appended(leader)
    cell.now_ms += LAG_MS + 1
    cell.catch_up(2)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert proposal.joining == ()
    leader.partition.review(cell.now_ms)
    assert fates == []
    assert cell.commit_proposal(leader, proposal)
    assert fates == []
    leader.deliver()
    assert fates == [(0, NONE)]


def test_one_proposal_at_a_time() -> None:
    cell = Cell(3)
    leader = cell.leader
    cell.catch_up(2, 3)
    leader.append()
    cell.now_ms += LAG_MS + 1
    first = propose(leader)
    assert first is not None
    assert first.isr == (1,)
    cell.catch_up(2)
    assert propose(leader) is None
    leader.partition.isr_refused(first.partition_epoch + 1, cell.now_ms)
    assert propose(leader) is None
    leader.partition.isr_refused(first.partition_epoch, cell.now_ms)
    second = propose(leader)
    assert second is not None
    assert second.isr == (1, 2)


def test_an_image_with_a_newer_partition_epoch_ends_a_proposal() -> None:
    cell = Cell(3)
    leader = cell.leader
    cell.catch_up(2, 3)
    leader.append()
    cell.now_ms += LAG_MS + 1
    cell.catch_up(2)
    proposal = propose(leader)
    assert proposal is not None
    cell.commit()
    leader.deliver()
    assert not cell.commit_proposal(leader, proposal)
    again = propose(leader)
    assert again is not None
    assert again.partition_epoch == proposal.partition_epoch + 1


def test_the_same_image_again_withdraws_no_proposal() -> None:
    """The topic has got another config. The proposal is on its way, and the store may take it."""
    cell = Cell(3, isr=(1, 2))
    leader = cell.leader
    cell.catch_up(2, 3)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)
    leader.deliver()
    leadership = leader.partition.leadership
    assert leadership is not None
    assert leadership.maximal_isr() == {1, 2, 3}
    fates = appended(leader)
    cell.catch_up(2)
    # For so long that it would not be waited for outside the ISR.
    cell.now_ms += LAG_MS + 1
    leader.partition.review(cell.now_ms)
    assert propose(leader) is None
    assert (fates, leader.partition.high_watermark) == ([], 0)
    cell.catch_up(3)
    assert fates == [(0, NONE)]


def test_an_idle_follower_is_in_sync_however_long_it_is_idle() -> None:
    cell = Cell(3)
    cell.leader.append()
    cell.catch_up(2, 3)
    cell.now_ms += 100 * LAG_MS
    assert propose(cell.leader) is None
    cell.leader.append()
    cell.now_ms += LAG_MS
    assert propose(cell.leader) is None
    cell.now_ms += 1
    assert propose(cell.leader) is not None


def test_a_follower_that_keeps_up_but_never_has_all_is_in_sync() -> None:
    """It is always one batch behind when it asks: at each fetch it has what there was at the one
    before."""
    cell = Cell(2, min_insync_replicas=1)
    leader = cell.leader
    leader.append()
    for _ in range(10):
        cell.fetch(2)
        leader.append()
        cell.now_ms += LAG_MS // 2
        assert propose(leader) is None
    cell.now_ms += LAG_MS
    assert propose(leader) is not None


def test_a_follower_that_fetches_and_falls_back_leaves() -> None:
    cell = Cell(2, min_insync_replicas=1)
    leader = cell.leader
    for _ in range(5):
        for _ in range(5):
            leader.append()
        cell.fetch(2)
        cell.now_ms += LAG_MS // 2
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1,)


def test_a_follower_that_never_came_leaves_after_the_lag_time() -> None:
    cell = Cell(3)
    cell.lead(2)
    cell.leader.append()
    cell.now_ms += LAG_MS
    assert propose(cell.leader) is None
    cell.now_ms += 1
    proposal = propose(cell.leader)
    assert proposal is not None
    assert proposal.isr == (2,)


def test_lag_in_messages_where_the_topic_asks_for_it() -> None:
    cell = Cell(3, lag_messages_max=3)
    leader = cell.leader
    cell.catch_up(2, 3)
    leader.append(count=3)
    assert propose(leader) is None
    leader.append()
    cell.catch_up(2)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert cell.commit_proposal(leader, proposal)
    cell.deliver()
    cell.fetch(3)
    assert propose(leader) is None
    cell.catch_up(3)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)


def test_who_lags_in_messages_is_not_waited_for() -> None:
    cell = Cell(2, min_insync_replicas=1, lag_messages_max=1, isr=(1,))
    leader = cell.leader
    cell.catch_up(2)
    assert appended(leader) == []
    leader.append(count=3)
    assert leader.partition.high_watermark == 4


def test_joining_takes_the_high_watermark_and_the_start_of_the_epoch() -> None:
    """After a change of leaders the high watermark may lie below what was acknowledged before."""
    cell = Cell(3, min_insync_replicas=1, isr=(1, 2))
    for _ in range(4):
        cell.leader.append()
    cell.catch_up(2)
    cell.fetch(3)
    cell.fetch(3)
    three = cell.nodes[3]
    assert three.end == 4
    # 3 is taken out of the ISR just after it had been given time to show itself.
    cell.commit(isr=(2, 3), leader=2)
    cell.deliver()
    cell.commit(isr=(2,))
    cell.deliver()
    leader = cell.leader
    # What 2 had heard of the high watermark, less than its log's end.
    leader.partition.high_watermark = leader.partition.log.high_watermark = 1
    three.partition.log.truncate_to(3)
    request = three.ask()
    assert request is not None
    assert leader.answer(request).error is NONE
    assert leader.partition.epoch_start_offset == 4
    assert propose(leader) is None
    cell.catch_up(3)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (2, 3)


def test_a_follower_below_the_high_watermark_does_not_join() -> None:
    cell = Cell(3, isr=(1, 2))
    leader = cell.leader
    for _ in range(5):
        leader.append()
    cell.catch_up(2)
    cell.fetch(3)
    cell.fetch(3)
    assert (leader.partition.high_watermark, cell.nodes[3].end) == (5, 4)
    assert propose(leader) is None
    assert leader.growing == 0
    cell.catch_up(3)
    assert leader.growing
    assert propose(leader) is not None


def test_a_follower_that_was_caught_up_a_moment_ago_does_not_join_below_the_high_watermark() -> (
    None
):
    """Fenced, it was not waited for; unfenced, it lacks what was committed meanwhile."""
    cell = Cell(3, isr=(1, 2))
    leader = cell.leader
    leader.append()
    cell.catch_up(2, 3)
    cell.commit(brokers={3: Broker(1, is_fenced=True)})
    cell.deliver()
    leader.append()
    cell.catch_up(2)
    assert leader.partition.high_watermark == 2
    cell.commit(brokers={3: Broker(1)})
    cell.deliver()
    leader.growing = 0
    leader.partition.review(cell.now_ms)
    assert propose(leader) is None
    assert leader.growing == 0
    cell.catch_up(3)
    assert propose(leader) is not None


def test_where_nothing_is_committed_a_follower_that_lags_does_not_join() -> None:
    """Below min ISR the high watermark stands still, so that everybody has what is committed."""
    cell = Cell(3, isr=(1, 2), min_insync_replicas=3)
    leader = cell.leader
    leader.append()
    leader.append()
    cell.catch_up(2)
    cell.fetch(3)
    assert leader.partition.high_watermark == 0
    assert propose(leader) is None
    cell.catch_up(3)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)


@pytest.mark.parametrize("stale", ["epoch", "fenced"])
def test_kip_903_only_the_registered_incarnation_joins(stale: str) -> None:
    """A follower that caught up, lost its disk and came back is not the one that caught up."""
    cell = Cell(3, isr=(1, 2))
    leader = cell.leader
    registered = Broker(2) if stale == "epoch" else Broker(1, is_fenced=True)
    cell.commit(brokers={3: registered})
    leader.deliver()
    leader.partition.follower_fetched(3, 1, 0, 0, cell.now_ms)
    assert propose(leader) is None
    assert leader.growing == 0


def test_kip_903_a_proposal_names_the_incarnation_that_caught_up() -> None:
    cell = Cell(3, isr=(1, 2))
    leader = cell.leader
    cell.catch_up(2, 3)
    proposal = propose(leader)
    assert proposal is not None
    assert proposal.joining == ((3, 1),)
    cell.commit(brokers={3: Broker(7)})
    cell.image = cell.image.__class__(
        cell.image.version,
        cell.state.__class__(cell.state.replicas, cell.state.isr, 1),
        cell.image.brokers,
    )
    assert not cell.commit_proposal(leader, proposal)


def test_what_an_earlier_incarnation_had_is_forgotten() -> None:
    cell = Cell(3, isr=(1, 2))
    leader = cell.leader
    for _ in range(3):
        leader.append()
    cell.catch_up(2, 3)
    cell.commit(brokers={3: Broker(5)})
    leader.deliver()
    leader.partition.follower_fetched(3, 5, 0, 0, cell.now_ms)
    leadership = leader.partition.leadership
    assert leadership is not None
    assert not leadership.followers[3].is_caught_up(leader.end, LAG_MS, cell.now_ms)
    assert propose(leader) is None


def test_a_leader_alone_in_its_isr_waits_for_a_follower_that_has_just_caught_up() -> None:
    """Otherwise each fetch would find the high watermark moved on, and it could never join."""
    cell = Cell(2, min_insync_replicas=1, isr=(1,))
    leader = cell.leader
    leader.append()
    assert leader.partition.high_watermark == 1
    cell.catch_up(2)
    leader.append()
    assert leader.partition.high_watermark == 1
    cell.fetch(2)
    leader.append()
    cell.fetch(2)
    assert leader.growing
    proposal = propose(leader)
    assert proposal is not None
    # A follower that is fenced, or has been away for long, holds up nobody.
    cell = Cell(2, min_insync_replicas=1, isr=(1,))
    cell.catch_up(2)
    cell.commit(brokers={2: Broker(1, is_fenced=True)})
    cell.deliver()
    assert appended(cell.leader) == [(0, NONE)]


def test_what_a_follower_says_of_its_log_is_true_also_when_it_is_less_than_before() -> None:
    follower = Follower(2)
    follower.fetched(1, 5, 0, 9, 0)
    follower.fetched(1, 3, 1, 9, 0)
    assert (follower.log_end_offset, follower.log_start_offset) == (3, 1)


def test_who_gets_what_there_was_is_caught_up_as_of_the_fetch_before() -> None:
    """The example in followers.py. A fetch may take longer than the lag time."""
    follower = Follower(2)
    follower.fetched(7, 100, 0, 100, 1_000)
    assert follower.last_caught_up_ms == 1_000
    follower.fetched(7, 130, 0, 130, 2_000)
    assert follower.last_caught_up_ms == 2_000
    follower.fetched(7, 140, 0, 160, 9_000)
    assert follower.last_caught_up_ms == 2_000
    follower.fetched(7, 150, 0, 190, 9_500)
    assert follower.last_caught_up_ms == 2_000
    follower.fetched(7, 190, 0, 200, 20_000)
    assert follower.last_caught_up_ms == 9_500
    assert follower.is_caught_up(200, 10_500, 20_000)
    assert not follower.is_caught_up(200, 10_499, 20_000)


def test_brokers_that_are_no_replicas_are_told_so() -> None:
    cell = Cell(3)
    assert not cell.leader.partition.follower_fetched(9, 1, 0, 0, cell.now_ms)
    assert not cell.leader.partition.follower_fetched(1, 1, 0, 0, cell.now_ms)
    alone = Cell(1)
    assert not alone.leader.partition.follower_fetched(2, 1, 0, 0, cell.now_ms)
    cell.commit(replicas=(1, 2), isr=(1, 2))
    cell.leader.deliver()
    assert not cell.leader.partition.follower_fetched(3, 1, 0, 0, cell.now_ms)


def test_a_new_replica_is_known_with_the_image() -> None:
    cell = Cell(3, min_insync_replicas=1, isr=(1,))
    cell.commit(replicas=(1,))
    cell.leader.deliver()
    assert cell.leader.partition.leadership is None
    assert appended(cell.leader) == [(0, NONE)]
    cell.commit(replicas=(1, 3))
    cell.deliver()
    cell.catch_up(3)
    assert cell.leader.growing


def test_a_leader_that_is_replaced_fails_what_waits_and_follows() -> None:
    cell = Cell(3)
    old = cell.leader
    cell.catch_up(2, 3)
    fates = appended(old, 2)
    watcher, reader = Counting(), Counting()
    old.partition.watchers[watcher] = None
    old.partition.log_end_watchers[reader] = None
    cell.lead(2)
    assert fates == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert (watcher.changes, reader.changes) == (1, 1)
    assert old.partition.leader_error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cell.leader.append()
    cell.catch_up(1, 3)
    assert old.batches() == cell.leader.batches()


def test_the_same_leader_in_a_new_epoch_keeps_what_waits() -> None:
    cell = Cell(3)
    leader = cell.leader
    cell.catch_up(2, 3)
    fates = appended(leader)
    cell.commit(leader=2)
    cell.commit(leader=1)
    leader.deliver()
    assert (fates, leader.partition.leader_epoch) == ([], 2)
    request = cell.nodes[2].ask()
    assert request is not None
    assert leader.answer(request).error is ErrorCode.FENCED_LEADER_EPOCH
    cell.deliver()
    cell.catch_up(2, 3)
    assert fates == [(0, NONE)]


def test_what_followers_had_in_an_older_epoch_does_not_count_in_a_new_one() -> None:
    """Another one led in between, with less, and had the followers truncate; the old leader heard
    of nothing."""
    cell = Cell(3, min_insync_replicas=2)
    old = cell.leader
    cell.catch_up(2, 3)
    old.append()
    request = cell.nodes[3].ask()
    assert request is not None
    cell.nodes[3].take(old.answer(request))
    # 3 has told of the record that 2 lacks, and would now have it committed by itself.
    request = cell.nodes[3].ask()
    assert request is not None
    old.answer(request)
    before = old.partition.high_watermark
    cell.commit(leader=2)
    cell.nodes[2].deliver()
    cell.nodes[3].deliver()
    cell.leader.append()
    cell.catch_up(3)
    cell.fence(2)
    cell.commit(leader=1)
    old.deliver()
    assert (cell.state.isr, old.partition.leader_epoch) == ((1, 3), cell.state.leader_epoch)
    assert old.partition.high_watermark == before


def test_an_older_image_changes_nothing() -> None:
    cell = Cell(3)
    old = cell.image
    cell.lead(2)
    node = cell.nodes[1]
    cell.image, newest = old, cell.image
    node.deliver()
    cell.image = newest
    assert not node.partition.is_leader
    assert node.partition.leader_epoch == 1


def test_followers_are_woken_by_appends_and_told_of_the_high_watermark() -> None:
    cell = Cell(2)
    leader = cell.leader
    consumer, follower = Counting(), Counting()
    leader.partition.watchers[consumer] = None
    leader.partition.log_end_watchers[follower] = None
    leader.append()
    assert (consumer.changes, follower.changes, follower.high_watermarks) == (0, 1, 0)
    cell.catch_up(2)
    assert (consumer.changes, follower.changes, follower.high_watermarks) == (1, 1, 1)


def test_a_duplicate_waits_for_its_original_and_for_nothing_behind_it() -> None:
    cell = Cell(2)
    leader = cell.leader
    cell.catch_up(2)
    fates = appended(leader, 3)
    seen: Fates = []
    leader.partition.when_committed(0, lambda error: seen.append((0, error)))
    two = cell.nodes[2]
    for _ in range(2):
        request = two.ask()
        assert request is not None
        two.take(leader.answer(request, batches_max=1))
    assert leader.partition.high_watermark == 1
    assert (fates, seen) == ([(0, NONE)], [(0, NONE)])


# Where the topic asks for syncs


def test_a_leader_s_own_copy_counts_when_it_is_synced() -> None:
    cell = Cell(2, config=LogConfig(durability_fsync=True))
    leader, two = cell.leader, cell.nodes[2]
    cell.catch_up(2)
    fates = appended(leader)
    own: list[ErrorCode] = []
    leader.partition.when_appended(0, own.append)
    cell.fetch(2)
    two.sync()
    cell.fetch(2)
    assert (fates, own) == ([], [])
    leader.sync()
    assert (fates, own) == ([(0, NONE)], [NONE])


def test_a_follower_says_what_it_has_synced_only() -> None:
    cell = Cell(2, config=LogConfig(durability_fsync=True))
    leader, two = cell.leader, cell.nodes[2]
    cell.catch_up(2)
    fates = appended(leader)
    leader.sync()
    cell.fetch(2)
    told: list[int] = []
    assert two.partition.is_busy
    two.partition.when_free(lambda: told.append(1))
    assert two.ask() is None
    assert fates == []
    two.sync()
    assert told == [1]
    assert two.partition.high_watermark == 0, "to have it is not to know that it is committed"
    cell.fetch(2)
    assert fates == [(0, NONE)]


@pytest.mark.parametrize("flush_messages", [1, 3])
def test_a_copy_is_synced_when_so_many_messages_are_not(flush_messages: int) -> None:
    leader = Cell(2, config=LogConfig(flush_messages=flush_messages)).leader
    for _ in range(flush_messages - 1):
        leader.append()
    assert not leader.partition.is_busy
    leader.append()
    assert leader.partition.is_busy


def test_a_follower_that_leads_counts_its_own_copy_when_it_is_synced() -> None:
    cell = Cell(2, min_insync_replicas=1, config=LogConfig(durability_fsync=True))
    two = cell.nodes[2]
    cell.leader.append()
    cell.fetch(2)
    cell.commit(isr=(2,), leader=2)
    two.deliver()
    assert two.partition.high_watermark == 0
    two.sync()
    assert two.partition.high_watermark == 1
    assert two.syncs == []


def test_who_begins_to_follow_syncs_what_it_has_before_it_claims_it() -> None:
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    for node in (one, two):
        node.partition.log.update_config(LogConfig(durability_fsync=True))
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    assert one.partition.is_busy
    assert one.ask() is None
    one.sync()
    assert one.ask() is not None


def test_a_failed_sync_ends_a_follower() -> None:
    cell = Cell(2, config=LogConfig(durability_fsync=True))
    two = cell.nodes[2]
    cell.leader.append()
    cell.fetch(2)
    told: list[int] = []
    two.partition.when_free(lambda: told.append(1))
    two.partition.sync_failed(ErrorCode.KAFKA_STORAGE_ERROR)
    assert told == [1]
    assert not two.partition.is_follower
    assert not two.partition.follow_image(cell.state, None, cell.now_ms)  # type: ignore[arg-type]


def test_what_a_failed_sync_has_left_is_never_acknowledged() -> None:
    cell = Cell(2, config=LogConfig(durability_fsync=True))
    leader, two = cell.leader, cell.nodes[2]
    cell.catch_up(2)
    fates = appended(leader)
    leader.sync()
    cell.fetch(2)
    two.partition.sync_failed(ErrorCode.KAFKA_STORAGE_ERROR)
    assert two.ask() is None
    with pytest.raises(StaleLeaderEpoch):
        two.partition.fetch_state()
    assert fates == []


def test_who_was_taken_out_of_the_isr_comes_back_by_fetches_of_its_own_only() -> None:
    """A broker that stops, or whose disk has failed, had everything a moment ago."""
    cell = Cell(3)
    leader = cell.leader
    leader.append()
    cell.catch_up(2, 3)
    cell.commit(isr=(1, 3))
    leader.deliver()
    assert propose(leader) is None
    cell.catch_up(2)
    proposal = propose(leader)
    assert proposal is not None
    assert set(proposal.isr) == {1, 2, 3}
