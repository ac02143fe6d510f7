"""compact,delete: what retention drops while a compaction runs, and what power loss brings back."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest

from data_plane.log.batch_walk import BadRange
from data_plane.log.compaction import CompactionJob
from data_plane.log.sim_file_system import PowerLoss
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.records import decode_batch, iter_batch_headers
from tests.log.compaction_world import RetainingWorld
from tests.log.one_log import START_MS, OneLog, batch_of
from tests.log.test_compaction import Pair, compact, compacted_log, pairs, put, settle

FILLER = bytes(300)
# As much as a segment takes: what lies before and behind does not get into one group with it.
APART = [(b"other-%d" % n, bytes(280)) for n in range(5)]


def both() -> OneLog:
    """A compact,delete log that holds nothing, and whose files do not go by themselves."""
    one = compacted_log(delete_retention_ms=1000)
    one.set_config(cleanup_policy=frozenset({"compact", "delete"}), file_delete_delay_ms=60_000)
    return one


def seal(one: OneLog, *records: Pair) -> None:
    """A segment of these records, a batch each."""
    for record in records:
        put(one, record)
    settle(one)


def planned(one: OneLog) -> CompactionJob:
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    return job


def drop_first(one: OneLog, *, durably: bool = False) -> None:
    """Retention by size takes the first segment."""
    one.set_config(retention_bytes=one.log.size_bytes - one.log.segments[0].size)
    assert one.log.apply_retention(one.now_ms) == 1
    one.set_config(retention_bytes=-1)
    if durably:
        one.log.flush()


def lose_power(one: OneLog) -> None:
    one.lose_power(random.Random(1))
    one.set_config()
    one.log.advance_high_watermark(one.log.log_end_offset)


def clean_until_tombstones_go(one: OneLog) -> None:
    for _ in range(3):
        one.now_ms += 5_000
        seal(one, (b"new", b"1"))
        assert compact(one)


def values(one: OneLog, wanted: bytes) -> list[bytes | None]:
    return [value for _, key, value in pairs(one) if key == wanted]


def stored_values(one: OneLog, wanted: bytes) -> list[bytes | None]:
    """As `values`, also where there is damage."""
    found: list[bytes | None] = []
    for name in one.names(".log"):
        data = one.content(name)
        for header in iter_batch_headers(data, 0, len(data)):
            records = decode_batch(data, header.position)
            found += [record.value for record in records if record.key == wanted]
    return found


@pytest.mark.parametrize("durably", [False, True])
def test_retention_while_a_compaction_runs_brings_no_deleted_key_back(durably: bool) -> None:
    one = both()
    seal(one, (b"first", FILLER))
    seal(one, (b"k", FILLER))
    seal(one, *APART)
    seal(one, (b"k", None), (b"z", FILLER))
    job = planned(one)
    drop_first(one, durably=durably)
    job.finish()
    assert one.log.cleaner_offset == one.log.segments[0].base_offset, "it was not rewritten"
    assert not one.names(".cleaned")
    clean_until_tombstones_go(one)
    assert values(one, b"k") == []


def test_nothing_is_compacted_while_power_loss_may_bring_back_what_was_dropped() -> None:
    one = both()
    seal(one, (b"k", FILLER))
    seal(one, (b"first", FILLER))
    seal(one, *APART)
    seal(one, (b"k", None), (b"z", FILLER))
    job = planned(one)
    drop_first(one)
    job.finish()
    one.now_ms += 5_000
    assert not compact(one)
    lose_power(one)
    assert values(one, b"k") == [FILLER, None]
    drop_first(one, durably=True)
    assert compact(one)
    clean_until_tombstones_go(one)
    lose_power(one)
    assert values(one, b"k") == []


@pytest.mark.parametrize("is_whole_group", [False, True])
def test_a_tombstone_stays_behind_what_was_dropped_while_its_last_pass_ran(
    is_whole_group: bool,
) -> None:
    one = both()
    seal(one, (b"first", FILLER))
    seal(one, (b"k", FILLER))
    if not is_whole_group:
        seal(one, (b"second", FILLER))
    seal(one, *APART)
    seal(one, (b"k", None), (b"z", FILLER))
    job = planned(one)
    drop_first(one, durably=True)
    job.finish()
    # The tombstone has its time, and the value before it is still there.
    assert values(one, b"k") == [FILLER, None]
    one.now_ms += 5_000
    job = planned(one)
    drop_first(one)
    job.finish()
    lose_power(one)
    assert values(one, b"k") == [FILLER, None]
    clean_until_tombstones_go(one)
    assert values(one, b"k") == []


def test_what_comes_back_is_not_as_clean_as_what_was_cleaned_without_it() -> None:
    one = both()
    seal(one, (b"k", FILLER))
    seal(one, *APART)
    seal(one, (b"k", None), (b"z", FILLER))
    end = one.log.log_end_offset
    job = planned(one)
    drop_first(one)
    job.finish()
    assert one.log.cleaner_offset == end
    stored = one.manager.checkpoint_job(one.manager.directories[0])
    stored.run()
    stored.finish()
    lose_power(one)
    assert values(one, b"k") == [FILLER, None]
    clean_until_tombstones_go(one)
    assert values(one, b"k") == []


def aborted_transaction() -> OneLog:
    """Its record lies in the second segment, its marker in the last one."""
    one = both()
    seal(one, (b"first", FILLER))
    one.append(
        batch_of(b"aborted", keys=[b"k"], producer=(7, 0, 0), is_transactional=True), commit=False
    )
    put(one, (b"second", FILLER))
    settle(one)
    seal(one, *APART)
    marker = EndTransactionMarker(False, 1)
    buf = bytearray(
        build_end_transaction_marker(marker, timestamp=START_MS, producer_id=7, producer_epoch=0)
    )
    one.log.append_as_leader(
        buf, 0, len(buf), leader_epoch=0, now_ms=one.now_ms, origin="coordinator"
    )
    seal(one, (b"z", FILLER))
    return one


def aborted_offsets(one: OneLog) -> list[int]:
    found = one.log.aborted_transactions(one.log.log_start_offset, one.log.log_end_offset)
    return [entry.first_offset for entry in found]


def test_an_aborted_transaction_stays_aborted_where_its_records_were_not_rewritten() -> None:
    one = aborted_transaction()
    job = planned(one)
    drop_first(one, durably=True)
    job.finish()
    assert values(one, b"k") == [b"aborted"]
    assert aborted_offsets(one) == [1]
    clean_until_tombstones_go(one)
    assert values(one, b"k") == []
    assert aborted_offsets(one) == []


def test_an_aborted_transaction_stays_aborted_behind_a_damaged_segment() -> None:
    one = aborted_transaction()
    name = one.names(".log")[1]
    one.manager.close(one.now_ms)
    one.fs.process_death()
    # Of the batch behind the aborted one.
    one.fs.flip_bit(f"{one.log.folder}/{name}", 300)
    one.open()
    one.set_config()
    assert compact(one)
    assert len(one.manager.take_corruption_reports()) == 1
    read = one.log.read_cold(1, 1, max_offset=10, at_least_one_batch=True)
    assert b"aborted" in bytes(read.buffers[0])
    assert aborted_offsets(one) == [1]


@pytest.mark.parametrize("ends", [OneLog.restart, OneLog.kill, lose_power])
def test_what_is_behind_it_is_rewritten_with_the_list(ends: Callable[[OneLog], None]) -> None:
    """The pass counts it as clean: of each key there is one value."""
    one = aborted_transaction()
    seal(one, (b"z", b"newer"))
    one.log.segments[1].add_bad_ranges([BadRange(0, 1, "a test says so")])
    assert stored_values(one, b"z") == [FILLER, b"newer"]
    assert compact(one)
    assert stored_values(one, b"z") == [b"newer"]
    assert one.log.cleaner_offset == one.log.active.base_offset
    assert aborted_offsets(one) == [1]
    ends(one)
    one.set_config()
    assert aborted_offsets(one) == [1]
    # Without the damage the record goes, and then the list.
    clean_until_tombstones_go(one)
    assert values(one, b"k") == []
    assert aborted_offsets(one) == []


@pytest.mark.parametrize("ends", [OneLog.kill, lose_power])
def test_no_end_within_the_swap_loses_the_list(ends: Callable[[OneLog], None]) -> None:
    """It cannot be made again from the batches."""
    is_over = False
    for operations in count():
        one = aborted_transaction()
        seal(one, (b"z", b"newer"))
        # A recovery walks the last segments, and would find the marker.
        seal(one, *APART)
        seal(one, (b"end", FILLER))
        one.log.segments[1].add_bad_ranges([BadRange(0, 1, "a test says so")])
        job = one.log.compaction_job(one.now_ms)
        assert job is not None
        job.run()
        one.fs.power_loss_at = one.fs.operations + operations
        try:
            job.finish()
            is_over = True
        except PowerLoss:
            pass
        one.fs.power_loss_at = None
        ends(one)
        assert aborted_offsets(one) == [1], operations
        if is_over:
            break
    assert operations > 20


def test_a_deleted_key_stays_deleted_when_the_damage_beside_it_has_gone() -> None:
    """What lies in one group with a damaged segment is rewritten all the same: the pass counts it
    as clean, and when the damage is dropped, tombstones go behind it."""
    one = both()
    seal(one, (b"before", FILLER))
    seal(one, (b"damaged", FILLER))
    seal(one, (b"k", FILLER), (b"k", None))
    seal(one, *APART)
    one.log.segments[1].add_bad_ranges([BadRange(0, 1, "a test says so")])
    assert compact(one)
    drop_first(one, durably=True)
    drop_first(one, durably=True)
    assert values(one, b"k") == [None]
    clean_until_tombstones_go(one)
    assert values(one, b"k") == []


@pytest.mark.parametrize("damaged_count", [0, 1, 2])
def test_what_comes_in_the_place_of_a_damaged_copy_is_not_clean(damaged_count: int) -> None:
    """A compaction runs while the copy is dropped and filled again by the leader. A damaged segment
    is none that it has rewritten; what stands there now has nobody looked through."""
    one = both()
    for value in (b"old", b"new"):
        seal(one, *APART, (b"k", value))
    assert len(one.log.segments) == 3
    for segment in one.log.segments[:damaged_count]:
        segment.add_bad_ranges([BadRange(0, 1, "a test says so")])
    job = planned(one)
    one.log.truncate_fully_and_start_at(0)
    for value in (b"old", b"new"):
        seal(one, *APART, (b"k", value))
    job.finish()
    assert one.log.cleaner_offset == 0
    one.now_ms += 5_000
    assert compact(one)
    assert values(one, b"k") == [b"new"]
    assert one.log.cleaner_offset == one.log.log_end_offset


def test_what_is_cut_and_written_again_at_a_damaged_end_is_not_clean() -> None:
    one = both()
    seal(one, *APART, (b"k", b"old"))
    seal(one, *APART, (b"k", b"new"))
    one.log.segments[1].add_bad_ranges([BadRange(0, 1, "a test says so")])
    kept_end = one.log.segments[1].base_offset
    job = planned(one)
    one.log.truncate_to(kept_end)
    seal(one, *APART, (b"k", b"newer"))
    job.finish()
    assert one.log.cleaner_offset == kept_end
    one.now_ms += 5_000
    assert compact(one)
    assert values(one, b"k") == [b"newer"]


# The first five have brought keys back.
@pytest.mark.parametrize("seed", [92, 152, 162, 189, 208, *range(7)])
def test_no_key_comes_back_and_none_is_lost_whatever_comes_between(seed: int) -> None:
    world = RetainingWorld(random.Random(seed))
    world.run(250)
    assert world.compactions
