"""What a listener is told of segments: which are sealed, and which have left their log."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from data_plane.log.log_state import LogState
from data_plane.log.manager import LogManager
from data_plane.log.segment import Segment
from tests.log.one_log import OneLog, batch_of


class Listener:
    """Knows which segments are sealed, by what it is told alone."""

    def __init__(self) -> None:
        self.sealed: dict[Segment, None] = {}
        self.gone: list[Segment] = []

    def segments_changed(
        self, log: LogState, sealed: Sequence[Segment], gone: Sequence[Segment]
    ) -> None:
        for segment in gone:
            assert segment not in log.segments
            assert segment not in self.gone
            self.gone.append(segment)
            self.sealed.pop(segment, None)
        for segment in sealed:
            assert segment.sealed
            assert segment in log.segments
            assert segment not in self.sealed
            self.sealed[segment] = None
        # The change is complete.
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.size_bytes == sum(segment.size for segment in log.segments)


class WatchedLog(OneLog):
    def make_manager(self) -> LogManager:
        self.listener = Listener()
        manager = super().make_manager()
        manager.segment_listeners.append(self.listener)
        return manager

    def put(self) -> None:
        self.append(batch_of(bytes(150), keys=[b"k"], timestamps=[self.now_ms]))

    def check(self) -> None:
        known = sorted(self.listener.sealed, key=lambda segment: segment.base_offset)
        assert known == self.log.segments[:-1]


def test_a_roll_seals_and_retention_takes_out_what_has_its_files_still() -> None:
    one = WatchedLog(file_delete_delay_ms=1000)
    one.put()
    first = one.log.active
    assert not one.listener.sealed
    one.log.roll()
    assert list(one.listener.sealed) == [first]
    one.set_config(retention_bytes=0)
    assert one.log.apply_retention(one.now_ms) == 1
    assert one.listener.gone == [first]
    assert one.fs.size(first.path()) == first.size
    assert [segment for segment, _ in one.log.pending_deletion or ()] == [first]


@pytest.mark.parametrize("seed", range(10))
def test_a_listener_knows_all_sealed_segments_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    one = WatchedLog(
        cleanup_policy=frozenset({"compact", "delete"}), min_cleanable_dirty_ratio=0.01
    )
    for _ in range(250):
        act = rng.random()
        if act < 0.7:
            one.put()
        elif act < 0.75:
            one.log.roll()
        elif act < 0.8:
            one.checkpoint()
            job = one.log.compaction_job(one.now_ms)
            if job is not None:
                job.run()
                job.finish()
        elif act < 0.85:
            one.set_config(retention_bytes=one.log.size_bytes // 2)
            one.log.apply_retention(one.now_ms)
            one.set_config(retention_bytes=-1)
        elif act < 0.9:
            end = one.log.log_end_offset
            one.log.truncate_to(rng.randrange(max(0, end - 30), end + 1))
        elif act < 0.92:
            one.log.truncate_fully_and_start_at(one.log.log_end_offset + rng.randrange(2))
        elif act < 0.95:
            rng.choice((one.restart, one.kill, lambda: one.lose_power(rng)))()
            one.set_config()
            if not one.log.is_loaded:
                one.log.load()
            one.log.advance_high_watermark(one.log.log_end_offset)
        one.check()
