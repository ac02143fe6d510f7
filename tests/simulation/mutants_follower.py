"""Planted bugs of a follower: what it truncates, takes and acknowledges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.log.log import Log
from data_plane.replica import following, truncation
from data_plane.replica.fetch_session import FetchState
from data_plane.replica.fetcher import ReplicaFetcher
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from tests.simulation import scenes
from tests.simulation.mutant import DELETIONS, DISKS, LEADERS, POWER, Mutant, Patch


def _no_truncation(patch: Patch) -> None:
    def truncate_for_divergence(self: Partition, epoch: int, end_offset: int) -> None:
        return

    patch.set(Partition, "truncate_for_divergence", truncate_for_divergence)


def _truncate_to_high_watermark(patch: Patch) -> None:
    def truncate_for_divergence(self: Partition, epoch: int, end_offset: int) -> None:
        self._check_follower()
        self.log.truncate_to(self.high_watermark)
        self._log_was_cut()

    patch.set(Partition, "truncate_for_divergence", truncate_for_divergence)


def _truncate_to_high_watermark_at_role_change(patch: Patch) -> None:
    original: Any = Partition.__dict__["follow_image"]

    def follow_image(self: Partition, state: Any, *rest: Any) -> bool:
        is_news: bool = original(self, state, *rest)
        if is_news and self.is_follower and self.high_watermark < self.log.log_end_offset:
            self.log.truncate_to(max(self.high_watermark, self.log.log_start_offset))
        return is_news

    def locate_fetch(self: Partition, fetch_offset: int, *_: Any, **options: Any) -> Any:
        log = self.log
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    patch.set(Partition, "follow_image", follow_image)
    patch.set(Partition, "locate_fetch", locate_fetch)


def _truncate_in_one_step(patch: Patch) -> None:
    def truncation_offset(log: Log, leader_end: tuple[int, int]) -> int:
        return min(leader_end[1], log.log_end_offset)

    patch.set(truncation, "truncation_offset", truncation_offset)


def _divergence_unseen(patch: Patch) -> None:
    def diverges(found: Any, last_fetched_epoch: int, fetch_offset: int) -> bool:
        return False

    patch.set(truncation, "diverges", diverges)


def _divergence_by_offset_only(patch: Patch) -> None:
    def diverges(found: Any, last_fetched_epoch: int, fetch_offset: int) -> bool:
        return bool(found[1] < fetch_offset)

    patch.set(truncation, "diverges", diverges)


def _own_epoch_unknown(patch: Patch) -> None:
    """The leader forgets that its own epoch begins at its log end."""

    def leader_epoch_end(log: Log, leader_epoch: int, epoch: int) -> tuple[int, int]:
        if epoch < 0:
            return truncation.UNDEFINED
        if epoch >= log.latest_epoch:
            return epoch, log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    patch.set(truncation, "leader_epoch_end", leader_epoch_end)


def _append_in_any_epoch(patch: Patch) -> None:
    """The fetcher and the replica both see to it that records are taken in the epoch in which they
    were asked for: a fetcher forgets what it has asked for a partition whose role changes, and the
    replica refuses what names another epoch than its own. Either is enough, and a mutant of one of
    them does no harm in any history; so neither looks here."""
    original: Any = Partition.__dict__["append_as_follower"]

    def append_as_follower(self: Partition, *args: Any, **options: Any) -> None:
        options["leader_epoch"] = self.leader_epoch
        original(self, *args, **options)

    def take_always(self: Partition) -> None:
        return

    def unfollow(self: ReplicaFetcher, topic_id: bytes, index: int) -> None:
        key = (topic_id, index)
        one = self._followed.get(key)
        if one is not None:
            self._changed.pop(one, None)
        if key in self._session.partitions:
            self._forgotten[key] = None

    patch.set(Partition, "append_as_follower", append_as_follower)
    patch.set(Partition, "_check_follower", take_always)
    patch.set(ReplicaFetcher, "unfollow", unfollow)


def _follower_fetches_before_sync(patch: Patch) -> None:
    patch.set(Partition, "is_busy", property(lambda self: self._cutting_epoch is not None))


def _answers_of_any_request_taken(patch: Patch) -> None:
    """An answer is taken for what a partition is now, whatever it was asked for."""
    original: Any = ReplicaFetcher.__dict__["handle_response"]

    def handle_response(self: ReplicaFetcher, number: int, *rest: Any) -> Any:
        for one in self._followed.values():
            one.named_in = min(one.named_in, number) or number
            one.state = one.replica.fetch_state()
        return original(self, number, *rest)

    patch.set(ReplicaFetcher, "handle_response", handle_response)


def _follower_high_watermark_is_its_end(patch: Patch) -> None:
    original: Any = Partition.__dict__["append_as_follower"]

    def append_as_follower(self: Partition, *args: Any, **options: Any) -> None:
        options["leader_high_watermark"] = 1 << 60
        original(self, *args, **options)

    patch.set(Partition, "append_as_follower", append_as_follower)


def _cut_keeps_high_watermark(patch: Patch) -> None:
    patch.set(Partition, "_log_was_cut", lambda self: self._tell_all())


def _failed_sync_acknowledges(patch: Patch) -> None:
    def fetch_state(self: Partition) -> FetchState:
        log = self.log
        return FetchState(
            log.log_end_offset, log.latest_epoch, self.leader_epoch, log.log_start_offset
        )

    patch.set(Partition, "fetch_state", fetch_state)


def _log_start_not_followed(patch: Patch) -> None:
    patch.set(following, "follow_log_start", lambda log, leader_log_start_offset: False)


FOLLOWER_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "no truncation",
        "a follower keeps what its leader does not have",
        _no_truncation,
        options=scenes.options(scenes.three_leaders),
        is_quick=True,
    ),
    Mutant(
        "truncate to the high watermark",
        "divergence is cut at the follower's high watermark (KIP-101)",
        _truncate_to_high_watermark,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "truncate at every change of leaders",
        "followers cut to their high watermark, leaders compare no epochs (before KIP-101)",
        _truncate_to_high_watermark_at_role_change,
        is_quick=True,
    ),
    Mutant(
        "a cut keeps the high watermark",
        "a replica's high watermark stays where it was when its log is cut or begins anew",
        _cut_keeps_high_watermark,
        seeds=(2,),
        is_quick=True,
    ),
    Mutant(
        "truncate in one step",
        "the leader's offset is taken without a look at the own epochs (KIP-279)",
        _truncate_in_one_step,
        options=LEADERS,
    ),
    Mutant(
        "divergence unseen",
        "a leader answers any follower with records",
        _divergence_unseen,
        options=scenes.options(scenes.three_leaders),
        is_quick=True,
    ),
    Mutant(
        "divergence by offset only",
        "a leader compares ends of epochs but not epochs",
        _divergence_by_offset_only,
        options=scenes.options(scenes.three_leaders),
        is_quick=True,
    ),
    Mutant(
        "own epoch unknown",
        "a leader without records of its epoch takes the follower's for its own",
        _own_epoch_unknown,
        options=scenes.options(scenes.three_leaders),
        is_quick=True,
    ),
    Mutant(
        "append in any epoch",
        "a follower takes records that another leader's epoch was asked for",
        _append_in_any_epoch,
        options=scenes.options(scenes.late_answer),
        is_quick=True,
    ),
    Mutant(
        "fetch before the sync",
        "a follower acknowledges what it has not synced, where the topic asks for syncs",
        _follower_fetches_before_sync,
        options=POWER,
        is_quick=True,
    ),
    Mutant(
        "answers of any request taken",
        "what was asked for before a truncation or an election is appended after it",
        _answers_of_any_request_taken,
        options=scenes.options(scenes.late_answer),
        is_quick=True,
    ),
    Mutant(
        "failed sync acknowledges",
        "a follower whose sync has failed goes on fetching from where its log ends",
        _failed_sync_acknowledges,
        options=DISKS,
        is_quick=True,
    ),
    Mutant(
        "log start not followed",
        "what is deleted at the leader stays at its followers",
        _log_start_not_followed,
        options=DELETIONS,
        is_quick=True,
    ),
    Mutant(
        "follower's high watermark is its end",
        "a follower shows consumers all it has",
        _follower_high_watermark_is_its_end,
        is_quick=True,
    ),
)
