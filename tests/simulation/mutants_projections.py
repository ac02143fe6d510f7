"""Planted bugs of reading through projections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.fetch import fetch_reads, projected_reads
from data_plane.broker.fetch.fetch_scans import FetchScans
from data_plane.broker.fetch.projected_reads import Scan
from data_plane.wire.control_batches import skip_batch
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

PROJECTIONS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "broken connection"}),
    admin=frozenset({"elections", "delete records"}),
    topics=(TopicPlan("data3", 3, 3),),
    extras=frozenset({"projections"}),
)


def _closes_one_too_far(patch: Patch) -> None:
    patch.set(fetch_reads, "closing_batch", lambda scan: skip_batch(scan.position))


def _does_not_close(patch: Patch) -> None:
    patch.set(FetchScans, "skipped", lambda self: iter(()))


def _scans_what_is_not_committed(patch: Patch) -> None:
    original: Any = FetchScans.__dict__["look_at"]

    def look_at(self: Any, target: Any, partition: Any, limit: int, bytes_max: int) -> Scan:
        scan: Scan = original(self, target, partition, partition.log.log_end_offset, bytes_max)
        return scan

    patch.set(FetchScans, "look_at", look_at)


def _goes_back(patch: Patch) -> None:
    """Of a batch that is shown in part, what lies below the fetch offset is sent, too."""
    patch.set(projected_reads, "_from_offset", lambda batch, selection, offset_min: selection)


PROJECTION_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "closing batch one too far",
        "a client is moved over a record that it was not given",
        _closes_one_too_far,
        options=PROJECTIONS,
        is_quick=True,
    ),
    Mutant(
        "no closing batch",
        "a client stays where nothing is shown",
        _does_not_close,
        options=PROJECTIONS,
        is_quick=True,
    ),
    Mutant(
        "projection of the uncommitted",
        "records above the high watermark are shown",
        _scans_what_is_not_committed,
        options=PROJECTIONS,
        is_quick=True,
    ),
    Mutant(
        "projection goes back",
        "a client is taken back to where it was",
        _goes_back,
        options=PROJECTIONS,
    ),
)
