"""Where logs part: the scenarios of KIP-101 and KIP-279, and what a follower keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.config import LogConfig
from data_plane.log.errors import DamagedLog
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.replica.errors import StaleLeaderEpoch
from data_plane.replica.truncation import diverges, leader_epoch_end
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import LAST_OFFSET_DELTA_POSITION
from data_plane.wire.records import NewRecord, build_batch
from tests.replica.cell import LAG_MS, Cell, Node

NONE = ErrorCode.NONE


def assert_equal(*nodes: Node) -> None:
    """Their logs are the same, byte for byte."""
    first = nodes[0].batches()
    for node in nodes[1:]:
        assert node.batches() == first


def test_kip_101_scenario_1_no_truncation_to_the_high_watermark() -> None:
    """Two messages, both replicas have both, the follower's high watermark covers one; it restarts
    and would truncate to that, then leads: the second one, which was acknowledged, would be gone.
    """
    cell = Cell(2, min_insync_replicas=1)
    leader, follower = cell.nodes[1], cell.nodes[2]
    fates: list[tuple[int, ErrorCode]] = []
    leader.append()
    cell.catch_up(2)
    leader.append(lambda offset, error: fates.append((offset, error)))
    cell.fetch(2)
    # The next fetch acknowledges; its answer, with the new high watermark, is lost.
    request = follower.ask()
    assert request is not None
    leader.answer(request)
    assert fates == [(1, NONE)]
    assert (follower.partition.high_watermark, follower.end) == (1, 2)
    follower.checkpoint()
    follower.stop()
    cell.register(2, is_clean=True)
    cell.deliver()
    assert (follower.partition.high_watermark, follower.end) == (1, 2)
    leader.stop()
    cell.fence(1)
    cell.deliver()
    assert cell.state.leader == 2
    assert follower.epochs() == [(0, 0), (1, 0)]
    assert follower.partition.high_watermark == 2


def test_kip_101_scenario_2_logs_that_went_different_ways_become_one() -> None:
    """Both lose power; the one that lost the last message leads, and writes another in its place.
    High watermarks say that the logs agree. Epochs know better."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    one.append()
    # Nobody but 1 has the second message. An unclean election.
    cell.commit(isr=(2,), leader=2)
    two.deliver()
    two.append()
    assert (one.epochs(), two.epochs()) == ([(0, 0), (1, 0)], [(0, 0), (1, 1)])
    one.deliver()
    # Its high watermark does not cover what it has to drop, and its log is as long.
    answer = cell.fetch(1)
    assert answer.diverging == (0, 1)
    assert one.epochs() == [(0, 0)]
    cell.catch_up(1)
    assert_equal(one, two)


def test_kip_279_the_leader_does_not_know_the_follower_s_last_epoch() -> None:
    """The leader answers with its largest epoch below, and the follower's own end of that epoch
    decides, when it comes earlier."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    one.append()
    # Unclean: 2 leads with nothing, writes in epoch 1.
    cell.commit(isr=(2,), leader=2)
    two.deliver()
    for _ in range(3):
        two.append()
    # Unclean: 1 leads again, in epoch 2, without having heard of epoch 1.
    cell.commit(isr=(1,), leader=1)
    one.deliver()
    one.append()
    assert one.epochs() == [(0, 0), (1, 0), (2, 2)]
    assert two.epochs() == [(0, 1), (1, 1), (2, 1)]
    two.deliver()
    answer = cell.fetch(2)
    # 1 knows epochs 0 and 2: its largest up to 1 is 0 and ends at 2. Follower 2 has nothing of
    # epoch 0, its own epochs begin at 0: everything goes.
    assert answer.diverging == (0, 2)
    assert two.end == 0
    cell.catch_up(2)
    assert_equal(one, two)


def test_kip_279_several_rounds_when_epochs_alternate() -> None:
    """Epochs alternate between the logs, so that one answer is not enough."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    for _ in range(2):
        cell.commit(isr=(2,), leader=2)
        two.deliver()
        two.append()
        two.append()
        cell.commit(isr=(1,), leader=1)
        one.deliver()
        one.append()
        one.append()
    assert [epoch for _, epoch in one.epochs()] == [0, 2, 2, 4, 4]
    assert [epoch for _, epoch in two.epochs()] == [0, 1, 1, 3, 3]
    two.deliver()
    answers = []
    while (answer := cell.fetch(2)).diverging is not None:
        answers.append((answer.diverging, two.end))
    # 3 is not known to 1, whose epoch 2 ends at 3; 2's largest epoch up to 2 is 1, it ends at 3.
    # 1 is not known either: epoch 0 ends at 1 in both logs.
    assert answers == [((2, 3), 3), ((0, 1), 1)]
    cell.catch_up(2)
    assert_equal(one, two)


def test_a_leader_that_has_written_nothing_yet_has_an_epoch_all_the_same() -> None:
    """What a follower has of an epoch between the leader's last batch and its present epoch is not
    the leader's."""
    cell = Cell(3, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2, 3)
    cell.commit(isr=(2,), leader=2)
    two.deliver()
    two.append()
    cell.commit(isr=(1,), leader=1)
    one.deliver()
    two.deliver()
    answer = cell.fetch(2)
    assert answer.diverging == (0, 1)
    assert two.epochs() == [(0, 0)]
    assert cell.fetch(2).error is NONE


def test_a_follower_that_goes_on_where_the_leader_stopped_in_the_same_epoch() -> None:
    """The leader lost the end of its last epoch (unclean), the follower still has it."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    one.append()
    one.append()
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    answer = cell.fetch(1)
    assert answer.diverging == (0, 1)
    assert_equal(one, two)


def test_a_batch_that_reaches_over_the_place_goes_whole() -> None:
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append(count=2)
    cell.catch_up(2)
    one.append(count=5)
    cell.commit(isr=(2,), leader=2)
    two.deliver()
    two.append(count=2)
    two.append(count=9)
    one.deliver()
    cell.catch_up(1)
    assert_equal(one, two)


def test_out_of_range_below_begins_anew_at_the_leader_s_log_start() -> None:
    cell = Cell(2, min_insync_replicas=1, isr=(1,))
    one, two = cell.nodes[1], cell.nodes[2]
    for _ in range(6):
        one.append()
    one.partition.log.delete_records(4)
    answer = cell.fetch(2)
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (two.partition.log.log_start_offset, two.end) == (4, 4)
    cell.catch_up(2)
    assert_equal(one, two)
    assert two.partition.high_watermark == one.partition.high_watermark == 6


@pytest.mark.parametrize("high_watermark", [15, 20])
def test_a_log_start_within_a_batch_is_followed_too(high_watermark: int) -> None:
    """The leader sends the whole batch, which begins below the follower's log end."""
    cell = Cell(2, min_insync_replicas=1, isr=(1,))
    one, two = cell.nodes[1], cell.nodes[2]
    one.append(count=10)
    one.append(count=10)
    one.partition.log.delete_records(15)
    cell.fetch(2)
    assert two.end == 15
    request = two.ask()
    assert request is not None
    answer = one.answer(request)
    whole = b"".join(data for base, _, data in one.batches() if base <= 15 < base + 10)
    two.take(answer._replace(records=whole, high_watermark=high_watermark))
    assert (two.partition.log.log_start_offset, two.end) == (15, 20)
    assert two.partition.high_watermark == two.partition.log.high_watermark == high_watermark


def test_an_empty_log_that_remembers_an_epoch_the_leader_does_not_know() -> None:
    """Retention took everything, the epoch of what was there stayed. Asking and truncating has to
    come to an end all the same."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.commit(isr=(2,), leader=2)
    two.deliver()
    two.append()
    two.partition.log.delete_records(1)
    assert (two.partition.log.latest_epoch, two.end) == (1, 1)
    cell.commit(isr=(1,), leader=1)
    cell.deliver()
    one.append()
    assert cell.fetch(2).diverging == (0, 1)
    cell.catch_up(2)
    assert_equal(one, two)
    assert one.epochs() == [(0, 0), (1, 2)]


def test_the_leader_s_log_start_moves_the_follower_s_within_what_is_committed() -> None:
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    for _ in range(4):
        one.append()
    cell.catch_up(2)
    one.partition.log.delete_records(3)
    cell.fetch(2)
    assert two.partition.log.log_start_offset == 3


def test_batches_of_a_later_epoch_than_the_leader_asked_are_not_stored() -> None:
    cell = Cell(2)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    request = two.ask()
    assert request is not None
    answer = one.answer(request)
    cell.lead(1)
    batch = bytearray(answer.records)
    batch[0:8] = (1).to_bytes(8, "big")
    batch[12:16] = (9).to_bytes(4, "big")
    two.take(answer._replace(records=answer.records + bytes(batch)))
    assert two.epochs() == [(0, 0)]


def test_answers_of_another_leader_epoch_are_refused() -> None:
    cell = Cell(2)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    request = two.ask()
    assert request is not None
    answer = one.answer(request)
    cell.commit(leader=2)
    cell.commit(leader=1)
    two.deliver()
    with pytest.raises(StaleLeaderEpoch):
        two.partition.append_as_follower(
            answer.records,
            0,
            len(answer.records),
            leader_epoch=0,
            leader_high_watermark=0,
            leader_log_start=0,
            now_ms=cell.now_ms,
        )
    assert two.end == 0


def test_a_follower_cuts_nothing_by_a_batch_that_lies_about_its_end() -> None:
    """Its last offset has grown by a flipped bit since it was checked: it would be the first one to
    reach the cut, and committed records would go with it while others count on this replica."""
    cell = Cell(2, min_insync_replicas=1)
    leader, follower = cell.nodes[1], cell.nodes[2]
    for _ in range(4):
        leader.append()
    cell.catch_up(2)
    log = follower.partition.log
    segment = log.segments[0]
    second = segment.position_of(segment.open_file().read_at, 1)
    follower.fs.flip_bit(segment.path(), second + LAST_OFFSET_DELTA_POSITION + 3, 3)
    log.doubt(1)
    segment.forget_hints()
    before = follower.end
    with pytest.raises(DamagedLog, match="damaged from offset 1 on"):
        follower.partition.truncate_for_divergence(0, 3)
    assert follower.end == before
    # At the damage, and below it, the cut is sure.
    follower.partition.truncate_for_divergence(0, 1)
    assert follower.end == 1


def test_a_leader_takes_no_answers() -> None:
    cell = Cell(2)
    partition = cell.leader.partition
    with pytest.raises(StaleLeaderEpoch):
        partition.truncate_for_divergence(0, 0)
    with pytest.raises(StaleLeaderEpoch):
        partition.restart_at(5)
    with pytest.raises(StaleLeaderEpoch):
        partition.append_as_follower(
            b"",
            0,
            0,
            leader_epoch=0,
            leader_high_watermark=0,
            leader_log_start=0,
            now_ms=cell.now_ms,
        )


def test_a_log_cut_below_its_high_watermark_has_a_lower_one() -> None:
    """Only an unclean election does that; what readers get must be there all the same."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    cell.commit(isr=(1,))
    one.deliver()
    one.append()
    one.append()
    cell.now_ms += LAG_MS + 1
    one.partition.review(cell.now_ms)
    assert one.partition.high_watermark == 3
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    cell.fetch(1)
    assert one.partition.high_watermark == one.partition.log.high_watermark == one.end == 1
    two.append()
    cell.catch_up(1)
    assert one.partition.high_watermark == one.partition.log.high_watermark == 2
    one.partition.restart_at(7)
    assert one.partition.high_watermark == 7


def append_of_producer(node: Node, sequence: int) -> None:
    batch = build_batch(
        [NewRecord(node.cell.now_ms, None, b"x")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
    )
    node.partition.append_as_leader(batch, 0, len(batch), now_ms=node.cell.now_ms)


def append_of_key(node: Node, key: bytes, value: bytes) -> None:
    batch = build_batch([NewRecord(node.cell.now_ms, key, value)])
    node.partition.append_as_leader(batch, 0, len(batch), now_ms=node.cell.now_ms)


def test_a_compacted_log_gets_back_what_it_dropped_for_records_that_were_undone() -> None:
    """1 has cleaned away the first value of a key for the second one. 2 leads without that one:
    what 1 has to have then is the first."""
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
        file_delete_delay_ms=0,
    )
    cell = Cell(2, min_insync_replicas=1, config=config)
    one, two = cell.nodes[1], cell.nodes[2]
    append_of_key(one, b"k", b"first")
    append_of_key(one, b"other", b"x")
    cell.catch_up(2)
    cell.commit(isr=(1,))
    one.deliver()
    append_of_key(one, b"k", b"second")
    cell.now_ms += LAG_MS + 1
    one.partition.review(cell.now_ms)
    log = one.partition.log
    log.roll()
    log.flush()
    one.checkpoint()
    job = log.compaction_job(cell.now_ms)
    assert job is not None
    job.run()
    job.finish()
    assert one.epochs() == [(1, 0), (2, 0)]
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    assert cell.fetch(1).diverging == (0, 2)
    cell.catch_up(1)
    assert_equal(one, two)
    assert one.epochs() == [(0, 0), (1, 0)]


def began_anew(*, is_told: bool) -> Cell:
    """3 leads, whose log began anew at its log start, 2; `is_told`: what was there before is of
    epoch 1. Of that 2 has the same, and has not heard that it is committed; 1 has something else,
    with a producer in it."""
    cell = Cell(3, min_insync_replicas=1, isr=(1, 2))
    one, two, three = cell.nodes[1], cell.nodes[2], cell.nodes[3]
    one.append()
    cell.catch_up(2)
    # Nobody but 1 has that, and nobody was told that it is committed.
    append_of_producer(one, 0)
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    append_of_producer(two, 0)
    two.partition.log.delete_records(2)
    request = three.ask()
    assert request is not None
    answer = two.answer(request)
    assert (answer.error, answer.diverging) == (ErrorCode.OFFSET_OUT_OF_RANGE, (1, 2))
    three.take(answer if is_told else answer._replace(diverging=None))
    cell.catch_up(3)
    assert (three.partition.log.log_start_offset, three.end) == (2, 2)
    # As after a crash.
    two.partition.log.high_watermark = two.partition.high_watermark = 0
    cell.commit(isr=(2, 3), leader=2)
    cell.commit(isr=(2, 3), leader=3)
    cell.deliver()
    assert (one.end, two.end, one.partition.high_watermark) == (2, 2, 1)
    return cell


@pytest.mark.parametrize("is_told", [True, False])
def test_what_cannot_be_compared_any_more_is_forgotten(is_told: bool) -> None:
    """A log that ends where its leader's begins may hold something else below, and would remember
    producers by what never counted."""
    cell = began_anew(is_told=is_told)
    one, two, three = cell.nodes[1], cell.nodes[2], cell.nodes[3]
    assert 7 in one.partition.log.producers.producers
    cell.catch_up(1, 2)
    assert (one.partition.log.log_start_offset, one.end) == (2, 2)
    assert not one.partition.log.producers.producers
    three.append()
    cell.catch_up(1, 2)
    assert_equal(one, two, three)


@pytest.mark.parametrize("how", ["goes on", "crash"])
def test_what_is_the_same_below_a_log_that_began_anew_is_kept(how: str) -> None:
    """Whoever began anew was told the epoch of what was there before."""
    cell = began_anew(is_told=True)
    two, three = cell.nodes[2], cell.nodes[3]
    if how == "crash":
        three.stop()
        three.start()
        assert three.partition.is_leader
    log = two.partition.log
    before = log.begun_anew_count
    cell.catch_up(2)
    assert log.begun_anew_count == before
    assert 7 in log.producers.producers
    three.append()
    cell.catch_up(2)
    assert (two.end, log.begun_anew_count) == (3, before)


def test_what_an_unclean_election_has_undone_is_forgotten_though_it_was_committed() -> None:
    """2 leads without the last record of 1, and has deleted all of its own that lies as far. That 1
    knew its record to be committed says nothing any more; 2 knows where its epoch began."""
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    one.append()
    cell.catch_up(2)
    cell.commit(isr=(1,))
    one.deliver()
    append_of_producer(one, 0)
    cell.now_ms += LAG_MS + 1
    one.partition.review(cell.now_ms)
    assert (one.partition.high_watermark, one.end) == (2, 2)
    cell.commit(isr=(2,), leader=2)
    cell.deliver()
    two.append()
    two.append()
    assert two.partition.high_watermark == 3
    two.partition.log.delete_records(2)
    assert cell.fetch(1).diverging == (0, 1)
    cell.catch_up(1)
    assert (one.partition.log.log_start_offset, one.end) == (2, 3)
    assert not one.partition.log.producers.producers
    assert_equal(one, two)


@given(st.data())
def test_a_log_that_ends_where_the_leader_s_begins_is_known_for_the_same_or_not(
    data: st.DataObject,
) -> None:
    """Whatever the leader has deleted: the follower's log is its log below that, or it has parted
    from it, in epochs that the leader never had."""
    leader = sorted(data.draw(st.lists(st.integers(0, 9).map(lambda n: 2 * n), min_size=1)))
    log_start = data.draw(st.integers(1, len(leader)))
    common = data.draw(st.integers(0, log_start))
    last_common = leader[common - 1] if common else 0
    other = st.integers(last_common // 2, 12).map(lambda n: 2 * n + 1)
    parted = data.draw(st.lists(other, min_size=log_start - common, max_size=log_start - common))
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(leader):
        epochs.assign(epoch, offset)
    epochs.truncate_from_start(log_start)
    last_epoch = max(parted, default=last_common)
    found = epochs.end_offset_for(last_epoch, len(leader))
    if found == (-1, -1):
        found = leader[-1], len(leader)
    assert diverges(found, last_epoch, log_start) == (common < log_start)


def test_a_client_is_told_no_end_of_an_epoch_below_the_log_start() -> None:
    cell = Cell(2, min_insync_replicas=1)
    cell.leader.append()
    cell.catch_up(2)
    cell.lead(2)
    cell.leader.append(count=2)
    cell.catch_up(1)
    partition = cell.leader.partition
    assert partition.end_offset_for_epoch(0) == (0, 1)
    partition.log.delete_records(2)
    assert partition.end_offset_for_epoch(0) == (0, 2)
    assert partition.end_offset_for_epoch(1) == (1, 3)
    assert partition.end_offset_for_epoch(2) == (-1, -1)


def test_what_is_known_to_be_committed_is_remembered_when_it_is_deleted() -> None:
    cell = Cell(2, min_insync_replicas=1)
    one, two = cell.nodes[1], cell.nodes[2]
    append_of_producer(one, 0)
    cell.catch_up(2)
    assert two.partition.high_watermark == 1
    cell.commit(leader=2)
    cell.deliver()
    cell.commit(leader=1)
    cell.deliver()
    one.partition.log.delete_records(1)
    cell.catch_up(2)
    assert two.partition.log.log_start_offset == 1
    assert 7 in two.partition.log.producers.producers


def test_epoch_ends_of_a_leader() -> None:
    cell = Cell(1, config=LogConfig())
    node = cell.nodes[1]
    log = node.partition.log
    assert leader_epoch_end(log, 5, 3) == (3, 0)
    assert leader_epoch_end(log, 5, 6) == (-1, -1)
    assert leader_epoch_end(log, 5, -1) == (-1, -1)
    node.append()
    assert leader_epoch_end(log, 5, 0) == (0, 1)
    assert leader_epoch_end(log, 5, 4) == (0, 1)
    assert leader_epoch_end(log, 5, 5) == (5, 1)
