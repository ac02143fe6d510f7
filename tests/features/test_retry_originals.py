"""Reading what was delivered, for nacks, out of real logs."""

from __future__ import annotations

import random

import pytest

from data_plane.log.errors import AppendError
from data_plane.log.fold import FoldContext
from data_plane.log.log import FEATURE
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import NewRecord, build_batch, read_batch_header
from features.retry_dlq import originals
from features.retry_dlq.commands import Command, Position
from features.retry_dlq.judgement import Copy, NoOriginal, NotThere, Outlook, Repeat, judge
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.originals import ReadableLog, StoredDeliveries
from features.retry_dlq.policy import Policy, parse_backoff
from features.retry_dlq.stored_form import stored_batch
from tests.log.one_log import START_MS, OneLog

Headers = tuple[tuple[bytes, bytes | None], ...]
OUTLOOK = Outlook(3, Policy(parse_backoff("fixed:1s"), 0.0, 16), b"pay.dlq/3", START_MS)


class Source(OneLog):
    """A log with plain records, hidden ones, and delivered ones."""

    def store(self, *records: tuple[bytes, Headers], attributes: int = 0) -> None:
        news = [NewRecord(self.now_ms, b"k", value, headers) for value, headers in records]
        batch = build_batch(news, attributes=attributes, compression=3)
        self.log.append_as_leader(
            batch, 0, len(batch), leader_epoch=self.epoch, now_ms=self.now_ms, origin=FEATURE
        )
        self.log.advance_high_watermark(self.log.log_end_offset)


class Retry(Source):
    """A retry log."""

    fold_factories = (lambda context: make_nacks(context),)

    @property
    def fold(self) -> Nacks:
        return self.log.fold(Nacks)


def make_nacks(context: FoldContext) -> Nacks:
    return Nacks(context)


def readable(one: OneLog, *, leads: bool = True) -> ReadableLog:
    log = one.log
    end_offset = log.log_end_offset if leads else None
    return ReadableLog(log, log.log_start_offset, log.high_watermark, end_offset)


def deliveries(source: OneLog | None, retry: Retry, *, leads: bool = True) -> StoredDeliveries:
    part = None if source is None else readable(source, leads=leads)
    return StoredDeliveries(retry.fs, part, readable(retry), retry.fold.state(), "orders/3")


def fired(source: int, attempt: int) -> Headers:
    return (
        (b"tw-source", b"orders/3/%d" % source),
        (b"tw-attempt", b"%d" % attempt),
        (b"tw-produced-at", b"77"),
        (b"tw-first-failed-at", b"88"),
        (b"tw-fired", b"0"),
    )


def test_what_is_read_from_the_source_is_the_first_attempt() -> None:
    source, retry = Source(), Retry()
    source.store((b"a", ((b"tw-attempt", b"9"), (b"tw-produced-at", b"1"))), (b"b", ()))
    source.store((b"c", ((b"tw-produced-at", b"5"),)), attributes=FACTS_FLAG)
    found = [deliveries(source, retry).original(Position(6, offset)) for offset in range(3)]
    assert [(one.record.value, one.attempt) for one in found] == [(b"a", 1), (b"b", 1), (b"c", 1)]
    assert [one.source for one in found] == [b"orders/3/0", b"orders/3/1", b"orders/3/2"]
    # What a client says of the time is plain data; what was delivered delayed says it itself.
    assert [one.produced_at_ms for one in found] == [START_MS, START_MS, 5]
    assert [one.first_failed_at_ms for one in found] == [None] * 3


def test_what_was_fired_says_which_attempt_it_was() -> None:
    retry = Retry()
    retry.store((b"hidden", ((b"tw-nack", b"6:100"),)), attributes=HIDDEN_FLAG)
    retry.store((b"again", fired(100, 2)), attributes=FACTS_FLAG)
    asked = deliveries(None, retry)
    one = asked.original(Position(7, 1))
    assert (one.record.value, one.attempt, one.source) == (b"again", 2, b"orders/3/100")
    assert (one.produced_at_ms, one.first_failed_at_ms) == (77, 88)
    with pytest.raises(NoOriginal, match="no record was delivered"):
        asked.original(Position(7, 0))


def test_what_is_hidden_control_or_missing_was_never_delivered() -> None:
    source, retry = Source(), Retry()
    later = ((b"tw-deliver-at", b"9999999999999"),)
    source.store((b"shown", ()), (b"hidden", later), (b"shown", ()), attributes=HIDDEN_FLAG)
    source.store((b"marker", ()), attributes=0x20)
    asked = deliveries(source, retry)
    assert asked.original(Position(6, 0)).record.value == b"shown"
    assert asked.original(Position(6, 2)).record.offset == 2
    for offset in (1, 3, 4, 1 << 40):
        with pytest.raises(NoOriginal, match="no record was delivered"):
            asked.original(Position(6, offset))


def test_what_this_copy_may_lack_is_tried_again() -> None:
    source, retry = Source(), Retry()
    source.store((b"a", ()))
    batch = build_batch([NewRecord(START_MS, None, b"b")])
    source.append(batch, commit=False)
    for leads in (True, False):
        with pytest.raises(NotThere) as found:
            deliveries(source, retry, leads=leads).original(Position(6, 1))
        assert found.value.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    # Of a follower nobody knows how much more its leader has.
    with pytest.raises(NotThere):
        deliveries(source, retry, leads=False).original(Position(6, 2))
    with pytest.raises(NoOriginal):
        deliveries(source, retry).original(Position(6, 2))
    with pytest.raises(NotThere) as found:
        deliveries(None, retry).original(Position(6, 0))
    assert found.value.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_has_left_the_log_is_over_and_so_is_what_a_floor_says() -> None:
    """A new leader's log start may lie below what its predecessor has said of it."""
    source, retry = Source(), Retry()
    for number in range(6):
        source.store((b"%d" % number, ()))
    source.log.delete_records(2)
    forgotten = ((b"tw-forget", b"4:0"),)
    assert deliveries(source, retry).original(Position(6, 3)).record.value == b"3"
    retry.store((b"", forgotten), attributes=HIDDEN_FLAG)
    asked = deliveries(source, retry)
    for offset in (1, 2, 3):
        with pytest.raises(NoOriginal, match="no longer"):
            asked.original(Position(6, offset))
    assert asked.original(Position(6, 4)).record.value == b"4"


def test_what_is_damaged_is_tried_again() -> None:
    source, retry = Source(), Retry()
    source.store((b"x" * 100, ()))
    source.checkpoint()
    source.kill()
    source.log.load()
    source.log.advance_high_watermark(source.log.log_end_offset)
    source.fs.flip_bit(f"{source.log.folder}/00000000000000000000.log", 70)
    source.log.doubt(0)
    with pytest.raises(NotThere) as found:
        deliveries(source, retry).original(Position(6, 0))
    assert found.value.error_code is ErrorCode.CORRUPT_MESSAGE


def test_originals_of_a_batch_have_a_bound_and_a_single_one_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(originals, "ORIGINALS_BYTES_MAX", 100)
    source, retry = Source(), Retry()
    for size in (150, 40, 40, 40):
        source.store((b"x" * size, ()))
    assert deliveries(source, retry).original(Position(6, 0)).record.offset == 0
    asked = deliveries(source, retry)
    asked.original(Position(6, 1))
    asked.original(Position(6, 2))
    with pytest.raises(AppendError, match="send fewer") as found:
        asked.original(Position(6, 3))
    assert found.value.error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_nack_is_stored_and_known_from_then_on() -> None:
    """The cores together: judged, stored, told to the fold, and said again, after a restart too."""
    source, retry = Source(), Retry()
    for number in range(40):
        source.store((b"%d" % number, ((b"tw-tag", b"eu"),)))
    nack = Command(Position(6, 17), False, None, ())
    sent = build_batch([NewRecord(START_MS, None, None, ((b"tw-nack", b"6:17"),))])
    for is_repeat in (False, True, True):
        outcomes = judge([nack], deliveries(source, retry), OUTLOOK, random.Random(1))
        assert isinstance(outcomes[0], Repeat if is_repeat else Copy)
        batch = stored_batch(read_batch_header(sent, 0), [START_MS], outcomes, OUTLOOK)
        retry.log.append_as_leader(
            batch, 0, len(batch), leader_epoch=0, now_ms=START_MS, origin=FEATURE
        )
        retry.restart()
        retry.log.load()
        retry.log.advance_high_watermark(retry.log.log_end_offset)
    values = [record.value for record in retry.records()]
    assert values == [b"17", None, None]
