"""Folds that are not the producer state: what they are told, what they see, and what they hold."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.log.committed_needs import CommittedNeeds
from data_plane.log.config import LogConfig
from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FrozenBytes, HoldsAll, StoredBatch
from data_plane.wire.records import Record, iter_batch_headers
from tests.log.one_log import SMALL, TOPIC_ID, OneLog, batch_of

LZ4 = 3
PIN, FREE = b"pin", b"free"


class Counter:
    """How many records each key has had. Large from the first one on, so that threads write it."""

    extension = ".counts"

    def __init__(self, context: FoldContext) -> None:
        self.context = context
        self.counts: dict[bytes, int] = {}
        self.last_records: list[Record] = []

    def __len__(self) -> int:
        return 1 << 20 if self.counts else 0

    def apply(self, batch: StoredBatch) -> None:
        self.last_records = batch.records
        for record in batch.records:
            key = record.key or b""
            self.counts[key] = self.counts.get(key, 0) + 1

    def snapshot(self) -> bytes:
        lines = [b"%s %d" % (key.hex().encode(), self.counts[key]) for key in sorted(self.counts)]
        return b"\n".join([b"counts", *lines])

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> HoldsAll:
        return HoldsAll()

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        data = b"".join(pieces)
        head, *lines = data.split(b"\n")
        if head not in (b"", b"counts"):
            raise ValueError("no counts")
        pairs = [line.split(b" ") for line in lines]
        self.counts = {bytes.fromhex(key.decode()): int(count) for key, count in pairs}


class Pins:
    """Holds on to each record whose value begins with "pin", until one with the value "free"."""

    extension = ".pins"

    def __init__(self, context: FoldContext) -> None:
        self.offsets: list[int] = []
        self.last_records: list[Record] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def apply(self, batch: StoredBatch) -> None:
        self.last_records = batch.records
        for record in batch.records:
            if record.value == FREE:
                self.offsets = []
            elif record.value is not None and record.value.startswith(PIN):
                self.offsets.append(record.offset)

    def needed_from(self, start_offset: int) -> int | None:
        return min((one for one in self.offsets if one >= start_offset), default=None)

    def facts_in(self, batch: StoredBatch) -> bytes:
        return bytes((record.value or b"").startswith(FREE) for record in batch.records)

    def held_from(self, start_offset: int) -> int | None:
        return self.needed_from(start_offset)

    def snapshot(self) -> bytes:
        return b" ".join([b"pins", *(b"%d" % offset for offset in self.offsets)])

    def freeze_held(self) -> HoldsAll:
        return HoldsAll()

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        data = b"".join(pieces)
        head, *offsets = data.split(b" ")
        if head not in (b"", b"pins"):
            raise ValueError("no pins")
        self.offsets = [int(offset) for offset in offsets]


class FoldedLog(OneLog):
    """One log with both."""

    fold_factories = (Counter, Pins)

    def put(self, value: bytes | None, key: bytes = b"k", *, compression: int = 0) -> None:
        buf = batch_of(value, keys=[key], timestamps=[self.now_ms], compression=compression)
        self.append(buf)

    def check(self) -> None:
        """The folds are what a replay of the files makes of them."""
        context = self.log.fold(Counter).context
        counter, pins = Counter(context), Pins(context)
        for segment in self.log.segments:
            data = self.fs.read_file(segment.path())
            for header in iter_batch_headers(data, 0, len(data)):
                for fold in (counter, pins):
                    fold.apply(StoredBatch(header, data))
        assert self.log.fold(Counter).counts == counter.counts
        assert self.log.fold(Pins).offsets == pins.offsets


def test_a_fold_is_told_whose_log_it_is_made_for() -> None:
    one = FoldedLog()
    context = one.log.fold(Counter).context
    assert (context.topic_id, context.topic, context.partition) == (TOPIC_ID, "flights", 0)
    assert context.folder == one.log.folder
    assert context.config == one.config
    assert context.fs is one.fs


@pytest.mark.parametrize("is_known", [False, True])
def test_in_a_recovery_too_a_topic_s_configuration_is_known(is_known: bool) -> None:
    one = FoldedLog()
    one.put(b"v")
    one.fs.power_loss(random.Random(1))
    own = replace(SMALL, retention_ms=17)
    asked: list[UUID] = []

    def config_of(topic_id: UUID) -> LogConfig:
        asked.append(topic_id)
        return own

    manager = one.make_manager()
    assert manager.start(one.now_ms, config_of=config_of if is_known else None) == []
    assert manager.recovered_logs == len(manager.logs())
    for log in manager.logs():
        assert log.fold(Counter).context.config == (own if is_known else one.config)
    assert asked == [log.topic_id for log in manager.logs()] * is_known


def test_the_records_of_a_batch_are_unpacked_once_for_all_folds() -> None:
    one = FoldedLog()
    for _ in range(2):
        one.put(b"v" * 100, compression=LZ4)
        records = one.log.fold(Counter).last_records
        assert [record.value for record in records] == [b"v" * 100]
        assert one.log.fold(Pins).last_records is records
    one.restart()
    one.log.load()
    assert one.log.fold(Pins).last_records is one.log.fold(Counter).last_records != []


@pytest.mark.parametrize("seed", range(12))
def test_they_are_what_a_replay_makes_of_the_log_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    one = FoldedLog()
    for _ in range(150):
        act = rng.random()
        if act < 0.6:
            value = rng.choice((b"v" * rng.randrange(200), b"pin", b"free"))
            one.put(value, b"k%d" % rng.randrange(5), compression=rng.choice((0, LZ4)))
        elif act < 0.75:
            one.log.flush()
        elif act < 0.8:
            one.checkpoint()
        elif act < 0.86:
            one.log.truncate_to(rng.randrange(one.log.log_end_offset + 1))
        elif act < 0.9:
            one.restart()
        elif act < 0.95:
            one.kill()
        else:
            one.lose_power(rng)
        one.check()


def test_who_asks_for_a_fold_that_is_not_there_is_told() -> None:
    one = OneLog()
    with pytest.raises(LookupError, match="Counter"):
        one.log.fold(Counter)


def test_nothing_counts_as_let_go_after_a_cut_before_that_is_committed() -> None:
    needs = CommittedNeeds()
    assert needs.needed_from(70, 100, 100) == 70
    # What let go of everything below 70 is cut off, and something else lets go of it again.
    needs.truncate(80)
    assert needs.needed_from(75, 86, 80) == 0
    needs.truncate(85)
    assert needs.needed_from(50, 85, 80) == 0
    assert needs.needed_from(50, 85, 85) == 50
