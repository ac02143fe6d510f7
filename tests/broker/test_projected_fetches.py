"""Fetches of projected partitions: what is shown, how far clients move, and how long they wait."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.fetch import fetch_scans, projected_reads
from data_plane.broker.fetch.open_fetches import OpenFetches
from data_plane.broker.fetch.projection import SourceBatch
from data_plane.log.log import COORDINATOR
from data_plane.wire.compression import Compression
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import LAST_OFFSET_DELTA_POSITION
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    decode_batch,
    is_crc_valid,
    iter_batch_headers,
)
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NOW_MS, BrokerPlayer, Pending, values_of
from tests.broker.test_fetch import parts
from tests.broker.test_produce import only
from tests.projections import DOUBLED, EVEN, KEEP, KEPT, NamedProjections

CODECS = list(Compression)
EVENS, KEPTS, DOUBLES = EVEN + "orders", KEPT + "orders", DOUBLED + "orders"


class ProjectingPlayer(BrokerPlayer):
    """A broker with `orders` (two partitions) and all projections of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filling = random.Random(1)
        self.provider = NamedProjections(self.services)
        self.services.projections.register(self.provider)
        if not self.services.image.topics_of("default"):
            self.create_topic("orders", 2, {"segment.bytes": "20000"})
            self.create_topic(EVENS, 2)
            self.create_topic(KEPTS, 2)
            self.create_topic(DOUBLES, 4)

    def restarted(self) -> ProjectingPlayer:
        self.logs.close(self.now_ms)
        return ProjectingPlayer(disk=self.fs, image=self.services.image)

    def append(self, *keys: bytes, codec: int = 0, index: int = 0, size: int = 10) -> None:
        """One batch; the value of each record is its offset, and `size` bytes that no codec packs
        well."""
        filling = self.filling.randbytes(size)
        base = self.partition("orders", index).log.log_end_offset
        records = [
            NewRecord(NOW_MS + offset, key, b"%d " % (base + offset) + filling)
            for offset, key in enumerate(keys)
        ]
        batch = build_batch(records, compression=codec)
        assert only_produced(self.produce("orders", [], index=index, batch=batch)) == 0

    def append_in_transaction(self, producer_id: int, sequence: int, *keys: bytes) -> None:
        records = [NewRecord(NOW_MS, key, b"txn") for key in keys]
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.partition("orders").append_as_leader(batch, 0, len(batch), now_ms=self.now_ms)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        marker = bytearray(
            build_end_transaction_marker(
                EndTransactionMarker(is_commit, 1),
                timestamp=NOW_MS,
                producer_id=producer_id,
                producer_epoch=0,
            )
        )
        self.partition("orders").append_as_leader(
            marker, 0, len(marker), now_ms=self.now_ms, origin=COORDINATOR
        )


def only_produced(pending: Pending) -> int:
    error: int = pending.response.responses[0].partition_responses[0].error_code
    return error


@pytest.fixture
def broker() -> ProjectingPlayer:
    return ProjectingPlayer()


def slices_of(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    for module in (fetch_scans, projected_reads):
        monkeypatch.setattr(module, "SLICE_BYTES_MAX", size_bytes)


def offsets_of(records: Any) -> list[int]:
    """Of all records that a client delivers; every batch is looked at as clients do."""
    data = bytes(records or b"")
    offsets: list[int] = []
    for header in iter_batch_headers(data, 0, len(data)):
        assert header.record_count > 0, "clients cannot bear batches without records"
        assert is_crc_valid(data, header)
        found = [record.offset for record in decode_batch(data, header.position)]
        assert found == sorted(set(found))
        if not header.is_control:
            assert header.last_offset == found[-1], "some clients crawl through a gap at the tail"
            offsets += found
    return offsets


def position_after(records: Any, position: int) -> int:
    """Where a client goes on."""
    data = bytes(records or b"")
    for header in iter_batch_headers(data, 0, len(data)):
        position = header.next_offset
    return position


def test_odd_offsets_are_dropped_and_the_client_moves_behind_them(broker: ProjectingPlayer) -> None:
    broker.append(b"a", b"b", b"c", b"d")
    broker.append(b"e", b"f", b"g")
    part = only(broker.fetch({(EVENS, 0): 0}).response)
    assert offsets_of(part.records) == [0, 2, 4, 6]
    assert (values_of(part.records)[1][1] or b"").startswith(b"2 ")
    assert (part.high_watermark, part.log_start_offset, part.last_stable_offset) == (7, 0, 7)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_every_version_and_both_ways_to_name_a_topic(
    broker: ProjectingPlayer, version: int
) -> None:
    broker.append(b"a", b"b", b"c")
    part = only(broker.fetch({(EVENS, 0): 1}, version=version).response)
    assert offsets_of(part.records) == [2]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_is_shown_in_part_keeps_its_codec(
    broker: ProjectingPlayer, codec: Compression
) -> None:
    broker.append(*[b"a"] * 100, codec=codec)
    poll = broker.fetch({(EVENS, 0): 0})
    assert poll.is_answered == (codec is Compression.NONE)
    part = only(broker.answered(poll).response)
    assert offsets_of(part.records) == list(range(0, 100, 2))
    header = next(iter_batch_headers(part.records, 0, len(part.records)))
    assert (header.compression, header.max_timestamp) == (codec, NOW_MS + 98)


def test_a_batch_that_is_shown_as_a_whole_is_sent_as_it_is_stored(broker: ProjectingPlayer) -> None:
    for codec in CODECS:
        broker.append(b"a", b"b", codec=codec)
    plain = only(broker.fetch({("orders", 0): 0}).response)
    part = only(broker.answered(broker.fetch({(DOUBLES, 0): 0})).response)
    assert bytes(part.records) == bytes(plain.records)


def test_virtual_partitions_lie_over_those_of_the_source(broker: ProjectingPlayer) -> None:
    broker.append(b"a", index=0)
    broker.append(b"a", b"b", index=1)
    found = parts(broker.fetch({(DOUBLES, index): 0 for index in range(4)}).response)
    assert [offsets_of(found[index].records) for index in range(4)] == [[0], [], [0, 1], []]
    assert [found[index].high_watermark for index in range(4)] == [1, 0, 2, 0]


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_where_nothing_is_shown_one_control_batch_moves_the_client(
    broker: ProjectingPlayer, max_wait_ms: int
) -> None:
    broker.append(b"drop", b"drop")
    broker.append(b"drop", codec=Compression.LZ4)
    poll = broker.fetch({(KEPTS, 0): 1}, max_wait_ms=max_wait_ms)
    broker.run_jobs()
    assert not poll.is_answered
    broker.pass_time(max_wait_ms)
    part = only(poll.response)
    headers = list(iter_batch_headers(part.records, 0, len(part.records)))
    assert len(headers) == 1
    assert (headers[0].base_offset, headers[0].last_offset_delta) == (2, 0)
    assert (headers[0].attributes, headers[0].producer_id) == (0x20, -1)
    # Behind it there is nothing to say.
    again = broker.fetch({(KEPTS, 0): 3}, max_wait_ms=max_wait_ms)
    broker.pass_time(max_wait_ms)
    assert not only(again.response).records


def test_a_parked_fetch_is_answered_by_the_first_record_that_is_shown(
    broker: ProjectingPlayer,
) -> None:
    poll = broker.fetch({(KEPTS, 0): 0}, max_wait_ms=500)
    broker.append(b"drop", b"drop")
    assert not poll.is_answered
    broker.append(b"drop", KEEP)
    assert offsets_of(only(poll.response).records) == [3]


def test_what_was_scanned_is_not_scanned_again(
    broker: ProjectingPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    projection = broker.provider.projections[KEPT]
    select = projection.select

    def noting(batch: SourceBatch) -> Any:
        seen.append(batch.header.base_offset)
        return select(batch)

    monkeypatch.setattr(projection, "select", noting)
    session = broker.fetch({(KEPTS, 0): 0}, session_epoch=0)
    ids = {"session_id": session.response.session_id}
    poll = broker.fetch(session_epoch=1, max_wait_ms=500, **ids)
    for _ in range(3):
        broker.append(b"drop")
    broker.pass_time(500)
    assert position_after(only(poll.response).records, 0) == 3
    # The client may or may not go on behind the control batch.
    poll = broker.fetch(session_epoch=2, max_wait_ms=500, **ids)
    broker.append(KEEP)
    assert offsets_of(only(poll.response).records) == [3]
    assert seen == [0, 1, 2, 3]
    # Somebody who has seeked back gets what there is.
    poll = broker.fetch({(KEPTS, 0): 1}, session_epoch=3, **ids)
    assert offsets_of(only(poll.response).records) == [3]


def test_records_below_the_fetch_offset_do_not_move_a_client_back(broker: ProjectingPlayer) -> None:
    broker.append(KEEP, KEEP, b"drop", b"drop", b"drop")
    broker.append(b"drop")
    part = only(broker.fetch({(KEPTS, 0): 3}).response)
    assert position_after(part.records, 3) == 6


def test_min_bytes_are_waited_for_and_max_bytes_hold(broker: ProjectingPlayer) -> None:
    poll = broker.fetch({(EVENS, 0): 0}, max_wait_ms=500, min_bytes=3_000)
    for _ in range(5):
        broker.append(b"a", b"b", size=500)
        assert not poll.is_answered
    for _ in range(5):
        broker.append(b"a", b"b", size=500)
    assert (
        offsets_of(only(poll.response).records)
        == list(range(0, 12, 2))[: len(offsets_of(only(poll.response).records))]
    )
    part = only(broker.fetch({(EVENS, 0): 0}, partition_max_bytes=1_500).response)
    assert offsets_of(part.records) == [0, 2]
    part = only(broker.fetch({(EVENS, 0): 1}, partition_max_bytes=1).response)
    assert offsets_of(part.records) == [2]


def test_what_is_left_out_for_want_of_room_comes_next(broker: ProjectingPlayer) -> None:
    for _ in range(10):
        broker.append(b"a", b"b", size=500)
    position, found = 0, []
    while position < 19:
        part = only(broker.fetch({(EVENS, 0): position}, partition_max_bytes=1_500).response)
        found += offsets_of(part.records)
        position = position_after(part.records, position)
    assert found == list(range(0, 20, 2))


@pytest.mark.parametrize("is_large", [False, True])
def test_long_scans_go_to_threads_in_slices(
    broker: ProjectingPlayer, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    slices_of(monkeypatch, 5_000)
    if is_large:
        monkeypatch.setattr("data_plane.broker.fetch.fetch_handler.LARGE_FETCH_BYTES", 1)
    for _ in range(40):
        broker.append(b"drop", size=1_000, codec=Compression.GZIP if is_large else 0)
    broker.append(KEEP, size=1_000)
    broker = broker.restarted()
    broker.fs.is_cache_cold = True
    poll = broker.fetch({(KEPTS, 0): 0}, max_wait_ms=500)
    jobs = 0
    while not poll.is_answered:
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
        jobs += 1
    assert offsets_of(only(poll.response).records) == [40]
    assert jobs > 3
    assert broker.sessions.cold_reads.held.used == 0


def test_a_fetch_that_may_not_wait_scans_one_turn_and_moves_the_client(
    broker: ProjectingPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices_of(monkeypatch, 2_000)
    for _ in range(20):
        broker.append(b"drop", size=500, codec=Compression.GZIP)
    position, polls = 0, 0
    while position < 20:
        poll = broker.fetch({(KEPTS, 0): position})
        broker.pass_time(0)
        part = only(broker.answered(poll).response)
        assert position_after(part.records, position) > position
        position = position_after(part.records, position)
        polls += 1
    assert polls > 2


def test_a_busy_neighbour_does_not_keep_a_projection_from_getting_on(
    broker: ProjectingPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices_of(monkeypatch, 2_000)
    for _ in range(10):
        broker.append(b"drop", size=500, codec=Compression.GZIP)
    broker.append(KEEP, codec=Compression.GZIP)
    position = 0
    for turn in range(10):
        broker.append(b"a", index=1)
        poll = broker.fetch({("orders", 1): turn, (KEPTS, 0): position}, max_wait_ms=500)
        answers = {
            topic.topic: topic.partitions[0] for topic in broker.answered(poll).response.responses
        }
        assert offsets_of(answers["orders"].records) == [turn]
        if offsets_of(answers[KEPTS].records):
            break
        moved = position_after(answers[KEPTS].records, position)
        assert moved > position
        position = moved
    assert offsets_of(answers[KEPTS].records) == [10]


def test_a_changed_projection_is_scanned_anew(broker: ProjectingPlayer) -> None:
    broker.append(b"drop", b"drop", b"drop")
    poll = broker.fetch({(KEPTS, 0): 0}, max_wait_ms=500)
    broker.run_jobs()
    assert not poll.is_answered
    broker.provider.projections[KEPT] = broker.provider.projections[EVEN]
    broker.provider.projected.pop(("default", KEPTS, 0)).end()
    broker.services.wakes.run(broker.now_ms)
    assert offsets_of(only(poll.response).records) == [0, 2]


def test_a_partition_becomes_a_projected_one_under_its_readers(broker: ProjectingPlayer) -> None:
    broker.append(b"a", index=1)
    poll = broker.fetch({(DOUBLES, 1): 0}, max_wait_ms=500)
    assert broker.provider.find("default", DOUBLES, b"", 1) is None
    even = broker.provider.find("default", EVENS, b"", 1)
    assert even is not None
    find = broker.provider.find
    broker.provider.find = lambda tenant, topic, topic_id, index: (  # type: ignore[method-assign]
        even if topic == DOUBLES else find(tenant, topic, topic_id, index)
    )
    open_fetches: OpenFetches = broker.sessions
    open_fetches.look_up_again(broker.partition(DOUBLES, 1))
    broker.services.wakes.run(broker.now_ms)
    assert offsets_of(only(poll.response).records) == [0]


def test_transactions(broker: ProjectingPlayer) -> None:
    broker.append_in_transaction(1, 0, b"drop", KEEP)  # 0, 1
    broker.append_in_transaction(2, 0, b"drop")  # 2
    broker.end_transaction(2, is_commit=False)  # 3
    broker.end_transaction(1, is_commit=False)  # 4
    broker.append_in_transaction(1, 2, KEEP)  # 5
    broker.end_transaction(1, is_commit=True)  # 6
    broker.append_in_transaction(2, 1, KEEP)  # 7
    everything = only(broker.fetch({(KEPTS, 0): 0}).response)
    assert offsets_of(everything.records) == [1, 5, 7]
    part = only(broker.fetch({(KEPTS, 0): 0}, isolation_level=1).response)
    assert part.last_stable_offset == 7
    assert offsets_of(part.records) == [1, 5]
    aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions]
    assert aborted == [(2, 2), (1, 0)] or aborted == [(1, 0), (2, 2)]
    controls = [
        header.base_offset
        for header in iter_batch_headers(part.records, 0, len(part.records))
        if header.is_control
    ]
    assert controls == [3, 4, 6]
    # Behind the markers of what was aborted, nobody is aborted.
    part = only(broker.fetch({(KEPTS, 0): 2}, isolation_level=1).response)
    assert offsets_of(part.records) == [5]
    assert part.aborted_transactions == []


def test_the_undecided_end_is_not_skipped(broker: ProjectingPlayer) -> None:
    broker.append(b"drop")
    broker.append_in_transaction(1, 0, KEEP)
    poll = broker.fetch({(KEPTS, 0): 0}, isolation_level=1, max_wait_ms=500)
    broker.pass_time(500)
    assert position_after(only(poll.response).records, 0) == 1
    poll = broker.fetch({(KEPTS, 0): 1}, isolation_level=1, max_wait_ms=500)
    broker.end_transaction(1, is_commit=True)
    broker.services.wakes.run(broker.now_ms)
    assert offsets_of(only(poll.response).records) == [1]


def test_offsets_outside_and_epochs_are_those_of_the_source(broker: ProjectingPlayer) -> None:
    broker.append(b"a", b"b")
    part = only(broker.fetch({(EVENS, 0): 3}).response)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    part = only(broker.fetch({(EVENS, 0): 0}, current_leader_epoch=1).response)
    assert part.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    part = only(broker.fetch({(EVENS, 7): 0}).response)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=DOUBLES,
                partitions=[
                    ListOffsetsPartition(partition_index=0, timestamp=-1),
                    ListOffsetsPartition(partition_index=1, timestamp=-1),
                    ListOffsetsPartition(partition_index=2, timestamp=-2),
                ],
            )
        ],
    )
    answer = broker.ask(ApiKey.LIST_OFFSETS, 5, request)
    found = [(part.error_code, part.offset) for part in answer.topics[0].partitions]
    assert found == [(0, 2), (0, 0), (0, 0)]
    epochs = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=EVENS, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
        ],
    )
    answer = broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, epochs)
    assert answer.topics[0].partitions[0].end_offset == 2


def test_a_source_that_is_gone(broker: ProjectingPlayer) -> None:
    broker.append(b"a")
    poll = broker.fetch({(KEPTS, 0): 1}, max_wait_ms=500)
    topic_id: UUID = broker.services.image.topics_of("default")["orders"].topic_id
    broker.delete_topic(topic_id)
    broker.services.wakes.run(broker.now_ms)
    assert only(poll.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_that_cannot_be_unpacked_is_an_error_behind_what_precedes_it(
    broker: ProjectingPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append(b"a", b"b")
    broker.append(b"a", b"b", codec=Compression.GZIP)
    monkeypatch.setattr(projected_reads, "SLICE_UNPACKED_BYTES_MAX", 1)

    def unpack(*_: Any) -> Any:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, "not gzip")

    monkeypatch.setattr(
        "data_plane.broker.fetch.projection.unpacked_records",
        lambda buffer, header: (
            unpack()
            if header.compression
            else (buffer, header.records_position, header.end_position)
        ),
    )
    part = only(broker.answered(broker.fetch({(EVENS, 0): 0})).response)
    assert (part.error_code, offsets_of(part.records)) == (0, [0])
    part = only(broker.answered(broker.fetch({(EVENS, 0): 1})).response)
    assert part.error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("what", ["last offset", "key"])
@pytest.mark.parametrize("name", [EVENS, KEPTS, DOUBLES])
def test_a_damaged_batch_is_neither_shown_nor_passed_over(
    broker: ProjectingPlayer, name: str, what: str
) -> None:
    """Written anew it would have a checksum that fits, and who reads it could not see it."""
    broker.append(KEEP, b"b")
    segment = broker.partition("orders").log.segments[-1]
    last_offset_position = segment.size + LAST_OFFSET_DELTA_POSITION + 3
    broker.append(b"c", KEEP)
    broker.append(b"d", size=25_000)  # In a segment of its own: what is sealed is read from files.
    path = segment.path()
    key_position = broker.fs.read_file(path).rindex(KEEP)
    broker.fs.flip_bit(path, key_position if what == "key" else last_offset_position)
    part = only(broker.answered(broker.fetch({(name, 0): 0})).response)
    assert (part.error_code, offsets_of(part.records)[0]) == (0, 0)
    part = only(broker.answered(broker.fetch({(name, 0): 2})).response)
    assert (part.error_code, part.records or b"") == (ErrorCode.CORRUPT_MESSAGE, b"")


@pytest.mark.parametrize("is_sealed", [True, False])
def test_damage_that_a_fetch_meets_is_known_at_the_next_one(
    broker: ProjectingPlayer, is_sealed: bool
) -> None:
    """What this process has written is not checked otherwise, and nobody would repair it."""
    broker.append(KEEP)
    segment = broker.partition("orders").log.segments[-1]
    start = segment.size
    broker.append(KEEP, b"damaged")
    broker.append(KEEP, size=25_000 if is_sealed else 10)
    path = segment.path()
    broker.fs.flip_bit(path, broker.fs.read_file(path).rindex(b"damaged"))
    for _ in range(2):
        part = only(broker.answered(broker.fetch({(KEPTS, 0): 1})).response)
        assert (part.error_code, part.records or b"") == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert [bad.start for bad in segment.bad_ranges or ()] == [start]


def test_a_plain_partition_is_looked_up_once(broker: ProjectingPlayer) -> None:
    broker.append(b"a")
    asked = broker.provider.asked_count
    answer = broker.fetch({("orders", 0): 0}, session_epoch=0).response
    for epoch in range(1, 10):
        broker.append(b"a")
        poll = broker.fetch(
            {("orders", 0): epoch}, session_id=answer.session_id, session_epoch=epoch
        )
        assert offsets_of(only(poll.response).records) == [epoch]
    assert broker.provider.asked_count == asked + 1


def test_what_a_thread_has_found_and_has_no_room_is_not_forgotten(
    broker: ProjectingPlayer,
) -> None:
    for index in range(2):
        broker.append(b"a", b"b", b"c", index=index, size=500, codec=Compression.GZIP)
    wanted = {(EVENS, 0): 0, (EVENS, 1): 0}
    first = parts(broker.answered(broker.fetch(wanted, max_bytes=1_000)).response)
    assert [offsets_of(first[index].records) for index in range(2)] == [[0, 2], []]
    second = parts(
        broker.answered(broker.fetch({(EVENS, 0): 3, (EVENS, 1): 0}, max_bytes=1_000)).response
    )
    assert [offsets_of(second[index].records) for index in range(2)] == [[], [0, 2]]


def test_what_was_scanned_beyond_the_last_stable_offset_does_not_count_for_read_committed(
    broker: ProjectingPlayer,
) -> None:
    broker.append(b"drop")
    broker.append_in_transaction(1, 0, b"drop", b"drop")
    poll = broker.fetch({(KEPTS, 0): 0}, max_wait_ms=500)
    broker.pass_time(500)
    assert position_after(only(poll.response).records, 0) == 3
    # The same connection, so the same set of partitions.
    poll = broker.fetch({(KEPTS, 0): 0}, max_wait_ms=500, isolation_level=1)
    broker.pass_time(500)
    assert position_after(only(poll.response).records, 0) == 1


def test_what_was_scanned_of_a_log_that_was_cut_does_not_count(broker: ProjectingPlayer) -> None:
    for _ in range(3):
        broker.append(b"drop")
    poll = broker.fetch({(KEPTS, 0): 0}, max_wait_ms=500)
    partition = broker.partition("orders")
    # As an unclean election does, and all that it wakes comes later.
    partition.log.truncate_to(1)
    partition.high_watermark = 1
    partition.own_copy.count_anew()
    partition.leader_epoch = 1
    broker.append(b"drop", KEEP)
    broker.append(b"drop")
    assert offsets_of(only(poll.response).records) == [2]


def test_a_poll_that_overtakes_one_whose_records_are_scanned_scans_them_itself(
    broker: ProjectingPlayer,
) -> None:
    broker.append(b"drop", KEEP, codec=Compression.GZIP)
    session_id = broker.fetch({(KEPTS, 1): 0}, session_epoch=0).response.session_id
    options = {"session_id": session_id, "max_wait_ms": 500}
    overtaken = broker.fetch({(KEPTS, 0): 0}, session_epoch=1, **options)
    assert not overtaken.is_answered
    poll = broker.fetch(session_epoch=2, **options)
    assert not only_records(overtaken)
    broker.run_jobs()
    assert offsets_of(only_records(poll)) == [1]


def only_records(pending: Pending) -> Any:
    found = [part.records for topic in pending.response.responses for part in topic.partitions]
    return found[0] if found else b""
