"""How far groups are behind, as a scraper sees it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.broker.coordinators import group_metrics
from data_plane.broker.coordinators.group_metrics import GroupMetrics
from data_plane.broker.fetch.shown_lags import ShownLag
from data_plane.groups.record_formats import CommittedOffset, OffsetKey
from data_plane.groups.shard import GroupCounters

NOW_MS = 1_700_000_000_000


def scrape(
    committed: Mapping[OffsetKey, int],
    ends: Mapping[tuple[str, int], tuple[int, int]],
    lags: FixedLags | None = None,
) -> dict[str, dict[tuple[str, str], float]]:
    """{metric: {(group, topic): value}} of the lags. The topic `sub` is a subscription."""

    def partition(tenant: str, topic: str, topic_id: bytes, index: int) -> Any:
        found = ends.get((topic, index))
        if found is None:
            return None
        return SimpleNamespace(
            log=SimpleNamespace(log_start_offset=found[0]), high_watermark=found[1]
        )

    coordinator: Any = SimpleNamespace(
        groups_by_state=lambda: {"Stable": 1},
        offset_count=lambda: len(committed),
        append_count=lambda: 0,
        committed_offsets=lambda tenant: {
            key: CommittedOffset(offset, -1, "", 0) for key, offset in committed.items()
        },
        counters=GroupCounters(),
    )
    services: Any = SimpleNamespace(
        image=SimpleNamespace(
            topic=lambda tenant, name: SimpleNamespace(id_bytes=b"", is_virtual=name == "sub")
        ),
        shown_lags=lags or FixedLags({}),
        wall_clock=SimpleNamespace(wall_ms=lambda now_ms: now_ms),
        metadata=SimpleNamespace(now_ms=lambda: NOW_MS),
        projections=SimpleNamespace(leading=partition),
    )
    return {
        family.name: {
            (sample.labels["group"], sample.labels["topic"]): sample.value
            for sample in family.samples
        }
        for family in GroupMetrics(services, lambda: coordinator).collect()
        if family.name.startswith("tidewheel_group_lag")
    }


def test_lags_are_summed_up_by_group_and_topic() -> None:
    committed = {
        OffsetKey("b", "orders", 0): 7,
        OffsetKey("a", "orders", 1): 10,
        OffsetKey("a", "orders", 0): 4,
        OffsetKey("a", "bills", 0): 0,
        OffsetKey("a", "orders", 2): 1,
    }
    ends = {("orders", 0): (0, 9), ("orders", 1): (3, 10), ("bills", 0): (5, 6)}
    found = scrape(committed, ends)
    assert found["tidewheel_group_lag"] == {
        ("a", "orders"): 5,
        ("a", "bills"): 1,
        ("b", "orders"): 2,
    }
    unknown = found["tidewheel_group_lag_unknown_partitions"]
    assert unknown == {("a", "orders"): 1, ("a", "bills"): 0, ("b", "orders"): 0}


class FixedLags:
    """ShownLags' double: knows what it was made with, and what it was asked."""

    def __init__(self, lags: dict[int, ShownLag]) -> None:
        self._lags = lags
        self.asked: list[tuple[str, str, str, int, int]] = []
        self.counted: list[int] = []

    def look(self, *question: Any) -> ShownLag | None:
        self.asked.append(question)
        return self._lags.get(question[3])

    def count(self) -> None:
        self.counted.append(len(self.asked))


def test_of_a_subscription_counts_what_it_shows() -> None:
    committed = {OffsetKey("a", "sub", index): 10 * index for index in range(4)}
    lags = FixedLags({0: ShownLag(3, NOW_MS - 2_500), 1: ShownLag(4, NOW_MS - 500)})
    found = scrape(committed, {("sub", 0): (0, 99)}, lags)
    assert found["tidewheel_group_lag"] == {("a", "sub"): 7}
    assert found["tidewheel_group_lag_unknown_partitions"] == {("a", "sub"): 2}
    assert found["tidewheel_group_lag_seconds"] == {("a", "sub"): 2.5}
    assert lags.asked == [("default", "a", "sub", index, 10 * index) for index in range(4)]
    assert lags.counted == [4]
    nothing = scrape(committed, {}, FixedLags({2: ShownLag(0, -1)}))
    assert nothing["tidewheel_group_lag"] == {("a", "sub"): 0}
    assert nothing["tidewheel_group_lag_seconds"] == {("a", "sub"): 0}
    unknown = scrape(committed, {}, FixedLags({}))
    assert unknown["tidewheel_group_lag"] == unknown["tidewheel_group_lag_seconds"] == {}


def test_what_a_scraper_gets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = {OffsetKey(f"g{number}", "orders", 0): 0 for number in range(30)}
    ends = {("orders", 0): (0, 1)}
    monkeypatch.setattr(group_metrics, "LAG_SERIES_MAX", 20)
    assert len(scrape(committed, ends)["tidewheel_group_lag"]) == 20
    monkeypatch.setattr(group_metrics, "LAG_OFFSETS_MAX", 29)
    assert scrape(committed, ends)["tidewheel_group_lag"] == {}
