"""No sync is there in vain: forget any one of them, and a scenario finds a broken promise."""

from __future__ import annotations

import pytest

from data_plane.log import reads
from data_plane.log.errors import LogError
from data_plane.log.file_system import SyncSite
from data_plane.wire.errors import InvalidRecords
from tests.log.sync_scenarios import (
    ALL_SCENARIOS,
    SCENARIO_OF,
    SEEDS_OF,
    Scenario,
    anything,
)

SEEDS_MAX = 400
# The first read of a small segment checks its indexes and makes wrong ones again; those of a large
# one are used as they are until the scrubber comes round. Both kinds need their syncs.
CHECKED_BYTES = (reads.FIRST_READ_CHECK_BYTES_MAX, 0)


@pytest.mark.parametrize("site", list(SyncSite), ids=lambda site: site.name)
def test_forgetting_a_sync_is_noticed(site: SyncSite, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIO_OF.get(site, anything)
    for seed in [*SEEDS_OF.get(site, []), *range(SEEDS_MAX)]:
        for checked_bytes in CHECKED_BYTES:
            monkeypatch.setattr(reads, "FIRST_READ_CHECK_BYTES_MAX", checked_bytes)
            try:
                scenario(seed, site)
            except (AssertionError, LogError, InvalidRecords):
                return
    pytest.fail(f"nothing notices when {site.name} is forgotten: {site.value}")


@pytest.mark.parametrize("scenario", ALL_SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_scenario_fails_while_all_syncs_are_made(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(30):
        monkeypatch.setattr(reads, "FIRST_READ_CHECK_BYTES_MAX", CHECKED_BYTES[seed % 2])
        scenario(seed, None)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", ALL_SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_scenario_fails_for_many_seeds(scenario: Scenario) -> None:
    for seed in range(25, 150):
        scenario(seed, None)
