"""Subscriptions at a broker while their tag indexes are made: fetches, ListOffsets, and lags."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from data_plane.broker.fetch import fetch_scans, projected_reads, shown_lags
from data_plane.broker.fetch.list_offsets import COUNT_FROM, READ_COMMITTED
from data_plane.wire.compression import Compression
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.records import NewRecord, build_batch, decode_batch, iter_batch_headers
from data_plane.wire.registry import ApiKey
from features.filtering import tag_index, tag_indexes
from tests.broker.broker_player import NOW_MS
from tests.features.test_subscriptions import Player

SOURCE = "small"
TAGS = ["a", "b", "c", "rare"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_indexes, "INDEX_FROM_BYTES", 1)
    monkeypatch.setattr(tag_indexes, "STEP_BYTES", 2_000)
    monkeypatch.setattr(tag_index, "BLOCK_BYTES", 300)
    for module in (fetch_scans, projected_reads):
        monkeypatch.setattr(module, "SLICE_BYTES_MAX", 1_500)
    monkeypatch.setattr(fetch_scans, "LOOP_SCAN_BYTES_MAX", 600)


class Reader(Player):
    """With a source of small segments."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topic(SOURCE, 1, {"tidewheel.headers": "true", "segment.bytes": "20000"})
        # (offset, tag) of each record.
        self.appended: list[tuple[int, str]] = []

    def over_small(self, name: str, text: str) -> None:
        configs = {"tidewheel.source": SOURCE, "filter": text}
        assert self.made(name, -1, configs) == (0, None)

    def put(self, *tags: str, codec: int = 0) -> None:
        base = len(self.appended)
        records = [
            NewRecord(NOW_MS + base + number, None, tag.encode(), ((b"tw-tag", tag.encode()),))
            for number, tag in enumerate(tags)
        ]
        self.produce(SOURCE, [], batch=build_batch(records, compression=codec))
        self.appended += [(base + number, tag) for number, tag in enumerate(tags)]

    def settle(self) -> None:
        """Ticks, and what threads do."""
        for _ in range(3):
            self.pass_time(1)
            self.run_jobs()

    def ask_offset(
        self, topic: str, timestamp: int, isolation_level: int = READ_COMMITTED
    ) -> tuple[int, int, int]:
        """(error code, offset, timestamp)"""
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        (found,) = self.ask(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions
        return found.error_code, found.offset, found.timestamp


@dataclass
class Client:
    """Reads a subscription as clients do."""

    player: Reader
    topic: str
    tag: str
    position: int = 0

    def fetch(self, max_bytes: int) -> None:
        pending = self.player.fetch({(self.topic, 0): self.position}, partition_max_bytes=max_bytes)
        for _ in range(2):
            self.player.run_jobs()
            self.player.pass_time(0)
        before, got = self.position, []
        for topic in pending.response.responses:
            for part in topic.partitions:
                data = part.records or b""
                for header in iter_batch_headers(data, 0, len(data)):
                    if not header.is_control:
                        records = decode_batch(data, header.position)
                        got += [one.offset for one in records if one.offset >= self.position]
                    self.position = header.next_offset
        appended = self.player.appended
        assert got == [o for o, tag in appended[before : self.position] if tag == self.tag]
        assert self.position > before or before == len(appended)


@pytest.mark.parametrize("seed", range(12))
def test_a_reader_gets_the_same_with_and_without_an_index(seed: int) -> None:
    rng = random.Random(seed)
    player = Reader()
    clients = []
    for tag in ("a", "rare"):
        player.over_small(f"sub-{tag}", tag)
        clients += [Client(player, f"sub-{tag}", tag) for _ in range(2)]
    for _ in range(120):
        kind = rng.random()
        if kind < 0.5:
            codec = rng.choice([Compression.NONE, Compression.NONE, Compression.LZ4])
            tags = rng.choices(TAGS, [10, 10, 10, 1], k=rng.randrange(1, 12))
            for _ in range(rng.randrange(1, 6)):
                player.put(*tags, codec=codec)
                tags = rng.choices(TAGS, [10, 10, 10, 0], k=6)
        elif kind < 0.6:
            player.settle()
        elif kind < 0.7:
            rng.choice(clients).position = rng.randrange(len(player.appended) + 1)
        else:
            rng.choice(clients).fetch(rng.choice([1, 300, 1 << 20]))
    player.settle()
    for client in clients:
        while client.position < len(player.appended):
            client.fetch(1 << 20)
    for tag in ("a", "rare"):
        offset = rng.randrange(len(player.appended))
        left = [one for one, found in player.appended[offset:] if found == tag]
        oldest_ms = NOW_MS + left[0] if left else -1
        answer = player.ask_offset(f"sub-{tag}", COUNT_FROM + offset)
        assert answer == (0, len(left), oldest_ms)


def test_a_time_stands_for_the_first_record_shown() -> None:
    player = Reader()
    player.over_small("sub", "rare")
    player.put("a", "b", "rare", "a", "rare")
    assert player.ask_offset("sub", NOW_MS) == (0, 2, NOW_MS + 2)
    assert player.ask_offset("sub", NOW_MS + 3) == (0, 4, NOW_MS + 4)
    assert player.ask_offset("sub", NOW_MS + 5) == (0, -1, -1)
    assert player.ask_offset(SOURCE, NOW_MS + 3) == (0, 3, NOW_MS + 3)


def test_lags_of_all_of_it_and_of_no_subscription() -> None:
    player = Reader()
    player.over_small("all", "")
    player.put("a", "b", "rare")
    assert player.ask_offset("all", COUNT_FROM + 1) == (0, 2, NOW_MS + 1)
    assert player.ask_offset("all", COUNT_FROM + 3) == (0, 0, -1)
    assert player.ask_offset("all", COUNT_FROM + 99) == (0, 0, -1)
    # Of a topic that reads headers, what its consumers see.
    assert player.ask_offset(SOURCE, COUNT_FROM + 1) == (0, 2, NOW_MS + 1)


def test_a_count_begins_at_the_log_start() -> None:
    player = Reader()
    player.over_small("sub", "a")
    player.put("a", "a")
    player.put("a", "b")
    player.partition(SOURCE).log.delete_records(1)
    assert player.ask_offset("sub", COUNT_FROM) == (0, 2, NOW_MS + 1)


def test_a_round_counts_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_lags, "NOTED_MAX", 2)
    player = Reader()
    player.over_small("sub", "a")
    player.put("a")
    lags = player.services.shown_lags
    groups = ["one", "two", "three"]
    for _ in range(2):
        found = [lags.look("default", group, "sub", 0, 0) for group in groups]
        lags.count()
        player.run_jobs()
    assert found == [(1, NOW_MS), (1, NOW_MS), None]


def test_a_scraper_sees_what_is_left_of_a_subscription() -> None:
    player = Reader()
    player.over_small("sub", "rare")
    player.put("a", "rare", "a", "rare", "a")
    lags = player.services.shown_lags
    assert lags.look("default", "group", "sub", 0, 2) is None
    lags.count()
    player.run_jobs()
    assert lags.look("default", "group", "sub", 0, 2) == (1, NOW_MS + 3)
    # Of a partition that is not led here, and of none at all.
    assert lags.look("default", "group", "sub", 9, 0) is None
    assert lags.look("default", "group", "orders", 0, 0) is None
    lags.count()
    player.run_jobs()
    assert lags.look("default", "group", "sub", 9, 0) is None
    assert lags.look("default", "group", "sub", 0, 5) == (1, NOW_MS + 3)
    lags.count()
    player.run_jobs()
    assert lags.look("default", "group", "sub", 0, 5) == (0, -1)
