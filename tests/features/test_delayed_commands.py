"""Commands at one broker without a server: what is cancelled and moved, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.log.fold import StoredBatch
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch, decode_batch, iter_batch_headers
from features.delayed import fold as fold_module
from features.delayed.fold import DelayedMessages
from features.delayed.pending_set import PendingSet
from tests.broker.broker_player import NOW_MS
from tests.features.delayed_player import DelayedPlayer

DELAY, DELIVER_AT, ID, TAG = b"tw-delay", b"tw-deliver-at", b"tw-id", b"tw-tag"
CANCEL, CANCEL_OFFSET = b"tw-cancel", b"tw-cancel-offset"
RESCHEDULE, RESCHEDULE_OFFSET = b"tw-reschedule", b"tw-reschedule-offset"
FAR_MS = 3_600_000


class SmallSet(PendingSet):
    """So that few messages are near, and most are in runs on the disk."""

    def __init__(self, fs: Any, folder: str) -> None:
        super().__init__(
            fs, folder, near_max=6, near_low=2, run_entries=4, runs_merged=2, done_max=100
        )


@pytest.fixture(params=["near", "far"])
def player(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DelayedPlayer:
    """With `orders`, in which offsets 0 to 29 are pending for an hour, or longer; near ones are in
    memory, far ones in runs on the disk."""
    if request.param == "far":
        monkeypatch.setattr(fold_module, "PendingSet", SmallSet)
    made = DelayedPlayer()
    for number in range(30):
        at = b"%d" % (NOW_MS + FAR_MS + number)
        headers = ((DELIVER_AT, at), (ID, b"id-%d" % (number // 3)), (TAG, b"eu"))
        assert made.append((b"%d" % number, *headers)).error_code == ErrorCode.NONE
    made.pass_ms(2_000)
    fold = made.orders.log.fold(DelayedMessages)
    assert (fold.pending.near_due_ms(20) is None) is (request.param == "far")
    return made


def say(player: DelayedPlayer, *headers: tuple[bytes, bytes]) -> str | None:
    """What is answered to a command; None when it is done."""
    produced = player.append((b"", *headers))
    assert produced.error_code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
    assert (produced.error_code == ErrorCode.NONE) is (produced.message is None)
    return produced.message


def deliver(player: DelayedPlayer, ms: int = FAR_MS + 60_000) -> list[bytes]:
    player.pass_ms(ms)
    for _ in range(30):
        player.pass_ms(10)
    return player.values()


def numbers(*but: int) -> list[bytes]:
    return [b"%d" % number for number in range(30) if number not in but]


def test_what_is_cancelled_by_offset_is_never_delivered(player: DelayedPlayer) -> None:
    for offset in (0, 20, 29):
        assert say(player, (CANCEL_OFFSET, b"%d" % offset)) is None
    assert len(player.orders.log.fold(DelayedMessages)) == 27
    assert player.values() == []
    assert deliver(player) == numbers(0, 20, 29)
    sample = player.services.metrics.get_sample_value
    assert sample("tidewheel_delayed_cancelled_total") == 3


def test_an_id_cancels_all_that_have_it(player: DelayedPlayer) -> None:
    assert say(player, (CANCEL, b"id-5")) is None
    assert say(player, (CANCEL_OFFSET, b"16")) is None
    assert deliver(player) == numbers(15, 16, 17)


def test_a_cancel_that_is_sent_again_is_done_and_changes_nothing(player: DelayedPlayer) -> None:
    for _ in range(3):
        assert say(player, (CANCEL_OFFSET, b"20")) is None
        assert say(player, (CANCEL, b"id-5")) is None
    assert len(player.orders.log.fold(DelayedMessages)) == 26
    assert deliver(player) == numbers(20, 15, 16, 17)
    assert say(player, (CANCEL_OFFSET, b"20")) is None
    sample = player.services.metrics.get_sample_value
    assert sample("tidewheel_delayed_cancelled_total") == 4


@pytest.mark.parametrize("is_clean", [True, False])
def test_commands_hold_after_a_restart(player: DelayedPlayer, is_clean: bool) -> None:
    at = b"%d" % (NOW_MS + 5_000)
    assert say(player, (CANCEL_OFFSET, b"20")) is None
    assert say(player, (RESCHEDULE_OFFSET, b"21"), (DELIVER_AT, at)) is None
    player = player.restarted(is_clean=is_clean)
    assert say(player, (CANCEL_OFFSET, b"20")) is None
    assert say(player, (RESCHEDULE_OFFSET, b"21"), (DELIVER_AT, at)) is None
    assert deliver(player, 3_000) == [b"21"]
    player = player.restarted(is_clean=is_clean)
    assert deliver(player) == [b"21", *numbers(20, 21)]


def test_what_is_moved_is_delivered_then_and_once(player: DelayedPlayer) -> None:
    assert say(player, (RESCHEDULE_OFFSET, b"29"), (DELAY, b"10s")) is None
    assert say(player, (RESCHEDULE_OFFSET, b"0"), (DELAY, b"2h")) is None
    assert say(player, (RESCHEDULE, b"id-5"), (DELAY, b"20s")) is None
    assert deliver(player, 9_000) == []
    assert deliver(player, 1_000) == [b"29"]
    assert deliver(player, 20_000) == [b"29", b"15", b"16", b"17"]
    assert deliver(player) == [b"29", b"15", b"16", b"17", *numbers(0, 15, 16, 17, 29)]
    assert deliver(player)[-1] == b"0"
    assert len(player.values()) == 30


def test_what_is_moved_may_be_moved_back_and_cancelled(player: DelayedPlayer) -> None:
    first = b"%d" % (NOW_MS + FAR_MS + 20)
    for _ in range(3):
        assert say(player, (RESCHEDULE_OFFSET, b"20"), (DELAY, b"2h")) is None
        assert say(player, (RESCHEDULE_OFFSET, b"20"), (DELIVER_AT, first)) is None
    assert say(player, (RESCHEDULE, b"id-5"), (DELAY, b"2h")) is None
    player.pass_ms(2_000)
    assert say(player, (CANCEL_OFFSET, b"16")) is None
    assert say(player, (RESCHEDULE, b"id-5"), (DELAY, b"3h")) is None
    assert say(player, (CANCEL_OFFSET, b"15")) is None
    assert deliver(player) == numbers(15, 16, 17)
    assert deliver(player, 2 * FAR_MS + 60_000) == [*numbers(15, 16, 17), b"17"]


def test_moving_to_the_same_time_again_is_done(player: DelayedPlayer) -> None:
    at = (DELIVER_AT, b"%d" % (NOW_MS + 10_000))
    for _ in range(2):
        assert say(player, (RESCHEDULE_OFFSET, b"20"), at) is None
        assert say(player, (RESCHEDULE, b"id-5"), at) is None
    assert deliver(player, 20_000) == [b"15", b"16", b"17", b"20"]
    assert say(player, (RESCHEDULE_OFFSET, b"20"), at) is None
    assert say(player, (RESCHEDULE, b"id-5"), at) is None
    assert "too late" in (say(player, (RESCHEDULE_OFFSET, b"20"), (DELAY, b"1s")) or "")
    assert len(player.values()) == 4


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (((CANCEL_OFFSET, b"100"),), "unknown"),
        (((CANCEL_OFFSET, b"9223372036854775807"),), "unknown"),
        (((CANCEL, b"id-10"),), "unknown"),
        (((RESCHEDULE_OFFSET, b"31"), (DELAY, b"1s")), "unknown"),
        (((RESCHEDULE, b"nobody"), (DELAY, b"1s")), "unknown"),
    ],
)
def test_what_is_not_there_is_unknown(
    player: DelayedPlayer, headers: tuple[tuple[bytes, bytes], ...], words: str
) -> None:
    assert player.append((b"plain", (ID, b"id-10"))).base_offset == 30
    # A command is no message.
    assert say(player, (CANCEL_OFFSET, b"0")) is None
    message = say(player, *headers)
    assert message is not None
    assert message.startswith(f"record 0: header {headers[0][0].decode()}: {words}")
    assert player.orders.log.log_end_offset == 32


def test_what_was_delivered_is_too_late(player: DelayedPlayer) -> None:
    assert len(deliver(player)) == 30
    for header in ((CANCEL_OFFSET, b"20"), (CANCEL, b"id-5")):
        assert "too late" in (say(player, header) or "")
    for header in ((RESCHEDULE_OFFSET, b"20"), (RESCHEDULE, b"id-5")):
        assert "too late" in (say(player, header, (DELAY, b"1s")) or "")
    assert len(deliver(player)) == 30


def test_what_was_cancelled_cannot_be_moved(player: DelayedPlayer) -> None:
    assert say(player, (CANCEL, b"id-5")) is None
    for header in ((RESCHEDULE_OFFSET, b"15"), (RESCHEDULE, b"id-5")):
        assert "cancelled" in (say(player, header, (DELAY, b"1s")) or "")


def test_a_batch_with_one_that_is_refused_is_refused_and_names_them(player: DelayedPlayer) -> None:
    records = [
        ((CANCEL_OFFSET, b"20"),),
        ((CANCEL_OFFSET, b"1000"),),
        (),
        ((CANCEL, b"nobody"),),
        ((CANCEL_OFFSET, b"20"),),
        ((RESCHEDULE_OFFSET, b"20"), (DELAY, b"1s")),
    ]
    made = [NewRecord(NOW_MS, None, b"v", headers) for headers in records]
    pending = player.produce("orders", [], batch=build_batch(made))
    player.run_jobs()
    ((part,),) = (topic.partition_responses for topic in pending.response.responses)
    assert part.error_code == ErrorCode.INVALID_RECORD
    named = {one.batch_index: one.batch_index_error_message for one in part.record_errors}
    assert sorted(named) == [1, 3, 5]
    assert "tw-cancel-offset: unknown" in named[1]
    assert "tw-cancel: unknown" in named[3]
    assert "tw-reschedule-offset: too late" in named[5]
    assert player.orders.log.log_end_offset == 30
    assert deliver(player) == numbers()


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_may_have_commands_and_messages(player: DelayedPlayer, compression: int) -> None:
    produced = player.append(
        (b"plain",),
        (b"", (CANCEL_OFFSET, b"20")),
        (b"later", (DELAY, b"1s")),
        (b"", (RESCHEDULE, b"id-5"), (DELAY, b"2s")),
        (b"", (CANCEL_OFFSET, b"16")),
        compression=compression,
    )
    assert produced == (ErrorCode.NONE, 30, None)
    assert [(one.offset, one.value) for one in player.read()] == [(30, b"plain")]
    assert deliver(player, 3_000) == [b"plain", b"later", b"15", b"17"]
    assert deliver(player)[4:] == numbers(20, 15, 16, 17)


def test_a_sequence_that_is_sent_again_is_a_duplicate_before_anything_is_judged(
    player: DelayedPlayer,
) -> None:
    sequence = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    at = (DELIVER_AT, b"%d" % (NOW_MS + 10_000))
    first = player.append((b"", (RESCHEDULE_OFFSET, b"20"), at), **sequence)
    assert deliver(player, 20_000) == [b"20"]
    assert say(player, (RESCHEDULE_OFFSET, b"21"), (DELAY, b"5s")) is None
    end_offset = player.orders.log.log_end_offset
    # It would be too late by now: nothing remembers a command for so long.
    player.orders.log.fold(DelayedMessages).outcomes = type(
        player.orders.log.fold(DelayedMessages).outcomes
    )()
    assert "too late" in (say(player, (RESCHEDULE_OFFSET, b"20"), at) or "")
    assert player.append((b"", (RESCHEDULE_OFFSET, b"20"), at), **sequence) == first
    assert player.orders.log.log_end_offset == end_offset


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (((CANCEL, b""),), "tw-cancel: an id is not empty"),
        (((CANCEL, b"x" * 65),), "tw-cancel: the id has 65 bytes"),
        (((CANCEL_OFFSET, b"-1"),), "tw-cancel-offset: it names an offset"),
        (((CANCEL_OFFSET, b"1.0"),), "tw-cancel-offset: it names an offset"),
        (((CANCEL_OFFSET, b"9223372036854775808"),), "tw-cancel-offset: it names an offset"),
        (((CANCEL_OFFSET, b"1"), (CANCEL_OFFSET, b"2")), "a record has one command"),
        (((CANCEL, b"a"), (RESCHEDULE, b"a"), (DELAY, b"1s")), "a record has one command"),
        (((CANCEL, b"a"), (DELAY, b"1s")), "what is cancelled has no time"),
        (((RESCHEDULE, b"a"),), "it needs tw-delay or tw-deliver-at"),
        (((RESCHEDULE_OFFSET, b"1"), (DELAY, b"0s")), "tw-delay: a delay is at least 1 ms"),
        (((CANCEL, b"a"), (ID, b"b")), "a command has no tw-id"),
        (((b"tw-cancelled", b"1:2"),), "no header of the prefix tw- has this name"),
        (((b"tw-moved", b"1:2:3"),), "no header of the prefix tw- has this name"),
        (((b"tw-judged-at", b"1"),), "no header of the prefix tw- has this name"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    headers: tuple[tuple[bytes, bytes], ...], words: str
) -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1h")
    produced = player.append((b"plain",), (b"", *headers))
    assert produced.error_code == ErrorCode.INVALID_RECORD
    assert produced.message is not None
    assert produced.message.startswith("record 1: header ")
    assert words in produced.message
    assert player.orders.log.log_end_offset == 1


def test_they_need_the_feature() -> None:
    player = DelayedPlayer(level=0)
    assert "need the feature" in (say(player, (CANCEL_OFFSET, b"0")) or "")


def test_who_is_in_the_log_first_has_won() -> None:
    """A cancel that is judged while the message is delivered, and the other way round."""
    player = DelayedPlayer()
    player.delayed(b"delivered", b"1s")
    cancel = build_batch([NewRecord(NOW_MS, None, b"", ((CANCEL_OFFSET, b"0"),))])
    player.pass_time(999)
    pending = player.produce("orders", [], batch=cancel)
    # The batch has been looked at, and it is judged: the message is pending.
    for _ in range(2):
        player.executor.run_one()
        player.services.wakes.run(player.now_ms)
    player.pass_time(1)
    player.run_jobs()
    ((part,),) = (topic.partition_responses for topic in pending.response.responses)
    values = player.values()
    assert (values == [b"delivered"]) is (part.error_code == ErrorCode.INVALID_RECORD)
    assert (values == []) is (part.error_code == ErrorCode.NONE)


def test_a_command_that_would_change_nothing_is_judged_again_when_its_message_has_changed() -> None:
    player = DelayedPlayer()
    due_ms = NOW_MS + 60_000
    assert player.append((b"later", (DELIVER_AT, b"%d" % due_ms))).error_code == ErrorCode.NONE
    headers = (RESCHEDULE_OFFSET, b"0"), (DELIVER_AT, b"%d" % due_ms)
    pending = player.produce(
        "orders", [], batch=build_batch([NewRecord(NOW_MS, None, b"", headers)])
    )
    player.executor.run_one()
    player.services.wakes.run(player.now_ms)
    # It is judged, which the loop has not heard of when the message is cancelled.
    player.executor.run_one()
    cancel = (CANCEL_OFFSET, b"0"), (b"tw-cancelled", b"0:%d" % due_ms), (b"tw-judged-at", b"1")
    stored = build_batch([NewRecord(NOW_MS, None, None, cancel)], base_offset=1, attributes=1 << 7)
    for header in iter_batch_headers(stored, 0, len(stored)):
        player.orders.log.fold(DelayedMessages).apply(StoredBatch(header, stored))
    player.pass_ms(1)
    player.pass_ms(1)
    ((part,),) = (topic.partition_responses for topic in pending.response.responses)
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert "too late: the message is cancelled" in part.error_message


def test_a_delivery_in_the_making_is_dropped_when_its_message_is_cancelled_or_moved() -> None:
    player = DelayedPlayer()
    for value in (b"cancelled", b"moved", b"kept"):
        player.delayed(value, b"1s")
    player.pass_time(1_000)
    # The batch that delivers them is made, and not appended.
    fold = player.orders.log.fold(DelayedMessages)
    assert player.executor.queue
    at_ms = NOW_MS + 5_000
    headers = [
        ((b"tw-cancel-offset", b"0"), (b"tw-cancelled", b"0:%d" % (NOW_MS + 1_000))),
        ((b"tw-reschedule-offset", b"1"), (b"tw-moved", b"1:%d:%d" % (NOW_MS + 1_000, at_ms))),
    ]
    stored = build_batch(
        [NewRecord(NOW_MS, None, None, (*some, (b"tw-judged-at", b"1"))) for some in headers],
        base_offset=3,
        attributes=1 << 7,
    )
    for header in iter_batch_headers(stored, 0, len(stored)):
        fold.apply(StoredBatch(header, stored))
    player.run_jobs()
    player.pass_ms(100)
    assert player.values() == [b"kept"]
    assert deliver(player, 5_000) == [b"kept", b"moved"]


def test_what_is_stored_of_a_command() -> None:
    player = DelayedPlayer()
    player.delayed(b"later", b"1h")
    headers = ((b"other", b"x"), (RESCHEDULE_OFFSET, b"0"), (DELAY, b"2h"), (TAG, b"eu"))
    record = NewRecord(NOW_MS, b"key", b"value", headers)
    player.produce("orders", [], batch=build_batch([record]))
    player.run_jobs()
    read = player.orders.log.read(1, 10_000, max_offset=2, at_least_one_batch=True)
    data = b"".join(bytes(buffer) for buffer in read.buffers)
    (stored,) = decode_batch(data, 0)
    assert (stored.key, stored.value) == (None, None)
    hour_ms = 3_600_000
    assert stored.headers == (
        (RESCHEDULE_OFFSET, b"0"),
        (b"tw-moved", b"0:%d:%d" % (NOW_MS + hour_ms, NOW_MS + 2 * hour_ms)),
        (b"tw-judged-at", b"%d" % NOW_MS),
    )
