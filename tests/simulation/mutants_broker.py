"""Planted bugs of the broker, groups and log rooms: who is answered what, and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.coordinators.coordinator_log import CoordinatorLog
from data_plane.broker.coordinators.internal_topic import BrokerInternalTopic
from data_plane.broker.produce.init_producer_id import ProducerIds
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.offset_commits import OffsetCommits
from data_plane.log import truncation
from data_plane.log.flush import FlushJob
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log import Log
from data_plane.log.producer_state import ProducerEntry, ProducerStates
from data_plane.log.remainder import Remainder
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from tests.simulation import scenes
from tests.simulation.mutant import LEADERS, POWER, Mutant, Patch


def _coordinator_keeps_partitions(patch: Patch) -> None:
    """Groups are never unloaded, and appends go wherever this broker leads."""

    def unload(self: CoordinatorLog[Any], partition: int) -> None:
        return

    patch.set(CoordinatorLog, "_unload", unload)

    original: Any = BrokerInternalTopic.__dict__["append"]

    def append(
        self: BrokerInternalTopic,
        partition: int,
        epoch: int,
        records: Any,
        now_ms: int,
        on_done: Any,
        producer: Any = None,
    ) -> None:
        replica = self._services.partitions.get_by_name("default", "__consumer_offsets", partition)
        if replica is not None:
            epoch = replica.leader_epoch
        original(self, partition, epoch, records, now_ms, on_done, producer)

    patch.set(BrokerInternalTopic, "append", append)


def _offsets_not_loaded(patch: Patch) -> None:
    def reader(self: BrokerInternalTopic, partition: int) -> None:
        return None

    patch.set(BrokerInternalTopic, "reader", reader)


def _commit_before_replication(patch: Patch) -> None:
    original: Any = BrokerInternalTopic.__dict__["append"]

    def append(
        self: BrokerInternalTopic,
        partition: int,
        epoch: int,
        records: Any,
        now_ms: int,
        on_done: Any,
        producer: Any = None,
    ) -> None:
        told: list[None] = []

        def once(error: ErrorCode) -> None:
            if not told:
                told.append(None)
                on_done(error)

        original(self, partition, epoch, records, now_ms, once, producer)
        once(ErrorCode.NONE)

    patch.set(BrokerInternalTopic, "append", append)


def _offsets_read_unasked(patch: Patch) -> None:
    """What is known is told, whoever coordinates by now."""

    def confirm_leading(
        self: BrokerInternalTopic, partition: int, epoch: int, now_ms: int, on_done: Any
    ) -> None:
        on_done(True)

    patch.set(BrokerInternalTopic, "confirm_leading", confirm_leading)


def _loading_coordinator_answers(patch: Patch) -> None:
    """A coordinator that is still loading answers from what it has."""
    original: Any = GroupCoordinator.__dict__["start_loading"]

    def start_loading(self: GroupCoordinator, partition: int, epoch: int) -> bool:
        found: bool = original(self, partition, epoch)
        self.load(partition, epoch, {}, 0)
        return found

    patch.set(GroupCoordinator, "start_loading", start_loading)


def _generation_ignored(patch: Patch) -> None:
    original: Any = OffsetCommits.__dict__["_commit_error"]

    def commit_error(self: OffsetCommits, *args: Any) -> ErrorCode:
        error: ErrorCode = original(self, *args)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    patch.set(OffsetCommits, "_commit_error", commit_error)


def _ids_given_twice(patch: Patch) -> None:
    def fetch(self: ProducerIds) -> None:
        self._blocks.append((0, 1000))
        while self._waiting:
            self._waiting.popleft().complete(self._take())

    patch.set(ProducerIds, "_fetch", fetch)


def _duplicates_stored(patch: Patch) -> None:
    patch.set(ProducerEntry, "find_duplicate", lambda self, epoch, first, last: None)
    patch.set(ProducerStates, "_check_sequence", staticmethod(lambda *args: None))


def _duplicate_acknowledged_at_once(patch: Patch) -> None:
    """What was stored before may not be committed yet; its repetition is answered as if it were."""
    from data_plane.broker.produce import produce_handler

    is_duplicate = [False]
    append_as_leader: Any = Partition.__dict__["append_as_leader"]
    original: Any = produce_handler._Produce.__dict__["_store"]

    def append_and_note(self: Partition, *args: Any, **options: Any) -> Any:
        result = append_as_leader(self, *args, **options)
        is_duplicate[0] = result.duplicate
        return result

    def store(self: Any, *args: Any, **options: Any) -> None:
        is_duplicate[0] = False
        count = len(self._waiting)
        original(self, *args, **options)
        if is_duplicate[0]:
            del self._waiting[count:]

    patch.set(Partition, "append_as_leader", append_and_note)
    patch.set(produce_handler._Produce, "_store", store)


def _duplicate_has_another_offset(patch: Patch) -> None:
    original: Any = ProducerEntry.__dict__["find_duplicate"]

    def find_duplicate(self: ProducerEntry, *sequences: int) -> Any:
        return self.batches[-1] if original(self, *sequences) is not None else None

    patch.set(ProducerEntry, "find_duplicate", find_duplicate)


def _sequences_unchecked(patch: Patch) -> None:
    patch.set(ProducerStates, "_check_sequence", staticmethod(lambda *args: None))


def _followers_keep_no_producers(patch: Patch) -> None:
    """Only a leader folds producers: its successor takes every retry for new."""
    original: Any = Log.append_as_follower

    def append_as_follower(self: Log, *args: Any, **options: Any) -> Any:
        states = self.producers
        apply = ProducerStates.apply_batch
        try:
            ProducerStates.apply_batch = lambda *rest: None  # type: ignore[method-assign]
            return original(self, *args, **options)
        finally:
            ProducerStates.apply_batch = apply  # type: ignore[method-assign]
            assert states is self.producers

    patch.set(Log, "append_as_follower", append_as_follower)


def _truncation_keeps_producers(patch: Patch) -> None:
    original: Any = truncation.become

    def become(log: Log, remainder: Remainder) -> None:
        folds = log.folds
        original(log, remainder)
        log.set_folds(folds)

    patch.set(truncation, "become", become)


def _truncation_keeps_epochs(patch: Patch) -> None:
    patch.set(LeaderEpochs, "truncate_from_end", lambda self, end_offset: None)


def _followers_note_no_epochs(patch: Patch) -> None:
    original: Any = LeaderEpochs.__dict__["assign"]

    def assign(self: LeaderEpochs, epoch: int, start_offset: int) -> None:
        if self.latest_epoch < 0:
            original(self, epoch, start_offset)

    patch.set(LeaderEpochs, "assign", assign)


def _sync_does_nothing(patch: Patch) -> None:
    original: Any = FlushJob.__dict__["run"]

    def run(self: FlushJob) -> None:
        fs: Any = self.log.log_directory.fs
        sync = fs.sync_data
        fs.sync_data = lambda file, site: None
        try:
            original(self)
        finally:
            fs.sync_data = sync

    patch.set(FlushJob, "run", run)


def _timeout_is_success(patch: Patch) -> None:
    from data_plane.broker.produce import produce_waits

    original: Any = produce_waits.WaitingProduce.__dict__["_timed_out"]

    def timed_out(self: Any, now_ms: int) -> None:
        self._open.clear()
        original(self, now_ms)

    patch.set(produce_waits.WaitingProduce, "_timed_out", timed_out)


def _consumers_read_everything(patch: Patch) -> None:
    """Consumers are given records above the high watermark."""
    from data_plane.broker.fetch.fetch_reads import FetchReads

    original: Any = FetchReads.__dict__["_read_records"]

    def read_records(self: Any, target: Any, partition: Partition, limit: int, *rest: Any) -> Any:
        return original(self, target, partition, partition.log.log_end_offset, *rest)

    patch.set(FetchReads, "_read_records", read_records)


def _epoch_ignored_on_fetch(patch: Patch) -> None:
    from data_plane.broker.fetch.fetch_reads import FetchReads

    original: Any = FetchReads.__dict__["_read"]

    def read(self: Any, target: Any) -> Any:
        wanted = target.wanted
        target.wanted = wanted._replace(current_leader_epoch=-1)
        try:
            return original(self, target)
        finally:
            target.wanted = wanted

    patch.set(FetchReads, "_read", read)


BROKER_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "epoch ignored on fetch",
        "a fetch is answered whatever leader epoch it names",
        _epoch_ignored_on_fetch,
        is_quick=True,
    ),
    Mutant(
        "coordinator acts after losing its epoch",
        "groups are not unloaded, and appends do not look at the epoch",
        _coordinator_keeps_partitions,
        options=LEADERS,
    ),
    Mutant(
        "offsets not loaded",
        "a new coordinator begins with nothing",
        _offsets_not_loaded,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "commit offset before replication",
        "offset commits are answered when the leader has them",
        _commit_before_replication,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "offsets read unasked",
        "committed offsets are told without asking those in sync who leads",
        _offsets_read_unasked,
        options=scenes.options(scenes.old_coordinator),
        is_quick=True,
    ),
    Mutant(
        "loading coordinator answers",
        "a coordinator answers from what it has before it has loaded",
        _loading_coordinator_answers,
        is_quick=True,
    ),
    Mutant(
        "generation ignored",
        "offsets are committed by members of an earlier generation",
        _generation_ignored,
        is_quick=True,
    ),
    Mutant(
        "producer ids given twice",
        "ids come from no block of the store",
        _ids_given_twice,
        is_quick=True,
    ),
    Mutant(
        "duplicates stored",
        "a repeated batch is stored again",
        _duplicates_stored,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "duplicate acknowledged at once",
        "a repeated batch is answered before the stored one is committed",
        _duplicate_acknowledged_at_once,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "duplicate has another offset",
        "a repeated batch is answered with the offset of the producer's last one",
        _duplicate_has_another_offset,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "sequences unchecked",
        "gaps of sequences are let through",
        _sequences_unchecked,
        is_quick=True,
    ),
    Mutant(
        "followers keep no producers",
        "producer states are the leader's alone",
        _followers_keep_no_producers,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "truncation keeps producers",
        "producer states remember batches that were cut off",
        _truncation_keeps_producers,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "truncation keeps epochs",
        "leader epochs remember batches that were cut off",
        _truncation_keeps_epochs,
        options=LEADERS,
    ),
    Mutant(
        "epochs noted once",
        "only the first leader epoch of a log is noted",
        _followers_note_no_epochs,
        options=LEADERS,
        is_quick=True,
    ),
    Mutant(
        "sync does nothing",
        "flushes leave data in the page cache",
        _sync_does_nothing,
        options=POWER,
        is_quick=True,
    ),
    Mutant(
        "timeout is success",
        "a produce that was not replicated in time is acknowledged",
        _timeout_is_success,
        is_quick=True,
    ),
    Mutant(
        "consumers read everything",
        "consumers are given records above the high watermark",
        _consumers_read_everything,
        is_quick=True,
    ),
)
