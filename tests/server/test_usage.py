"""Use is counted once: over failed writes, power losses and restarts, from wherever one reads."""

from __future__ import annotations

import errno
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.request.namespaces import TenantUse
from data_plane.cell.metadata import MetadataImage
from data_plane.log.file_system import SyncSite
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.replica.topic_use import TopicUse
from data_plane.server import usage_spool
from data_plane.server.usage_sampler import LOST_MS_MAX, ROWS_MAX, Taken, UsageSamples
from data_plane.server.usage_spool import DROPPED, KEPT_MS, KILLED, Sample, UsageSpool

DATA = "/data"
FILE_BYTES = 400
DAY_MS = 24 * 60 * 60 * 1000


@dataclass
class Broker:
    """What uses and stores, over restarts; `stored` is what must be in samples, once."""

    fs: SimFileSystem = field(default_factory=SimFileSystem)
    spool_bytes_max: int = 1 << 30
    now_ms: int = 0
    lives: int = 0
    stored: Counter[str] = field(default_factory=Counter)
    topics: dict[str, TopicUse] = field(default_factory=dict)
    tenant: TenantUse = field(default_factory=lambda: TenantUse("acme"))
    pending: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.fs.make_directory(DATA)
        self.fs.sync_directory("/", SyncSite.DATA_FOLDER)
        self.begin()

    def begin(self) -> None:
        self.spool = UsageSpool(
            self.fs, DATA, file_bytes_max=FILE_BYTES, spool_bytes_max=self.spool_bytes_max
        )
        self.lives += 1
        self.samples = UsageSamples(self.spool, f"life-{self.lives}", self.now_ms)
        self.topics = {}
        self.tenant = TenantUse("acme")
        self.pending = Counter()

    def use(self, name: str, count: int) -> None:
        known = self.topics.setdefault(name, TopicUse("acme", name, name.encode().ljust(16)))
        known.bytes_in += count
        self.tenant.requests += 1
        self.pending[name] += count
        self.pending["requests"] += 1

    def store(self, date_ms: int | None = None, *, is_final: bool = False) -> bool:
        self.now_ms += 5_000
        taken = Taken(
            MetadataImage("c"),
            list(self.topics.values()),
            [self.tenant],
            {},
            None,
            self.now_ms,
            self.now_ms,
            date_ms,
        )
        try:
            self.samples.store(taken, is_final=is_final)
        except OSError:
            return False
        self.stored += self.pending
        self.pending = Counter()
        return True

    def die(self, rng: random.Random | None) -> None:
        if rng is None:
            self.fs.process_death()
        else:
            self.fs.power_loss(rng)
        self.begin()

    def stop(self) -> None:
        assert self.store(is_final=True)
        self.spool.close()
        self.fs.process_death()
        self.begin()

    def read(self, incarnation: str = "", sequence: int = 0) -> list[Sample]:
        return list(self.spool.read(incarnation, sequence))


def total(samples: list[Sample]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for sample in samples:
        for row in sample.topics:
            counted[row.topic] += row.bytes_in
        for tenant in sample.tenants:
            counted["requests"] += tenant.requests
    return counted


ACTIONS = st.lists(
    st.sampled_from(["use a", "use b", "store", "store", "fail", "kill", "power", "stop", "read"]),
    max_size=40,
)


@settings(max_examples=300)
@given(ACTIONS, st.integers(0, 1 << 30))
def test_what_was_stored_is_read_once_whatever_happens(actions: list[str], seed: int) -> None:
    rng = random.Random(seed)
    broker = Broker()
    seen: list[Sample] = []
    for action in actions:
        match action:
            case "use a" | "use b":
                broker.use(action[-1], rng.randrange(1, 100))
            case "store":
                assert broker.store()
            case "fail":
                broker.fs.faults = [Fault("write", "usage", errno.ENOSPC, rng.randrange(60))]
                is_stored = broker.store()
                broker.fs.faults = []
                assert is_stored == (not broker.pending)
            case "kill":
                broker.die(None)
            case "power":
                broker.die(rng)
            case "stop":
                broker.stop()
            case "read":
                last = (seen[-1].incarnation, seen[-1].sequence) if seen else ("", 0)
                seen += broker.read(*last)
    everything = broker.read()
    assert total(everything) == broker.stored
    assert [sample.sequence for sample in everything] == list(range(1, len(everything) + 1))
    assert everything[: len(seen)] == seen
    assert len({(sample.incarnation, sample.sequence) for sample in everything}) == len(everything)
    for before, sample in zip([None, *everything], everything, strict=False):
        is_new = before is not None and before.incarnation != sample.incarnation
        if is_new and before is not None and not before.is_final:
            assert sample.lost is not None
            assert (sample.lost.reason, sample.lost.duration_ms) == (KILLED, LOST_MS_MAX)
            assert (sample.lost.incarnation, sample.lost.sequence) == (
                before.incarnation,
                before.sequence,
            )
        else:
            assert sample.lost is None


def test_too_many_samples_and_old_ones_go_and_who_has_not_read_them_is_told() -> None:
    broker = Broker(spool_bytes_max=3 * FILE_BYTES)
    for _ in range(40):
        broker.use("a", 1)
        assert broker.store()
    assert broker.spool.size_bytes <= 4 * FILE_BYTES
    samples = broker.read("life-1", 1)
    lost = samples[0].lost
    assert lost is not None
    assert (lost.reason, lost.incarnation, lost.sequence) == (DROPPED, "life-1", 1)
    assert all(sample.lost is None for sample in samples[1:])
    assert samples[-1].sequence == 40
    newest = samples[-1]
    assert broker.read("life-1", 39) == [newest]
    broker.now_ms += KEPT_MS + DAY_MS
    broker.use("a", 1)
    # Without a date that is vouched for nothing is too old.
    assert broker.store(None)
    assert len(broker.read()) > 2
    broker.use("a", 1)
    assert broker.store(broker.now_ms)
    assert [sample.sequence for sample in broker.read()][-1] == 42
    assert broker.read()[0].sequence > 39


def test_what_was_not_stored_because_old_files_could_not_go_is_in_the_next_sample() -> None:
    broker = Broker()
    while len(broker.fs.list_directory(f"{DATA}/usage")) < 2:
        broker.use("a", 1)
        assert broker.store()
    before = broker.read()
    broker.fs.faults = [Fault("unlink", "usage", errno.EIO)]
    broker.use("a", 1)
    date_ms = broker.now_ms + KEPT_MS + DAY_MS
    assert not broker.store(date_ms)
    assert broker.read() == before, "it is said that it is not stored"
    broker.fs.faults = []
    assert broker.store(date_ms)
    (newest,) = broker.read("life-1", len(before))
    assert total([newest]) == Counter({"a": 1, "requests": 1})


def test_a_reader_that_knows_another_spool_begins_anew_and_is_told() -> None:
    broker = Broker()
    broker.use("a", 1)
    broker.store()
    for incarnation, sequence in (("elsewhere", 1), ("elsewhere", 812), ("life-1", 2)):
        (sample,) = broker.read(incarnation, sequence)
        assert sample.sequence == 1
        assert sample.lost is not None
        assert sample.lost.reason == DROPPED


def test_very_many_topics_come_in_several_samples_of_one_interval() -> None:
    broker = Broker()
    for number in range(2 * ROWS_MAX + 1):
        broker.use(f"t{number}", 1)
    assert broker.store()
    samples = broker.read()
    assert [len(sample.topics) for sample in samples] == [ROWS_MAX, ROWS_MAX, 1]
    assert total(samples) == broker.stored
    assert len({(sample.start_ms, sample.end_ms) for sample in samples}) == 1


def test_who_follows_has_only_what_is_new_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the sample from which he goes on, once."""
    fs = SimFileSystem()
    fs.make_directory("/data")
    spool = UsageSpool(fs, "/data")
    for sequence in range(1, 51):
        spool.append([Sample("a", sequence, sequence, sequence + 1, 1)])
    decoded: list[bytes] = []

    def noting(body: bytes) -> Sample:
        decoded.append(body)
        return original(body)

    original = usage_spool._decode
    monkeypatch.setattr(usage_spool, "_decode", noting)
    assert [sample.sequence for sample in spool.read("a", 48)] == [49, 50]
    assert len(decoded) == 3
    assert list(spool.read("a", 50)) == []
    assert len(decoded) == 4
    assert [sample.sequence for sample in spool.read("", 0)] == list(range(1, 51))
    assert len(decoded) == 54
