"""Counters prove that the histories get to where it matters, per thousand seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runs import run_seed

SEEDS = range(5_001, 5_041)

# Per thousand seeds; the counts seen are several times as high.
REACHED_PER_THOUSAND_MIN = {
    "failovers": 500,
    "elections from the ELR": 50,
    "truncations": 100,
    "ISR shrinks": 1000,
    "ISR expansions": 1000,
    "ELR joins": 300,
    "controller changes": 500,
    "fenced": 200,
    "store outages": 100,
    "lost replies of the store": 100,
    "late store calls": 50,
    "stores that went back": 100,
    "stores refused": 500,
    "stores recovered": 20,
    "cleanings": 500,
    "maps read": 1000,
    "segments deleted by age": 300,
    "segments deleted by size": 200,
    "segments deleted on leaders": 300,
    "segments deleted on followers": 300,
    "active segments deleted": 50,
    "readers passed by retention": 150,
    "kills": 300,
    "power losses": 100,
    "unsynced tails lost": 50,
    "clean stops": 100,
    "pauses": 200,
    "cuts": 300,
    "clocks set": 100,
    "rotten bits": 100,
    # Most come only while a cell settles, which these do not.
    "repairs": 20,
    "tombstones forgotten": 20,
    "full disks": 25,
    "broken connections": 300,
    "client timeouts": 500,
    "produce retries": 5000,
    "generations joined": 2000,
    "group offsets committed": 5000,
    "reads sent to a follower": 500,
    "reassignment steps": 100,
    "acks=-1 acknowledged": 50_000,
}


def _reached() -> Counter[str]:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run_seed(seed, settles=False)
        assert outcome.failure is None, outcome.failure
        reached.update(outcome.counters)
    return reached


@pytest.mark.timeout(600)
def test_histories_reach_what_matters() -> None:
    reached = _reached()
    missed = {
        name: reached[name] * 1000 // len(SEEDS)
        for name, minimum in REACHED_PER_THOUSAND_MIN.items()
        if reached[name] * 1000 < minimum * len(SEEDS)
    }
    assert not missed, f"per thousand seeds only {missed}"
