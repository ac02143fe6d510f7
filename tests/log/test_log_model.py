"""The log beside a plain list of records, through every operation and every kind of restart."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from data_plane.log.errors import OffsetOutOfRange
from data_plane.log.log import Log
from data_plane.log.retention import segment_deletion_job
from data_plane.wire.records import decode_batch, read_batch_header
from tests.log.one_log import START_MS, OneLog, batch_of
from tests.log.world import read_all

FAR = 1 << 62

values = st.binary(max_size=300)
timestamps = st.integers(START_MS - 50, START_MS + 50)
batches = st.tuples(
    st.lists(st.tuples(timestamps, values), min_size=1, max_size=4),
    st.sampled_from([0, 0, 0, 1, 4]),
)
# Where in a range: scaled to what the log has at that time, beyond both ends included.
places = st.integers(-2, 102)


class Stored(NamedTuple):
    """A batch of the model: [base_offset, next_offset), its bytes, its timestamps."""

    base_offset: int
    next_offset: int
    data: bytes
    timestamps: list[int]


class LogMachine(RuleBasedStateMachine):
    """The model: `stored`, all batches whose offsets may still be asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.one = OneLog(segment_bytes=1500, index_interval_bytes=200)
        self.stored: list[Stored] = []
        self.end = 0
        self.start = 0
        self.durable_end = 0
        self.high_watermark = 0

    def place(self, percent: int) -> int:
        """An offset at `percent` of the log; up to 2 beyond its ends."""
        if percent < 0:
            return self.start + percent
        if percent > 100:
            return self.end + percent - 100
        return self.start + (self.end - self.start) * percent // 100

    def visible(self) -> list[Stored]:
        return [one for one in self.stored if one.next_offset > self.start]

    # Changes

    @rule(appended=st.lists(batches, min_size=1, max_size=3), commits=st.booleans())
    def append(self, appended: list[tuple[list[tuple[int, bytes]], int]], commits: bool) -> None:
        buf = bytearray()
        times = []
        for records, codec in appended:
            times.append([one[0] for one in records])
            data = [one[1] for one in records]
            buf += batch_of(*data, timestamps=times[-1], compression=codec)
        result = self.one.append(buf, commit=False)
        assert result.first_offset == self.end
        position = 0
        for batch_times in times:
            header = read_batch_header(buf, position)
            data_bytes = bytes(buf[position : header.end_position])
            self.stored.append(
                Stored(self.end, self.end + len(batch_times), data_bytes, batch_times)
            )
            assert header.base_offset == self.end
            self.end += len(batch_times)
            position = header.end_position
        assert result.last_offset + 1 == self.end
        if commits:
            self.commit()

    @rule()
    def commit(self) -> None:
        self.one.log.advance_high_watermark(self.end)
        self.high_watermark = self.end

    @rule()
    def roll(self) -> None:
        if self.one.log.active.size:
            self.one.log.roll()

    @rule(percent=places)
    def delete_records(self, percent: int) -> None:
        target = self.place(percent)
        if 0 <= target <= self.high_watermark:
            self.start = max(self.start, target)
            assert self.one.log.delete_records(target) == self.start
        elif target != -1:
            with pytest.raises(OffsetOutOfRange):
                self.one.log.delete_records(target)

    @rule(limit_bytes=st.sampled_from([0, 800, 2500, 100_000]))
    def apply_retention(self, limit_bytes: int) -> None:
        log = self.one.log
        # What lies below the log start may go whatever the limit is.
        kept = [s for s in log.segments if s.next_offset > log.log_start_offset]
        size_bytes = sum(segment.size for segment in kept)
        ends = [segment.next_offset for segment in log.segments]
        self.one.set_config(retention_bytes=limit_bytes)
        log.apply_retention(self.one.now_ms)
        self.one.set_config(retention_bytes=-1)
        assert self.start <= log.log_start_offset <= max(self.high_watermark, self.start)
        assert log.log_start_offset in (self.start, *ends)
        assert log.size_bytes >= min(size_bytes, limit_bytes)
        self.start = log.log_start_offset

    @rule()
    def unlink_dropped(self) -> None:
        job = segment_deletion_job(self.one.log, self.one.now_ms)
        if job is not None:
            job.run()
            job.finish()

    @rule(percent=places)
    def truncate(self, percent: int) -> None:
        target = max(self.place(percent), self.start)
        self.one.log.truncate_to(target)
        self._forget_from(target)
        if target == self.start and target < self.end:
            # Nothing was left: the log begins anew just there.
            self.stored, self.end = [], target
        else:
            kept = self.visible()
            self.end = kept[-1].next_offset if kept else self.start
        self._clamp()

    @rule(ahead=st.integers(-40, 3))
    def truncate_fully(self, ahead: int) -> None:
        target = max(0, self.end + ahead)
        self.one.log.truncate_fully_and_start_at(target)
        self.stored, self.start, self.end = [], target, target
        self.durable_end = self.high_watermark = target

    @rule()
    def flush(self) -> None:
        self.one.log.flush()
        self.durable_end = self.end

    @rule()
    def checkpoint(self) -> None:
        self.one.checkpoint()
        self.durable_end = self.end

    # Restarts

    @rule()
    def restart(self) -> None:
        self.one.restart()
        self.durable_end = self.end

    @rule()
    def kill(self) -> None:
        self.one.kill()
        assert self.one.log.log_end_offset == self.end
        self._after_crash()

    @rule(seed=st.integers(0, 1 << 30))
    def lose_power(self, seed: int) -> None:
        # A log start that is not durable yet may be undone; the power-loss tests look at that.
        self.flush()
        self.one.lose_power(random.Random(seed))
        self._after_crash()

    @rule(seed=st.integers(0, 1 << 30))
    @precondition(lambda self: not self.one.log.dirty and self.start == 0)
    def lose_power_and_what_is_not_synced(self, seed: int) -> None:
        self.one.lose_power(random.Random(seed))
        end = self.one.log.log_end_offset
        assert self.durable_end <= end <= self.end
        self._forget_from(end)
        assert end in (0, *(one.next_offset for one in self.stored))
        self.end = self.durable_end = end
        self._after_crash()

    @rule()
    def unload(self) -> None:
        self.one.log.unload()

    def loaded(self) -> Log:
        """The log, loaded: what a worker thread is handed."""
        if not self.one.log.is_loaded:
            self.one.log.load()
        return self.one.log

    def _forget_from(self, offset: int) -> None:
        self.stored = [one for one in self.stored if one.next_offset <= offset]

    def _clamp(self) -> None:
        self.high_watermark = min(self.high_watermark, self.end)
        self.durable_end = min(self.durable_end, self.end)

    def _after_crash(self) -> None:
        # How much is committed is the replica's business; the log may have forgotten it.
        self.high_watermark = self.one.log.high_watermark
        assert self.start <= self.high_watermark <= self.end

    # Questions

    @rule(
        percent=places,
        max_percent=places,
        max_bytes=st.integers(0, 3000),
        at_least_one=st.booleans(),
    )
    def read(self, percent: int, max_percent: int, max_bytes: int, at_least_one: bool) -> None:
        log = self.one.log
        offset, max_offset = self.place(percent), self.place(max_percent)
        if not self.start <= offset <= self.end:
            with pytest.raises(OffsetOutOfRange):
                log.read(offset, 1, max_offset=FAR, at_least_one_batch=True)
            return
        result = log.read(offset, max_bytes, max_offset=max_offset, at_least_one_batch=at_least_one)
        if result.is_cold:
            assert not result.size
            result = log.read_cold(
                offset, max_bytes, max_offset=max_offset, at_least_one_batch=at_least_one
            )
        data = b"".join(bytes(one) for one in result.buffers)
        assert len(data) == result.size
        wanted = [
            one for one in self.stored if one.next_offset > offset and one.next_offset <= max_offset
        ]
        count = 0
        size = 0
        while size < len(data):
            size += len(wanted[count].data)
            count += 1
        assert data == b"".join(one.data for one in wanted[:count])
        assert size <= max_bytes or (count == 1 and at_least_one)
        assert count or not wanted or not at_least_one
        if count:
            assert wanted[count - 1].next_offset <= result.next_offset
            assert result.next_offset <= max(max_offset, wanted[count - 1].next_offset)
        if 0 < count < len(wanted):
            bases = {segment.base_offset for segment in log.segments}
            following = wanted[count]
            fits = size + len(following.data) <= max_bytes
            assert not fits or following.base_offset in bases, "the read ends too early"

    @rule(timestamp=st.integers(START_MS - 52, START_MS + 52), max_percent=places)
    def look_up_timestamp(self, timestamp: int, max_percent: int) -> None:
        max_offset = self.place(max_percent)
        expected = next(
            (
                (offset, time, 0)
                for offset, time in self._times()
                if time >= timestamp and offset < max_offset
            ),
            None,
        )
        assert self.loaded().offset_for_timestamp(timestamp, max_offset=max_offset) == expected

    @rule(max_percent=places)
    def look_up_max_timestamp(self, max_percent: int) -> None:
        max_offset = self.place(max_percent)
        inside = [(time, -offset) for offset, time in self._times() if offset < max_offset]
        best = max(inside, default=None)
        expected = None if best is None else (-best[1], best[0], 0)
        assert self.loaded().max_timestamp_offset(max_offset=max_offset) == expected

    def _times(self) -> list[tuple[int, int]]:
        """(offset, timestamp) of each visible record."""
        return [
            (one.base_offset + index, time)
            for one in self.visible()
            for index, time in enumerate(one.timestamps)
            if one.base_offset + index >= self.start
        ]

    @rule()
    def read_everything(self) -> None:
        expected = self.visible()
        assert read_all(self.one.log) == [one.data for one in expected]
        offsets = [record.offset for one in expected for record in decode_batch(one.data, 0)]
        if offsets:
            assert offsets == list(range(expected[0].base_offset, self.end))

    @invariant()
    def ends_agree(self) -> None:
        log = self.one.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.high_watermark == max(self.high_watermark, self.start)
        assert log.recovery_point <= self.end

    def teardown(self) -> None:
        self.restart()
        self.read_everything()
        self.ends_agree()


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(stateful_step_count=30)
