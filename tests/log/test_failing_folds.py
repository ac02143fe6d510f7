"""A fold that raises: the append it raised for has never been, for readers, other folds, and a
restart."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from data_plane.log import recovery
from data_plane.log.errors import LogDirFailure
from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FrozenBytes, HoldsAll, StoredBatch
from data_plane.log.sim_file_system import Fault
from data_plane.wire.records import iter_batch_headers
from tests.log.one_log import OneLog, batch_of


class Refusing:
    """Counts batches, and raises for those that hold the word "poison"."""

    extension = ".counted"
    is_broken = False

    def __init__(self, context: FoldContext) -> None:
        self.offsets: list[int] = []

    def apply(self, batch: StoredBatch) -> None:
        header = batch.header
        if self.is_broken or b"poison" in bytes(batch.buf[header.position : header.end_position]):
            raise ValueError("a feature's bug")
        self.offsets.append(header.base_offset)

    def __len__(self) -> int:
        return len(self.offsets)

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> HoldsAll:
        return HoldsAll()

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def snapshot(self) -> bytes:
        return b"".join(offset.to_bytes(8, "big") for offset in [-1 % (1 << 64), *self.offsets])

    def restore(self, pieces: Iterable[Buffer]) -> None:
        data = b"".join(pieces)
        found = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]
        self.offsets = found[1:]


class World(OneLog):
    """One log with that fold."""

    fold_factories = (Refusing,)

    @property
    def fold(self) -> Refusing:
        return self.log.fold(Refusing)

    def stored(self) -> list[int]:
        """Base offsets on the disk."""
        found = []
        for name in self.names(".log"):
            data = self.content(name)
            found += [header.base_offset for header in iter_batch_headers(data, 0, len(data))]
        return found

    def check(self, offsets: list[int]) -> None:
        assert self.stored() == offsets
        assert self.offsets() == offsets
        assert self.fold.offsets == offsets
        assert self.log.log_end_offset == len(offsets)
        assert self.log.size_bytes == sum(segment.size for segment in self.log.segments)


def produced(value: bytes, sequence: int) -> bytearray:
    return batch_of(value, producer=(7, 0, sequence))


@pytest.mark.parametrize("before", [0, 1, 30])
def test_what_a_fold_refuses_is_not_stored(before: int) -> None:
    one = World()
    for index in range(before):
        one.append(produced(bytes(100), index))
    producers = one.log.producers.snapshot()
    two = produced(b"good", before) + produced(b"poison", before + 1)
    for data in (produced(b"poison", before), two):
        with pytest.raises(ValueError, match="bug"):
            one.append(data)
        one.check(list(range(before)))
        assert one.log.producers.snapshot() == producers
    assert not one.append(produced(b"good", before)).duplicate
    one.append(produced(b"good", before + 1))
    one.check(list(range(before + 2)))
    states = one.log.producers.snapshot()
    for restart in (one.kill, one.restart):
        restart()
        one.check(list(range(before + 2)))
        assert one.log.producers.snapshot() == states


def test_a_follower_does_not_store_it_either() -> None:
    leader, one = OneLog(), World()
    for value in (b"a", b"b", b"poison", b"c"):
        leader.append(batch_of(value))
    read = leader.log.read_cold(0, 1 << 20, max_offset=4, at_least_one_batch=True)
    data = b"".join(map(bytes, read.buffers))
    with pytest.raises(ValueError, match="bug"):
        one.log.append_as_follower(data, 0, len(data), now_ms=one.now_ms)
    one.check([])
    end = [header.end_position for header in iter_batch_headers(data, 0, len(data))][1]
    one.log.append_as_follower(data, 0, end, now_ms=one.now_ms)
    one.log.advance_high_watermark(2)
    one.check([0, 1])


def test_an_append_that_can_be_neither_kept_nor_cut_off_takes_the_directory_offline() -> None:
    one = World()
    one.append(batch_of(b"good"))
    one.fs.faults.append(Fault("truncate", ".log", errno.EIO))
    with pytest.raises(LogDirFailure):
        one.append(batch_of(b"poison"))
    assert one.manager.offline_directories()


def test_recovery_does_not_know_folds_by_name() -> None:
    """The snapshots at the end of the log stay, whosever they are, when segments behind it go."""
    one = World(segment_bytes=300)
    for _ in range(6):
        one.append(batch_of(bytes(100)))
    one.checkpoint()
    names = [one.names(extension) for extension in (".snapshot", ".counted")]
    assert len(names[0]) == len(names[1]) > 1
    recovery._delete_segments(one.log, one.log.segments[1:])
    assert [one.names(extension) for extension in (".snapshot", ".counted")] == names
    assert len(one.names(".log")) == 1


def test_folds_that_cannot_be_made_again_take_the_directory_offline() -> None:
    one = World()
    one.append(batch_of(b"good"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Refusing, "is_broken", True)
        with pytest.raises(LogDirFailure):
            one.append(batch_of(b"good"))
    assert one.manager.offline_directories()
    one.kill()
    one.log.advance_high_watermark(1)
    one.check([0])


def test_a_state_that_no_flush_has_written_yet_is_found_again() -> None:
    """The records that it came from have left the log."""
    one = World()
    one.manager.directories[0].entries_written_at_once_max = 0
    one.append(produced(b"good", 0))
    one.log.roll()
    one.append(batch_of(b"good"))
    one.log.delete_records(1)
    assert one.log.apply_retention(one.now_ms) == 1
    producers = one.log.producers.snapshot()
    with pytest.raises(ValueError, match="bug"):
        one.append(batch_of(b"poison"))
    assert one.fold.offsets == [0, 1]
    assert one.log.producers.snapshot() == producers
