"""From a broker's samples to numbers by tenant, topic and time. Pure: no database, no clock.

A sample counts in the interval in which it ends. Counts are sums. Levels (storage, connections) are
what all brokers of a cell say together at the end of an interval, each of them by its last word as
long as that holds: storage is measured each minute by the leader alone, connections are told when
their number changes.

Invariants
- What a broker said before it was started anew holds no more.
- What does not belong to a known tenant counts for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from data_plane.contract.cell_operations_pb2 import UsageSample

TEN_SECONDS_MS: Final = 10_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
STORAGE_HOLDS_MS: Final = 2 * MINUTE_MS
"""A leader measures each minute; one that does not is no leader any more."""
CONNECTIONS_HOLD_MS: Final = 15 * MINUTE_MS
"""A client that is connected asks for something before that."""
FUTURE_MS_MAX: Final = 5 * MINUTE_MS
"""What a broker's clock says beyond it is counted as of now."""

# In the place of a topic's name: a tenant's connections.
CONNECTIONS: Final = ""


class LevelKey(NamedTuple):
    node_id: int
    organization_id: str
    topic_name: str


class Level(NamedTuple):
    incarnation: str
    value: int
    measured_ms: int


@dataclass
class Numbers:
    """Of a tenant or a topic in an interval."""

    produce_bytes: int = 0
    produce_records: int = 0
    fetch_bytes: int = 0
    requests: int = 0
    throttled_ms: int = 0
    storage_bytes: int = 0
    connections: int = 0

    def add(self, other: Numbers) -> None:
        """Counts are added up; of levels the later one is the other's."""
        self.produce_bytes += other.produce_bytes
        self.produce_records += other.produce_records
        self.fetch_bytes += other.fetch_bytes
        self.requests += other.requests
        self.throttled_ms += other.throttled_ms
        self.storage_bytes, self.connections = other.storage_bytes, other.connections


@dataclass
class Levels:
    """The last words of a cell's brokers, by tenant."""

    of_tenants: dict[str, dict[LevelKey, Level]] = field(default_factory=dict)
    changed: dict[LevelKey, Level] = field(default_factory=dict)

    def say(self, key: LevelKey, level: Level) -> None:
        """Unless something later has been said."""
        said = self.of_tenants.setdefault(key.organization_id, {})
        present = said.get(key)
        if present is None or present.measured_ms <= level.measured_ms:
            said[key] = self.changed[key] = level

    def begin_anew(self, node_id: int, incarnation: str, at_ms: int) -> None:
        """What a broker said in an earlier life is over."""
        over = [
            key
            for said in self.of_tenants.values()
            for key, level in said.items()
            if key.node_id == node_id and level.incarnation != incarnation
        ]
        for key in over:
            self.say(key, Level(incarnation, 0, at_ms))

    def of(self, organization_id: str, at_ms: int) -> tuple[dict[str, int], int]:
        """Storage by topic, and connections, of all brokers together."""
        storage: dict[str, int] = {}
        connections = 0
        for key, level in self.of_tenants.get(organization_id, {}).items():
            age_ms = at_ms - level.measured_ms
            if key.topic_name == CONNECTIONS:
                if age_ms <= CONNECTIONS_HOLD_MS:
                    connections += level.value
            elif age_ms <= STORAGE_HOLDS_MS:
                storage[key.topic_name] = storage.get(key.topic_name, 0) + level.value
        return storage, connections


@dataclass
class Folded:
    """What samples come to: of tenants by 10 seconds, of topics by hour, by their beginnings."""

    tenants: dict[tuple[str, int], Numbers] = field(default_factory=dict)
    topics: dict[tuple[str, str, int], Numbers] = field(default_factory=dict)

    def tenants_by(self, interval_ms: int) -> dict[tuple[str, int], Numbers]:
        """The tenants' numbers in longer intervals."""
        longer: dict[tuple[str, int], Numbers] = {}
        for (organization_id, start_ms), numbers in sorted(self.tenants.items(), key=_by_key):
            key = (organization_id, start_ms - start_ms % interval_ms)
            longer.setdefault(key, Numbers()).add(numbers)
        return longer


def fold(
    samples: Iterable[UsageSample],
    organization_of: Mapping[str, str],
    levels: Levels,
    now_ms: int,
) -> Folded:
    """The samples of one broker, in order, each once. `organization_of`: a tenant's id by its name
    in the cell; `levels` are brought up to date."""
    folded = Folded()
    incarnation = ""
    for _, group in groupby(samples, lambda sample: _interval_of_sample(sample, now_ms)):
        touched: set[str] = set()
        at_ms = 0
        for sample in group:
            at_ms = _time_of(sample, now_ms)
            if sample.incarnation != incarnation:
                incarnation = sample.incarnation
                levels.begin_anew(sample.broker_id, incarnation, at_ms)
            touched |= _count(sample, at_ms, organization_of, levels, folded)
        for organization_id in touched:
            _show_levels(organization_id, at_ms, levels, folded)
    return folded


def interval_of(at_ms: int, interval_ms: int) -> int:
    """The beginning of the interval in which something ends at `at_ms`."""
    last_ms = max(0, at_ms - 1)
    return last_ms - last_ms % interval_ms


def _time_of(sample: UsageSample, now_ms: int) -> int:
    return sample.end_ms if sample.end_ms <= now_ms + FUTURE_MS_MAX else now_ms


def _interval_of_sample(sample: UsageSample, now_ms: int) -> int:
    return interval_of(_time_of(sample, now_ms), TEN_SECONDS_MS)


def _count(
    sample: UsageSample,
    at_ms: int,
    organization_of: Mapping[str, str],
    levels: Levels,
    folded: Folded,
) -> set[str]:
    """Add the counts, take the levels; whose they are."""
    start_ms, hour_ms = interval_of(at_ms, TEN_SECONDS_MS), interval_of(at_ms, HOUR_MS)
    touched: set[str] = set()
    for topic in sample.topics:
        organization_id = organization_of.get(topic.tenant)
        if organization_id is None:
            continue
        touched.add(organization_id)
        counted = Numbers(topic.bytes_in, topic.records_in, topic.bytes_out)
        folded.tenants.setdefault((organization_id, start_ms), Numbers()).add(counted)
        key = (organization_id, topic.topic, hour_ms)
        folded.topics.setdefault(key, Numbers()).add(counted)
        if topic.HasField("storage_bytes"):
            level = Level(sample.incarnation, topic.storage_bytes, at_ms)
            levels.say(LevelKey(sample.broker_id, organization_id, topic.topic), level)
    for tenant in sample.tenants:
        organization_id = organization_of.get(tenant.tenant)
        if organization_id is None:
            continue
        touched.add(organization_id)
        counted = Numbers(requests=tenant.requests, throttled_ms=tenant.throttle_ms)
        folded.tenants.setdefault((organization_id, start_ms), Numbers()).add(counted)
        level = Level(sample.incarnation, tenant.connections, at_ms)
        levels.say(LevelKey(sample.broker_id, organization_id, CONNECTIONS), level)
    return touched


def _show_levels(organization_id: str, at_ms: int, levels: Levels, folded: Folded) -> None:
    storage, connections = levels.of(organization_id, at_ms)
    tenant = folded.tenants[organization_id, interval_of(at_ms, TEN_SECONDS_MS)]
    tenant.storage_bytes, tenant.connections = sum(storage.values()), connections
    hour_ms = interval_of(at_ms, HOUR_MS)
    for topic_name, stored in storage.items():
        key = (organization_id, topic_name, hour_ms)
        topic = folded.topics.setdefault(key, Numbers())
        topic.storage_bytes = stored


def _by_key(item: tuple[tuple[str, int], Numbers]) -> tuple[str, int]:
    return item[0]
