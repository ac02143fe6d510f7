"""Planted bugs of retention: what may go, what lasts of it, what those are told who come late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.cell.broker_lifecycle import Membership
from data_plane.broker.request.wall_clock import WallClock
from data_plane.log import disk_start, flush, partition_files, retention, truncation
from data_plane.log.checkpoints import encode_value, write_unsynced
from data_plane.log.leader_epochs import EpochEntry, LeaderEpochs
from data_plane.log.log import Log
from data_plane.log.maintenance import Maintenance
from data_plane.log.segment import Segment
from data_plane.replica import truncation as replica_truncation
from data_plane.replica.partition import Partition
from tests.simulation import scenes, scenes_retention
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

BY_SIZE = {"segment.ms": "200", "retention.bytes": "2000", "file.delete.delay.ms": "60000"}
BY_AGE = {"segment.ms": "200", "retention.ms": "1000", "file.delete.delay.ms": "60000"}


def _options(faults: set[str], configs: dict[str, str]) -> Options:
    return Options(
        brokers=3,
        faults=frozenset(faults),
        admin=frozenset(),
        topics=(TopicPlan("data3", 2, 3, configs),),
    )


# Where much is not committed yet, and where readers and followers are away.
CUTS = _options({"cut", "relay", "pause", "slow network"}, {**BY_SIZE, "retention.ms": "1000"})
SIZE = _options({"cut", "slow network"}, BY_SIZE)
AGE = _options({"cut", "slow network"}, BY_AGE)
KILLS = _options({"kill", "stop"}, {**BY_SIZE, "retention.ms": "1000"})
POWER = _options({"power loss", "torn write"}, {**BY_SIZE, "retention.ms": "500"})
# Where brokers start while clocks are wrong.
CLOCKS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3, {"segment.ms": "200", "retention.ms": "3600000"}),),
    extras=frozenset({"clock errors"}),
)
SNAPSHOTS = _options({"kill", "stop"}, {**BY_SIZE, "file.delete.delay.ms": "0"})


def _passes_the_high_watermark(patch: Patch) -> None:
    original: Any = retention.count_due_segments

    def count_due_segments(log: Log, wall_ms: int, **options: Any) -> int:
        high_watermark, log.high_watermark = log.high_watermark, log.log_end_offset
        try:
            count: int = original(log, wall_ms, **options)
        finally:
            log.high_watermark = high_watermark
        return count

    patch.set(retention, "count_due_segments", count_due_segments)


def _by_age_of_the_file(patch: Patch) -> None:
    def newest_ms(segment: Segment) -> int:
        return segment.first_append_ms

    patch.set(retention, "newest_ms", newest_ms)


def _by_age_of_the_last_record(patch: Patch) -> None:
    """What was appended last is not what is youngest."""
    original: Any = Segment.__dict__["add_batch"]

    def add_batch(self: Segment, header: Any, position: int, interval_bytes: int) -> None:
        self.max_timestamp = -1
        original(self, header, position, interval_bytes)

    patch.set(Segment, "add_batch", add_batch)


def _old_image_vouched_for(patch: Patch) -> None:
    def image_doubt(self: Membership, now_ms: int) -> str:
        return ""

    patch.set(Membership, "image_doubt", image_doubt)


def _any_date_trusted(patch: Patch) -> None:
    patch.set(WallClock, "doubt", property(lambda self: ""))


def _store_s_date_trusted(patch: Patch) -> None:
    original: Any = WallClock.__dict__["store_answered"]

    def store_answered(self: Any, store_ms: int, sent_ms: int, answered_ms: int) -> None:
        self._settle_ms = 0
        original(self, store_ms, sent_ms, answered_ms)

    patch.set(WallClock, "store_answered", store_answered)


def _first_date_trusted(patch: Patch) -> None:
    """Of a process that has just begun, whatever was known before."""
    original: Any = WallClock.__dict__["store_answered"]

    def store_answered(self: Any, store_ms: int, sent_ms: int, answered_ms: int) -> None:
        if self._store is not None and self._store.is_from_before:
            self._store.trusted_ms = None
            self._has_past = False
        original(self, store_ms, sent_ms, answered_ms)

    patch.set(WallClock, "store_answered", store_answered)


def _one_segment_too_many(patch: Patch) -> None:
    """By size the segment goes with which the log comes below retention.bytes."""
    original: Any = retention.count_due_segments

    def count_due_segments(log: Log, wall_ms: int, **options: Any) -> int:
        count: int = original(log, wall_ms, **options)
        left = log.segments[count:]
        excess_bytes = sum(one.size for one in left) - log.config.retention_bytes
        if excess_bytes > 0 and len(left) > 1 and left[0].next_offset <= log.high_watermark:
            count += 1
        return count

    patch.set(retention, "count_due_segments", count_due_segments)


def _log_start_not_noted(patch: Patch) -> None:
    patch.set(disk_start, "note_log_start", disk_start.start_for)


def _log_start_not_synced(patch: Patch) -> None:
    def write_log_start(log: Log, log_start_offset: int, _disk_start: int | None = None) -> None:
        value = max(log_start_offset, log.durable_log_start)
        path = f"{log.folder}/{partition_files.LOG_START_FILE}"
        write_unsynced(log.log_directory.fs, path, encode_value(value))
        log.durable_log_start = value

    for module in (flush, retention, truncation):
        patch.set(module, "write_log_start", write_log_start)


def _reader_led_past_what_is_gone(patch: Patch) -> None:
    """Below the log start, reading begins at the log start."""
    locate: Any = Partition.__dict__["locate_fetch"]
    original: Any = Log.__dict__["read"]

    def locate_fetch(
        self: Partition, fetch_offset: int, last_fetched_epoch: int, **options: Any
    ) -> Any:
        offset = max(fetch_offset, self.log.log_start_offset)
        return locate(self, offset, last_fetched_epoch, **options)

    def read(self: Log, offset: int, *arguments: Any, **options: Any) -> Any:
        return original(self, max(offset, self.log_start_offset), *arguments, **options)

    patch.set(Partition, "locate_fetch", locate_fetch)
    patch.set(Log, "read", read)


def _looks_once(patch: Patch) -> None:
    original: Any = Maintenance.__dict__["__init__"]

    def init(self: Maintenance, *arguments: Any) -> None:
        original(self, *arguments)
        self._retention_due_ms = 1 << 62

    patch.set(Maintenance, "__init__", init)


def _incomparable_is_kept(patch: Patch) -> None:
    """And leaders do not know where the epoch of their last deleted record began, by which most of
    these followers part from them before."""

    def begin_at_start(epochs: LeaderEpochs, start_offset: int) -> None:
        known = epochs.epoch_at(start_offset)
        if known >= 0:
            later = [entry for entry in epochs.entries if entry.epoch > known]
            epochs.replace([EpochEntry(known, start_offset), *later])

    patch.set(replica_truncation, "_begins_unknown", lambda log, offset: False)
    patch.set(LeaderEpochs, "truncate_from_start", begin_at_start)


def _begins_anew_at_its_end(patch: Patch) -> None:
    """A follower whose place is deleted at the leader begins anew where it was."""
    original: Any = Partition.__dict__["restart_at"]

    def restart_at(self: Partition, start_offset: int, epoch_before: int) -> None:
        original(self, self.log.log_end_offset, epoch_before)

    patch.set(Partition, "restart_at", restart_at)


def _snapshots_go_with_their_segments(patch: Patch) -> None:
    """The producers' state at the new log start goes, too: after a restart nobody knows them."""
    original: Any = retention.files_to_delete

    def files_to_delete(log: Log, segments: list[Segment], **options: Any) -> list[str]:
        paths: list[str] = original(log, segments, **options)
        snapshot = f"{segments[-1].next_offset:020d}.snapshot"
        if snapshot in segments[0].directory.fs.list_directory(log.folder):
            paths.append(f"{log.folder}/{snapshot}")
        return paths

    patch.set(retention, "files_to_delete", files_to_delete)


RETENTION_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "retention passes the high watermark",
        "what is not committed goes when it is old or too much",
        _passes_the_high_watermark,
        options=CUTS,
        is_quick=True,
    ),
    Mutant(
        "retention by the age of the file",
        "a segment goes so long after its first append, however young its records are",
        _by_age_of_the_file,
        options=AGE,
        is_quick=True,
    ),
    Mutant(
        "retention by the last record",
        "a segment is as old as what was appended to it last",
        _by_age_of_the_last_record,
        options=AGE,
        is_quick=True,
    ),
    Mutant(
        "one segment too many",
        "retention by size leaves less than retention.bytes",
        _one_segment_too_many,
        options=SIZE,
        is_quick=True,
    ),
    Mutant(
        "log start not noted",
        "segments that are gone come back with the next process",
        _log_start_not_noted,
        options=KILLS,
        is_quick=True,
    ),
    Mutant(
        "log start not synced",
        "segments that are gone come back with the power",
        _log_start_not_synced,
        options=POWER,
        is_quick=True,
    ),
    Mutant(
        "retention looks once",
        "what is old or too much later on stays",
        _looks_once,
        options=AGE,
        is_quick=True,
    ),
    Mutant(
        "what cannot be compared is kept",
        "a follower keeps below its leader's log start what was never committed",
        _incomparable_is_kept,
        seeds=(20, 22),
        options=CUTS,
        is_quick=True,
    ),
    Mutant(
        "old image vouched for",
        "who is cut off deletes by the settings of long ago",
        _old_image_vouched_for,
        options=scenes.options(scenes_retention.unheard_retention),
        is_quick=True,
    ),
    Mutant(
        "any date trusted",
        "a clock that is wrong for a moment has everything deleted",
        _any_date_trusted,
        options=scenes.options(scenes_retention.wrong_clock),
        is_quick=True,
    ),
    Mutant(
        "the store's date trusted",
        "a machine that has both clocks has everything deleted when it is wrong for a moment",
        _store_s_date_trusted,
        options=scenes.options(scenes_retention.wrong_clock),
        is_quick=True,
    ),
    Mutant(
        "the first date trusted",
        "who starts while all clocks are wrong for a moment deletes everything",
        _first_date_trusted,
        options=scenes.options(scenes_retention.wrong_start),
        is_quick=True,
    ),
    Mutant(
        "the first date trusted, anywhere",
        "the same, in histories that nobody directs",
        _first_date_trusted,
        options=CLOCKS,
        is_quick=True,
    ),
    Mutant(
        "snapshots go with their segments",
        "who restarts does not know the producers whose records are deleted",
        _snapshots_go_with_their_segments,
        options=SNAPSHOTS,
        is_quick=True,
    ),
    Mutant(
        "reader led past what is gone",
        "who asks for deleted records gets later ones",
        _reader_led_past_what_is_gone,
        options=CUTS,
        is_quick=True,
    ),
    Mutant(
        "follower begins anew at its own end",
        "a follower that is out of range goes on where it was",
        _begins_anew_at_its_end,
        options=CUTS,
        is_quick=True,
    ),
)
