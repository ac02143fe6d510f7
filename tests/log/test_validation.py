"""What an append refuses, and what it rewrites."""

from __future__ import annotations

import pytest

from data_plane.log.errors import AppendError
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log import AppendResult
from data_plane.log.segment_checks import largest_timestamp
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import (
    decode_batch,
    is_crc_valid,
    iter_batch_headers,
    read_batch_header,
)
from tests.log.one_log import START_MS, OneLog, batch_of
from tests.log.world import read_all

HOUR_MS = 3_600_000


def refused(one: OneLog, buf: bytearray) -> AppendError:
    """Append, expect a refusal, and that nothing of it is stored."""
    end, size_bytes = one.log.log_end_offset, one.log.size_bytes
    with pytest.raises(AppendError) as error:
        one.append(buf)
    assert (one.log.log_end_offset, one.log.size_bytes) == (end, size_bytes)
    assert one.fs.size(one.log.active.path()) == one.log.active.size
    return error.value


def test_max_message_bytes_counts_the_whole_batch() -> None:
    size = len(batch_of(bytes(300)))
    one = OneLog(max_message_bytes=size)
    one.append(batch_of(bytes(300)))
    error = refused(one, batch_of(bytes(301)))
    assert error.error_code == ErrorCode.MESSAGE_TOO_LARGE
    # One bad batch refuses the whole append.
    assert refused(one, batch_of(b"ok") + batch_of(bytes(301))).error_code == (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    one.set_config(max_message_bytes=size + 1)
    one.append(batch_of(bytes(301)))
    assert one.log.log_end_offset == 2


@pytest.mark.parametrize("position", [4, 12, 16, 17, 21, 25, 57, 65])
def test_damaged_batches_are_refused(position: int) -> None:
    one = OneLog()
    buf = batch_of(b"hello", b"world")
    buf[position] ^= 0x11
    if position == 12:
        # The leader epoch is the broker's to write.
        one.append(buf)
        assert one.offsets() == [0, 1]
        return
    assert refused(one, buf).error_code in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )


def test_a_batch_that_is_cut_off_is_refused() -> None:
    one = OneLog()
    buf = batch_of(b"hello")
    for size in (1, 11, 12, 40, 61, len(buf) - 1):
        error = refused(one, buf[:size])
        assert error.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", [0, 2])
def test_timestamps_too_far_ahead_are_refused(codec: int) -> None:
    one = OneLog(message_timestamp_after_max_ms=HOUR_MS)
    limit = one.now_ms + HOUR_MS
    one.append(batch_of(b"a", b"b", timestamps=[limit - 5, limit], compression=codec))
    times = [0, limit + 1, limit, limit + 2]
    error = refused(one, batch_of(*[b"a"] * 4, timestamps=times, compression=codec))
    assert error.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.name_records()] == [1, 3]
    assert f"Timestamp {limit + 1} of message with offset 1 " in error.name_records()[0][1]
    assert f"Timestamp {limit + 2} of message with offset 3 " in error.name_records()[1][1]


@pytest.mark.parametrize("codec", [0, 2])
def test_timestamps_too_old_are_refused_where_asked(codec: int) -> None:
    one = OneLog()
    one.append(batch_of(b"ancient", timestamps=[0], compression=codec))
    one.set_config(message_timestamp_before_max_ms=HOUR_MS)
    one.now_ms += 5 * HOUR_MS
    limit = one.now_ms - HOUR_MS
    one.append(batch_of(b"a", timestamps=[limit], compression=codec))
    # A record without a timestamp is not old.
    one.append(batch_of(b"a", b"b", timestamps=[-1, -1], compression=codec))
    one.append(batch_of(b"a", b"b", timestamps=[limit, -1], compression=codec))
    one.append(batch_of(b"a", b"b", timestamps=[-1, limit], compression=codec))
    far = one.now_ms + one.log.config.message_timestamp_after_max_ms + 1
    times = [-1, one.now_ms, limit - 1, 0, far]
    error = refused(one, batch_of(*[b"a"] * 5, timestamps=times, compression=codec))
    assert error.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.name_records()] == [2, 3, 4]
    assert str(limit - 1) in error.name_records()[0][1]
    error = refused(one, batch_of(b"a", b"b", timestamps=[limit, limit - 1], compression=codec))
    assert error.error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [0, 4])
def test_a_compacted_topic_names_the_records_without_key(codec: int) -> None:
    one = OneLog(cleanup_policy=frozenset({"compact"}))
    one.append(batch_of(b"1", None, keys=[b"a", b""], compression=codec))
    error = refused(
        one, batch_of(b"1", b"2", b"3", b"4", keys=[b"a", None, b"b", None], compression=codec)
    )
    assert error.error_code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.name_records()] == [1, 3]
    assert error.name_records()[0][1].endswith(
        f" without key in topic partition {one.log.topic}-0."
    )
    plain = OneLog()
    plain.append(batch_of(b"1", keys=[None]))


@pytest.mark.parametrize("codec", [0, 1, 3])
def test_log_append_time_stamps_batches_with_a_right_crc(codec: int) -> None:
    one = OneLog(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=10)
    one.now_ms += 777
    # The producer's clock does not matter, however wrong.
    ahead = batch_of(b"a", b"b", timestamps=[5, 1 << 50], compression=codec)
    result: AppendResult = one.append(ahead + batch_of(b"c", timestamps=[9]))
    assert result.log_append_time_ms == one.now_ms
    assert [record.timestamp for record in one.records()] == [one.now_ms] * 3
    for data in read_all(one.log):
        header = read_batch_header(data, 0)
        assert header.log_append_time
        assert is_crc_valid(data, header)
    assert largest_timestamp(one.log.active) == one.now_ms
    # The first record of the newest batch, as Kafka 4.3 answers.
    assert one.log.max_timestamp_offset(max_offset=9) == (0, one.now_ms, 0)
    assert one.log.offset_for_timestamp(one.now_ms, max_offset=9) == (0, one.now_ms, 0)
    assert one.log.offset_for_timestamp(one.now_ms + 1, max_offset=9) is None
    one.now_ms += 1
    one.append(batch_of(b"d", b"e", b"f", timestamps=[9, 8, 7], compression=codec))
    assert one.log.max_timestamp_offset(max_offset=9) == (3, one.now_ms, 0)
    one.kill()
    assert len(one.records()) == 6
    assert one.log.max_timestamp_offset(max_offset=9) == (3, one.now_ms, 0)


def test_create_time_answers_no_append_time() -> None:
    assert OneLog().append(batch_of(b"a")).log_append_time_ms == -1


NAMES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("name", list(NAMES))
@pytest.mark.parametrize("sent", [0, 1, 4])
@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_compression_type_rewrites_what_was_sent_otherwise(
    name: str, sent: int, time_type: str
) -> None:
    one = OneLog(compression_type=name, message_timestamp_type=time_type)
    values = [b"%d" % index * 20 for index in range(5)]
    keys = [b"a", None, b"", b"d", b"e"]
    times = [START_MS + index for index in range(5)]
    first = batch_of(*values, keys=keys, timestamps=times, compression=sent, producer=(9, 2, 40))
    second = batch_of(b"last", compression=NAMES[name], timestamps=[START_MS])
    result = one.append(first + second)
    assert (result.first_offset, result.last_offset) == (0, 5)
    records = one.records()
    assert [record.offset for record in records] == list(range(6))
    assert [record.value for record in records] == [*values, b"last"]
    assert [record.key for record in records[:5]] == keys
    if time_type == "CreateTime":
        assert [record.timestamp for record in records[:5]] == times
    data = b"".join(read_all(one.log))
    headers = list(iter_batch_headers(data, 0, len(data)))
    assert [header.compression for header in headers] == [NAMES[name]] * 2
    assert all(is_crc_valid(data, header) for header in headers)
    assert headers[0][10:13] == (9, 2, 40), "producer id, epoch and sequence stay"
    # The rewritten bytes are what indexes and recovery know.
    assert one.log.size_bytes == len(data) == one.fs.size(one.log.active.path())
    one.kill()
    assert one.records() == records
    repeated = one.append(
        batch_of(*values, keys=keys, timestamps=times, compression=sent, producer=(9, 2, 40))
    )
    assert (repeated.duplicate, repeated.first_offset) == (True, 0)


def test_the_producers_compression_is_kept_by_default() -> None:
    one = OneLog()
    sent = [batch_of(b"x" * 90, compression=codec) for codec in range(5)]
    for buf in sent:
        one.append(buf)
    assert [read_batch_header(data, 0).compression for data in read_all(one.log)] == list(range(5))
    assert read_all(one.log) == [bytes(buf) for buf in sent]


def test_offsets_and_epoch_are_written_into_each_batch() -> None:
    one = OneLog()
    one.epoch = 7
    buf = batch_of(b"a", b"b") + batch_of(b"c")
    buf[12:16] = (99).to_bytes(4, "big")
    one.append(buf)
    headers = [read_batch_header(data, 0) for data in read_all(one.log)]
    assert [(one.base_offset, one.partition_leader_epoch) for one in headers] == [(0, 7), (2, 7)]
    assert [record.value for data in read_all(one.log) for record in decode_batch(data, 0)] == [
        b"a",
        b"b",
        b"c",
    ]


def test_a_follower_knows_every_epoch_of_what_it_takes() -> None:
    leader, follower = OneLog(), OneLog()
    for leader.epoch in (2, 4, 7, 8):
        leader.fill(2)
    data = bytearray(b"".join(read_all(leader.log)))
    log = follower.log
    # The leader of epoch 7 cannot have a batch of the next one.
    result = log.append_as_follower(data, 0, len(data), now_ms=START_MS, leader_epoch=7)
    assert (result.last_offset, log.log_end_offset) == (5, 6)
    assert log.epochs.entries == [(2, 0), (4, 2), (7, 4)]
    log.flush()
    stored = LeaderEpochs()
    stored.restore(follower.content("leader-epoch.checkpoint"))
    assert stored.entries == log.epochs.entries


def test_a_follower_takes_batches_as_they_are() -> None:
    leader, follower = OneLog(), OneLog()
    leader.epoch = 3
    leader.fill(4)
    data = bytearray(b"".join(read_all(leader.log)))
    size = len(data) // 4
    log = follower.log
    # The last batch is cut off, as fetch answers may be.
    result = log.append_as_follower(data, 0, len(data) - 5, now_ms=START_MS)
    assert (result.last_offset, log.log_end_offset, log.latest_epoch) == (2, 3, 3)
    with pytest.raises(AppendError) as error:
        log.append_as_follower(data, 0, len(data), now_ms=START_MS)
    assert error.value.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.append_as_follower(data, 3 * size, len(data), now_ms=START_MS)
    assert read_all(log) == read_all(leader.log)
    data[-1] ^= 1
    with pytest.raises(AppendError) as error:
        log.append_as_follower(data, 3 * size, len(data), now_ms=START_MS)
    assert error.value.error_code == ErrorCode.CORRUPT_MESSAGE
