"""The rules of idempotent producers and of transactions, as Apache Kafka 4.3 has them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.errors import AppendError
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.log import COORDINATOR
from data_plane.log.producer_snapshot import decode_producer_snapshot
from data_plane.log.producer_state import CachedBatch, PendingSequence, ProducerStates
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import (
    BatchHeader,
    NewRecord,
    build_batch,
    read_batch_header,
)
from tests.log.one_log import OneLog, batch_of

SEQUENCE_MAX = 2**31 - 1


class Log:
    """Batches one behind the other, folded as a log does it."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.next_offset = 0
        self.batches: list[bytes] = []

    def batch(
        self, first: int, count: int = 1, *, epoch: int = 0, producer: int = 1, in_txn: bool = False
    ) -> BatchHeader:
        data = build_batch(
            [NewRecord(self.next_offset, None, b"v")] * count,
            base_offset=self.next_offset,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=first,
            is_transactional=in_txn,
        )
        self._data = bytes(data)
        return read_batch_header(data, 0)

    def check(self, header: BatchHeader, *, is_client: bool = True) -> CachedBatch | None:
        pending: dict[int, PendingSequence] = {}
        return self.states.check(header, pending, is_client=is_client)

    def append(self, first: int, count: int = 1, *, epoch: int = 0, in_txn: bool = False) -> None:
        header = self.batch(first, count, epoch=epoch, in_txn=in_txn)
        assert self.check(header) is None
        self._store(header, self._data)

    def refuse(self, first: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
        with pytest.raises(AppendError) as caught:
            self.check(self.batch(first, count, epoch=epoch))
        return caught.value.error_code

    def mark(self, *, is_commit: bool, producer: int = 1, epoch: int = 0) -> None:
        data = build_end_transaction_marker(
            EndTransactionMarker(is_commit, 3),
            base_offset=self.next_offset,
            timestamp=5,
            producer_id=producer,
            producer_epoch=epoch,
        )
        header = read_batch_header(data, 0)
        assert self.check(header, is_client=False) is None
        self._store(header, bytes(data))

    def append_transactional(self, producer: int, first: int) -> None:
        header = self.batch(first, producer=producer, in_txn=True)
        assert self.check(header) is None
        self._store(header, self._data)

    def _store(self, header: BatchHeader, data: bytes) -> None:
        self.states.apply_batch(header, data, 0)
        self.batches.append(data)
        self.next_offset = header.next_offset


def test_a_repeated_batch_is_acknowledged_with_its_old_offset() -> None:
    log = Log()
    for first in range(0, 12, 2):
        log.append(first, 2)
    for first in range(2, 12, 2):
        found = log.check(log.batch(first, 2))
        assert found is not None
        assert (found.first_offset, found.last_offset) == (first, first + 1)
    # The sixth one from the end is forgotten.
    assert log.refuse(0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # A part of a stored batch is no repetition.
    assert log.refuse(10, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_sequence_goes_on_by_one() -> None:
    log = Log()
    log.append(0, 3)
    assert log.refuse(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(3)


def test_a_sequence_wraps_to_zero() -> None:
    log = Log()
    log.append(SEQUENCE_MAX - 1, 2)
    assert log.refuse(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(0)
    log.append(1)


def test_a_batch_may_wrap_within() -> None:
    log = Log()
    log.append(SEQUENCE_MAX, 3)
    assert log.states.producers[1].last_sequence == 1
    log.states.restore([log.states.snapshot()])
    found = log.check(log.batch(SEQUENCE_MAX, 3))
    assert found is not None
    log.append(2)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    Log().append(77)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    log = Log()
    log.append(0, epoch=5)
    assert log.refuse(1, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuse(1, epoch=6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(0, epoch=6)
    assert log.refuse(1, epoch=5) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_one_append_follow_each_other() -> None:
    log = Log()
    pending: dict[int, PendingSequence] = {}
    assert log.states.check(log.batch(0, 2), pending, is_client=True) is None
    assert log.states.check(log.batch(2), pending, is_client=True) is None
    with pytest.raises(AppendError):
        log.states.check(log.batch(2), pending, is_client=True)
    assert not log.states.producers, "a check changes nothing"


def test_a_repetition_behind_news_in_one_append_is_refused() -> None:
    """To acknowledge it as one would leave out what comes before it."""
    log = Log()
    log.append(0, 2)
    pending: dict[int, PendingSequence] = {}
    assert log.states.check(log.batch(2), pending, is_client=True) is None
    with pytest.raises(AppendError):
        log.states.check(log.batch(0, 2), pending, is_client=True)


def test_the_common_case_is_what_check_would_accept() -> None:
    log = Log()
    log.append(0, 3)
    assert log.states.is_next(log.batch(3))
    for header in (
        log.batch(0, 3),
        log.batch(4),
        log.batch(3, epoch=1),
        log.batch(3, producer=2),
        log.batch(3, in_txn=True),
    ):
        assert not log.states.is_next(header)


def test_silent_producers_expire_but_not_in_a_transaction() -> None:
    log = Log()
    log.append(0)
    log.append_transactional(2, 0)
    assert log.states.expire(10_000, 5_000) == 1
    assert set(log.states.producers) == {2}
    log.append(9)


def test_a_producer_is_as_old_as_its_last_batch() -> None:
    """A slow one has batches in its cache that are older than the time after which it expires."""
    log = Log()
    for timestamp in (0, 4_000, 8_000):
        # Offsets are this log's timestamps.
        log.next_offset = timestamp
        log.append(timestamp // 4_000)
    assert log.states.expire(12_999, 5_000) == 0
    assert log.check(log.batch(0)) is not None
    assert log.states.expire(13_000, 5_000) == 1


@pytest.mark.parametrize("restart", ["kill", "restart"])
def test_a_producer_of_undated_records_is_not_forgotten_at_the_first_look_after_a_start(
    restart: str,
) -> None:
    """Its retry would be stored a second time."""
    one = OneLog()
    one.append(batch_of(b"v", timestamps=[-1], producer=(7, 0, 0)))
    assert one.log.producers.expire(one.now_ms, 5_000) == 0
    getattr(one, restart)()
    assert one.log.is_loaded or one.offsets() == [0]
    assert one.log.producers.expire(one.now_ms, 5_000) == 0
    assert one.append(batch_of(b"v", timestamps=[-1], producer=(7, 0, 0))).duplicate
    assert one.log.producers.expire(one.now_ms + 4_999, 5_000) == 0
    assert one.log.producers.expire(one.now_ms + 5_000, 5_000) == 1


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    log = Log()
    log.append(0, in_txn=True)
    assert log.refuse(1) is ErrorCode.INVALID_TXN_STATE
    assert not log.states.is_next(log.batch(1))


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed() -> None:
    log = Log()
    log.append(0)
    log.append_transactional(2, 0)
    log.append_transactional(3, 0)
    assert log.states.first_unstable_offset(3) == 1
    log.mark(is_commit=True, producer=2)
    assert log.states.first_unstable_offset(3) == 1, "the marker is not committed yet"
    assert log.states.first_unstable_offset(4) == 2
    log.mark(is_commit=False, producer=3)
    assert log.states.first_unstable_offset(5) is None
    assert log.states.take_aborted() == [AbortedTransaction(3, 2, 4, 5)]
    assert log.states.take_aborted() == []


def test_transactions_that_end_in_another_order_are_decided_in_their_own() -> None:
    log = Log()
    for producer in (2, 3, 4):
        log.append_transactional(producer, 0)
    log.mark(is_commit=False, producer=4)
    log.mark(is_commit=False, producer=3)
    # What lies from the oldest open one on is not decided by these.
    assert log.states.take_aborted() == [
        AbortedTransaction(4, 2, 3, 0),
        AbortedTransaction(3, 1, 4, 0),
    ]
    log.mark(is_commit=True, producer=2)
    assert log.states.first_unstable_offset(3) == 0
    assert log.states.first_unstable_offset(4) == 0
    log.states.restore([log.states.snapshot()])
    assert log.states.first_unstable_offset(4) is None, "a start knows of the open ones only"


def test_aborted_transactions_are_found_up_to_the_last_that_may_reach_back() -> None:
    one = OneLog(segment_bytes=400)
    for producer in (2, 3):
        one.append(batch_of(b"v", producer=(producer, 0, 0), is_transactional=True), commit=False)
    assert one.log.last_stable_offset == one.log.high_watermark == 0
    one.log.advance_high_watermark(2)
    assert (one.log.last_stable_offset, one.log.high_watermark) == (0, 2)
    for producer in (3, 2):
        marker = build_end_transaction_marker(
            EndTransactionMarker(False, 1), timestamp=5, producer_id=producer, producer_epoch=0
        )
        one.log.append_as_leader(
            marker, 0, len(marker), leader_epoch=0, now_ms=5, origin=COORDINATOR
        )
        one.log.roll()
    second, first = AbortedTransaction(3, 1, 2, 0), AbortedTransaction(2, 0, 3, 4)
    # The one that ended later began first.
    assert one.log.aborted_transactions(0, 2) == [first, second]
    assert one.log.aborted_transactions(0, 1) == [first]
    assert one.log.aborted_transactions(3, 4) == [first]
    one.log.advance_high_watermark(4)
    assert one.log.last_stable_offset == 4


def one_with_an_aborted_transaction() -> OneLog:
    """In the first segment, at offset 0; its marker at 1."""
    one = OneLog()
    one.append(batch_of(b"v", producer=(2, 0, 0), is_transactional=True))
    marker = build_end_transaction_marker(
        EndTransactionMarker(False, 1), timestamp=5, producer_id=2, producer_epoch=0
    )
    one.log.append_as_leader(marker, 0, len(marker), leader_epoch=0, now_ms=5, origin=COORDINATOR)
    one.fill(1)
    one.log.roll()
    assert one.names(".txnindex") == [f"{0:020d}.txnindex"]
    return one


def test_a_transaction_that_was_cut_off_is_not_aborted_any_more() -> None:
    """The segment whose end was cut off is sealed a second time."""
    one = one_with_an_aborted_transaction()
    one.log.truncate_to(1)
    one.fill(4)
    one.log.roll()
    for how in ("", "restart", "kill"):
        if how:
            getattr(one, how)()
        assert one.log.aborted_transactions(0, 5) == []
        assert one.names(".txnindex") == []


@pytest.mark.parametrize("how", ["restart", "kill", "truncate"])
def test_an_aborted_transaction_stands_in_its_own_segment_only(how: str) -> None:
    """Also where the snapshots behind it are lost, and all is made from the batches again."""
    one = one_with_an_aborted_transaction()
    one.fill(3)
    one.checkpoint()
    for name in one.names(".snapshot"):
        one.unlink(name)
    if how == "truncate":
        one.log.truncate_to(5)
    else:
        one.fill(1)
        getattr(one, how)()
    expected = [AbortedTransaction(2, 0, 1, 2)]
    assert one.log.aborted_transactions(0, 9) == expected
    one.fill(1)
    one.log.roll()
    one.restart()
    assert one.log.aborted_transactions(0, 9) == expected
    assert one.log.producers.producers[2].last_sequence == 0


def test_the_last_stable_offset_does_not_pass_the_high_watermark() -> None:
    one = OneLog()
    one.append(batch_of(b"plain"), commit=False)
    one.append(batch_of(b"v", producer=(2, 0, 0), is_transactional=True), commit=False)
    assert one.log.last_stable_offset == 0
    one.log.advance_high_watermark(2)
    assert one.log.last_stable_offset == 1


def test_a_producer_is_as_old_as_its_last_marker_also_after_a_start() -> None:
    log = Log()
    log.append(0, in_txn=True)
    log.mark(is_commit=True)
    again = ProducerStates()
    again.restore([log.states.snapshot()])
    for states in (log.states, again):
        assert states.producers[1].last_timestamp == 5
        assert states.expire(104, 100) == 0


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    log = Log()
    log.append(0, epoch=5)
    with pytest.raises(AppendError) as caught:
        log.mark(is_commit=True, epoch=4)
    assert caught.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_without_a_transaction_leaves_no_trace_in_the_index() -> None:
    log = Log()
    log.append(0)
    log.mark(is_commit=False)
    assert log.states.take_aborted() == []
    assert log.states.producers[1].coordinator_epoch == 3


def test_a_marker_of_a_newer_epoch_fences_the_old_one() -> None:
    log = Log()
    log.append(0, in_txn=True)
    log.mark(is_commit=False, epoch=1)
    assert log.refuse(1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    log.append(0, epoch=1)


def random_log(seed: int, steps: int) -> Log:
    rng = random.Random(seed)
    log = Log()
    for _ in range(steps):
        producer = rng.randrange(4)
        entry = log.states.producers.get(producer)
        first = 0 if entry is None else (entry.last_sequence + 1) & SEQUENCE_MAX
        in_transaction = entry is not None and entry.transaction_first_offset >= 0
        epoch = 0 if entry is None else entry.producer_epoch
        if in_transaction and rng.random() < 0.4:
            log.mark(is_commit=rng.random() < 0.5, producer=producer, epoch=epoch)
            continue
        is_transactional = in_transaction or rng.random() < 0.3
        header = log.batch(
            first, rng.randrange(1, 4), epoch=epoch, producer=producer, in_txn=is_transactional
        )
        assert log.check(header) is None
        log._store(header, log._data)
    return log


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(0, 40))
def test_a_snapshot_and_the_rest_are_the_whole(seed: int, steps: int, cut: int) -> None:
    log = random_log(seed, steps)
    first, second = ProducerStates(), ProducerStates()
    for data in log.batches[:cut]:
        first.apply_batch(read_batch_header(data, 0), data, 0)
    second.restore([first.snapshot()])
    assert second.snapshot() == first.snapshot()
    for data in log.batches[cut:]:
        second.apply_batch(read_batch_header(data, 0), data, 0)
    assert second.snapshot() == log.states.snapshot()
    assert second.ongoing == log.states.ongoing
    second.restore(())
    assert second.snapshot() == ProducerStates().snapshot()


@given(st.integers(0, 1000), st.data())
def test_a_snapshot_is_read_in_pieces_of_any_size(seed: int, data: st.DataObject) -> None:
    log = random_log(seed, 8)
    snapshot = log.states.snapshot()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(snapshot)), max_size=6)))
    pieces = [snapshot[start:end] for start, end in pairwise([0, *cuts, len(snapshot)])]
    again = ProducerStates()
    again.restore(pieces)
    assert again.snapshot() == snapshot
    assert again.ongoing == log.states.ongoing
    with pytest.raises(ValueError, match="snapshot"):
        again.restore([snapshot[: data.draw(st.integers(0, len(snapshot) - 1))]])
    with pytest.raises(ValueError, match="snapshot"):
        again.restore([*pieces, b"more"])


@given(st.integers(0, 1000), st.data())
def test_a_damaged_snapshot_is_refused(seed: int, data: st.DataObject) -> None:
    snapshot = bytearray(random_log(seed, 5).states.snapshot())
    position = data.draw(st.integers(0, len(snapshot) - 1))
    snapshot[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError, match="snapshot"):
        decode_producer_snapshot(bytes(snapshot))


def test_the_newest_row_of_a_producer_comes_last_for_kafkas_reader() -> None:
    log = Log()
    for first in range(7):
        log.append(first)
    rows = decode_producer_snapshot(log.states.snapshot())
    assert [row.last_sequence for row in rows] == [2, 3, 4, 5, 6]
