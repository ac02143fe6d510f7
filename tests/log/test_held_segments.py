"""What a fold holds on to stays on the disk, below a log start that moves on for readers."""

from __future__ import annotations

import random

import pytest

from data_plane.log.checkpoints import decode_value
from data_plane.log.damage import first_damaged_offset
from data_plane.log.errors import CorruptSegment, OffsetOutOfRange
from data_plane.log.partition_files import LOG_START_FILE
from data_plane.log.retention import segment_deletion_job
from data_plane.wire.kernel_types import BATCH_HEADER_BYTES
from data_plane.wire.records import read_batch_header
from tests.log.one_log import batch_of
from tests.log.test_folds import FREE, PIN, FoldedLog, Pins
from tests.log.world import read_all

HOUR_MS = 3_600_000
HOWS = ["restart", "kill", "lose_power"]


def put_segment(one: FoldedLog, *values: bytes) -> None:
    for value in values:
        one.put(value)
    one.log.roll()
    one.log.flush()


def held_log() -> FoldedLog:
    """Segments 0..0 old, 1..2 with a pin, 3..4 and 5..5; then an empty one."""
    one = FoldedLog()
    put_segment(one, b"old")
    put_segment(one, PIN, b"v")
    put_segment(one, b"v", b"v")
    put_segment(one, b"v")
    return one


def disk_start(one: FoldedLog) -> int:
    return one.log.segments[0].base_offset


def files_from(one: FoldedLog) -> int:
    """Where the files begin, those included that are about to go."""
    return min(int(name[:20]) for name in one.names(".log"))


def start_again(one: FoldedLog, how: str) -> None:
    if how == "lose_power":
        one.log.flush()
        one.lose_power(random.Random(3))
    else:
        getattr(one, how)()


def delete(one: FoldedLog) -> None:
    """Have the files of what has left the log deleted."""
    one.log.flush()
    one.log.delete_pending_segments()


def check_held(one: FoldedLog, log_start: int) -> None:
    assert one.log.log_start_offset == log_start
    # Where snapshots are not durable a recovery needs what lies before.
    assert disk_start(one) <= 1
    assert one.offsets() == list(range(log_start, one.log.log_end_offset))
    assert one.log.fold(Pins).offsets == [1]
    for offset in range(log_start):
        with pytest.raises(OffsetOutOfRange):
            one.log.read(offset, 1000, max_offset=one.log.log_end_offset, at_least_one_batch=True)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("way", ["age", "size", "order"])
def test_the_log_start_moves_on_and_the_disk_keeps_it(way: str, how: str, is_deleted: bool) -> None:
    one = held_log()
    if way == "order":
        one.log.delete_records(5)
        assert one.log.apply_retention(one.now_ms) == 1
    else:
        one.put(b"young")
        limits = {"retention_ms": HOUR_MS} if way == "age" else {"retention_bytes": 150}
        one.set_config(**limits)
        young_ms = one.now_ms + 2 * HOUR_MS
        if way == "age":
            one.now_ms = young_ms
            one.put(b"young")
        one.log.flush()
        assert one.log.apply_retention(one.now_ms) >= 1
    log_start = one.log.log_start_offset
    assert log_start >= 3
    check_held(one, log_start)
    assert disk_start(one) == 1
    if is_deleted:
        delete(one)
        assert files_from(one) == 1
    start_again(one, how)
    check_held(one, log_start)
    start_again(one, how)
    check_held(one, log_start)
    one.log.apply_retention(one.now_ms)
    assert disk_start(one) == 1
    assert one.log.apply_retention(one.now_ms) == 0, "neither readers nor the disk lose anything"


@pytest.mark.parametrize("how", HOWS)
def test_what_is_given_free_goes(how: str) -> None:
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    start_again(one, how)
    put_segment(one, FREE)
    assert one.log.apply_retention(one.now_ms) >= 2
    assert disk_start(one) == 5
    start_again(one, how)
    assert (one.log.log_start_offset, disk_start(one)) == (5, 5)
    delete(one)
    assert files_from(one) == 5
    content = one.fs.read_file(f"{one.log.folder}/{LOG_START_FILE}")
    assert decode_value(content) == 5, "one number, as ever"


@pytest.mark.parametrize("how", HOWS)
def test_a_deletion_that_began_before_something_was_held_leaves_it_on_the_disk(how: str) -> None:
    """A flush comes between: what it has noted of both starts is newer than the job."""
    one = FoldedLog()
    put_segment(one, b"old")
    one.log.delete_records(1)
    one.log.apply_retention(one.now_ms)
    one.log.flush()
    job = segment_deletion_job(one.log, one.now_ms)
    assert job is not None
    put_segment(one, PIN, b"v")
    put_segment(one, b"v", b"v")
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    one.log.flush()
    job.run()
    job.finish()
    start_again(one, how)
    check_held(one, 5)
    assert disk_start(one) == 1


def test_an_order_alone_holds_it_before_retention_has_looked() -> None:
    one = held_log()
    one.log.delete_records(5)
    one.kill()
    check_held(one, 5)
    one.log.flush()
    one.lose_power(random.Random(1))
    check_held(one, 5)


def test_held_bytes_do_not_count_for_retention_by_size() -> None:
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    live_bytes = sum(segment.size for segment in one.log.segments if segment.next_offset > 5)
    one.set_config(retention_bytes=live_bytes)
    assert one.log.apply_retention(one.now_ms) == 0
    assert one.log.log_start_offset == 5


def test_what_only_an_uncommitted_record_gives_free_is_held() -> None:
    """It may be cut off, and then the fold wants its record again."""
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    committed = one.log.high_watermark
    batch = one.log.log_end_offset
    one.put(FREE)
    one.log.high_watermark = committed
    assert one.log.fold(Pins).offsets == []
    for _ in range(3):
        one.log.apply_retention(one.now_ms)
        assert disk_start(one) == 1
    one.kill()
    one.log.truncate_to(batch)
    check_held(one, 5)
    one.put(FREE)
    one.log.flush()
    one.log.apply_retention(one.now_ms)
    assert disk_start(one) == 5


@pytest.mark.parametrize("is_truncated", [False, True])
def test_what_gives_it_free_goes_once_so_much_is_settled_although_more_has_come(
    is_truncated: bool,
) -> None:
    one = held_log()
    one.log.delete_records(5)
    batch = one.log.log_end_offset
    one.append(batch_of(FREE, keys=[b"k"], timestamps=[one.now_ms]), commit=False)
    one.log.apply_retention(one.now_ms)
    if is_truncated:
        one.log.truncate_to(batch)
        one.append(batch_of(b"w", keys=[b"k"], timestamps=[one.now_ms]), commit=False)
    one.log.flush()
    one.append(batch_of(PIN, keys=[b"k"], timestamps=[one.now_ms]), commit=False)
    one.log.advance_high_watermark(batch + 1)
    one.log.apply_retention(one.now_ms)
    assert disk_start(one) == (1 if is_truncated else 5)


def test_what_only_a_record_gives_free_that_power_loss_may_take_is_held() -> None:
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    one.log.flush()
    end_offset = one.log.log_end_offset
    one.put(FREE)
    for _ in range(3):
        one.log.apply_retention(one.now_ms)
        one.log.delete_pending_segments()
        assert disk_start(one) == 1
    seed = 0
    while one.log.log_end_offset > end_offset:
        one.lose_power(random.Random(seed))
        seed += 1
        assert seed < 50
    check_held(one, 5)


def test_so_is_what_no_look_has_seen_held() -> None:
    one = FoldedLog()
    put_segment(one, b"old")
    one.log.apply_retention(one.now_ms)
    put_segment(one, PIN)
    put_segment(one, b"v")
    committed = one.log.high_watermark
    one.put(FREE)
    one.log.high_watermark = committed
    one.log.delete_records(3)
    one.log.flush()
    one.log.apply_retention(one.now_ms)
    assert disk_start(one) <= 1
    one.kill()
    one.log.truncate_to(3)
    check_held(one, 3)


def test_on_a_log_that_is_never_quite_committed_it_goes_at_a_later_look() -> None:
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    one.put(FREE)
    for _ in range(2):
        one.log.advance_high_watermark(one.log.log_end_offset)
        end_offset = one.log.log_end_offset
        one.log.flush()
        one.put(b"v")
        one.log.high_watermark = end_offset
        one.log.apply_retention(one.now_ms)
    assert disk_start(one) == 5


@pytest.mark.parametrize("is_free", [False, True])
def test_damage_of_what_is_held_counts(is_free: bool) -> None:
    """Or it would never be filled again, and is what comes last of all."""
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    if is_free:
        one.put(FREE)
        one.log.flush()
    segment = one.log.segments[0]
    assert segment.base_offset == 1
    one.fs.flip_bit(segment.path(), BATCH_HEADER_BYTES + 3, 1)
    one.log.doubt(1)
    with pytest.raises(CorruptSegment):
        one.log.read_cold(1, 1000, max_offset=5, at_least_one_batch=True, of_disk=True)
    assert first_damaged_offset(one.log) == (None if is_free else 1)


def test_what_is_held_is_read_by_who_asks_for_the_disk() -> None:
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    stored = read_all(one.log, of_disk=True)
    assert [read_batch_header(data, 0).base_offset for data in stored] == [1, 2, 3, 4, 5]
    for offset in (0, 7):
        for read in (one.log.read, one.log.read_cold):
            with pytest.raises(OffsetOutOfRange):
                read(offset, 1000, max_offset=6, at_least_one_batch=True, of_disk=True)


@pytest.mark.parametrize("how", HOWS)
def test_epochs_are_known_from_where_the_disk_begins(how: str) -> None:
    """Replicas that begin there are compared by them."""
    one = FoldedLog()
    for epoch in range(5):
        one.epoch = epoch
        put_segment(one, PIN if epoch == 1 else b"v")
    one.log.delete_records(4)
    one.log.apply_retention(one.now_ms)
    one.log.flush()
    start_again(one, how)
    assert [one.log.epoch_for_offset(offset) for offset in range(5)] == [0, 1, 2, 3, 4]


def test_a_log_that_begins_anew_holds_nothing() -> None:
    one = held_log()
    one.log.delete_records(5)
    one.log.apply_retention(one.now_ms)
    one.checkpoint()
    one.log.truncate_fully_and_start_at(5)
    one.lose_power(random.Random(5))
    assert (one.log.log_start_offset, disk_start(one)) == (5, 5)
    assert one.log.fold(Pins).offsets == []


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_no_committed_pin_is_lost_and_no_reader_sees_it(seed: int) -> None:
    """Against a list of what was said."""
    rng = random.Random(seed)
    one = FoldedLog()
    said: list[bytes] = []
    synced = log_start = 0
    for _ in range(200):
        act = rng.random()
        log = one.log
        if act < 0.5:
            said.append(rng.choice((b"v" * rng.randrange(1, 200), PIN, PIN, FREE)))
            committed = log.high_watermark
            one.put(said[-1])
            if rng.random() < 0.5:
                log.high_watermark = committed
        elif act < 0.6:
            log.flush()
            synced = log.log_end_offset
        elif act < 0.65:
            one.checkpoint()
            synced = log.log_end_offset
        elif act < 0.72:
            end = rng.randrange(log.high_watermark, log.log_end_offset + 1)
            if end >= log.log_start_offset:
                log.truncate_to(end)
                del said[end:]
                synced = min(synced, end)
        elif act < 0.78:
            log.delete_records(rng.randrange(log.log_start_offset, log.high_watermark + 1))
        elif act < 0.84:
            log.apply_retention(one.now_ms)
            if rng.random() < 0.5:
                log.delete_pending_segments()
                synced = max(synced, log.recovery_point)
        elif act < 0.9:
            one.restart()
            synced = one.log.log_end_offset
        elif act < 0.95:
            one.kill()
        else:
            durable_start = log.durable_log_start
            one.lose_power(rng)
            log_start = one.log.log_start_offset
            assert durable_start <= log_start
            assert synced <= one.log.log_end_offset
            del said[one.log.log_end_offset :]
            one.log.advance_high_watermark(one.log.log_end_offset)
        log = one.log
        assert log.log_start_offset >= log_start
        log_start = log.log_start_offset
        assert log.log_end_offset == len(said)
        pins: list[int] = []
        for offset, value in enumerate(said):
            pins = [] if value == FREE else [*pins, offset] if value == PIN else pins
        assert log.fold(Pins).offsets == pins
        assert all(disk_start(one) <= pin for pin in pins)
        assert one.offsets() == list(range(log_start, len(said)))
        assert sum(len(data) for data in read_all(log)) <= log.size_bytes
