"""Planted bugs of a leader: what is committed, and who is in sync."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.replica.followers import Follower
from data_plane.replica.leadership import Leadership, LogEnds
from data_plane.replica.own_copy import OwnCopy
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from tests.simulation import scenes
from tests.simulation.mutant import LEADERS, POWER, STORE, Mutant, Patch


def _commit_without_followers(patch: Patch) -> None:
    def committed_offset(
        self: Leadership, own_end_offset: int, log_end_offset: int, now_ms: int | None
    ) -> int:
        return own_end_offset

    patch.set(Leadership, "committed_offset", committed_offset)


def _commit_by_proposed_isr(patch: Patch) -> None:
    def maximal_isr(self: Leadership) -> frozenset[int]:
        return frozenset(self.committed_isr if self.proposed_isr is None else self.proposed_isr)

    patch.set(Leadership, "maximal_isr", maximal_isr)


def _commit_by_committed_isr_only(patch: Patch) -> None:
    def maximal_isr(self: Leadership) -> frozenset[int]:
        return frozenset(self.committed_isr)

    original: Any = Leadership.__dict__["committed_offset"]

    def committed_offset(
        self: Leadership, own_end_offset: int, log_end_offset: int, now_ms: int | None
    ) -> int:
        outside, self._outside = self._outside, []
        try:
            offset: int = original(self, own_end_offset, log_end_offset, now_ms)
        finally:
            self._outside = outside
        return offset

    patch.set(Leadership, "maximal_isr", maximal_isr)
    patch.set(Leadership, "committed_offset", committed_offset)


def _commit_below_min_isr(patch: Patch) -> None:
    original: Any = Leadership.__dict__["committed_offset"]

    def committed_offset(
        self: Leadership, own_end_offset: int, log_end_offset: int, now_ms: int | None
    ) -> int:
        settings = self.settings
        self.settings = settings._replace(min_isr=1)
        try:
            offset: int = original(self, own_end_offset, log_end_offset, now_ms)
        finally:
            self.settings = settings
        return offset

    patch.set(Leadership, "committed_offset", committed_offset)


def _join_before_catching_up(patch: Patch) -> None:
    def may_join(self: Leadership, follower: Follower, ends: LogEnds) -> bool:
        return follower.log_end_offset >= 0 and self._host.may_join_isr(
            follower.node_id, follower.broker_epoch
        )

    patch.set(Leadership, "may_join", may_join)


def _join_before_epoch_start(patch: Patch) -> None:
    def may_join(self: Leadership, follower: Follower, ends: LogEnds) -> bool:
        return follower.log_end_offset >= ends.high_watermark and self._host.may_join_isr(
            follower.node_id, follower.broker_epoch
        )

    patch.set(Leadership, "may_join", may_join)


def _progress_survives_epochs(patch: Patch) -> None:
    def begin_epoch(self: Leadership, state: Any) -> None:
        self.leader_epoch = state.leader_epoch
        self._is_grace_due = True
        self._take(state)

    original: Any = Leadership.__dict__["begin_epoch"]

    def begin(self: Leadership, state: Any) -> None:
        if self.followers:
            begin_epoch(self, state)
        else:
            original(self, state)

    patch.set(Leadership, "begin_epoch", begin)


def _follower_counts_what_it_was_sent(patch: Patch) -> None:
    original: Any = Follower.__dict__["fetched"]

    def fetched(
        self: Follower,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        original(self, broker_epoch, fetch_offset, log_start_offset, leader_end_offset, now_ms)
        self.log_end_offset = leader_end_offset

    patch.set(Follower, "fetched", fetched)


def _epoch_kept_by_new_leader(patch: Patch) -> None:
    """A new leader writes under the epoch it followed in."""
    original: Any = Partition.__dict__["append_as_leader"]

    def append_as_leader(self: Partition, *args: Any, **options: Any) -> Any:
        epoch = self.leader_epoch
        self.leader_epoch = max(0, self.log.latest_epoch)
        try:
            return original(self, *args, **options)
        finally:
            self.leader_epoch = epoch

    patch.set(Partition, "append_as_leader", append_as_leader)


def _high_watermark_of_new_leader(patch: Patch) -> None:
    """Whoever begins to lead takes all it has for committed."""
    original: Any = Partition.__dict__["_lead"]

    def lead(self: Partition, *args: Any, **options: Any) -> None:
        was_leader = self.is_leader
        original(self, *args, **options)
        if not was_leader:
            self._advance_high_watermark(self.log.log_end_offset)

    patch.set(Partition, "_lead", lead)


def _resigned_leader_serves(patch: Patch) -> None:
    """A deposed leader goes on leading in its own eyes."""
    original: Any = Partition.__dict__["follow_image"]

    def follow_image(self: Partition, state: Any, *rest: Any) -> bool:
        if self.is_leader and state.leader != self.node_id:
            return False
        found: bool = original(self, state, *rest)
        return found

    patch.set(Partition, "follow_image", follow_image)


def _waiters_told_too_early(patch: Patch) -> None:
    def when_committed(self: Partition, offset: int, callback: Any) -> Any:
        return self.when_appended(offset, callback)

    patch.set(Partition, "when_committed", when_committed)


def _resigning_leader_acknowledges(patch: Patch) -> None:
    def fail_waiters(self: Partition, error: ErrorCode) -> None:
        self._committed_waiters.fail(ErrorCode.NONE)
        self._own_waiters.fail(ErrorCode.NONE)

    patch.set(Partition, "_fail_waiters", fail_waiters)


def _unsynced_copy_counts(patch: Patch) -> None:
    def needs_sync(self: OwnCopy) -> bool:
        return False

    patch.set(OwnCopy, "needs_sync", needs_sync)


def _isr_never_grows(patch: Patch) -> None:
    def may_join(self: Leadership, follower: Follower, ends: LogEnds) -> bool:
        return False

    patch.set(Leadership, "may_join", may_join)


def _log_watchers(patch: Patch) -> None:
    """Nobody is told that the high watermark has moved."""
    original: Any = Partition.__dict__["_advance_high_watermark"]

    def advance(self: Partition, offset: int) -> None:
        watchers, self.watchers = self.watchers, {}
        log_end_watchers, self.log_end_watchers = self.log_end_watchers, {}
        try:
            original(self, offset)
        finally:
            self.watchers = watchers
            self.log_end_watchers = log_end_watchers

    patch.set(Partition, "_advance_high_watermark", advance)


REPLICA_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "ack before replication",
        "the high watermark is the leader's log end",
        _commit_without_followers,
        is_quick=True,
    ),
    Mutant(
        "ack on an unconfirmed ISR",
        "a proposed smaller ISR counts before the store has it",
        _commit_by_proposed_isr,
        options=STORE,
        is_quick=True,
    ),
    Mutant(
        "ack without the joining",
        "who is being taken into the ISR is not waited for",
        _commit_by_committed_isr_only,
        options=scenes.options(scenes.lost_answer),
        is_quick=True,
    ),
    Mutant(
        "commit below min ISR",
        "the high watermark advances however small the ISR is",
        _commit_below_min_isr,
        is_quick=True,
    ),
    Mutant(
        "join before catching up",
        "any follower that fetches joins the ISR",
        _join_before_catching_up,
        is_quick=True,
    ),
    Mutant(
        "join before the epoch's start",
        "the high watermark is enough to join the ISR of a new leader",
        _join_before_epoch_start,
        options=scenes.options(scenes.stale_high_watermark),
        is_quick=True,
    ),
    Mutant(
        "progress survives epochs",
        "a leader that is elected again remembers what followers had before",
        _progress_survives_epochs,
        options=scenes.options(scenes.deaf_leader),
        is_quick=True,
    ),
    Mutant(
        "sent is stored",
        "a follower counts with what was sent to it",
        _follower_counts_what_it_was_sent,
        is_quick=True,
    ),
    Mutant(
        "epoch kept by a new leader",
        "a new leader's records carry the old epoch",
        _epoch_kept_by_new_leader,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "new leader commits all it has",
        "the high watermark jumps to the log end at an election",
        _high_watermark_of_new_leader,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "deposed leader serves on",
        "a newer image does not stop a leader",
        _resigned_leader_serves,
        options=LEADERS,
    ),
    Mutant(
        "acks=all at the append",
        "producers of acks=all are answered when the leader has the record",
        _waiters_told_too_early,
        is_quick=True,
    ),
    Mutant(
        "resigning leader acknowledges",
        "whoever waits at a leader that resigns is told that all is well",
        _resigning_leader_acknowledges,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "unsynced copy counts",
        "durability=fsync is not waited for",
        _unsynced_copy_counts,
        options=POWER,
        is_quick=True,
    ),
    Mutant("ISR never grows", "a follower that caught up stays outside", _isr_never_grows),
    Mutant(
        "nobody is woken",
        "a moved high watermark wakes no waiting fetch",
        _log_watchers,
    ),
)
