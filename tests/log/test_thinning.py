"""Below the log start stays what folds hold on to, and a fold that reads only that is the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from data_plane.log import thinning
from data_plane.log.directory_checkpoint import summary_of
from data_plane.log.fold import HoldsAll, StoredBatch
from data_plane.log.producer_state import ProducerStates
from data_plane.log.sim_file_system import PowerLoss
from data_plane.log.thinning import thinning_priority
from data_plane.wire.kernel_types import BATCH_HEADER_BYTES
from data_plane.wire.records import decode_batch, iter_batch_headers, read_batch_header
from tests.log.one_log import OneLog, batch_of
from tests.log.test_held_records import FREE, HOLD, Holder
from tests.log.world import read_all

FAR = 1 << 62


class NeedsHeld(Holder):
    """Needs what it holds."""

    def needed_from(self, start_offset: int) -> int | None:
        return self.held_from(start_offset)


class ThinnedLog(OneLog):
    """A log with that fold, whose records say what to hold and what to let go."""

    fold_factories = (NeedsHeld,)

    def __init__(self, **config: Any) -> None:
        super().__init__(flush_ms=FAR, **config)

    def put(self, *values: bytes, commit: bool = True) -> int:
        """One batch; the offset of its first record."""
        offset = self.log.log_end_offset
        keys = [b"%d" % (offset + number) for number in range(len(values))]
        buf = batch_of(*values, keys=keys, timestamps=[self.now_ms] * len(values))
        self.append(buf, commit=commit)
        return offset

    def free(self, *offsets: int) -> None:
        self.put(*[FREE + b"%d" % offset for offset in offsets])

    def settle(self) -> None:
        """Seal what there is, durably."""
        if self.log.active.size:
            self.log.roll()
        self.checkpoint()

    def delete(self, before_offset: int) -> None:
        self.log.delete_records(before_offset)
        self.log.flush()
        self.log.apply_retention(self.now_ms)
        self.log.flush()
        self.log.delete_pending_segments()

    def thin(self) -> bool:
        """A pass, once what is held is settled. Whether one was due."""
        for _ in range(2):
            job = self.log.thinning_job()
            if job is not None:
                job.run()
                job.finish()
                return True
            self.log.flush()
        return False

    def on_disk(self) -> dict[int, bytes]:
        """Offset → value."""
        found: dict[int, bytes] = {}
        for data in read_all(self.log, of_disk=True):
            for record in decode_batch(data, 0):
                assert record.offset not in found
                found[record.offset] = bytes(record.value or b"")
        return found

    def snapshot_offsets(self) -> list[int]:
        """Of those that are whole."""
        names = [name for name in self.names(Holder.extension) if self.content(name)]
        return sorted(int(name.removesuffix(Holder.extension)) for name in names)

    def read_again(self, snapshot_offset: int = 0) -> list[int]:
        """What a fold holds that has seen nothing but what is on the disk; behind a snapshot, if
        not from the start on."""
        fold = Holder(None)
        if snapshot_offset:
            fold.restore([self.content(f"{snapshot_offset:020d}{Holder.extension}")])
        for data in read_all(self.log, of_disk=True):
            header = read_batch_header(data, 0)
            if header.base_offset >= snapshot_offset:
                fold.apply(StoredBatch(header, data))
        return fold.offsets


def deleted_log(**config: Any) -> ThinnedLog:
    """Two held records of four batches of three, and readers begin behind all of them."""
    one = ThinnedLog(**config)
    one.put(b"a", HOLD, b"b")
    one.put(b"c", b"d", b"e")
    one.settle()
    one.put(b"f", b"g", b"h")
    one.put(HOLD + b"2", b"i", b"j")
    one.settle()
    one.put(b"k")
    one.settle()
    one.delete(12)
    return one


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("end", ["", "restart", "kill", "power loss"])
def test_only_what_is_held_stays(policy: str, end: str) -> None:
    one = deleted_log(cleanup_policy=frozenset(policy.split(",")))
    before = one.log.size_bytes
    assert one.thin()
    assert one.log.size_bytes < before
    if end == "power loss":
        one.lose_power(random.Random(3))
    elif end:
        getattr(one, end)()
    assert one.on_disk() == {1: HOLD, 9: HOLD + b"2", 12: b"k"}
    assert one.log.fold(NeedsHeld).offsets == one.read_again() == [1, 9]
    assert (one.log.log_start_offset, one.offsets()) == (12, [12])
    assert len(one.log.segments) == 3, "those that fit into one are one"


def test_all_that_readers_see_stays() -> None:
    one = deleted_log()
    one.put(HOLD, b"x")
    one.settle()
    one.put(b"y")
    one.settle()
    assert one.thin()
    assert one.offsets() == [12, 13, 14, 15]


def test_what_is_let_go_later_goes_later() -> None:
    one = deleted_log()
    assert one.thin()
    one.free(9)
    one.settle()
    assert one.thin(), "half of it is gone"
    assert sorted(one.on_disk()) == [1, 12, 13]
    assert not one.thin()
    one.free(1)
    one.settle()
    one.log.apply_retention(one.now_ms)
    assert one.log.segments[0].base_offset == 12


def test_a_pass_comes_when_as_much_has_come_as_was_left() -> None:
    one = deleted_log()
    assert one.thin()
    assert not one.thin()
    left = sum(segment.size for segment in one.log.segments if segment.next_offset <= 12)
    one.put(b"x" * left)
    one.settle()
    one.put(b"y")
    one.settle()
    one.delete(13)
    assert thinning_priority(one.log) == 0.0
    one.delete(14)
    assert one.thin()
    assert sorted(one.on_disk()) == [1, 9, 14]


def test_a_segment_that_loses_nothing_is_not_written_anew() -> None:
    one = ThinnedLog()
    one.put(HOLD, HOLD)
    one.settle()
    one.put(b"x")
    one.settle()
    one.delete(2)
    path = one.log.segments[0]
    assert one.thin()
    assert one.log.segments[0] is path
    assert not one.thin()


def test_what_no_fold_needs_is_left_to_retention() -> None:
    """Nothing of it is read, nor is the log remembered as one that was cleaned."""
    one = ThinnedLog()
    for _ in range(3):
        one.put(b"x", b"y")
        one.settle()
    one.log.delete_records(4)
    one.log.flush()
    assert thinning_priority(one.log) == 0.0
    assert not one.thin()
    assert one.log.cleaned_end == 0
    one.log.apply_retention(one.now_ms)
    assert one.log.segments[0].base_offset == 4


def test_a_front_that_no_fold_needs_is_left_to_retention() -> None:
    """Whenever that looks; what is behind it does not wait."""
    one = ThinnedLog()
    for values in ((b"a" * 1500,), (HOLD, b"b"), (b"c",)):
        one.put(*values)
        one.settle()
    one.log.delete_records(3)
    one.log.flush()
    assert one.thin()
    assert sorted(one.on_disk()) == [0, 1, 3]
    one.delete(3)
    assert sorted(one.on_disk()) == [1, 3]
    assert not one.thin()


def test_the_end_of_a_producers_sequence_stays() -> None:
    """A replica that gets its held record alone would take what comes next for out of sequence."""
    one = ThinnedLog()
    for sequence, values in ((0, (HOLD, b"a")), (2, (b"b", b"c")), (4, (b"d", b"e"))):
        one.append(batch_of(*values, producer=(5, 0, sequence)))
    one.settle()
    one.put(b"z")
    one.settle()
    one.delete(6)
    assert one.thin()
    assert sorted(one.on_disk()) == [0, 5, 6]
    producers = ProducerStates()
    for data in read_all(one.log, of_disk=True):
        producers.apply(StoredBatch(read_batch_header(data, 0), data))
    entry = producers.producers.get(5)
    assert entry is not None
    assert entry.last_sequence == 5


def test_the_last_batch_stays_whoever_does_not_see_it() -> None:
    """A follower asks for what comes next until it has that."""
    one = deleted_log()
    one.delete(13)
    assert one.thin()
    assert one.on_disk() == {1: HOLD, 9: HOLD + b"2", 12: b"k"}
    assert one.offsets() == []


def test_a_fold_that_needs_the_log_and_holds_no_records_keeps_all_of_it() -> None:
    class NeedsAll(NeedsHeld):
        def held_from(self, start_offset: int) -> int | None:
            return None

        def needed_from(self, start_offset: int) -> int | None:
            return min((one for one in self.offsets if one >= start_offset), default=None)

    class NeedyLog(ThinnedLog):
        fold_factories = (NeedsAll,)

    one = NeedyLog()
    one.put(b"a", HOLD, b"b")
    one.settle()
    one.put(b"c")
    one.settle()
    one.delete(3)
    assert not one.thin()
    assert sorted(one.on_disk()) == [0, 1, 2, 3]


def test_a_job_takes_so_many_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop swaps in what a job has made without a pause."""
    monkeypatch.setattr(thinning, "GROUPS_MAX", 2)
    one = ThinnedLog()
    for _ in range(5):
        one.put(HOLD, b"v" * 1500)
        one.settle()
    one.put(b"y")
    one.settle()
    one.delete(10)
    left = [[0, 2, 4, 5, 6, 7, 8, 9, 10], [0, 2, 4, 6, 8, 9, 10], [0, 2, 4, 6, 8, 10]]
    for expected in left:
        assert one.thin()
        assert sorted(one.on_disk()) == expected
    assert not one.thin()


def test_what_is_all_held_is_not_read_to_find_that_out() -> None:
    class HoldsAllFromHere(NeedsHeld):
        def held_from(self, start_offset: int) -> int | None:
            return start_offset if self.offsets else None

        def freeze_held(self) -> HoldsAll:  # type: ignore[override]
            return HoldsAll()

    class AllHeldLog(ThinnedLog):
        fold_factories = (HoldsAllFromHere,)

    one = AllHeldLog()
    one.put(HOLD, b"a")
    one.settle()
    one.put(b"b")
    one.settle()
    one.put(b"c")
    one.settle()
    one.delete(3)
    assert not one.thin()
    assert one.log.cleaned_end == 0
    assert sorted(one.on_disk()) == [0, 1, 2, 3]


def test_what_an_uncommitted_record_lets_go_stays() -> None:
    one = deleted_log()
    end_offset = one.log.log_end_offset
    one.put(FREE + b"1", FREE + b"9", commit=False)
    one.log.flush()
    one.thin()
    one.log.truncate_to(end_offset)
    assert one.log.fold(NeedsHeld).offsets == [1, 9]
    assert {1, 9} <= one.on_disk().keys()


def test_what_lets_go_of_a_record_stays_when_that_one_is_gone() -> None:
    """An older snapshot still has the record, and so may a replica that is away."""
    one = ThinnedLog()
    one.put(HOLD + b"v" * 800, HOLD + b"v" * 800)
    one.settle()
    one.free(1)
    one.put(b"x" * 1500)
    one.settle()
    one.put(b"y")
    one.settle()
    one.delete(4)
    assert one.thin()
    assert sorted(one.on_disk()) == [0, 2, 4]
    assert one.snapshot_offsets() == [2, 4, 5]
    one.unlink(f"{4:020d}{Holder.extension}")
    one.unlink(f"{5:020d}{Holder.extension}")
    one.restart()
    assert one.log.fold(NeedsHeld).offsets == one.read_again() == [0]


def test_what_has_gone_may_have_gone_for_what_a_cut_takes() -> None:
    """So a log that is cut below what was asked for has to begin anew."""
    one = deleted_log()
    assert one.thin()
    assert one.log.cleaned_end > 12


def test_behind_damage_nothing_goes() -> None:
    """A record that lets go of one in the damaged segment would be missed once that is mended."""
    one = ThinnedLog()
    one.put(HOLD, HOLD)
    one.put(b"x" * 300)
    one.settle()
    one.put(FREE + b"0", b"y")
    one.put(HOLD)
    one.settle()
    one.put(b"z")
    one.settle()
    one.delete(6)
    segment = one.log.segments[0]
    one.fs.flip_bit(segment.path(), BATCH_HEADER_BYTES + 5, 1)
    job = one.log.thinning_job()
    if job is not None:
        job.run()
        job.finish()
    assert segment.bad_ranges
    assert one.log.thinning_job() is None
    assert {3, 4, 5, 6} <= {
        record.offset
        for segment in one.log.segments[1:]
        for data in [one.fs.read_file(segment.path())]
        for header in iter_batch_headers(data, 0, len(data))
        for record in decode_batch(data, header.position)
    }


def test_the_background_thins() -> None:
    one = deleted_log()
    for _ in range(20):
        one.now_ms += 15_000
        for job in one.manager.tick(one.now_ms):
            job.run()
            job.finish()
    assert sorted(one.on_disk()) == [1, 9, 12]


class ThinnedWorld:
    """A log, and what was appended to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.one = ThinnedLog(segment_bytes=1 << 12)
        self.appended: list[bytes] = []
        self.durable_end = self.committed_end = 0
        self.passes_count = self.held_below_count = 0

    def put(self) -> None:
        rng, one = self.rng, self.one
        held = one.log.fold(NeedsHeld).offsets
        values: list[bytes] = []
        for _ in range(rng.randrange(1, 5)):
            kind = rng.random()
            if kind < 0.3:
                values.append(HOLD + b"%d" % len(self.appended))
            elif kind < 0.5 and held:
                values.append(FREE + b"%d" % rng.choice(held))
            else:
                values.append(b"v" * rng.randrange(1, 100))
        committed = one.log.high_watermark
        self.appended += values
        one.put(*values)
        if rng.random() < 0.4:
            one.log.high_watermark = committed

    def step(self) -> None:
        rng, one = self.rng, self.one
        log = one.log
        act = rng.random()
        if act < 0.42:
            self.put()
        elif act < 0.5:
            log.advance_high_watermark(log.log_end_offset)
        elif act < 0.58:
            one.settle()
            self.durable_end = log.log_end_offset
        elif act < 0.68:
            log.delete_records(rng.randrange(log.log_start_offset, log.high_watermark + 1))
        elif act < 0.76:
            log.apply_retention(one.now_ms)
            if rng.random() < 0.6:
                log.flush()
                self.durable_end = log.log_end_offset
                log.delete_pending_segments()
        elif act < 0.9:
            self.thin()
        elif act < 0.93:
            self.cut()
        elif act < 0.95:
            one.restart()
            self.durable_end = one.log.log_end_offset
        elif act < 0.97:
            one.kill()
        else:
            one.lose_power(rng)

    def cut(self) -> None:
        log = self.one.log
        end = self.rng.randrange(self.committed_end, log.log_end_offset + 1)
        if end > log.log_start_offset:
            log.truncate_to(end)
            self.durable_end = min(self.durable_end, log.log_end_offset)

    def thin(self) -> None:
        rng, one = self.rng, self.one
        job = one.log.thinning_job()
        if job is None:
            return
        if rng.random() < 0.15:
            one.fs.power_loss_at = one.fs.operations + rng.randrange(30)
        job.run()
        self.passes_count += 1
        meanwhile = rng.random()
        if meanwhile < 0.15:
            one.log.apply_retention(one.now_ms)
        elif meanwhile < 0.3:
            self.put()
        elif meanwhile < 0.35:
            self.cut()
        job.finish()

    def run(self, steps_count: int) -> None:
        for _ in range(steps_count):
            try:
                self.step()
            except PowerLoss:
                self.one.lose_power(self.rng)
            self.one.fs.power_loss_at = None
            assert self.one.log.log_end_offset >= self.durable_end
            self.check()

    def check(self) -> None:
        one = self.one
        log = one.log
        del self.appended[log.log_end_offset :]
        # After a kill the log knows less of it.
        known_end = max(self.committed_end, log.high_watermark)
        self.committed_end = min(known_end, log.log_end_offset)
        stored = one.on_disk()
        held = log.fold(NeedsHeld).offsets
        assert all(stored[offset] == self.appended[offset] for offset in stored)
        seen = set(range(log.log_start_offset, log.log_end_offset))
        assert stored.keys() >= seen, "what readers see"
        assert stored.keys() >= set(held), "what the fold holds"
        start = log.segments[0].base_offset
        assert stored.keys() >= {fact for fact in self.facts() if fact >= start}
        assert one.read_again() == held, "a fold that reads only what is left"
        for offset in [offset for offset in one.snapshot_offsets() if offset >= start][:1]:
            assert one.read_again(offset) == held, f"from the oldest snapshot, at {offset}"
        expected = Holder(None)
        for offset, value in enumerate(self.appended):
            expected.take(offset, value)
        assert held == expected.offsets
        self.held_below_count += any(offset < log.log_start_offset for offset in held)

    def facts(self) -> set[int]:
        return {offset for offset, value in enumerate(self.appended) if value.startswith(FREE)}

    def finish(self) -> None:
        """Everything settled: what is left below the log start is what is held, and facts."""
        one = self.one
        one.settle()
        one.put(b"last")
        self.appended.append(b"last")
        one.settle()
        one.delete(one.log.log_end_offset - 1)
        one.restart()
        assert one.log.segments
        while one.thin():
            self.check()
        start, disk_start = one.log.log_start_offset, one.log.segments[0].base_offset
        facts = {fact for fact in self.facts() if disk_start <= fact < start}
        held = {offset for offset in one.log.fold(NeedsHeld).offsets if offset < start}
        assert {offset for offset in one.on_disk() if offset < start} == held | facts


@pytest.mark.parametrize("group", range(8))
def test_whatever_happens_what_is_held_stays_and_is_read_again(group: int) -> None:
    worlds = [ThinnedWorld(seed) for seed in range(5 * group, 5 * group + 5)]
    for world in worlds:
        world.run(160)
        world.finish()
    assert sum(world.passes_count for world in worlds) > 5
    assert sum(world.held_below_count for world in worlds) > 20


def test_checkpoints_are_as_before() -> None:
    one = deleted_log()
    before = len(summary_of(one.log).fields_to_store())
    assert one.thin()
    assert len(summary_of(one.log).fields_to_store()) == before
