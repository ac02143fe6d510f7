"""Starts after a crash: torn tails, lost files, and damage in the segment that took appends."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest

from data_plane.log import loading
from data_plane.log.damage import first_damaged_offset
from data_plane.log.log import COORDINATOR, Log
from data_plane.log.segment_checks import largest_timestamp
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.kernel_types import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_POSITION,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    MAGIC_POSITION,
)
from data_plane.wire.records import decode_batch
from tests.log.one_log import SMALL, START_MS, OneLog, batch_of
from tests.log.test_corruption import served
from tests.log.world import read_all

RESTARTS = ["restart", "kill", "lose_power"]
SUFFIXES = [".index", ".timeindex", ".snapshot", "leader-epoch.checkpoint", "partition.json"]
MADE_AGAIN = [(suffix, how) for suffix in SUFFIXES for how in RESTARTS]
# The directory's summary stands in for the log start, after a clean stop only.
MADE_AGAIN.append(("log-start.checkpoint", "restart"))


def state(log: Log) -> dict[str, object]:
    """Everything that a restart must bring back."""
    end = log.log_end_offset
    log.advance_high_watermark(end)
    times = range(START_MS, START_MS + 60, 7)
    return {
        "ends": (log.log_start_offset, end),
        "batches": read_all(log),
        "producers": log.producers.snapshot(),
        "epochs": list(log.epochs.entries),
        "by time": [log.offset_for_timestamp(time, max_offset=end) for time in times],
        "latest": log.max_timestamp_offset(max_offset=end),
        "largest": [largest_timestamp(segment) for segment in log.segments],
    }


def lively_log() -> OneLog:
    """Several segments, two producers, two epochs, a log start within the first segment."""
    one = OneLog(segment_bytes=900, index_interval_bytes=150)
    for index in range(24):
        one.epoch = index // 9
        one.now_ms = START_MS + index * 2
        producer = (index % 2, 0, index // 2)
        value = b"%d" % index
        one.append(batch_of(value.ljust(90, b"-"), timestamps=[one.now_ms], producer=producer))
    one.log.delete_records(2)
    assert len(one.log.segments) >= 5
    return one


def begin_again(one: OneLog, how: str) -> None:
    if how == "restart":
        one.fs.process_death()
        one.open()
    elif how == "kill":
        one.kill()
    else:
        # What the test did to the files is not what gets lost.
        one.fs.root.sync_tree()
        one.lose_power(random.Random(1))


@pytest.mark.parametrize("how", ["kill", "lose_power"])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_tail_torn_at_any_byte_is_cut_to_whole_batches(how: str, is_flushed: bool) -> None:
    one = OneLog()
    one.fill(3)
    if is_flushed:
        one.checkpoint()
    kept = read_all(one.log)
    size = one.log.active.size
    one.append(batch_of(b"x" * 40, b"y" * 40))
    whole_size = one.log.active.size
    one.log.flush()
    path = one.log.active.path()
    one.fs.process_death()
    original = one.fs
    for cut in range(size, whole_size):
        one.fs = copy.deepcopy(original)
        one.fs.open(path).truncate(cut)
        file = one.fs.open(path)
        file.inode.sync()
        begin_again(one, how)
        assert one.log.log_end_offset == 3, f"cut at {cut}"
        assert one.fs.size(path) == size, f"cut at {cut}"
        assert read_all(one.log) == kept
        assert one.append(batch_of(b"new")).first_offset == 3
        assert one.offsets() == [0, 1, 2, 3]
        assert one.manager.take_corruption_reports() == []


def test_a_last_batch_that_went_bad_is_not_taken_for_torn_after_kill() -> None:
    """Whichever bit it is, of the header or the records: it was stored whole, so it is damage, and
    what the log held does not get less without a word."""
    one = OneLog()
    one.fill(2)
    position = one.log.active.size
    one.append(batch_of(b"x", b"y"))
    size = one.log.active.size
    path = one.log.active.path()
    one.fs.process_death()
    original = one.fs
    for byte in range(position + BATCH_LENGTH_POSITION, size):
        if LEADER_EPOCH_POSITION <= byte - position < MAGIC_POSITION:
            continue  # No checksum covers it: brokers write it.
        for bit in range(8):
            one.fs = copy.deepcopy(original)
            one.fs.flip_bit(path, byte, bit)
            one.kill()
            where = f"bit {bit} of byte {byte - position}"
            assert one.log.log_end_offset == 4, where
            assert first_damaged_offset(one.log) == 2, where
            assert len(one.manager.take_corruption_reports()) == 1, where


def test_a_last_batch_with_two_bad_fields_counts_for_one_offset() -> None:
    one = OneLog()
    one.fill(1)
    position = one.log.active.size
    one.append(batch_of(b"x", b"y", b"z"))
    path = one.log.active.path()
    one.fs.process_death()
    one.fs.flip_bit(path, position + LAST_OFFSET_DELTA_POSITION)
    one.fs.flip_bit(path, position + BATCH_HEADER_BYTES - 4, 1)
    one.kill()
    assert one.log.log_end_offset == 2
    assert first_damaged_offset(one.log) == 1


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_zeros_behind_the_last_batch_are_cut(how: str) -> None:
    """What a file system leaves whose sizes reach the disk before its bytes."""
    one = OneLog()
    one.fill(3)
    one.checkpoint()
    size = one.log.active.size
    path = one.log.active.path()
    one.fs.process_death()
    one.fs.open(path).truncate(size + 700)
    one.fs.open(path).inode.sync()
    begin_again(one, how)
    assert (one.log.log_end_offset, one.fs.size(path)) == (3, size)
    one.fill(1)
    assert one.offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize(("suffix", "how"), MADE_AGAIN)
@pytest.mark.parametrize("damage", ["lost", "empty", "torn", "zeros"])
def test_a_lost_or_torn_file_is_made_again(how: str, suffix: str, damage: str) -> None:
    one = lively_log()
    one.checkpoint()
    expected = state(one.log)
    if how == "restart":
        one.manager.close(one.now_ms)
    one.fs.process_death()
    names = one.names(suffix)
    assert names, suffix
    for name in names:
        path = f"{one.log.folder}/{name}"
        if damage == "lost":
            one.unlink(name)
            continue
        file = one.fs.open(path)
        size = file.size()
        if damage == "torn":
            # In the middle of an entry or a number.
            file.truncate(max(0, size - 3))
        elif damage == "empty":
            file.truncate(0)
        else:
            file.write_at(0, bytes(size))
        file.inode.sync()
    begin_again(one, how)
    assert state(one.log) == expected


@pytest.mark.parametrize("how", RESTARTS)
def test_without_the_directorys_files_everything_is_walked(how: str) -> None:
    one = lively_log()
    one.checkpoint()
    expected = state(one.log)
    if how == "restart":
        one.manager.close(one.now_ms)
    one.fs.process_death()
    for name in ("recovery-point.checkpoint", "clean-shutdown"):
        if name in one.fs.list_directory("/data"):
            one.fs.unlink(f"/data/{name}")
    begin_again(one, how)
    assert one.manager.recovered_logs == 1
    assert state(one.log) == expected


def test_a_log_that_is_as_checkpointed_is_left_alone_after_kill() -> None:
    one = lively_log()
    one.checkpoint()
    expected = state(one.log)
    one.kill()
    assert one.manager.recovered_logs == 0
    assert state(one.log) == expected
    one.fill(1)
    one.kill()
    assert one.manager.recovered_logs == 1
    assert one.log.log_end_offset == 25


def test_kill_keeps_what_was_never_synced() -> None:
    one = lively_log()
    expected = state(one.log)
    one.kill()
    assert state(one.log) == expected
    assert one.log.recovery_point <= one.log.log_end_offset


def test_the_clean_mark_is_good_for_one_start() -> None:
    one = lively_log()
    one.restart()
    one.fill(1)
    one.kill()
    assert one.manager.recovered_logs == 1
    assert one.offsets()[-1] == 24


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_damage_in_the_active_segment_costs_one_batch(is_clean: bool) -> None:
    """Every byte of a batch in the middle; producers behind it are known all the same."""
    one = OneLog(segment_bytes=100_000)
    for index in range(7):
        one.append(batch_of(b"%d" % index, producer=(index, 0, 0)))
    expected = served(one.log)
    if is_clean:
        one.manager.close(one.now_ms)
    one.fs.process_death()
    original = one.fs
    path = one.log.active.path()
    batch_bytes = len(expected[3])
    for byte in range(batch_bytes):
        one.fs = copy.deepcopy(original)
        one.fs.flip_bit(path, 3 * batch_bytes + byte, byte * 3 % 8)
        one.open()
        got = served(one.log)
        assert got == {offset: data for offset, data in expected.items() if offset != 3}, byte
        told = [(one.path, one.position) for one in one.manager.take_corruption_reports()]
        assert told == [(path, 3 * batch_bytes)], byte
        assert one.log.log_end_offset == 7
        assert set(one.log.producers.producers) >= {0, 1, 2, 4, 5, 6}, byte
        assert one.append(batch_of(b"new")).first_offset == 7
        assert served(one.log)[7]


def test_a_segment_that_power_loss_took_ends_the_log() -> None:
    one = OneLog(segment_bytes=900)
    one.fill(5)
    one.checkpoint()
    durable_end = one.log.log_end_offset
    one.fill(20)
    lost = one.log.segments[3]
    path, base_offset = lost.path(), lost.base_offset
    assert base_offset > durable_end
    one.fs.root.sync_tree()
    one.fs.process_death()
    one.fs.unlink(path)
    one.lose_power(random.Random(4))
    assert one.log.log_end_offset == base_offset
    assert one.offsets() == list(range(base_offset))
    one.fill(3)
    one.kill()
    assert one.offsets() == list(range(base_offset + 3))


@pytest.mark.parametrize("lost_index", [1, 2, 4])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_nothing_stays_behind_a_segment_that_is_lost(lost_index: int, is_damaged: bool) -> None:
    """Whatever else is wrong: damage below the recovery point says nothing of what lies above."""
    one = OneLog(segment_bytes=900)
    one.fill(3)
    one.checkpoint()
    one.fill(30)
    bases = [segment.base_offset for segment in one.log.segments]
    assert bases[1] > 3
    if is_damaged:
        one.fs.flip_bit(one.log.segments[0].path(), 100)
    one.unlink(f"{bases[lost_index]:020d}.log")
    begin_again(one, "lose_power")
    assert one.log.log_end_offset == bases[lost_index]
    assert first_damaged_offset(one.log) == (0 if is_damaged else None)
    one.fill(2)
    assert one.log.log_end_offset == bases[lost_index] + 2
    assert not [one for one in one.names(".log") if int(one.split(".")[0]) > bases[lost_index]]


def test_the_index_interval_may_change_between_starts() -> None:
    one = lively_log()
    expected = state(one.log)
    one.config = replace(SMALL, index_interval_bytes=0)
    one.kill()
    assert state(one.log) == expected
    records = [record for data in read_all(one.log) for record in decode_batch(data, 0)]
    for record in records:
        found = one.log.read_cold(record.offset, 1, max_offset=1 << 62, at_least_one_batch=True)
        assert decode_batch(bytes(found.buffers[0]), 0)[0].offset == record.offset


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_offsets_below_the_recovery_point_are_not_given_again(how: str) -> None:
    """Not even where the file ends before it, which nothing but a fault of the disk explains."""
    one = OneLog()
    one.fill(3)
    one.checkpoint()
    size = one.log.active.size
    one.fill(1)
    path = one.log.active.path()
    one.fs.process_death()
    one.fs.open(path).truncate(size - 10)
    begin_again(one, how)
    assert one.log.log_end_offset == 3
    assert first_damaged_offset(one.log) == 2
    assert one.append(batch_of(b"z")).first_offset == 3


def test_damage_at_the_very_end_takes_no_offsets_from_a_log_that_was_closed() -> None:
    one = OneLog()
    one.fill(2)
    position = one.log.active.size
    one.append(batch_of(b"x", b"y"))
    one.manager.close(one.now_ms)
    one.fs.process_death()
    one.fs.flip_bit(f"{one.log.folder}/{0:020d}.log", position + 70)
    one.open()
    one.log.load()
    assert one.log.log_end_offset == 4
    assert first_damaged_offset(one.log) == 2
    assert one.append(batch_of(b"z")).first_offset == 4


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_a_large_active_segment_is_as_before_after_a_clean_stop(
    is_index_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that a stop leaves of it, to spare the next start its walk, say all of it; where
    they are lost it is walked."""
    monkeypatch.setattr(loading, "TAIL_FILES_BYTES_MIN", 1)
    one = OneLog(segment_bytes=1 << 20, index_interval_bytes=300)
    for index in range(20):
        # The largest timestamp lies far before the last index entry.
        timestamp = START_MS + (50 if index == 4 else index)
        one.append(batch_of(bytes(90), timestamps=[timestamp], producer=(5, 0, index)))
    one.append(batch_of(b"never", producer=(6, 0, 0), is_transactional=True))
    marker = build_end_transaction_marker(
        EndTransactionMarker(is_commit=False, coordinator_epoch=1),
        timestamp=START_MS,
        producer_id=6,
        producer_epoch=0,
    )
    one.log.append_as_leader(
        marker, 0, len(marker), leader_epoch=0, now_ms=one.now_ms, origin=COORDINATOR
    )
    one.fill(3)
    aborted = one.log.aborted_transactions(0, one.log.log_end_offset)
    assert len(aborted) == 1
    expected = state(one.log)
    one.manager.close(one.now_ms)
    one.fs.process_death()
    if is_index_lost:
        one.unlink(f"{0:020d}.index")
    one.open()
    assert state(one.log) == expected
    assert one.log.aborted_transactions(0, one.log.log_end_offset) == aborted
    # And so it is when more has come.
    one.fill(1)
    one.log.roll()
    one.restart()
    assert one.log.aborted_transactions(0, one.log.log_end_offset) == aborted
    assert largest_timestamp(one.log.segments[0]) == START_MS + 50
