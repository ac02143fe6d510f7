"""The fold of nacks over real logs: whatever happens, it is what the log says."""

from __future__ import annotations

import random

import pytest

from data_plane.log.file_system import FileSystem
from data_plane.log.fold import FoldContext, HoldingFold, StoredBatch
from data_plane.log.log import FEATURE
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    decode_batch,
    filter_batch,
    iter_batch_headers,
    read_batch_header,
)
from features.delayed.runs import Entry
from features.retry_dlq import nacks as nacks_module
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.positions import Positions, entries_in
from features.retry_dlq.snapshot import NOTHING
from tests.log.one_log import START_MS, OneLog
from tests.log.world import read_all


def make_fold(context: FoldContext) -> Nacks:
    return Nacks(context)


class State:
    """What a log says, by all of it."""

    def __init__(self) -> None:
        self.source: dict[int, int] = {}
        self.own: dict[int, int] = {}
        self.dead: list[int] = []
        self.floors = (0, 0)


class RetryLog(OneLog):
    """A retry log, with the fold."""

    fold_factories = (make_fold,)

    @property
    def fold(self) -> Nacks:
        return self.log.fold(Nacks)

    def expected(self) -> State:
        state = State()
        for data in read_all(self.log):
            for header in iter_batch_headers(data, 0, len(data)):
                if not header.attributes & HIDDEN_FLAG:
                    continue
                for record in decode_batch(data, header.position):
                    self._take(state, dict(record.headers), record.offset)
        return state

    @staticmethod
    def _take(state: State, headers: dict[bytes, bytes | None], offset: int) -> None:
        position = headers.get(b"tw-nack") or headers.get(b"tw-dead-letter")
        if position is not None:
            partition, at = map(int, position.split(b":"))
            (state.own if partition % 2 else state.source)[at] = offset
        if b"tw-dead-letter" in headers:
            state.dead.append(offset)
        if sent := headers.get(b"tw-sent"):
            state.dead = [one for one in state.dead if one > int(sent.split(b":")[0])]
        if forgotten := headers.get(b"tw-forget"):
            source, own = map(int, forgotten.split(b":"))
            state.floors = source, own
            state.source = {at: one for at, one in state.source.items() if at >= source}
            state.own = {at: one for at, one in state.own.items() if at >= own}

    def nack_some(self, rng: random.Random) -> None:
        """A batch as the leader stores it, and now and then visible records, and facts."""
        state = self.expected()
        records = []
        for _ in range(rng.randrange(1, 6)):
            is_own = rng.random() < 0.4
            said = state.own if is_own else state.source
            at = state.floors[is_own] + rng.randrange(300)
            position = b"%d:%d" % (6 + is_own, at)
            key = b"tw-repeat" if at in said else rng.choice([b"tw-nack", b"tw-dead-letter"])
            said[at] = 0
            tags = ((b"tw-tag", b"eu"),) * rng.randrange(3)
            records.append(NewRecord(self.now_ms, None, b"v", (*tags, (key, position))))
        self._append(records, HIDDEN_FLAG)
        if rng.random() < 0.3:
            headers = ((b"tw-source", b"orders/3/5"), (b"tw-fired", b"1"))
            self._append([NewRecord(self.now_ms, None, b"v", headers)], FACTS_FLAG)

    def settle_some(self, rng: random.Random) -> None:
        """As the leader does: dead letters are sent, positions are over."""
        state = self.expected()
        if state.dead and rng.random() < 0.6:
            sent = rng.randrange(len(state.dead))
            text = b"%d:%d" % (state.dead[sent], len(state.dead) - sent - 1)
            self._append([NewRecord(self.now_ms, None, None, ((b"tw-sent", text),))], HIDDEN_FLAG)
        else:
            floors = [floor + rng.choice([0, 10, 100]) for floor in state.floors]
            header = (b"tw-forget", b"%d:%d" % tuple(floors))
            self._append([NewRecord(self.now_ms, None, None, (header,))], HIDDEN_FLAG)

    def _append(self, records: list[NewRecord], attributes: int) -> None:
        batch = build_batch(records, attributes=attributes, compression=3)
        self.log.append_as_leader(
            batch, 0, len(batch), leader_epoch=self.epoch, now_ms=self.now_ms, origin=FEATURE
        )

    def check(self) -> None:
        fold, expected = self.fold, self.expected()
        assert self.entries() == [sorted(expected.source.items()), sorted(expected.own.items())]
        assert (fold.of_source.floor, fold.own.floor) == expected.floors
        first, count = fold.dead_letters
        assert count == len(expected.dead)
        assert (first == NOTHING) is (not expected.dead)
        needed_from = fold.needed_from(0)
        needed = [*expected.source.values(), *expected.own.values(), *expected.dead]
        assert not needed or (needed_from is not None and needed_from <= min(needed))
        assert not expected.dead or first <= min(expected.dead)

    def entries(self) -> list[list[Entry]]:
        """All that the fold has, of the source and its own."""
        state = self.fold.state()
        found = [
            list(entries_in(self.fs, self.log.folder, part))
            for part in (state.of_source, state.own)
        ]
        self.fold.release(state)
        return found

    def upkeep(self) -> None:
        found = self.fold.upkeep_job()
        if found is not None:
            job, finish = found
            job.run()
            finish()


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short log has runs."""

    class SmallSet(Positions):
        def __init__(self, fs: FileSystem, folder: str) -> None:
            super().__init__(fs, folder, run_entries=8, runs_merged=2)

    monkeypatch.setattr(nacks_module, "Positions", SmallSet)


def step(one: RetryLog, rng: random.Random) -> None:
    action = rng.random()
    if action < 0.5:
        one.nack_some(rng)
    elif action < 0.65:
        one.settle_some(rng)
    elif action < 0.8:
        one.upkeep()
    elif action < 0.84:
        one.log.roll()
    elif action < 0.88:
        one.log.advance_high_watermark(one.log.log_end_offset)
        one.log.flush()
    elif action < 0.91:
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


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize("seed", range(12))
def test_it_is_what_the_log_says(seed: int) -> None:
    rng = random.Random(seed)
    one = RetryLog()
    for number in range(100):
        step(one, rng)
        if number % 5 == 0:
            one.check()
    one.check()


@pytest.mark.usefixtures("small_sets")
def test_who_begins_with_what_is_needed_comes_to_the_same() -> None:
    """As a replica that is made later: dead letters that were sent before do not count."""
    for seed in range(8):
        rng = random.Random(f"late {seed}")
        one, late = RetryLog(), RetryLog()
        for _ in range(60):
            one.nack_some(rng)
            if rng.random() < 0.6:
                one.settle_some(rng)
        start = one.fold.needed_from(0)
        assert start is not None
        for data in read_all(one.log):
            for header in iter_batch_headers(data, 0, len(data)):
                if header.next_offset <= start:
                    continue
                if header.base_offset <= start:
                    late.log.truncate_fully_and_start_at(header.base_offset)
                end = header.end_position
                late.log.append_as_follower(data, header.position, end, now_ms=START_MS)
        assert late.fold.dead_letters == one.fold.dead_letters
        assert late.entries() == one.entries()


def test_it_holds_on_to_what_it_needs() -> None:
    one = RetryLog()
    assert isinstance(one.fold, HoldingFold)
    assert one.fold.needed_from(0) is None
    one.nack_some(random.Random(1))
    assert one.fold.needed_from(0) == 0


def test_of_a_batch_with_gaps_it_takes_what_is_left() -> None:
    """As thinning leaves it for the sake of another fold."""
    one = RetryLog()
    records = [
        NewRecord(START_MS, None, b"v", ((b"tw-nack", b"6:%d" % number),)) for number in range(4)
    ]
    batch = build_batch(records, base_offset=100, attributes=HIDDEN_FLAG, compression=3)
    part = filter_batch(batch, 0, b"\0\1\0\1")
    assert part is not None
    one.fold.apply(StoredBatch(read_batch_header(part, 0), part))
    assert one.entries() == [[(1, 101), (3, 103)], []]
