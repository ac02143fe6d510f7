"""Subscriptions in a cell of three brokers, over random histories: leaders change and some hear of
it later, paths are cut, logs are cut and cleared, and each replica has tag indexes of its own, made
when its threads get to it.

Whoever leads, readers of a subscription get what the filter leaves of what is committed, in order
and byte for byte: those who stay with it through all elections, and in the end at each replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.fetch import fetch_scans, projected_reads
from data_plane.broker.fetch.fetch_scans import FetchScans
from data_plane.broker.fetch.projected_reads import scan_batches
from data_plane.cell.metadata import TopicImage
from data_plane.log.log import Log
from data_plane.log.segment import Segment
from data_plane.log.side_files import read_side_file
from data_plane.wire.compression import Compression
from data_plane.wire.records import NewRecord, build_batch, decode_batch, iter_batch_headers
from features.filtering import tag_index, tag_indexes
from features.filtering.language import parse_filter
from features.filtering.tag_index import SegmentTags
from features.filtering.tag_indexes import SIDE_NAME, IndexJob, TagIndexes
from tests.broker.broker_player import BrokerPlayer
from tests.broker.cell_player import TOPIC, TOPIC_ID
from tests.features.faulty_cell import FaultyCell, play_to_its_end
from tests.features.tagged_log import PlainFilter

FILTERS = {"rare": "rare", "some": "a and not b", "most": "not rare"}
TAG_LISTS = [["a"], ["a", "b"], ["b"], [], ["a", "rare"]]
WEIGHTS = [8, 8, 8, 4, 1]
CONFIGS = {"tidewheel.headers": "true", "file.delete.delay.ms": "0"}
READ_BYTES = (1, 400, 1 << 20)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_indexes, "INDEX_FROM_BYTES", 1)
    monkeypatch.setattr(tag_indexes, "STEP_BYTES", 1_000)
    monkeypatch.setattr(tag_index, "BLOCK_BYTES", 300)
    for module in (fetch_scans, projected_reads):
        monkeypatch.setattr(module, "SLICE_BYTES_MAX", 1_500)
    monkeypatch.setattr(fetch_scans, "LOOP_SCAN_BYTES_MAX", 600)


class Reader:
    """Reads a subscription from whoever leads, and goes on where it is when that changes."""

    def __init__(self, name: str, position: int = 0) -> None:
        self.name = name
        self.begin = self.position = position
        self.got = bytearray()

    def fetch(self, broker: BrokerPlayer, max_bytes: int = 1 << 20) -> bool:
        """Whether it moved on."""
        pending = broker.fetch({(self.name, 0): self.position}, partition_max_bytes=max_bytes)
        for _ in range(20):
            if pending.is_answered:
                break
            broker.run_jobs()
            broker.pass_time(0)
        if not pending.is_answered:
            return False
        before = self.position
        for topic in pending.response.responses:
            for part in topic.partitions:
                data = part.records or b""
                for header in iter_batch_headers(data, 0, len(data)):
                    if not header.is_control:
                        self.got += data[header.position : header.end_position]
                    self.position = header.next_offset
        return self.position > before


class SubscribedCell(FaultyCell):
    """One history."""

    delivered_max = 7

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CONFIGS)
        for number, (name, text) in enumerate(FILTERS.items()):
            configs = {"tidewheel.source": TOPIC, "tidewheel.filter": text}
            own = self.cell.image.topics_by_id[TOPIC_ID].partitions
            self.cell.add_topic(
                TopicImage("default", name, UUID(int=50 + number), own, configs, source_id=TOPIC_ID)
            )
        self.readers = [Reader(name) for name in FILTERS]
        self.values_count = self.elections_count = 0

    def step(self) -> None:
        actions = [self.produce] * 10 + [self.deliver] * 12 + [self.work] * 10
        actions += [self.pass_time] * 8 + [self.read] * 8
        actions += [self.roll] * 4 + [
            self.elect,
            self.elect,
            self.tell,
            self.cut,
            self.heal,
            self.heal,
        ]
        self.rng.choice(actions)()

    def produce(self) -> None:
        for node_id in self.leaders():
            records = []
            for tags in self.rng.choices(TAG_LISTS, WEIGHTS, k=self.rng.randrange(1, 40)):
                self.values_count += 1
                headers = tuple((b"tw-tag", tag.encode()) for tag in tags)
                records.append(
                    NewRecord(self.cell.now_ms, None, b"%d" % self.values_count, headers)
                )
            codec = self.rng.choice([Compression.NONE, Compression.NONE, Compression.LZ4])
            batch = build_batch(records, compression=codec)
            self.cell.brokers[node_id].produce(TOPIC, [], batch=batch)

    def read(self) -> None:
        for node_id in self.leaders():
            self.rng.choice(self.readers).fetch(
                self.cell.brokers[node_id], self.rng.choice(READ_BYTES)
            )

    def elect(self) -> None:
        self.elections_count += 1
        super().elect()

    def roll(self) -> None:
        self.cell.replica(self.rng.choice(list(self.cell.brokers))).log.roll()

    # The end

    def check(self) -> None:
        for node_id in self.cell.brokers:
            self.cell.change(leader=node_id)
            self.cell.run(50)
            broker = self.cell.brokers[node_id]
            # With an index made by now, from the start, and from the middle.
            for begin in (0, self.rng.randrange(self.end)):
                for reader in [Reader(name, begin) for name in FILTERS]:
                    while reader.fetch(broker):
                        pass
                    self.check_reader(reader, node_id)
            for reader in self.readers:
                while reader.fetch(broker):
                    pass
                self.check_reader(reader, node_id)

    @property
    def end(self) -> int:
        return self.cell.replica(1).high_watermark

    def check_reader(self, reader: Reader, node_id: int) -> None:
        log = self.cell.replica(node_id).log
        assert reader.position == log.high_watermark
        expected = plainly_shown(log, FILTERS[reader.name], reader.begin)
        assert records_of(bytes(reader.got)) == records_of(expected)
        if reader not in self.readers:
            # Fetches of one end are the same bytes; others may divide a batch.
            assert bytes(reader.got) == expected


def records_of(data: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for header in iter_batch_headers(data, 0, len(data)):
        records = decode_batch(data, header.position)
        found += [(one.offset, one.value or b"") for one in records]
    return found


def plainly_shown(log: Log, text: str, start: int) -> bytes:
    end, buffers = log.high_watermark, []
    position = start
    while position < end:
        read = log.read_cold(position, 1 << 20, max_offset=end, at_least_one_batch=True)
        buffers += read.buffers
        position = read.next_offset
    found = scan_batches(PlainFilter(parse_filter(text)), buffers, start, end, 1 << 30)
    assert found.error is None
    return b"".join(bytes(shown.buffer) for shown in found.shown)


def play(seed: int, steps: int = 400) -> SubscribedCell:
    """A history, to its end. Raises AssertionError."""
    return play_to_its_end(SubscribedCell(seed), steps)


@pytest.mark.parametrize("seed", range(12))
def test_readers_get_what_the_filter_leaves_whoever_leads(seed: int) -> None:
    play(seed)


def test_what_histories_reach() -> None:
    """Without these they would show little."""
    one = play(3)
    assert one.elections_count > 5
    assert one.end > 500
    assert all(len(reader.got) > 500 for reader in one.readers)
    for node_id in one.cell.brokers:
        segments = one.cell.replica(node_id).log.segments
        assert len(segments) > 3
        assert sum(read_side_file(each, SIDE_NAME) is not None for each in segments) > 1


# Planted bugs. Each patches real code.

Plant = Callable[[pytest.MonkeyPatch], None]


class _ToTheEnd:
    """A log of which all counts as committed."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "log_end_offset" if name == "high_watermark" else name)


def an_index_outlives_a_cut(patch: pytest.MonkeyPatch) -> None:
    """What is not committed is indexed, and what is cut and written anew keeps its index."""
    kept: dict[tuple[int, str], Any] = {}
    real = IndexJob.__init__

    def init(self: IndexJob, indexes: TagIndexes, log: Log, segment: Segment) -> None:
        real(self, indexes, _ToTheEnd(log), segment)  # type: ignore[arg-type]

    def find(self: TagIndexes, segment: Segment) -> Any:
        return kept.get((id(self), segment.path()))

    def keep(self: TagIndexes, segment: Segment, tags: Any) -> Any:
        return kept.setdefault((id(self), segment.path()), tags)

    patch.setattr(IndexJob, "__init__", init)
    patch.setattr(TagIndexes, "find", find)
    patch.setattr(TagIndexes, "keep", keep)


def an_index_begins_one_batch_late(patch: pytest.MonkeyPatch) -> None:
    real = SegmentTags.add

    def add(self: SegmentTags, header: Any, data: Any) -> None:
        if header.base_offset != self.base_offset or header.record_count < 3:
            real(self, header, data)

    patch.setattr(SegmentTags, "add", add)


def readers_see_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    real = FetchScans.look_at

    def look_at(self: FetchScans, target: Any, partition: Any, limit: int, bytes_max: int) -> Any:
        return real(self, target, partition, partition.log.log_end_offset, bytes_max)

    patch.setattr(FetchScans, "look_at", look_at)


def a_scan_is_never_moved_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FetchScans, "skipped", lambda self: iter(()))


PLANTS: list[Plant] = [
    an_index_outlives_a_cut,
    an_index_begins_one_batch_late,
    readers_see_what_is_not_committed,
    a_scan_is_never_moved_on,
]
PLANT_SEEDS_MAX = 30


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(PLANT_SEEDS_MAX):
        try:
            play(seed)
        except (AssertionError, ValueError):
            return
    pytest.fail(f"{plant.__name__} is not found")
