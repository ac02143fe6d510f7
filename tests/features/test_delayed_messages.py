"""Delayed messages at one broker without a server: taken, hidden, delivered once, never early."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.cell.changes import AlterConfigs, InvalidChange, UpdateFeature
from data_plane.cell.features import DELAYED_MESSAGES
from data_plane.cell.metadata import ResourceType
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import NewRecord, build_batch, decode_batch, read_batch_header
from features.delayed import due_batch, firing
from features.delayed.due_batch import DueBatch
from features.delayed.fold import DelayedMessages
from tests.broker.admin_player import new_topic
from tests.broker.broker_player import NOW_MS
from tests.features.delayed_player import DelayedPlayer, SkewedClock

DELAY, DELIVER_AT, TAG = b"tw-delay", b"tw-deliver-at", b"tw-tag"
CANCEL_OFFSET = b"tw-cancel-offset"


def test_a_message_is_hidden_until_it_is_due_and_delivered_once() -> None:
    player = DelayedPlayer()
    assert player.delayed(b"later", b"30s") == 0
    assert player.values() == []
    player.pass_ms(29_999)
    assert player.values() == []
    player.pass_ms(1)
    (record,) = player.read()
    assert (record.offset, record.timestamp, record.value) == (1, NOW_MS + 30_000, b"later")
    player.pass_ms(1_000_000)
    assert player.values() == [b"later"]


def test_the_delivered_record_says_where_it_comes_from() -> None:
    player = DelayedPlayer()
    record = NewRecord(
        NOW_MS - 7,
        b"key",
        b"value",
        (
            (TAG, b"eu"),
            (DELAY, b"1s"),
            (b"tw-source", b"elsewhere/1/2"),
            (b"plain", None),
            (b"tw-produced-at", b"5"),
        ),
    )
    player.produce("orders", [], batch=build_batch([record]))
    player.run_jobs()
    player.pass_ms(1_000)
    (delivered,) = player.read()
    assert delivered.key == b"key"
    assert delivered.timestamp == NOW_MS + 1_000
    assert delivered.headers == (
        (TAG, b"eu"),
        (b"plain", None),
        (b"tw-source", b"orders/0/0"),
        (b"tw-produced-at", b"%d" % (NOW_MS - 7)),
    )


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_may_have_delayed_and_plain_records(compression: int) -> None:
    player = DelayedPlayer()
    produced = player.append(
        (b"first", (DELAY, b"2s")),
        (b"plain",),
        (b"second", (DELIVER_AT, b"%d" % (NOW_MS + 1_000))),
        (b"tagged", (TAG, b"eu")),
        compression=compression,
    )
    assert produced == (ErrorCode.NONE, 0, None)
    assert [(one.offset, one.value) for one in player.read()] == [(1, b"plain"), (3, b"tagged")]
    player.pass_ms(1_000)
    player.pass_ms(1_000)
    assert player.values() == [b"plain", b"tagged", b"second", b"first"]


def test_a_time_in_the_past_is_due_at_once_and_hidden_like_any_other() -> None:
    player = DelayedPlayer()
    player.append((b"old", (DELIVER_AT, b"2001-02-03T04:05:06Z")))
    assert player.orders.log.log_end_offset >= 1
    player.pass_ms(1)
    assert [(one.offset, one.value) for one in player.read()] == [(1, b"old")]


def test_many_that_are_due_together_come_in_few_batches_and_in_order() -> None:
    player = DelayedPlayer()
    at = b"%d" % (NOW_MS + 500)
    player.append(*((b"%d" % number, (DELIVER_AT, at)) for number in range(2_500)))
    player.pass_ms(499)
    assert player.values() == []
    player.pass_ms(1)
    assert player.values() == [b"%d" % number for number in range(2_500)]
    assert player.orders.log.log_end_offset == 5_000


@pytest.mark.parametrize(
    ("header", "value"),
    [(DELAY, value) for value in (b"0", b"-1s", b"11y", b"4015d", b"1e9d", b"", b"soon")]
    + [(DELIVER_AT, value) for value in (b"-5", b"tomorrow", b"2027-13-01T00:00:00Z")]
    + [(DELIVER_AT, b"%d" % (NOW_MS + 3653 * 86_400_000))],
)
def test_what_makes_no_sense_refuses_the_batch_and_names_the_record(
    header: bytes, value: bytes
) -> None:
    player = DelayedPlayer()
    produced = player.append((b"good",), (b"bad", (header, value)))
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message is not None
    assert produced.message.startswith(f"record 1: header {header.decode()}: ")
    assert player.orders.log.log_end_offset == 0


@pytest.mark.parametrize("headers", [(DELAY, DELAY), (DELAY, DELIVER_AT)])
def test_a_record_has_one_time(headers: tuple[bytes, bytes]) -> None:
    player = DelayedPlayer()
    produced = player.append((b"twice", *((header, b"5000") for header in headers)))
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message is not None
    assert "one time to be delivered at" in produced.message


def test_commands_are_refused_by_name() -> None:
    player = DelayedPlayer()
    for header in (b"tw-cancel", b"tw-cancel-offset", b"tw-reschedule", b"tw-reschedule-offset"):
        produced = player.append((b"", (header, b"0")))
        assert produced.error_code == ErrorCode.INVALID_RECORD
        assert produced.message is not None
        assert header.decode() in produced.message


def test_they_need_the_feature() -> None:
    player = DelayedPlayer(level=0)
    produced = player.append((b"later", (DELAY, b"1s")))
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message is not None
    assert DELAYED_MESSAGES in produced.message
    assert player.append((b"plain", (TAG, b"eu"))).error_code == ErrorCode.NONE
    player.commit(UpdateFeature(DELAYED_MESSAGES, 1))
    player.delayed(b"later", b"1s")
    with pytest.raises(InvalidChange, match="never lowered"):
        player.commit(UpdateFeature(DELAYED_MESSAGES, 0))


@pytest.mark.parametrize("level", [0, 1])
def test_without_the_feature_partitions_are_not_looked_through(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "SWEPT_PER_TICK_MAX", 1)
    player = DelayedPlayer(level=level)
    player.create_topic("others", 2)
    partitions = player.services.partitions
    for index in range(2):
        assert partitions.get_by_name("default", "others", index) is not None
    player.firing.tick(player.now_ms + 10 * firing.SWEEP_INTERVAL_MS)
    # One that is at it wants the next tick at once.
    assert (player.firing.next_deadline_ms() == 0) is (level == 1)


def compact(player: DelayedPlayer) -> None:
    """All that there is."""
    log = player.orders.log
    log.roll()
    log.flush()
    checkpoint = player.logs.checkpoint_job(player.logs.directories[0])
    checkpoint.run()
    checkpoint.finish()
    # Only what the checkpoint covers is compacted.
    job = log.compaction_job(player.now_ms)
    assert job is not None
    job.run()
    job.finish()


COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_takes_them(policy: str) -> None:
    player = DelayedPlayer(configs={**COMPACTED, "cleanup.policy": policy})
    player.keyed(b"k", b"later", (DELAY, b"1s"))
    player.keyed(b"k", b"much later", (DELAY, b"1h"))
    for number in range(3):
        player.keyed(b"k", b"now %d" % number)
    compact(player)
    assert player.values() == [b"now 2"]
    player.pass_ms(1_000)
    assert player.values() == [b"now 2", b"later"]
    compact(player)
    assert player.values() == [b"later"]
    player = player.restarted(is_clean=False)
    player.pass_ms(3_600_000)
    compact(player)
    assert player.values() == [b"", b"much later"], (
        "what was delivered before, and is old, is empty"
    )


def test_cancelled_and_moved_in_a_compacted_topic() -> None:
    player = DelayedPlayer(configs=COMPACTED)
    player.keyed(b"a", b"cancelled", (DELAY, b"1s"))
    player.keyed(b"b", b"moved", (DELAY, b"1s"))
    # A command needs no key, and is no value of the one that it has.
    player.keyed(None, None, (CANCEL_OFFSET, b"0"))
    player.keyed(b"b", b"now")
    player.keyed(b"b", None, (b"tw-reschedule-offset", b"1"), (DELAY, b"1h"))
    compact(player)
    player = player.restarted(is_clean=False)
    assert player.values() == [b"now"]
    player.pass_ms(5_000)
    assert player.values() == [b"now"]
    player.pass_ms(3_600_000)
    assert player.values() == [b"now", b"moved"]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_compacted_topic_takes_no_message_without_a_key(codec: Compression) -> None:
    player = DelayedPlayer(configs=COMPACTED)
    player.keyed(b"k", b"later", (DELAY, b"1h"))
    records = [
        NewRecord(NOW_MS, b"k", b"later", ((DELAY, b"1s"),)),
        NewRecord(NOW_MS, None, b"later", ((DELAY, b"1s"),)),
    ]
    with_command = [*records, NewRecord(NOW_MS, None, None, ((CANCEL_OFFSET, b"0"),))]
    for sent in (records, with_command):
        pending = player.produce("orders", [], batch=build_batch(sent, compression=codec))
        player.run_jobs()
        (part,) = pending.response.responses[0].partition_responses
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert "without key" in part.error_message
        assert [error.batch_index for error in part.record_errors] == [1]
    assert player.orders.log.log_end_offset == 1
    player.pass_ms(3_600_000)
    assert player.values() == [b"later"], "the command was refused with its batch"


def test_a_topic_that_becomes_compacted_keeps_what_is_pending() -> None:
    player = DelayedPlayer(configs={"min.cleanable.dirty.ratio": "0"})
    player.keyed(b"key", b"later", (DELAY, b"1h"))
    player.append((b"without a key", (DELAY, b"1h")))
    for number in range(50):
        player.keyed(b"key", b"%d" % number * 40)
    policy = (("cleanup.policy", "compact"),)
    player.commit(AlterConfigs("default", ResourceType.TOPIC, "orders", policy))
    assert player.orders.log.config.compact
    compact(player)
    player.pass_ms(3_600_000)
    assert player.values()[-2:] == [b"later", b"without a key"]
    policy = (("cleanup.policy", "delete"),)
    player.commit(AlterConfigs("default", ResourceType.TOPIC, "orders", policy))
    player.keyed(b"key", b"again later", (DELAY, b"1h"))
    player.pass_ms(3_600_000)
    assert player.values()[-1] == b"again later"


def test_other_topics_take_the_headers_for_plain_ones() -> None:
    player = DelayedPlayer()
    player.create_topic("plain", 1)
    record = NewRecord(NOW_MS, None, b"now", ((DELAY, b"1h"),))
    player.produce("plain", [], batch=build_batch([record]))
    found = player.fetch({("plain", 0): 0})
    (part,) = found.response.responses[0].partitions
    (read,) = decode_batch(part.records, 0)
    assert (read.value, read.headers) == (b"now", ((DELAY, b"1h"),))


def test_clients_cannot_set_the_bits_that_hide_and_deliver() -> None:
    player = DelayedPlayer()
    for flag in (HIDDEN_FLAG, FACTS_FLAG):
        batch = build_batch([NewRecord(NOW_MS, None, b"x")], attributes=flag)
        pending = player.produce("orders", [], batch=batch)
        (part,) = pending.response.responses[0].partition_responses
        assert part.error_code == ErrorCode.INVALID_RECORD


def test_a_forged_source_delivers_nothing() -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1s")
    assert player.append((b"forged", (b"tw-source", b"orders/0/0"))).error_code == ErrorCode.NONE
    player.pass_ms(1_000)
    assert player.values() == [b"forged", b"later"]


def test_a_batch_that_is_sent_again_is_stored_once() -> None:
    player = DelayedPlayer()
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first = player.append((b"later", (DELAY, b"1s")), (b"now",), **options)
    player.pass_ms(10)
    again = player.append((b"later", (DELAY, b"1s")), (b"now",), **options)
    assert first == again == (ErrorCode.NONE, 0, None)
    player.pass_ms(2_000)
    assert player.values() == [b"now", b"later"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_delivers_what_is_pending_and_nothing_twice(is_clean: bool) -> None:
    player = DelayedPlayer()
    for number in range(60):
        if number % 20 == 0:
            player.orders.log.roll()
        player.delayed(b"%d" % number, b"%ds" % (1 + number % 10))
    for _ in range(12):
        player.pass_ms(500)
        player = player.restarted(is_clean=is_clean)
        # Nothing is asked of the partition between: it is opened because something is due.
        player.pass_ms(500)
    values = player.values()
    assert sorted(values, key=int) == [b"%d" % number for number in range(60)]
    assert values == sorted(values, key=lambda value: int(value) % 10)


def test_a_quiet_partition_delivers_after_a_restart_without_being_asked() -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1h")
    player = player.restarted()
    assert player.orders.log.log_end_offset == 1
    player.pass_ms(3_600_000)
    assert player.orders.log.log_end_offset == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_due_meanwhile_is_delivered_when_its_partition_is_opened(is_clean: bool) -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1s")
    player.now_ms += 2_000
    player = player.restarted(is_clean=is_clean)
    assert player.firing.metrics.delivered_count == 1


def test_few_batches_are_made_at_once_and_partitions_take_turns() -> None:
    player = DelayedPlayer()
    player.create_topic("others", 5, {"tidewheel.headers": "true"})
    at = b"%d" % (player.now_ms + 10)
    made = [NewRecord(NOW_MS, None, bytes(600_000), ((DELIVER_AT, at),)) for _ in range(4)]
    for index in range(5):
        batch = build_batch(made, compression=Compression.LZ4)
        player.produce("others", [], index=index, batch=batch)
    player.run_jobs()
    player.pass_time(10)
    partitions = list(player.services.partitions.leading())
    ends, jobs_counts = [], []
    while player.executor.queue:
        jobs_counts.append(len(player.executor.queue))
        player.executor.run_one()
        player.services.wakes.run(player.now_ms)
        ends.append(sorted(one.log.log_end_offset for one in partitions if one.topic == "others"))
    assert max(jobs_counts) == firing.MAKING_AT_ONCE_MAX
    assert [6, 6, 6, 6, 6] in ends, "nobody comes twice before all others have come"
    assert ends[-1] == [8, 8, 8, 8, 8]


def test_not_many_more_are_looked_up_than_go_into_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    player = DelayedPlayer()
    at = b"%d" % (player.now_ms + 10)
    made = [NewRecord(NOW_MS, None, bytes(100_000), ((DELIVER_AT, at),)) for _ in range(60)]
    player.produce("orders", [], batch=build_batch(made, compression=Compression.LZ4))
    player.run_jobs()
    real, counts = due_batch.make_due_batch, list[tuple[int, int]]()

    def make(log: Any, entries: list[Any], *others: Any) -> DueBatch:
        batch = real(log, entries, *others)
        counts.append((len(entries), len(batch.entries)))
        return batch

    monkeypatch.setattr(firing, "make_due_batch", make)
    player.pass_ms(10)
    assert counts == [(60, 11), (22, 11), (22, 11), (22, 11), (16, 11), (5, 5)]


def test_with_a_clock_that_is_too_far_off_it_waits_and_takes_no_delays() -> None:
    player = DelayedPlayer()
    player.delayed(b"first", b"1s")
    clock = SkewedClock()
    player.services.wall_clock = clock  # type: ignore[assignment]
    clock.skew_ms = 51
    player.pass_ms(2_000)
    assert player.values() == []
    produced = player.append((b"refused", (DELAY, b"1s")))
    assert produced.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert player.append((b"now",)).error_code == ErrorCode.NONE
    at = b"%d" % (player.now_ms + 5)
    assert player.append((b"scheduled", (DELIVER_AT, at))).error_code == ErrorCode.NONE
    clock.skew_ms = None
    player.pass_ms(2_000)
    assert player.values() == [b"now"]
    clock.skew_ms = 50
    player.pass_ms(200)
    assert player.values() == [b"now", b"first", b"scheduled"]


def test_a_batch_in_the_making_is_dropped_when_another_leads() -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1s")
    player.pass_time(1_000)
    partition = player.orders
    # As after an election: what was read for the epoch before is not appended in this one.
    partition.leader_epoch += 1
    end_offset = partition.log.log_end_offset
    player.executor.run_one()
    partition.leader_epoch -= 1
    player.services.wakes.woken.pop(player.firing, None)
    assert partition.log.log_end_offset == end_offset
    player.pass_ms(1_000)
    assert player.values() == [b"later"]


def test_a_subscription_shows_what_matches_when_it_is_due() -> None:
    player = DelayedPlayer()
    for name, wanted in (("all", ""), ("eu", "eu")):
        configs = {"tidewheel.source": "orders", "tidewheel.filter": wanted}
        (result,) = player.create(new_topic(name, -1, -1, configs=configs))
        assert result.error_code == ErrorCode.NONE, result.error_message
    player.append(
        (b"eu later", (TAG, b"eu"), (DELAY, b"1s")),
        (b"eu now", (TAG, b"eu")),
        (b"us later", (TAG, b"us"), (DELAY, b"1s")),
        (b"us now", (TAG, b"us")),
    )
    assert player.values("all") == [b"eu now", b"us now"]
    assert player.values("eu") == [b"eu now"]
    player.pass_ms(1_000)
    assert player.values("all") == [b"eu now", b"us now", b"eu later", b"us later"]
    assert player.values("eu") == [b"eu now", b"eu later"]


def test_a_log_without_hidden_records_is_read_in_byte_ranges() -> None:
    player = DelayedPlayer()
    for number in range(5):
        player.append((b"%d" % number, (TAG, b"eu")))
    fold = player.orders.log.fold(DelayedMessages)
    assert fold.shown_whole_until(0, 5) == 5
    player.delayed(b"later", b"1h")
    player.append((b"6",))
    assert fold.shown_whole_until(0, 7) == 5
    assert fold.shown_whole_until(5, 7) == 5
    assert fold.shown_whole_until(6, 7) == 7
    assert player.values() == [b"0", b"1", b"2", b"3", b"4", b"6"]


def test_a_reader_moves_on_behind_hidden_records_at_the_end() -> None:
    player = DelayedPlayer()
    player.append((b"now",))
    for _ in range(3):
        player.delayed(b"later", b"1h")
    found = player.fetch({("orders", 0): 1})
    player.run_jobs()
    (part,) = found.response.responses[0].partitions
    assert part.high_watermark == 4
    header = read_batch_header(part.records, 0)
    assert (header.is_control, header.base_offset) == (True, 3)


def test_delete_records_does_not_take_what_is_pending() -> None:
    player = DelayedPlayer()
    log = player.orders.log
    player.delayed(b"later", b"1h")
    for number in range(20):
        player.append((b"%d" % number * 20,))
        log.roll()
    # What folds let go counts once it is durable.
    log.flush()
    log.delete_records(-1)
    log.apply_retention(player.now_ms)
    assert log.log_start_offset == 21
    assert player.values() == []
    player.pass_ms(3_600_000)
    assert [record.value for record in player.read(offset=21)] == [b"later"]
    assert log.fold(DelayedMessages).pending.lowest_offset is None


def test_what_cannot_be_read_waits_and_holds_up_nothing_else() -> None:
    player = DelayedPlayer()
    player.delayed(b"damaged", b"1s")
    player.delayed(b"sound", b"1s")
    segment = player.orders.log.segments[0]
    player.fs.flip_bit(segment.path(), 65)
    segment.unverified_end = segment.size
    player.pass_ms(1_000)
    assert player.orders.log.log_end_offset == 3
    assert len(player.orders.log.fold(DelayedMessages)) == 1
    player.fs.flip_bit(segment.path(), 65)
    segment.bad_ranges = None
    player.pass_ms(1_000)
    player.pass_ms(1_000)
    assert player.values() == [b"sound", b"damaged"]


def test_a_deleted_topic_delivers_nothing() -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1s")
    partition = player.orders
    partition.tenant = ""
    player.pass_ms(5_000)
    assert partition.log.log_end_offset == 1
    partition.tenant = "default"
    player.pass_ms(1_000)
    player.pass_ms(1_000)
    assert player.values() == [b"later"]


def test_log_append_time() -> None:
    player = DelayedPlayer(configs={"message.timestamp.type": "LogAppendTime"})
    player.delayed(b"later", b"1s")
    player.pass_ms(1_000)
    (record,) = player.read()
    assert record.timestamp == NOW_MS + 1_000
    assert (b"tw-produced-at", b"%d" % NOW_MS) in record.headers


def test_the_stored_batch_is_flagged_and_says_when() -> None:
    player = DelayedPlayer()
    player.append(
        (b"later", (TAG, b"eu"), (DELAY, b"30m")), producer_id=9, producer_epoch=3, base_sequence=0
    )
    log = player.orders.log
    read = log.read(0, 10_000, max_offset=1, at_least_one_batch=True)
    data = b"".join(bytes(buffer) for buffer in read.buffers)
    header = read_batch_header(data, 0)
    assert header.attributes & HIDDEN_FLAG
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)
    (record,) = decode_batch(data, 0)
    assert record.headers == ((TAG, b"eu"), (DELIVER_AT, b"%d" % (NOW_MS + 1_800_000)))


def test_metrics() -> None:
    player = DelayedPlayer()
    player.delayed(b"late", b"1s")
    player.delayed(b"later", b"1h")
    sample = player.services.metrics.get_sample_value
    assert sample("tidewheel_delayed_pending") == 2
    next_due = "tidewheel_delayed_next_due_timestamp_seconds"
    assert sample(next_due) == NOW_MS / 1_000 + 1
    player.pass_ms(1_007)
    assert sample("tidewheel_delayed_pending") == 1
    assert sample(next_due) == NOW_MS / 1_000 + 3_600
    assert sample("tidewheel_delayed_delivered_total") == 1
    assert sample("tidewheel_delayed_lateness_seconds_sum") == pytest.approx(0.007)
    assert sample("tidewheel_delayed_lateness_seconds_bucket", {"le": "0.005"}) == 0
    assert sample("tidewheel_delayed_lateness_seconds_bucket", {"le": "0.01"}) == 1


def test_what_cannot_be_read_makes_nothing_else_late() -> None:
    player = DelayedPlayer()
    player.delayed(b"damaged", b"1s")
    player.delayed(b"next", b"1200ms")
    segment = player.orders.log.segments[0]
    player.fs.flip_bit(segment.path(), 65)
    segment.unverified_end = segment.size
    player.pass_ms(1_000)
    assert player.orders.log.log_end_offset == 2
    deadline_ms = player.services.timers.next_deadline_ms()
    assert deadline_ms is not None
    assert player.now_ms + 1 < deadline_ms <= player.now_ms + 200
    player.pass_ms(deadline_ms - player.now_ms)
    player.pass_ms(NOW_MS + 1_200 - player.now_ms)
    assert player.orders.log.log_end_offset == 3
