"""What folds hold on to stays in a compacted log, readers never see it come back, and once it is
let go it goes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from data_plane.log import held_records
from data_plane.log.compaction import measure_dirt
from data_plane.log.directory_checkpoint import summary_of
from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FrozenBytes, StoredBatch
from data_plane.log.key_map import BUFFER_BYTES, KEY_BYTES
from data_plane.log.log_summary import LogSummary
from data_plane.log.sim_file_system import PowerLoss
from data_plane.wire.records import Record
from tests.log.one_log import OneLog, batch_of

COMPACT = frozenset({"compact"})
HOLD, FREE = b"hold", b"free "
DELETE_RETENTION_MS = 100
Pair = tuple[bytes, bytes | None]


class HeldOffsets:
    """A RecordHold."""

    def __init__(self, offsets: frozenset[int]) -> None:
        self._offsets = offsets

    def holds(self, offset: int) -> bool:
        return offset in self._offsets

    needs = holds

    def close(self) -> None:
        self._offsets = frozenset()


class Holder:
    """Holds each record whose value begins with "hold", until one says "free <offset>"."""

    extension = ".holder"

    def __init__(self, context: FoldContext | None) -> None:
        self.offsets: list[int] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def apply(self, batch: StoredBatch) -> None:
        for record in batch.records:
            self.take(record.offset, bytes(record.value or b""))

    def take(self, offset: int, value: bytes) -> None:
        if value.startswith(HOLD):
            self.offsets.append(offset)
        elif value.startswith(FREE):
            freed = int(value.removeprefix(FREE))
            self.offsets = [held for held in self.offsets if held != freed]

    def needed_from(self, start_offset: int) -> int | None:
        return None

    def facts_in(self, batch: StoredBatch) -> bytes:
        return bytes((record.value or b"").startswith(FREE) for record in batch.records)

    def held_from(self, start_offset: int) -> int | None:
        return min((one for one in self.offsets if one >= start_offset), default=None)

    def freeze_held(self) -> HeldOffsets:
        return HeldOffsets(frozenset(self.offsets))

    def snapshot(self) -> bytes:
        return b" ".join([b"held", *(b"%d" % offset for offset in self.offsets)])

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        head, *offsets = b"".join(pieces).split(b" ")
        if head not in (b"", b"held"):
            raise ValueError("no held offsets")
        self.offsets = [int(offset) for offset in offsets]


class HeldLog(OneLog):
    """A compacted log with that fold."""

    fold_factories = (Holder,)

    def __init__(self) -> None:
        super().__init__(
            cleanup_policy=COMPACT,
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=DELETE_RETENTION_MS,
            flush_ms=1 << 60,
        )

    def put(self, *pairs: Pair) -> int:
        """One batch; the offset of its first record."""
        offset = self.log.log_end_offset
        buf = batch_of(
            *[value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamps=[self.now_ms] * len(pairs),
        )
        self.append(buf)
        return offset

    def free(self, offset: int) -> None:
        self.put((b"free-%d" % offset, FREE + b"%d" % offset))

    def settle(self) -> None:
        """Seal what there is, durably."""
        if self.log.active.size:
            self.log.roll()
        self.checkpoint()

    def compact(self, buffer_bytes: int = BUFFER_BYTES) -> bool:
        job = self.log.compaction_job(self.now_ms, buffer_bytes)
        if job is None:
            return False
        job.run()
        job.finish()
        return True

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(one.offset, one.key, one.value) for one in self.records()]

    def pass_over(self, later_ms: int = 0) -> None:
        """Something new, and a pass."""
        self.now_ms += later_ms
        self.put((b"other", b"%d" % self.log.log_end_offset))
        self.settle()
        assert self.compact()


def has(one: HeldLog, key: bytes) -> list[int]:
    return [offset for offset, other, _ in one.pairs() if other == key]


def test_a_held_record_stays_and_so_does_the_tombstone_behind_it() -> None:
    one = HeldLog()
    held = one.put((b"k", HOLD))
    tombstone = one.put((b"k", None))
    for _ in range(4):
        one.pass_over(10 * DELETE_RETENTION_MS)
        assert has(one, b"k") == [held, tombstone]
    one.restart()
    one.pass_over(10 * DELETE_RETENTION_MS)
    assert has(one, b"k") == [held, tombstone]
    one.free(held)
    one.pass_over()
    # Who has read the value a moment ago is to find the tombstone.
    assert has(one, b"k") == [tombstone]
    one.pass_over(DELETE_RETENTION_MS - 1)
    assert has(one, b"k") == [tombstone]
    one.pass_over(1)
    assert has(one, b"k") == []


def test_what_is_let_go_goes_without_anything_new_to_compact() -> None:
    one = HeldLog()
    held = one.put((b"k", HOLD))
    one.put((b"k", b"new"))
    one.settle()
    assert one.compact()
    assert has(one, b"k") == [0, 1]
    assert not one.compact(), "it waits for the fold"
    assert measure_dirt(one.log, one.now_ms).dirty_bytes == 0
    one.free(held)
    one.checkpoint()
    assert one.compact()
    assert has(one, b"k") == [1]
    assert one.log.superseded_from == -1
    assert not one.compact()


@pytest.mark.parametrize("ends", ["restart", "kill"])
def test_a_start_knows_from_where_to_look_again(ends: str) -> None:
    one = HeldLog()
    held = one.put((b"k", HOLD))
    tombstone = one.put((b"k", None))
    one.pass_over()
    one.checkpoint()
    getattr(one, ends)()
    assert one.log.superseded_from == held
    one.free(held)
    one.pass_over(10 * DELETE_RETENTION_MS)
    assert has(one, b"k") == [tombstone]


def test_a_pass_that_sees_less_than_was_clean_forgets_nothing() -> None:
    """Or the value of a deleted key would come back with its tombstone's end."""
    one = HeldLog()
    # Too large to become one segment with what follows.
    held = one.put((b"k", HOLD), (b"filler", bytes(one.config.segment_bytes - 500)))
    one.settle()
    one.now_ms += 1000
    tombstone = one.put((b"k", None), (b"filler 2", bytes(one.config.segment_bytes - 500)))
    one.settle()
    assert one.compact()
    assert one.log.superseded_from == held
    one.free(held)
    one.settle()
    one.set_config(min_compaction_lag_ms=500)
    one.compact()
    assert not one.compact(), "again and again"
    assert one.log.superseded_from == held
    one.set_config(min_compaction_lag_ms=0)
    one.pass_over()
    assert has(one, b"k") == [tombstone]
    one.pass_over(10 * DELETE_RETENTION_MS)
    one.pass_over(10 * DELETE_RETENTION_MS)
    assert has(one, b"k") == []


def test_only_what_is_below_the_first_held_record_makes_a_pass_due() -> None:
    """A pass for each record that a fold lets go would never come to an end."""
    one = HeldLog()
    first = one.put((b"a", HOLD), (b"b", HOLD))
    one.put((b"a", b"1"), (b"b", b"1"))
    one.settle()
    assert one.compact()
    one.free(first + 1)
    one.checkpoint()
    assert not one.compact()
    # One that comes anyway sees to it.
    one.pass_over()
    assert has(one, b"b") == [3]
    assert has(one, b"a") == [0, 2]


@pytest.mark.parametrize("ends", ["cut", "power loss"])
def test_what_was_let_go_in_records_that_are_lost_is_still_there(ends: str) -> None:
    one = HeldLog()
    held = one.put((b"k", HOLD))
    one.put((b"k", b"new"))
    one.settle()
    one.append(batch_of(FREE + b"%d" % held, keys=[b"free"]), commit=ends == "power loss")
    if ends == "cut":
        one.log.flush()
    one.compact()
    if ends == "cut":
        one.log.truncate_to(one.log.high_watermark)
    else:
        one.lose_power(random.Random(3))
    assert one.log.fold(Holder).offsets == [held]
    assert held in one.offsets()


def test_a_tombstone_whose_time_is_over_stays_while_it_is_held_itself() -> None:
    class HoldsTombstones(Holder):
        def apply(self, batch: StoredBatch) -> None:
            super().apply(batch)
            self.offsets += [record.offset for record in batch.records if record.value is None]

    class TombstoneLog(HeldLog):
        fold_factories = (HoldsTombstones,)

    one = TombstoneLog()
    tombstone = one.put((b"k", None))
    for _ in range(3):
        one.pass_over(10 * DELETE_RETENTION_MS)
    assert has(one, b"k") == [tombstone]
    one.free(tombstone)
    one.checkpoint()
    assert one.compact()
    assert has(one, b"k") == []


def test_where_too_many_keys_are_shadowed_no_tombstone_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_records, "SHADOWED_KEYS_MAX", 2)
    one = HeldLog()
    keys = [b"a", b"b", b"c"]
    one.put(*[(key, HOLD) for key in keys], (b"d", b"1"))
    one.put(*[(key, None) for key in keys], (b"d", None))
    for _ in range(3):
        one.pass_over(10 * DELETE_RETENTION_MS)
    assert [has(one, key) for key in keys] == [[0, 4], [1, 5], [2, 6]]
    assert has(one, b"d") == [7]


@pytest.mark.parametrize("is_superseded", [False, True])
def test_ordinary_new_values_shadow_nothing(
    monkeypatch: pytest.MonkeyPatch, is_superseded: bool
) -> None:
    """A fold holds one record for long, and other keys get new values all the time: these do not
    count as values that were held once."""
    monkeypatch.setattr(held_records, "SHADOWED_KEYS_MAX", 2)
    one = HeldLog()
    churned = [b"a", b"b", b"c", b"other"]
    held = one.put((b"h", HOLD))
    if is_superseded:
        one.put((b"h", b"new"))
    one.put((b"d", b"1"), *[(key, b"1") for key in churned])
    one.put((b"d", None))
    one.settle()
    assert one.compact()
    one.put(*[(key, b"2") for key in churned])
    one.pass_over(10 * DELETE_RETENTION_MS)
    assert has(one, b"d") == []
    assert held in has(one, b"h")


def test_a_map_that_is_too_small_lets_it_go_all_the_same() -> None:
    """One round of passes, and no second one after it."""
    one = HeldLog()
    keys = [b"%d" % number for number in range(12)]
    for key in keys:
        one.put((key, HOLD))
    for key in reversed(keys):
        one.put((key, None))
    one.settle()
    small = 4 * KEY_BYTES
    passes_count = 0
    while one.compact(small):
        passes_count += 1
        assert passes_count < 50
    assert one.log.superseded_from == 0
    assert len(one.records()) == 24
    for offset in range(12):
        one.free(offset)
    one.settle()
    one.now_ms += 10 * DELETE_RETENTION_MS
    passes_count = 0
    while one.compact(small):
        passes_count += 1
        assert passes_count < 50
    assert [record.offset for record in one.records() if record.value == HOLD] == []
    assert one.log.superseded_from == -1
    assert all(has(one, key) == [23 - number] for number, key in enumerate(keys))
    one.pass_over(DELETE_RETENTION_MS - 1)
    assert all(has(one, key) for key in keys)
    one.pass_over(1)
    assert not any(has(one, key) for key in keys)


def test_checkpoints_of_logs_without_held_records_are_as_before() -> None:
    one = HeldLog()
    held = one.put((b"k", HOLD))
    one.put((b"k", b"new"))
    one.settle()
    before = summary_of(one.log).fields_to_store()
    assert len(before) == LogSummary._fields.index("superseded_from")
    assert one.compact()
    after = summary_of(one.log).fields_to_store()
    assert len(after) == len(before) + 1
    assert LogSummary(*after).superseded_from == held


class Reader:
    """Reads the log from its start on, now and then, and has the newest value of each key at its
    end, if that takes no longer than tombstones live."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms + DELETE_RETENTION_MS
        self.position = 0
        self.view: dict[bytes | None, bytes | None] = {}

    def read(self, records: list[Record], end: int) -> None:
        for record in records:
            if self.position <= record.offset < end:
                self.view[record.key] = record.value
        self.position = end


def values(view: dict[bytes | None, bytes | None]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in view.items() if value is not None}


class HeldWorld:
    """A log, what was appended to it, and a reader."""

    keys = 5

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.one = HeldLog()
        self.appended: list[Pair] = []
        self.reader = Reader(self.one.now_ms)
        self.durable_end = 0
        self.passes_count = 0

    def put(self) -> None:
        rng, one = self.rng, self.one
        pairs: list[Pair] = []
        held = one.log.fold(Holder).offsets
        for _ in range(rng.randrange(1, 4)):
            kind = rng.random()
            number = len(self.appended) + len(pairs)
            key = b"k%d" % rng.randrange(self.keys)
            if kind < 0.25:
                pairs.append((key, None))
            elif kind < 0.5:
                pairs.append((key, HOLD + b"%d" % number))
            elif kind < 0.7 and held:
                offset = rng.choice(held)
                pairs.append((b"free-%d" % offset, FREE + b"%d" % offset))
            else:
                pairs.append((key, b"v%d" % number + bytes(40)))
        self.appended += pairs
        one.put(*pairs)

    def step(self) -> None:
        rng, one = self.rng, self.one
        one.now_ms += rng.randrange(12)
        act = rng.random()
        if act < 0.5:
            self.put()
        elif act < 0.58:
            if one.log.active.size:
                one.log.roll()
        elif act < 0.68:
            one.checkpoint()
            self.durable_end = one.log.log_end_offset
        elif act < 0.86:
            self.compact()
        elif act < 0.94:
            self.read()
        elif act < 0.96:
            one.restart()
        elif act < 0.98:
            one.kill()
        else:
            one.lose_power(rng)

    def compact(self) -> None:
        rng, one = self.rng, self.one
        room = rng.choice([2 * KEY_BYTES, 5 * KEY_BYTES, BUFFER_BYTES])
        job = one.log.compaction_job(one.now_ms, room)
        if job is None:
            return
        job.run()
        self.passes_count += 1
        if rng.random() < 0.3:
            self.put()
        if rng.random() < 0.1:
            one.fs.power_loss_at = one.fs.operations + rng.randrange(14)
        job.finish()

    def read(self) -> None:
        one, reader = self.one, self.reader
        end = one.log.log_end_offset
        if reader.due_ms < one.now_ms or reader.position > end:
            reader = self.reader = Reader(one.now_ms)
        upto = self.rng.choice([end, self.rng.randrange(reader.position, end + 1)])
        reader.read(one.records(), upto)
        if upto == end:
            assert values(reader.view) == self.expected(), "what a slow reader has seen"
            self.reader = Reader(one.now_ms)

    def expected(self) -> dict[bytes | None, bytes | None]:
        return values(dict(self.appended))

    def run(self, steps_count: int) -> None:
        for _ in range(steps_count):
            end_before = self.one.log.log_end_offset
            try:
                self.step()
            except PowerLoss:
                self.one.lose_power(self.rng)
            self.one.fs.power_loss_at = None
            end = self.one.log.log_end_offset
            assert end >= self.durable_end
            if end < end_before or end < self.reader.position:
                # What is lost was not promised to anybody who read it either.
                self.reader = Reader(self.one.now_ms)
            self.check()

    def check(self) -> None:
        one = self.one
        del self.appended[one.log.log_end_offset :]
        records = one.records()
        view: dict[bytes | None, bytes | None] = {}
        for record in records:
            assert (record.key, record.value) == self.appended[record.offset]
            view[record.key] = record.value
        assert values(view) == self.expected(), "the newest value of each key"
        stored = {record.offset for record in records}
        held = one.log.fold(Holder).offsets
        assert stored.issuperset(held), "what the fold holds"
        one.log.advance_high_watermark(one.log.log_end_offset)

    def finish(self) -> None:
        """Let go of everything, and have it compacted: nothing superseded is left."""
        one = self.one
        for offset in list(one.log.fold(Holder).offsets):
            pair = (b"free-%d" % offset, FREE + b"%d" % offset)
            self.appended.append(pair)
            one.put(pair)
        for _ in range(3):
            one.now_ms += 2 * DELETE_RETENTION_MS
            self.appended.append((b"last", b"%d" % one.now_ms))
            one.put(self.appended[-1])
            one.settle()
            passes_count = 0
            while one.compact():
                passes_count += 1
                assert passes_count < 5, "it compacts for ever"
        self.check()
        assert one.log.superseded_from == -1
        stored = [record.key for record in one.records()]
        assert len(stored) == len(set(stored)), "what was superseded is gone"
        assert all(record.value is not None for record in one.records()), "and so are tombstones"


@pytest.mark.parametrize("seed", range(40))
def test_readers_see_what_they_would_without_compaction(seed: int) -> None:
    world = HeldWorld(seed)
    world.run(160)
    world.finish()
    assert world.passes_count > 1


def test_a_log_to_which_nothing_is_added_any_more_lets_go_too() -> None:
    """What the fold holds is known at the log end, in a segment that nobody seals or flushes: by
    itself that would never be durable."""
    one = HeldLog()
    held = one.put((b"k", HOLD))
    one.put((b"k", b"new"))
    one.settle()
    assert one.compact()
    one.free(held)
    for _ in range(20):
        one.now_ms += 15_000
        for job in one.manager.tick(one.now_ms):
            job.run()
            job.finish()
    assert has(one, b"k") == [1]
    assert one.log.recovery_point == one.log.log_end_offset
    # It is known again then, and nothing is left to do.
    assert one.manager.tick(one.now_ms + 1) == []
