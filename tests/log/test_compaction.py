"""Compaction: what stays, what goes and when, and that a crash leaves one state or the other."""

from __future__ import annotations

import copy
import errno
import random
from itertools import pairwise

import pytest

from data_plane.log.batch_walk import BadRange
from data_plane.log.compaction import CompactionJob, awaits_checkpoint
from data_plane.log.config import INT32_MAX
from data_plane.log.errors import AppendError, LogDirFailure
from data_plane.log.key_map import BUFFER_BYTES, KEY_BYTES
from data_plane.log.sim_file_system import Fault, PowerLoss
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import read_batch_header
from tests.log.one_log import START_MS, TOPIC_ID, OneLog, batch_of
from tests.log.world import read_all

COMPACT = frozenset({"compact"})
Pair = tuple[bytes, bytes | None]


def compacted_log(**settings: object) -> OneLog:
    one = OneLog()
    one.set_config(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.01, delete_retention_ms=1000)
    one.set_config(**settings)
    return one


def put(one: OneLog, *pairs: Pair, producer: tuple[int, int, int] | None = None) -> None:
    """One batch of (key, value)."""
    one.append(
        batch_of(
            *[value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamps=[one.now_ms] * len(pairs),
            producer=producer,
        )
    )


def settle(one: OneLog) -> None:
    """Seal what there is, durably: from here on it may be compacted."""
    if one.log.active.size:
        one.log.roll()
    one.checkpoint()


def compact(one: OneLog, buffer_bytes: int = BUFFER_BYTES) -> bool:
    """Compact if it is due."""
    job = one.log.compaction_job(one.now_ms, buffer_bytes)
    if job is None:
        return False
    job.run()
    job.finish()
    return True


def pairs(one: OneLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in one.records()]


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    one = compacted_log()
    put(one, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    put(one, (b"b", b"4"), (b"c", b"5"))
    settle(one)
    put(one, (b"c", b"6"))
    assert compact(one)
    # Offset 5 lies in the active segment, which compaction does not look at.
    expected = [(2, b"a", b"3"), (3, b"b", b"4"), (4, b"c", b"5"), (5, b"c", b"6")]
    assert pairs(one) == expected
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 6)
    for restart in (one.restart, one.kill):
        restart()
        assert pairs(one) == expected
    settle(one)
    assert compact(one)
    assert pairs(one) == [(2, b"a", b"3"), (3, b"b", b"4"), (5, b"c", b"6")]


def test_reads_at_offsets_that_are_gone_find_the_next_record() -> None:
    one = compacted_log()
    for index in range(12):
        put(one, (b"same", b"%d" % index))
    put(one, (b"other", b"last"))
    settle(one)
    put(one, (b"more", b"x"))
    assert compact(one)
    for offset in range(12):
        result = one.log.read_cold(offset, 1, max_offset=1 << 62, at_least_one_batch=True)
        assert read_batch_header(bytes(result.buffers[0]), 0).last_offset == 11, offset


def test_a_tombstone_stays_for_its_time_after_the_pass_that_saw_it() -> None:
    one = compacted_log(delete_retention_ms=1000)
    put(one, (b"a", b"1"), (b"b", b"1"))
    put(one, (b"a", None))
    settle(one)
    # Long after it was written: the time counts from the first pass (KIP-534).
    one.now_ms += 50_000
    assert compact(one)
    assert pairs(one) == [(1, b"b", b"1"), (2, b"a", None)]
    horizons = [read_batch_header(data, 0).delete_horizon_ms for data in read_all(one.log)]
    assert horizons == [None, one.now_ms + 1000]
    for wait_ms, stays in ((999, True), (1, False)):
        one.now_ms += wait_ms
        put(one, (b"c", b"%d" % wait_ms))
        settle(one)
        assert compact(one)
        assert ((2, b"a", None) in pairs(one)) == stays
    assert [key for _, key, _ in pairs(one)] == [b"b", b"c"]


def test_the_last_batch_stays_until_another_one_comes() -> None:
    """A follower asks for what comes next until it has that, and is not in sync before."""
    one = OneLog()
    for value in (b"0", b"1", b"2"):
        one.append(batch_of(value, value, timestamps=[one.now_ms] * 2))
    # Only now: a compacted topic takes none without a key.
    one.set_config(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.01, delete_retention_ms=1000)
    settle(one)
    assert compact(one)
    assert one.offsets() == [5]
    put(one, (b"a", None))
    settle(one)
    assert compact(one)
    assert one.offsets() == [6]
    one.now_ms += 100_000
    put(one, (b"b", b"1"))
    settle(one)
    assert compact(one)
    assert one.offsets() == [7]


def test_a_value_after_a_tombstone_stays() -> None:
    one = compacted_log(delete_retention_ms=0)
    put(one, (b"a", None))
    put(one, (b"a", b"back"))
    settle(one)
    assert compact(one)
    assert pairs(one) == [(1, b"a", b"back")]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_compressed_batches_keep_their_codec(codec: int) -> None:
    one = compacted_log()
    values = [b"%d" % index * 30 for index in range(6)]
    keys = [b"a", b"b", b"a", b"c", b"a", b"d"]
    one.append(batch_of(*values, keys=keys, compression=codec))
    settle(one)
    assert compact(one)
    assert [offset for offset, _, _ in pairs(one)] == [1, 3, 4, 5]
    assert [read_batch_header(data, 0).compression for data in read_all(one.log)] == [codec]


def test_what_is_not_committed_or_not_durable_is_left_alone() -> None:
    one = compacted_log()
    put(one, (b"a", b"1"))
    put(one, (b"a", b"2"))
    one.log.roll()
    assert not compact(one), "nothing is durable yet"
    one.log.flush()
    assert awaits_checkpoint(one.log)
    assert not compact(one), "the checkpoint on disk does not say so yet"
    one.checkpoint()
    assert not awaits_checkpoint(one.log)
    assert compact(one)
    late = batch_of(b"3", b"4", keys=[b"a", b"a"])
    one.append(late, commit=False)
    settle(one)
    assert not compact(one), "the high watermark has not passed it"
    one.log.advance_high_watermark(one.log.log_end_offset)
    assert compact(one)
    assert pairs(one) == [(3, b"a", b"4")]


def test_min_compaction_lag_protects_what_is_young() -> None:
    one = compacted_log(min_compaction_lag_ms=500)
    for index in range(3):
        put(one, (b"a", b"%d" % index))
        settle(one)
        one.now_ms += 300
    # The last two segments are 600 and 300 ms old.
    one.now_ms -= 1
    assert compact(one)
    assert [offset for offset, _, _ in pairs(one)] == [1, 2]
    one.now_ms += 1000
    assert compact(one)
    assert [offset for offset, _, _ in pairs(one)] == [2]


def test_max_compaction_lag_and_dirty_ratio_decide_when() -> None:
    one = compacted_log(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=10_000)
    for index in range(40):
        put(one, (b"key-%d" % index, b"v" * 50))
    settle(one)
    assert compact(one), "all of it is dirty"
    put(one, (b"key-1", b"new"))
    settle(one)
    assert not compact(one), "a small part is dirty"
    one.now_ms += 10_000
    assert not compact(one)
    one.now_ms += 1
    assert compact(one), "it has waited for longer than max.compaction.lag.ms"
    assert len(pairs(one)) == 40
    assert pairs(one)[-1] == (40, b"key-1", b"new")


@pytest.mark.parametrize("how", ["nothing", "restart", "kill"])
def test_no_record_waits_longer_than_max_compaction_lag(how: str) -> None:
    """Though its segment has room and time left, and nothing is written any more."""
    one = compacted_log(max_compaction_lag_ms=60_000, segment_ms=1 << 50)
    one.set_config(min_cleanable_dirty_ratio=0.9, segment_bytes=1 << 20)
    put(one, (b"k", b"secret"))
    one.now_ms += 59_999
    put(one, (b"k", None))
    one.checkpoint()
    if how != "nothing":
        getattr(one, how)()
        one.log.advance_high_watermark(one.log.log_end_offset)
    background(one)
    assert len(pairs(one)) == 2
    one.now_ms += 300_001
    for _ in range(4):
        background(one)
        one.now_ms += 15_000
    assert pairs(one) == [(1, b"k", None)]


def background(one: OneLog) -> None:
    for job in one.manager.tick(one.now_ms):
        job.run()
        job.finish()


def test_the_oldest_record_counts_for_max_compaction_lag() -> None:
    """Not the last one of its segment; after a start, too."""
    one = compacted_log(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=10_000)
    one.set_config(segment_ms=1 << 50)
    for index in range(40):
        put(one, (b"key-%d" % index, b"v" * 50))
    settle(one)
    assert compact(one), "all of it is dirty"
    put(one, (b"key-1", b"new"))
    one.now_ms += 9_000
    put(one, (b"key-2", b"newer"))
    settle(one)
    assert not compact(one), "a small part is dirty"
    one.kill()
    one.log.advance_high_watermark(one.log.log_end_offset)
    one.now_ms += 1_000
    assert not compact(one)
    one.now_ms += 1
    assert compact(one)


def test_only_topics_that_ask_for_it_are_compacted() -> None:
    one = OneLog()
    put(one, (b"a", b"1"), (b"a", b"2"))
    settle(one)
    assert not compact(one)
    one.set_config(cleanup_policy=COMPACT)
    assert compact(one)
    assert len(pairs(one)) == 1


def test_small_neighbours_become_one_segment() -> None:
    one = compacted_log(segment_bytes=1000)
    for index in range(60):
        put(one, (b"key-%d" % (index % 3), bytes(100)))
    settle(one)
    before = len(one.log.segments)
    assert before > 6
    size_bytes = one.log.size_bytes
    for _ in range(3):
        put(one, (b"more", b"x"))
        settle(one)
        assert compact(one)
    assert len(one.log.segments) <= 4
    assert one.log.size_bytes < size_bytes // 4
    assert one.log.size_bytes == sum(segment.size for segment in one.log.segments)
    assert len(one.names(".log")) == len(one.log.segments)
    assert not [name for name in one.names() if name.endswith((".swap", ".cleaned"))]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_idempotent_producer_goes_on_after_compaction(restarts: bool) -> None:
    one = compacted_log(delete_retention_ms=0)
    for sequence in range(4):
        put(one, (b"a", b"%d" % sequence), producer=(7, 0, sequence))
    put(one, (b"a", b"newer"))
    settle(one)
    put(one, (b"b", b"x"))
    assert compact(one)
    if restarts:
        # Known from batches alone.
        for name in one.names(".snapshot"):
            one.unlink(name)
        one.kill()
    duplicate = batch_of(b"3", keys=[b"a"], producer=(7, 0, 3))
    result = one.append(duplicate)
    assert (result.duplicate, result.first_offset) == (True, 3)
    with pytest.raises(AppendError) as refused:
        put(one, (b"a", b"5"), producer=(7, 0, 5))
    assert refused.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    put(one, (b"a", b"4"), producer=(7, 0, 4))


def test_a_deleted_key_stays_deleted_behind_the_last_record_of_a_silent_producer() -> None:
    """That record stays for its producer's sequence, and longer than the tombstone."""
    one = compacted_log(delete_retention_ms=1000)
    put(one, (b"b", b"1"), (b"a", b"old"), producer=(7, 0, 0))
    put(one, (b"a", None))
    for round_number in range(4):
        settle(one)
        put(one, (b"c", b"%d" % round_number))
        assert compact(one)
        assert (1, b"a", b"old") not in pairs(one)
        assert pairs(one)[:2] == [(0, b"b", b"1"), (1, b"a", None)]
        one.now_ms += 600
    assert (2, b"a", None) not in pairs(one)
    one.kill()
    put(one, (b"a", b"new"), producer=(7, 0, 2))
    settle(one)
    put(one, (b"c", b"last"))
    assert compact(one)
    # The producer has gone on, and nothing holds its former end.
    assert [pair for pair in pairs(one) if pair[1] == b"a"] == [(7, b"a", b"new")]


@pytest.mark.parametrize("how", ["nothing", "restart", "kill"])
def test_a_truncation_to_the_end_of_what_is_compacted_brings_producers_back(how: str) -> None:
    """A deposed leader drops what it had not committed, and compaction has gone by that."""
    one = compacted_log()
    put(one, (b"a", b"1"), producer=(7, 0, 0))
    put(one, (b"a", b"2"), producer=(7, 0, 1))
    put(one, (b"a", b"3"))
    settle(one)
    one.append(
        batch_of(b"4", keys=[b"a"], timestamps=[one.now_ms], producer=(7, 0, 2)), commit=False
    )
    assert compact(one)
    assert pairs(one)[0] == (2, b"a", b"3")
    one.log.truncate_to(3)
    if how != "nothing":
        getattr(one, how)()
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 3)
    assert one.log.producers.producers[7].batches[-1].last_sequence == 1
    put(one, (b"a", b"4"), producer=(7, 0, 2))


@pytest.mark.parametrize("is_name_lost", [False, True])
def test_power_loss_behind_what_is_compacted_brings_producers_back(is_name_lost: bool) -> None:
    one = compacted_log()
    put(one, (b"a", b"1"), producer=(7, 0, 0))
    put(one, (b"a", b"2"), producer=(7, 0, 1))
    put(one, (b"a", b"3"))
    settle(one)
    put(one, (b"a", b"4"), producer=(7, 0, 2))
    # Offset 1 would be kept if that were the producer's last batch.
    assert compact(one)
    path = one.log.active.path()
    one.fs.process_death()
    if is_name_lost:
        one.fs.unlink(path)
    else:
        file = one.fs.open(path)
        file.truncate(0)
        file.close()
    for restart in (one.kill, one.kill, one.restart):
        restart()
        assert (one.log.log_end_offset, pairs(one)) == (3, [(2, b"a", b"3")])
        assert one.log.producers.producers[7].batches[-1].last_sequence == 1
    put(one, (b"a", b"4"), producer=(7, 0, 2))


@pytest.mark.parametrize("crash_at", [None, *range(14)])
def test_the_snapshots_of_merged_segments_go(crash_at: int | None) -> None:
    one = compacted_log(segment_bytes=4000)
    for index in range(30):
        put(one, (b"a", b"%d" % index), producer=(7, 0, index))
        settle(one)
    producers = one.log.producers.snapshot()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    if crash_at is not None:
        one.fs.power_loss_at = one.fs.operations + crash_at
    try:
        job.finish()
    except PowerLoss:
        one.fs.power_loss_at = None
        one.lose_power(random.Random(crash_at))
        one.log.advance_high_watermark(one.log.log_end_offset)
        one.checkpoint()
        compact(one)
    one.fs.power_loss_at = None
    bases = [segment.base_offset for segment in one.log.segments]
    assert len(bases) < 10
    assert one.names(".snapshot") == [f"{base:020d}.snapshot" for base in bases if base]
    one.kill()
    assert one.log.producers.snapshot() == producers


def test_no_tombstone_goes_behind_a_damaged_segment() -> None:
    one = compacted_log(delete_retention_ms=0, segment_bytes=80)
    put(one, (b"a", b"old"))
    settle(one)
    put(one, (b"a", None))
    settle(one)
    put(one, (b"c", b"1"))
    one.log.segments[0].add_bad_ranges([BadRange(0, 1, "a test says so")])
    for _ in range(3):
        assert compact(one)
        one.now_ms += 1000
        settle(one)
        put(one, (b"c", b"more"))
    one.log.segments[0].bad_ranges = None
    assert (1, b"a", None) in pairs(one)


def test_aborted_records_go_and_do_not_hide_committed_ones() -> None:
    one = compacted_log(delete_retention_ms=1000)
    put(one, (b"a", b"committed"))
    one.append(
        batch_of(b"aborted", keys=[b"a"], producer=(7, 0, 0), is_transactional=True), commit=False
    )
    settle(one)
    assert not compact(one) or pairs(one)[0] == (0, b"a", b"committed"), "it is still open"
    marker = bytearray(
        build_end_transaction_marker(
            EndTransactionMarker(False, 1), timestamp=START_MS, producer_id=7, producer_epoch=0
        )
    )
    one.log.append_as_leader(
        marker, 0, len(marker), leader_epoch=0, now_ms=START_MS, origin="coordinator"
    )
    one.log.advance_high_watermark(3)
    settle(one)
    assert compact(one)
    assert pairs(one)[0] == (0, b"a", b"committed")
    assert 1 not in one.offsets()
    assert one.log.aborted_transactions(0, 3) == []


def test_a_damaged_segment_is_not_written_over() -> None:
    one = compacted_log(segment_bytes=600)
    for index in range(20):
        put(one, (b"key-%d" % (index % 2), bytes(80)))
    settle(one)
    one.manager.close(one.now_ms)
    one.fs.process_death()
    path = f"{one.log.folder}/{one.names('.log')[1]}"
    one.fs.flip_bit(path, 100)
    before = one.fs.read_file(path)
    one.open()
    assert compact(one)
    assert one.fs.read_file(path) == before
    reports = one.manager.take_corruption_reports()
    assert {report.path for report in reports} == {path}
    assert {key for _, key, _ in pairs_after_damage(one)} == {b"key-0", b"key-1"}


def pairs_after_damage(one: OneLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """The last segments, which are sound."""
    one.log.advance_high_watermark(one.log.log_end_offset)
    one.log.delete_records(one.log.segments[-2].base_offset)
    return pairs(one)


def planned() -> tuple[OneLog, CompactionJob]:
    one = compacted_log(segment_bytes=500, delete_retention_ms=0)
    for index in range(25):
        value = None if index % 5 == 4 else b"%d" % index * 20
        put(one, (b"key-%d" % (index % 4), value), producer=(index % 2, 0, index // 2))
    settle(one)
    put(one, (b"tail", b"x"))
    one.checkpoint()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    return one, job


@pytest.mark.parametrize("how", ["kill", "power loss"])
def test_a_crash_at_any_step_of_a_compaction_is_harmless(how: str) -> None:
    one, job = planned()
    newest = {key: (offset, value) for offset, key, value in pairs(one)}
    producers = one.log.producers.snapshot()
    first = one.fs.operations
    job.run()
    job.finish()
    last = one.fs.operations
    assert last - first > 20
    states = set()
    for step in range(first, last + 1):
        one, job = planned()
        one.fs.power_loss_at = step
        try:
            job.run()
            job.finish()
        except PowerLoss:
            pass
        one.fs.power_loss_at = None
        if how == "kill":
            one.kill()
        else:
            one.lose_power(random.Random(step))
        found = pairs(one)
        states.add(len(found))
        kept = {key: (offset, value) for offset, key, value in found}
        for key, (offset, value) in newest.items():
            assert kept.get(key) == (offset, value) or (value is None and key not in kept), step
        assert one.log.producers.snapshot() == producers, step
        assert not [name for name in one.names() if name.endswith((".swap", ".cleaned"))], step
        again = copy.deepcopy(found)
        one.restart()
        assert pairs(one) == again
    assert len(states) > 1


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_what_is_appended_behind_a_cut_waits_for_a_checkpoint_of_its_own(
    is_meanwhile: bool,
) -> None:
    """A start would walk it from the cut on, and take what compaction has removed for lost."""
    one = compacted_log()
    for count in (2, 4):
        for _ in range(count):
            put(one, (b"a", b"old"))
        settle(one)
    job = one.manager.checkpoint_job(one.manager.directories[0])
    if not is_meanwhile:
        job.run()
        job.finish()
    one.log.truncate_to(2)
    for _ in range(4):
        put(one, (b"a", b"new"))
    one.log.roll()
    one.log.flush()
    if is_meanwhile:
        job.run()
        job.finish()
    assert one.log.checkpointed_recovery_point == 2
    assert compact(one)
    one.lose_power(random.Random(1))
    assert [offset for offset, _, _ in pairs(one)] == [1, 2, 3, 4, 5]
    one.checkpoint()
    assert compact(one)
    assert pairs(one) == [(5, b"a", b"new")]
    one.lose_power(random.Random(1))
    assert pairs(one) == [(5, b"a", b"new")]


def test_a_start_does_not_take_a_checkpoint_for_newer_than_a_cut() -> None:
    one = compacted_log()
    for _ in range(6):
        put(one, (b"a", b"old"))
    settle(one)
    one.log.truncate_to(2)
    put(one, (b"a", b"new"))
    one.kill()
    assert one.log.checkpointed_recovery_point == 2


def test_a_log_truncated_or_deleted_meanwhile_keeps_its_segments() -> None:
    one, job = planned()
    job.run()
    one.log.truncate_fully_and_start_at(100)
    job.finish()
    assert one.offsets() == []
    put(one, (b"a", b"1"))
    assert one.offsets() == [100]
    assert not one.names(".cleaned")

    one, job = planned()
    job.run()
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    job.finish()
    assert one.manager.offline_directories() == []


def test_what_was_cut_off_meanwhile_is_not_swapped_in_again() -> None:
    """Not even where the cut has left some of the segments that were to be replaced."""
    one = compacted_log(segment_bytes=400)
    for index in range(12):
        put(one, (b"key-%d" % (index % 3), b"%d" % index))
    settle(one)
    one.set_config(segment_bytes=4000)
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    first = one.log.segments[0]
    cut = one.log.segments[1].base_offset + 1
    one.log.truncate_to(cut)
    assert one.log.segments[0] is first
    job.finish()
    expected = [(index, b"key-%d" % (index % 3), b"%d" % index) for index in range(cut)]
    assert pairs(one) == expected
    assert one.log.cleaner_offset <= cut
    one.kill()
    assert pairs(one) == expected
    assert not one.names(".cleaned")


def test_segments_that_retention_takes_meanwhile_do_not_keep_a_log_from_compaction() -> None:
    one = compacted_log(segment_bytes=400)
    for index in range(12):
        put(one, (b"key-%d" % (index % 3), b"%d" % index))
    settle(one)
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    one.log.delete_records(6)
    assert one.log.apply_retention(one.now_ms)
    one.log.flush()
    one.log.delete_pending_segments()
    job.run()
    job.finish()
    assert one.offsets() == list(range(6, 12))
    assert compact(one)
    assert one.offsets() == [9, 10, 11]


def test_what_lies_in_an_open_transaction_is_left_alone() -> None:
    one = compacted_log()
    put(one, (b"a", b"1"))
    one.append(batch_of(b"2", keys=[b"a"], producer=(7, 0, 0), is_transactional=True))
    settle(one)
    assert not compact(one), "the last stable offset has not passed it"


def test_nothing_is_compacted_behind_what_is_too_young() -> None:
    one = compacted_log(min_compaction_lag_ms=500)
    for timestamp_ms in (START_MS, START_MS - 1000, START_MS - 1000):
        one.append(batch_of(b"v", keys=[b"a"], timestamps=[timestamp_ms]))
        settle(one)
    assert not compact(one)
    one.now_ms += 500
    assert compact(one)
    assert one.offsets() == [2]


def test_more_keys_than_one_pass_can_hold_take_several() -> None:
    one = compacted_log()
    for index in range(10):
        put(one, (b"key-%d" % (index % 5), b"%d" % index))
    settle(one)
    passes = 0
    while one.log.cleaner_offset < 10:
        assert compact(one, buffer_bytes=KEY_BYTES)
        passes += 1
        assert passes <= 10
    assert passes > 1
    assert one.offsets() == [5, 6, 7, 8, 9]


def test_a_compacted_segment_keeps_within_the_limits_of_one() -> None:
    one = compacted_log(segment_bytes=1000)
    for index in range(12):
        put(one, (b"key-%d" % index, bytes(200)))
    far = batch_of(b"x", keys=[b"far"])
    far_offset = one.log.log_end_offset + INT32_MAX
    far[0:8] = far_offset.to_bytes(8, "big")
    one.log.append_as_follower(far, 0, len(far), now_ms=one.now_ms)
    one.log.advance_high_watermark(one.log.log_end_offset)
    settle(one)
    assert compact(one)
    assert one.offsets() == [*range(12), far_offset]
    for segment in one.log.segments[:-1]:
        assert segment.sealed, "else nobody scrubs it"
        assert segment.size <= 1000
        assert segment.next_offset - segment.base_offset <= INT32_MAX + 1


def test_a_compacted_segment_reaches_to_the_next_one() -> None:
    """Though its last records are gone."""
    one = compacted_log(segment_bytes=150)
    for _ in range(3):
        put(one, (b"a", bytes(50)))
        settle(one)
    assert compact(one)
    assert one.offsets() == [2]
    assert [segment.base_offset for segment in one.log.segments] == [0, 1, 2, 3]
    for segment, following in pairwise(one.log.segments):
        assert segment.next_offset == following.base_offset


def test_markers_stay_for_the_time_of_tombstones() -> None:
    one = compacted_log(delete_retention_ms=1000)
    one.append(batch_of(b"v", keys=[b"a"], producer=(7, 0, 0), is_transactional=True))
    marker = build_end_transaction_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=1),
        timestamp=START_MS,
        producer_id=7,
        producer_epoch=0,
    )
    one.log.append_as_leader(
        marker, 0, len(marker), leader_epoch=0, now_ms=one.now_ms, origin="coordinator"
    )
    for wait_ms, stays in ((0, True), (999, True), (1, False)):
        one.now_ms += wait_ms
        put(one, (b"b", b"%d" % wait_ms))
        settle(one)
        assert compact(one)
        assert (1 in one.offsets()) is stays


def test_a_compaction_that_finds_no_descriptor_left_is_tried_again() -> None:
    one, job = planned()
    one.fs.faults.append(Fault("open", ".log", errno.EMFILE))
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    assert one.manager.offline_directories() == []
    assert compact(one)


def test_a_log_that_cannot_be_compacted_is_left_alone_until_the_next_start() -> None:
    one = compacted_log()
    put(one, (b"a", b"1"), (b"a", b"2"))
    settle(one)
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    # Nothing says what has gone wrong: it was not run to its end.
    job.finish()
    assert not compact(one)
    one.restart()
    assert compact(one)


def test_a_log_made_anew_is_not_as_clean_as_the_one_before_it() -> None:
    """The checkpoint that a killed process leaves speaks of the log that was deleted since."""
    one = compacted_log()
    for _ in range(3):
        put(one, (b"a", b"old"))
    settle(one)
    assert compact(one)
    one.checkpoint()
    assert one.log.cleaner_offset > 0
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    one.log = one.manager.create(TOPIC_ID, "flights", 0, one.config)
    one.kill()
    assert (one.log.log_end_offset, one.log.cleaner_offset) == (0, -1)
    for _ in range(3):
        put(one, (b"a", b"new"))
    settle(one)
    assert compact(one)
    assert [offset for offset, _, _ in pairs(one)] == [2]


def test_what_comes_where_clean_records_were_cut_off_is_not_clean() -> None:
    one = compacted_log()
    for key in (b"a", b"b", b"c"):
        put(one, (key, b"old"))
    settle(one)
    assert compact(one)
    one.checkpoint()
    assert one.log.cleaner_offset > 1
    one.log.truncate_to(1)
    assert one.log.cleaner_offset == 1
    for key in (b"a", b"b", b"c"):
        put(one, (key, b"new"))
    one.kill()
    assert one.log.cleaner_offset == 1
    one.log.advance_high_watermark(4)
    settle(one)
    assert compact(one)
    assert one.offsets() == [1, 2, 3]


def test_the_end_of_a_sequence_stays_also_where_its_own_record_went_at_the_leader() -> None:
    """A follower that is filled begins with batches in which the leader's compaction has been."""
    leader = compacted_log()
    put(leader, (b"a", None), (b"b", b"2"), producer=(7, 0, 0))
    put(leader, (b"b", b"3"), producer=(7, 0, 2))
    settle(leader)
    assert compact(leader)
    first = bytes(next(iter(read_all(leader.log))))
    header = read_batch_header(first, 0)
    assert (header.last_offset, header.record_count) == (1, 1)

    follower = compacted_log()
    end = header.position + header.batch_length + 12
    follower.log.append_as_follower(first, 0, end, now_ms=follower.now_ms)
    follower.log.advance_high_watermark(2)
    settle(follower)
    follower.now_ms += 100_000
    assert compact(follower)
    follower.kill()
    assert follower.log.producers.producers[7].last_offset == 1
    assert pairs(follower) == [(0, b"a", None)]
