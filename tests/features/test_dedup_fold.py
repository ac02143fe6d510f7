"""The fold of message ids over real logs: whatever happens, it is what the log says."""

from __future__ import annotations

import random

import pytest

from data_plane.log.fold import FoldContext, HoldingFold
from data_plane.log.log import FEATURE
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG, IDS_FLAG
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    decode_batch,
    filter_batch,
    iter_batch_headers,
)
from features.dedup.fold import MessageIds
from features.dedup.remembered_ids import Places
from features.dedup.snapshot import runs_named_in
from tests.features.dedup_player import ID, use_small_sets
from tests.log.one_log import START_MS, OneLog
from tests.log.world import read_all

IDS = [b"id-%d" % number for number in range(60)]


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_sets(monkeypatch)


def make_fold(context: FoldContext) -> MessageIds:
    return MessageIds(context)


class LogOfIds(OneLog):
    """A log with the fold."""

    fold_factories = (make_fold,)
    before_ms = 0

    @property
    def fold(self) -> MessageIds:
        return self.log.fold(MessageIds)

    def expected(self) -> Places:
        """What the log says, by all of it."""
        found: Places = {}
        for data in read_all(self.log):
            for header in iter_batch_headers(data, 0, len(data)):
                if not header.attributes & IDS_FLAG or not header.log_append_time:
                    continue
                for record in decode_batch(data, header.position):
                    for key, value in record.headers:
                        if key == ID:
                            found[value or b""] = (record.offset, header.max_timestamp)
        return found

    def add_some(self, rng: random.Random) -> None:
        """A batch as the leader stores it; now and then one with gaps, or one that does not
        count."""
        records = []
        for _ in range(rng.randrange(1, 6)):
            headers: tuple[tuple[bytes, bytes], ...] = ((b"tw-tag", b"eu"),) * rng.randrange(2)
            if rng.random() < 0.8:
                headers = (*headers, (ID, rng.choice(IDS)))
            records.append(NewRecord(self.now_ms, None, b"v", headers))
        kind = rng.random()
        attributes = IDS_FLAG if kind < 0.8 else rng.choice([0, FACTS_FLAG, HIDDEN_FLAG])
        batch = build_batch(
            records,
            attributes=attributes,
            compression=rng.choice([0, 3]),
            log_append_time=self.now_ms if kind < 0.95 else None,
        )
        if rng.random() < 0.4:
            kept = bytes(rng.randrange(2) for _ in records)
            batch = filter_batch(batch, 0, kept) or batch
        self.log.append_as_leader(
            batch, 0, len(batch), leader_epoch=self.epoch, now_ms=self.now_ms, origin=FEATURE
        )

    def found(self) -> Places:
        return self.fold.ids.view().find(self.fs, self.log.folder, IDS, self.before_ms)

    def check(self) -> None:
        expected = self.expected()
        young = {one: at for one, at in expected.items() if at[1] >= self.before_ms}
        assert self.found() == young
        if young:
            needed_from = self.fold.needed_from(0)
            assert needed_from is not None
            assert needed_from <= min(offset for offset, _ in young.values())

    def upkeep(self) -> None:
        job = self.fold.ids.upkeep_job(runs_named_in, self.before_ms)
        if job is not None:
            job.run()
            self.fold.ids.finish(job)

    def forget(self, rng: random.Random) -> None:
        self.before_ms = max(self.before_ms, self.now_ms - rng.choice([1_000, 300]))
        self.fold.ids.forget(self.before_ms)


def step(one: LogOfIds, rng: random.Random) -> None:
    action = rng.random()
    if action < 0.55:
        one.add_some(rng)
    elif action < 0.76:
        one.upkeep()
    elif action < 0.78:
        one.forget(rng)
    elif action < 0.82:
        one.log.roll()
    elif action < 0.87:
        one.log.advance_high_watermark(one.log.log_end_offset)
        one.log.flush()
    elif action < 0.90:
        one.checkpoint()
    elif action < 0.95:
        end = one.log.log_end_offset
        one.log.truncate_to(rng.randrange(max(0, end - 40), end + 1))
        one.epoch += 1
    elif action < 0.97:
        one.restart()
    elif action < 0.99:
        one.kill()
    else:
        one.lose_power(rng)
        one.epoch += 1
    one.now_ms += 10


@pytest.mark.parametrize("seed", range(16))
def test_it_is_what_the_log_says(seed: int) -> None:
    rng = random.Random(seed)
    one = LogOfIds()
    for number in range(120):
        step(one, rng)
        if number % 5 == 0:
            one.check()
    one.check()


@pytest.mark.parametrize("seed", range(6))
def test_who_begins_with_what_is_needed_comes_to_the_same(seed: int) -> None:
    """As a replica that is made later."""
    rng = random.Random(f"late {seed}")
    one, late = LogOfIds(), LogOfIds()
    for _ in range(60):
        one.add_some(rng)
        one.upkeep()
        one.now_ms += 10
        if rng.random() < 0.1:
            one.forget(rng)
    start = one.fold.needed_from(0)
    assert start is not None
    for data in read_all(one.log):
        for header in iter_batch_headers(data, 0, len(data)):
            if header.next_offset <= start:
                continue
            if header.base_offset <= start:
                late.log.truncate_fully_and_start_at(header.base_offset)
            late.log.append_as_follower(data, header.position, header.end_position, now_ms=START_MS)
    late.before_ms = one.before_ms
    assert late.found() == one.found()


def test_it_holds_on_to_what_it_needs() -> None:
    one = LogOfIds()
    assert isinstance(one.fold, HoldingFold)
    assert one.fold.needed_from(0) is None
    while not one.fold.ids.end_offset:
        one.add_some(random.Random(1))
    assert one.fold.needed_from(0) is not None


def test_batches_without_the_flag_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = LogOfIds()

    def apply(*_: object) -> None:
        raise AssertionError("the fold was asked")

    monkeypatch.setattr(MessageIds, "apply", apply)
    batch = build_batch([NewRecord(1, None, b"v", ((ID, b"a"),))], log_append_time=START_MS)
    one.log.append_as_leader(batch, 0, len(batch), leader_epoch=0, now_ms=START_MS, origin=FEATURE)
    assert one.log.log_end_offset == 1
