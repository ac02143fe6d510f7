"""Counters prove that the histories get to where it matters, per thousand seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.extras import EXTRA_CHANCES
from tests.simulation.mutants_leaps import LEAPS
from tests.simulation.runs import run_seed

SEEDS = range(5_001, 5_040)
# What some seeds do several times and most never may be missing in so few: then these follow.
MORE_SEEDS = range(6_001, 6_251)

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
    "kills": 300,
    "power losses": 100,
    "unsynced tails lost": 50,
    "clean stops": 100,
    "pauses": 200,
    "cuts": 300,
    "clocks set": 100,
    "tombstones forgotten": 20,
    "full disks": 25,
    "broken connections": 300,
    "client timeouts": 500,
    "produce retries": 5000,
    "fetches answered in part": 300,
    "coordinators compared with their logs": 500,
    "generations joined": 2000,
    "group offsets committed": 5000,
    "reads sent to a follower": 500,
    "reassignment steps": 100,
    "acks=-1 acknowledged": 50_000,
    # A few histories have most of these.
    "job CutJob": 25,
    "job LoadJob": 25,
    "rotten bits": 50,
}

# The same of topics with a short memory. A third of the cells has them, and one history in ten
# deletes more than all others; the first to delete by age is the replica whose clock is ahead,
# whoever leads. So these have cells of their own: by chance alone the counts of the cells above
# differ by a factor of four.
RETENTION_SEEDS = range(1, 13)
RETENTION = Options(
    topics=(
        TopicPlan(
            "data3",
            1,
            3,
            {"segment.ms": "200", "retention.ms": "1000", "file.delete.delay.ms": "0"},
        ),
        TopicPlan(
            "data2",
            1,
            2,
            {
                "segment.index.bytes": "24",
                "index.interval.bytes": "0",
                "retention.bytes": "800",
                "min.insync.replicas": "1",
            },
        ),
    ),
)
RETENTION_REACHED_PER_THOUSAND_MIN = {
    "segments deleted by age": 1500,
    "segments deleted by size": 8000,
    "segments deleted on leaders": 5000,
    "segments deleted on followers": 4000,
    "active segments deleted": 80,
    "readers passed by retention": 2000,
}

# The same of each extra, for cells with that one.
EXTRA_SEEDS = range(6_201, 6_213)
EXTRAS_REACHED_PER_THOUSAND_MIN = {
    "bundles": {
        "produces of several partitions": 1200,
        "produces of several topics": 1000,
        "produces answered in part": 300,
    },
    "factors": {
        "replication factors lowered": 400,
        "replication factors raised": 400,
        "reassignments cancelled": 80,
    },
    "static members": {
        "static members fenced": 200,
        "static members restarted": 300,
        "static members away for long": 150,
    },
    "slow disks": {
        "slow disks": 800,
        "group appends across generations": 80,
        "group appends across elections": 80,
        "coordinators compared with their logs": 300,
    },
    "throttles": {
        "fetches held by a throttle": 500,
        "moves under a throttle": 1500,
        "reassignment steps": 1500,
    },
    "fetch sessions": {
        "fetches in a session": 50_000,
        "full fetches of sessions": 15_000,
        "partitions forgotten by a session": 1500,
    },
    "worn disks": {
        "worn disks": 2000,
        "worn disks given up": 40,
        "wants of descriptors": 2000,
    },
    "brief tables": {
        "cleanings": 2000,
        "segments deleted by age": 1500,
        "segments deleted by size": 150,
        "maps read": 2000,
    },
    "leaps": {
        "leaps": 1500,
    },
    "namesakes": {
        "names used again": 700,
        "readers that met a namesake": 400,
    },
    "undated": {
        "undated segments deleted": 80,
    },
    "settings": {
        "settings changed": 9000,
        "starts without the store": 500,
        "starts that wait for the store": 1000,
        "segments deleted by age": 1000,
        "segments deleted by size": 500,
    },
    "clock errors": {
        "clocks wrong": 1200,
        "clocks of the store wrong": 1000,
        "starts with wrong clocks": 100,
    },
    "large states": {
        "passes that leave chores": 5000,
        "passes with requests at threads": 20_000,
        "names used again": 80,
        "kept offsets committed": 20_000,
        "kept offsets fetched": 20_000,
        "kept offsets that have expired": 500,
        "kept groups deleted": 500,
    },
    "image steps": {
        "images between two": 5000,
    },
    "projections": {
        "records read through a projection": 150_000,
        "fetches through a projection that showed nothing": 1000,
    },
    "subscriptions": {
        "records read through a subscription": 20_000,
        "fetches through a subscription that showed nothing": 1000,
        "filters edited": 1500,
        "subscriptions made anew": 100,
        "records found in a compacted source": 1000,
    },
    "delays": {
        "delayed messages committed": 25_000,
        "delayed messages delivered": 12_000,
        "delayed messages cancelled": 4_000,
        "commands done": 10_000,
        "commands said again": 6_000,
        "commands too late": 1_000,
        "commands unknown": 2_500,
        "pending messages compared with a replay": 15_000,
        "records read through a topic with delayed messages": 50_000,
        "fetches through a topic with delayed messages that showed nothing": 1000,
    },
    "retries": {
        "records of retries with tw-nack": 8000,
        "records of retries with tw-repeat": 2000,
        "deliveries that are attempt 2": 4000,
        "deliveries that are attempt 3": 1400,
        "dead letters arrived": 1000,
        "nacks taken": 12_000,
        "nacks said again": 9000,
        "nacked positions compared with a replay": 40_000,
        "guesses answered with NOT_ENOUGH_REPLICAS": 400,
        "guesses answered with INVALID_RECORD": 800,
        "log dead_letters_not_sent": 800,
    },
    "pins": {
        "pins compared with a replay": 50_000,
        "segments held below a log start": 400,
        "held records found below a log start": 400,
        "segments deleted by age": 2500,
        "segments deleted by size": 800,
    },
    "undeletes": {
        "topics deleted that can come back": 1200,
        "topics undeleted": 700,
        "topics purged by order": 150,
        "topics purged in time": 30,
        "deleted topics asked for": 250,
        "kept offsets fetched": 6000,
    },
    "tenants": {
        "resources DONE": 6000,
        "resources STALE": 400,
        "tenants made anew": 120,
        "records of tenants written": 4000,
        "records of tenants read": 3000,
        "fetches denied": 1500,
        "foreign topics asked for": 2000,
    },
    "quotas": {
        "quotas set": 800,
        "produces under a quota": 8000,
        "waits for a quota": 1000,
    },
    "group limits": {
        "groups made under a limit": 80,
        "groups refused by a limit": 200,
        "offsets committed anew under a limit": 50,
        "offsets refused beside others": 20,
    },
    "stalls": {
        "stalls": 3000,
        "stalls longer than a session": 700,
    },
    "drains": {
        "brokers told to drain": 900,
        "partitions placed beside a draining broker": 150,
        "reassignment steps": 5000,
    },
}


def _reached(seeds: Iterable[int], options: Options | None = None) -> Counter[str]:
    reached: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(seed, options=options, settles=False)
        assert outcome.failure is None, outcome.failure
        reached.update(outcome.counters)
    return reached


def _missed(reached: Counter[str], minima: dict[str, int], seeds_count: int) -> dict[str, int]:
    return {
        name: reached[name] * 1000 // seeds_count
        for name, minimum in minima.items()
        if reached[name] * 1000 < minimum * seeds_count
    }


@pytest.mark.timeout(600)
def test_histories_reach_what_matters() -> None:
    reached, count = _reached(SEEDS), len(SEEDS)
    missed = _missed(reached, REACHED_PER_THOUSAND_MIN, count)
    for seed in MORE_SEEDS:
        if not missed:
            break
        reached, count = reached + _reached([seed]), count + 1
        missed = _missed(reached, REACHED_PER_THOUSAND_MIN, count)
    assert not missed, f"per thousand of {count} seeds only {missed}"


@pytest.mark.timeout(300)
def test_retention_is_at_work() -> None:
    reached = _reached(RETENTION_SEEDS, RETENTION)
    missed = _missed(reached, RETENTION_REACHED_PER_THOUSAND_MIN, len(RETENTION_SEEDS))
    assert not missed, f"per thousand seeds only {missed}"


@pytest.mark.timeout(300)
def test_damage_is_found_and_repaired() -> None:
    """Most of it only while a cell settles."""
    reached: Counter[str] = Counter()
    for seed in range(1, 41):
        outcome = run_seed(seed, options=Options(faults=frozenset({"bit rot"})))
        assert outcome.failure is None, outcome.failure
        reached.update(outcome.counters)
        if reached["repairs"] >= 4:
            break
    assert reached["rotten bits"] >= reached["repairs"] >= 4


@pytest.mark.timeout(300)
def test_brokers_get_over_holes_of_two_billion_offsets() -> None:
    for seed in range(1, 13):
        outcome = run_seed(seed, 10_000, LEAPS)
        assert outcome.failure is None, outcome.failure
        if outcome.counters["holes of two billion offsets"]:
            return
    raise AssertionError("no broker meets one")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("extra", EXTRA_CHANCES)
def test_an_extra_reaches_what_it_is_for(extra: str) -> None:
    reached = _reached(EXTRA_SEEDS, Options(extras=frozenset({extra})))
    missed = _missed(reached, EXTRAS_REACHED_PER_THOUSAND_MIN[extra], len(EXTRA_SEEDS))
    assert not missed, f"per thousand seeds only {missed}"
