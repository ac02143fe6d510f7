"""A copy of a compacted log and its leader, beside a list of what was said in its history.

Leaders are elected without the last records of those before; both logs are compacted, the copy is
killed and loses power. Once it has all that the leader has, each key must have its newest value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from data_plane.replica import following, truncation
from data_plane.wire.errors import ErrorCode
from tests.log.one_log import OneLog, batch_of

COMPACT = frozenset({"compact"})
KEYS = 5


class Said(NamedTuple):
    """A record, and in which leader epoch it was appended."""

    key: bytes
    value: bytes | None
    epoch: int


def compacted_log() -> OneLog:
    return OneLog(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.001, segment_bytes=600)


def compact(one: OneLog, *, hastens: bool = True) -> bool:
    """Clean all that may be; `hastens`: what lies in the active segment, too. Whether anything was
    due."""
    if hastens:
        if one.log.active.size:
            one.log.roll()
        one.checkpoint()
    job = one.log.compaction_job(one.now_ms)
    if job is None:
        return False
    job.run()
    job.finish()
    return True


def newest(records: Sequence[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """What each key has; a tombstone counts as nothing."""
    found = dict(records)
    return {key: value for key, value in found.items() if value is not None}


class CleanedCopy:
    """See the module."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.epoch = 0
        self.leader = compacted_log()
        self.copy = compacted_log()

    def say(self, key: bytes, value: bytes | None) -> None:
        self.said.append(Said(key, value, self.epoch))
        self._put(self.leader, self.said[-1])

    def _put(self, one: OneLog, said: Said) -> None:
        one.epoch = said.epoch
        one.append(batch_of(said.value, keys=[said.key], timestamps=[one.now_ms]), commit=False)

    def commit(self, offset: int | None = None) -> None:
        """What lies below is committed: all there is without an offset."""
        log = self.leader.log
        log.advance_high_watermark(log.log_end_offset if offset is None else offset)

    def elect_uncleanly(self, kept: int) -> None:
        """One leads that has the first `kept` of what was said, and has cleaned nothing."""
        self.epoch += 1
        del self.said[kept:]
        self.leader = compacted_log()
        for said in self.said:
            self._put(self.leader, said)

    def fetch(self, max_bytes: int = 300) -> bool:
        """One fetch of the copy. Whether it brought anything."""
        leader, log = self.leader.log, self.copy.log
        offset = log.log_end_offset
        found = truncation.locate_fetch(
            leader, self.epoch, offset, log.latest_epoch, is_replica=True
        )
        if isinstance(found, tuple):
            job = following.truncate_for_divergence(log, *found)
            assert job is None
            return True
        if found is not ErrorCode.NONE:
            log.truncate_fully_and_start_at(leader.copy_start_offset, -1)
            return True
        end_offset = leader.log_end_offset
        if offset == end_offset:
            log.advance_high_watermark(leader.high_watermark)
            return False
        read = leader.read(offset, max_bytes, max_offset=end_offset, at_least_one_batch=True)
        if read.is_cold:
            read = leader.read_cold(
                offset, max_bytes, max_offset=end_offset, at_least_one_batch=True
            )
        data = b"".join(bytes(one) for one in read.buffers)
        now_ms = self.copy.now_ms
        following.append_from_leader(
            log, data, 0, len(data), self.epoch, now_ms, now_ms, leader.high_watermark
        )
        following.forget_cleaned_beyond(log, offset, leader.high_watermark)
        log.advance_high_watermark(min(leader.high_watermark, log.log_end_offset))
        return True

    def fetch_all(self) -> None:
        """Have all that the leader has, and check it."""
        while self.fetch():
            pass
        self.check()

    def check(self) -> None:
        assert self.copy.log.log_end_offset == self.leader.log.log_end_offset == len(self.said)
        found = newest([(record.key, record.value) for record in self.copy.records()])
        assert found == newest([(said.key, said.value) for said in self.said])


class RandomCleanedCopy(CleanedCopy):
    """One in which things happen by chance."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.cuts = 0
        self.begun_anew = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.fetch_all()

    def step(self) -> None:
        rng = self.rng
        choice = rng.randrange(24)
        if choice < 9:
            value = None if rng.random() < 0.15 else b"%d" % len(self.said) + bytes(60)
            self.say(b"%d" % rng.randrange(KEYS), value)
        elif choice < 11:
            log = self.leader.log
            self.commit(rng.randrange(log.high_watermark, log.log_end_offset + 1))
        elif choice < 16:
            self.fetch(rng.choice((1, 200, 1000)))
        elif choice < 18:
            compact(self.leader)
        elif choice < 20:
            compact(self.copy, hastens=rng.random() < 0.3)
        elif choice == 20:
            if self.copy.log.active.size:
                self.copy.log.roll()
            self.copy.checkpoint()
        elif choice == 21:
            rng.choice((self.copy.kill, self.copy.restart, self.copy.kill))()
        elif choice == 22:
            self.copy.lose_power(rng)
        else:
            self.elect()

    def elect(self) -> None:
        if self.copy.log.log_end_offset < self.copy.log.cleaned_end:
            # It holds less than the leader's cleaner had seen: that another log, without the rest,
            # is none that it can go on with, nothing tells a follower (docs/replication.md).
            self.fetch_all()
        if self.rng.random() < 0.5:
            self.copy.kill()
        log, kept = self.copy.log, self.rng.randrange(len(self.said) + 1)
        before = log.begun_anew_count
        self.cuts += kept < log.log_end_offset
        self.elect_uncleanly(kept)
        self.fetch_all()
        self.begun_anew += log.begun_anew_count - before
