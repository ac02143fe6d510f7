"""Histories of a cell with delayed messages in a compacted topic, and planted bugs they find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.features import test_delayed_compaction as planted
from tests.features.compacted_cell import play
from tests.features.test_delayed_cell import small_sets

__all__ = ["small_sets"]

SEEDS = range(25)
# Within which a planted bug is found.
MUTANT_SEEDS_MAX = 100


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_delivered_once_and_the_newest_values_stay(seed: int) -> None:
    play(seed)


def test_what_histories_reach() -> None:
    """Without these they would show little."""
    cells = [play(seed) for seed in range(8)]
    assert sum(one.compacted_count for one in cells) > 50
    gone = [
        offset
        for one in cells
        for offset in one.noted
        if all(offset not in offsets for offsets in one.offsets_left())
    ]
    assert len(gone) > 50, "most of what is over goes everywhere"


@pytest.mark.parametrize(
    "plant",
    [
        planted.fired_facts_go,
        planted.facts_of_commands_go,
        planted.what_is_pending_is_an_old_value,
        planted.what_is_pending_goes,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS_MAX):
        try:
            play(seed)
        except (AssertionError, KeyError, ValueError):
            return
    pytest.fail(f"{plant.__name__} is not found")
