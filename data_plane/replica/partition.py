"""One local replica of a partition: how far it is committed, and who waits for that.

    offset    0 ............ 5 ............ 8 ........ 11
              |  committed   |  appended,   |  (next)
              |              |  not yet     |
              log start      high watermark log end offset

Leading: a record is committed when every replica of the maximal ISR has it (leadership.py), this
one's own copy included, which may have to be synced to count (own_copy.py). A partition with one
replica is committed by the append or its sync.

Following: batches come as the leader stored them; the high watermark is the leader's as far as the
log reaches; the log is truncated where it left the leader's (truncation.py), by a thread where that
takes long. Meanwhile the replica is busy and not fetched. Whether it still follows, in the same
leader epoch, decides on what the thread has made.

What it may do depends on its role alone (role.py). The role, the leader epoch and the ISR come from
the metadata image by `follow_image`, and from nowhere else. What stops a leader is an image with a
newer epoch, or followers that have one.

Invariants
- `leader_error` is NONE exactly while it leads, `leadership` is there exactly while it leads with
  others; both change with the role, and only with it.
- The high watermark never moves back while this replica leads, and never passes the log end. A
  follower's moves back only when the log is truncated below it (unclean election).
- `when_committed`, `when_appended` and `when_free` call every callback exactly once, also when
  the replica stops leading or closes; one whose waiter was cancelled never.
- Watchers are told after the high watermark (or role, epoch, log start) has changed, those who read
  up to the log end at every append; they only note it and never read within the call.

Deliberately absent: file work (data_plane.log), requests and fetchers (data_plane.broker), clocks.
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.log.config import LogConfig
from data_plane.log.cut_job import CutJob
from data_plane.log.errors import AppendError, LogError
from data_plane.log.log import AppendResult, Log
from data_plane.replica import following, truncation
from data_plane.replica.errors import StaleLeaderEpoch
from data_plane.replica.fetch_session import FetchState
from data_plane.replica.leadership import (
    IsrProposal,
    Leadership,
    LogEnds,
    PartitionState,
    ReplicationSettings,
)
from data_plane.replica.own_copy import OwnCopy
from data_plane.replica.ports import Host, LogEndWatcher, Watcher
from data_plane.replica.role import Role
from data_plane.replica.topic_use import TopicUse
from data_plane.replica.waiters import Done, OffsetWaiters, Waiter
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import BatchHeader

NO_LEADER = -1
_NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Partition:
    """A local replica. A new one has no role (requests get NOT_LEADER_OR_FOLLOWER) until
    `follow_image`."""

    __slots__ = (
        "_committed_waiters",
        "_cut_failure",
        "_cutting_epoch",
        "_free_callbacks",
        "_host",
        "_own_waiters",
        "epoch_start_offset",
        "high_watermark",
        "index",
        "is_in_isr",
        "is_writable",
        "leader_epoch",
        "leader_error",
        "leader_id",
        "leadership",
        "log",
        "log_end_watchers",
        "node_id",
        "own_copy",
        "role",
        "tenant",
        "topic",
        "use",
        "watchers",
    )

    def __init__(
        self,
        tenant: str,
        topic: str,
        index: int,
        log: Log,
        node_id: int,
        host: Host,
        use: TopicUse | None = None,
    ) -> None:
        """`topic` is what its tenant calls it; `tenant` is empty while nobody may have it."""
        self.tenant = tenant
        self.topic = topic
        self.index = index
        self.log = log
        self.node_id = node_id
        # What clients use, counted by who serves them.
        self.use = TopicUse(tenant, topic, b"") if use is None else use
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        # Whether the image has it in a state in which records are taken, from leaders apart.
        self.is_writable = True
        # Whether the image has this replica in the ISR.
        self.is_in_isr = False
        # These three change together (`_become`). What requests to a leader are told, and its
        # followers.
        self.role = Role.NEW
        self.leader_error = _NOT_LEADER
        self.leadership: Leadership | None = None
        # Where the log ended when this epoch of leading began.
        self.epoch_start_offset = 0
        self.own_copy = OwnCopy(log)
        # What was committed when the broker stopped still is: the log kept that.
        self.high_watermark: int = log.high_watermark
        # In the order in which they came, so that a simulated history is the same each time.
        self.watchers: dict[Watcher, None] = {}
        self.log_end_watchers: dict[LogEndWatcher, None] = {}
        self._host = host
        self._committed_waiters = OffsetWaiters()
        self._own_waiters = OffsetWaiters()
        self._free_callbacks: list[Callable[[], None]] = []
        # The leader epoch in which a cut that a thread is at was begun.
        self._cutting_epoch: int | None = None
        # Why the last one has failed, until somebody was told.
        self._cut_failure: BaseException | None = None

    @property
    def is_leader(self) -> bool:
        return self.role.leads

    @property
    def is_follower(self) -> bool:
        """Whether it holds a copy of what another broker leads, or nobody."""
        return self.role.follows

    @property
    def is_closed(self) -> bool:
        return self.role is Role.CLOSED

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: before the first undecided transaction."""
        # The log knows the high watermark and does not go beyond it.
        return self.log.last_stable_offset

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for anything to be committed."""
        return self.leadership is not None and self.leadership.is_under_min_isr

    # Roles

    def follow_image(
        self, state: PartitionState, settings: ReplicationSettings, now_ms: int | None
    ) -> bool:
        """Take the role that the image gives. Whether role, leader or leader epoch changed. Without
        a time, the first call that has one begins what is measured."""
        if not self.role.follows_images or state.leader_epoch < self.leader_epoch:
            return False
        is_news = (state.leader, state.leader_epoch) != (self.leader_id, self.leader_epoch)
        was_leader = self.is_leader
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.is_writable = state.is_active
        self.is_in_isr = self.node_id in state.isr
        if state.leader == self.node_id:
            self._lead(state, settings, now_ms, is_new_epoch=is_news or not was_leader)
        else:
            self._become(Role.FOLLOWER, _NOT_LEADER)
            if was_leader:
                self._fail_waiters(_NOT_LEADER)
            if self.own_copy.begin_sync():
                self._host.request_sync(self)
        if is_news:
            self._tell_all()
        return is_news

    def _lead(
        self,
        state: PartitionState,
        settings: ReplicationSettings,
        now_ms: int | None,
        *,
        is_new_epoch: bool,
    ) -> None:
        if is_new_epoch:
            self.epoch_start_offset = self.log.log_end_offset
        begins_sync = False
        if not self.is_leader:
            self.high_watermark = self.log.high_watermark
            begins_sync = self.own_copy.count_anew()
        leadership = self.leadership
        if state.replicas == (self.node_id,):
            self._become(Role.SOLE_LEADER, ErrorCode.NONE)
        elif leadership is None:
            leadership = Leadership(self.node_id, state, settings, self._host)
            self._become(Role.LEADER, ErrorCode.NONE, leadership)
        else:
            leadership.settings = settings
            if is_new_epoch:
                leadership.begin_epoch(state)
            elif leadership.update(state):
                for reader in self.log_end_watchers:
                    reader.report_again()
        if begins_sync:
            self._host.request_sync(self)
        self.review(now_ms)

    def _become(self, role: Role, error: ErrorCode, leadership: Leadership | None = None) -> None:
        assert role.leads is (error is ErrorCode.NONE)
        assert role.counts_followers is (leadership is not None)
        self.role, self.leader_error, self.leadership = role, error, leadership

    def close(self, error: ErrorCode) -> None:
        """The end of this replica (deleted, moved away, its disk failed): fail what waits, and
        wake the readers, who will find the error."""
        self._become(Role.CLOSED, error)
        self._fail_waiters(error)
        self._tell_all()

    # Leading

    def append_as_leader(
        self,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        *,
        now_ms: int,
        batches: list[BatchHeader] | None = None,
        origin: str = "client",
        prepared_for: LogConfig | None = None,
    ) -> AppendResult:
        """Append record batches; offsets and epoch are written into `buf` in place. Only as a
        leader. See `Log.append_as_leader`.

        Raises the log's AppendError, and then nothing is stored; POLICY_VIOLATION when the state of
        the partition forbids it."""
        assert self.leader_error is ErrorCode.NONE, "only a leader takes what clients produce"
        if not self.is_writable:
            raise AppendError(
                ErrorCode.POLICY_VIOLATION, f"{self.topic}-{self.index} takes no records now"
            )
        result = self.log.append_as_leader(
            buf,
            start,
            end,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            wall_ms=self._host.wall_ms(now_ms),
            batches=batches,
            origin=origin,
            prepared_for=prepared_for,
        )
        if not result.duplicate:
            own_copy = self.own_copy
            if own_copy.appended():
                self._host.request_sync(self)
            if self.leadership is None:
                self._advance_high_watermark(own_copy.end_offset)
            else:
                self.leadership.appended(result.first_offset, now_ms)
                self._advance(now_ms)
                for watcher in self.log_end_watchers:
                    watcher.partition_changed()
        return result

    def when_committed(self, offset: int, callback: Done) -> Waiter | None:
        """Call `callback(NONE)` once `offset` is below the high watermark, at once if it already
        is; `callback(error)` if this replica stops leading first. Who waits can cancel."""
        return self._wait(self._committed_waiters, offset, self.high_watermark, callback)

    def when_appended(self, offset: int, callback: Done) -> Waiter | None:
        """As `when_committed`, as soon as this replica's own copy is as durable as the topic asks,
        whatever the followers have."""
        return self._wait(self._own_waiters, offset, self.own_copy.end_offset, callback)

    def _wait(
        self, waiters: OffsetWaiters, offset: int, reached: int, callback: Done
    ) -> Waiter | None:
        if self.leader_error is not ErrorCode.NONE:
            callback(self.leader_error)
        elif offset < reached:
            callback(ErrorCode.NONE)
        else:
            return waiters.add(offset, callback)
        return None

    def end_offset_for_epoch(self, epoch: int) -> truncation.EpochEnd:
        """(largest epoch ≤ `epoch`, where it ends) by what this replica knows, or UNDEFINED. Who
        asks goes on there, so it is never told a place below the log start."""
        own_epoch = self.leader_epoch if self.is_leader else None
        found = truncation.epoch_end(self.log, own_epoch, epoch)
        if found == truncation.UNDEFINED:
            return found
        return found[0], max(found[1], self.log.log_start_offset)

    def locate_fetch(
        self, fetch_offset: int, last_fetched_epoch: int, *, is_replica: bool = False
    ) -> ErrorCode | truncation.EpochEnd:
        """Whether a log that ends at `fetch_offset` with a batch of `last_fetched_epoch` (-1: not
        said) can be gone on with here: NONE, OFFSET_OUT_OF_RANGE, or where it has diverged."""
        own_epoch = self.leader_epoch if self.is_leader else None
        return truncation.locate_fetch(
            self.log, own_epoch, fetch_offset, last_fetched_epoch, is_replica=is_replica
        )

    def follower_fetched(
        self,
        node_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
    ) -> bool:
        """A follower fetches from `fetch_offset`, which was checked to be an end of a log that does
        not diverge from this one. False when the broker is no replica of this partition."""
        leadership = self.leadership
        follower = None if leadership is None else leadership.followers.get(node_id)
        if leadership is None or follower is None:
            return False
        end_offset = self.log.log_end_offset
        assert fetch_offset <= end_offset, "a follower's log that leads further has diverged"
        has_start_moved = log_start_offset > max(0, follower.log_start_offset)
        follower.fetched(broker_epoch, fetch_offset, log_start_offset, end_offset, now_ms)
        if has_start_moved:
            # Who deletes records waits for that.
            for watcher in self.watchers:
                watcher.partition_changed()
        self.review(now_ms)
        return True

    def review(self, now_ms: int | None) -> None:
        """See what is committed and who may join the ISR, by what is known now."""
        self._advance(now_ms)
        leadership = self.leadership
        if leadership is None or not leadership.has_outsiders:
            return
        if leadership.has_candidates(self._log_ends()):
            self._host.isr_may_grow(self)

    def propose_isr(self, now_ms: int, *, may_shrink: bool) -> IsrProposal | None:
        """Another ISR to ask the store for, in flight from now on; None when none is due or one is
        in flight. With `may_shrink` followers that lag are left out of it."""
        if self.leadership is None:
            return None
        return self.leadership.propose(self._log_ends(), now_ms, may_shrink=may_shrink)

    def isr_refused(self, partition_epoch: int, now_ms: int) -> None:
        """The store has not taken the proposal of `partition_epoch` and never will."""
        if self.leadership is not None:
            self.leadership.refuse_proposal(partition_epoch)
            self._advance(now_ms)

    def _log_ends(self) -> LogEnds:
        return LogEnds(self.log.log_end_offset, self.high_watermark, self.epoch_start_offset)

    # Following

    def fetch_state(self) -> FetchState:
        """Where this log stands, for the next fetch, which acknowledges what lies below.

        Raises StaleLeaderEpoch when this replica has ended. A sync that fails ends it, and what was
        to be synced is never to be acknowledged. Raises once what a cut has failed with."""
        if self._cut_failure is not None:
            failure, self._cut_failure = self._cut_failure, None
            raise failure
        if self.is_closed:
            raise StaleLeaderEpoch(f"{self.topic}-{self.index} has ended")
        log = self.log
        return FetchState(
            log.log_end_offset, log.latest_epoch, self.leader_epoch, log.log_start_offset
        )

    @property
    def is_busy(self) -> bool:
        """Whether what was appended last is still to be synced, or the log is being cut. Fetching
        on would acknowledge what is not durable, or name what goes, so a follower waits
        (`when_free`)."""
        return self.own_copy.is_sync_pending or self._cutting_epoch is not None

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call once when `is_busy` ends, also when the sync or the cut fails."""
        self._free_callbacks.append(callback)

    def append_as_follower(
        self,
        buf: bytes | bytearray | memoryview,
        start: int,
        end: int,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        leader_log_start: int,
        now_ms: int,
    ) -> None:
        """Take an answer to a fetch from this log's end: batches (perhaps none) as they are, the
        last one perhaps cut off, and where the leader's log stands.

        Raises StaleLeaderEpoch (asked in another epoch), the log's AppendError, LogDirFailure."""
        if leader_epoch != self.leader_epoch:
            raise StaleLeaderEpoch(f"epoch {leader_epoch} is not {self.leader_epoch}")
        self._check_follower()
        log = self.log
        if start < end:
            before_offset = log.log_end_offset
            try:
                wall_ms = self._host.wall_ms(now_ms)
                following.append_from_leader(
                    log, buf, start, end, leader_epoch, now_ms, wall_ms, leader_high_watermark
                )
            finally:
                # It moves back where the first batch reaches below the log start.
                self.high_watermark = min(self.high_watermark, log.high_watermark)
            if not self.is_in_isr and following.forget_cleaned_beyond(
                log, before_offset, leader_high_watermark
            ):
                self._log_was_cut()
                return
            if self.own_copy.begin_sync():
                self._host.request_sync(self)
        self._advance_high_watermark(min(leader_high_watermark, log.log_end_offset))
        if following.follow_log_start(log, leader_log_start):
            self._tell_all()

    def truncate_for_divergence(self, epoch: int, end_offset: int) -> None:
        """The leader's largest epoch up to this log's last one is `epoch`, and ends at
        `end_offset`: drop what cannot be the leader's, then fetch again. Where that takes long
        this replica is busy with it from now on.

        Raises StaleLeaderEpoch when this is no follower, DamagedLog, LogDirFailure."""
        self._check_follower()
        if self._cutting_epoch is not None:
            # The next answer says whether more has to go.
            return
        job = following.truncate_for_divergence(
            self.log, epoch, end_offset, is_in_isr=self.is_in_isr
        )
        if job is None:
            self._log_was_cut()
        else:
            self._cut_by(job)

    def cut_finished(self, job: CutJob, failure: BaseException | None) -> None:
        """`job` has been run and may have failed. The log is cut if it is still to be; else whoever
        fetches hears from the leader what is."""
        epoch, self._cutting_epoch = self._cutting_epoch, None
        self._cut_failure = failure
        if failure is None and self.is_follower and epoch == self.leader_epoch:
            try:
                if job.finish():
                    self._log_was_cut()
            except LogError as error:
                self._cut_failure = error
        self._tell_free()

    def restart_at(self, start_offset: int, epoch_before: int = -1) -> None:
        """The leader's log has nothing that this one could go on with (OFFSET_OUT_OF_RANGE): drop
        everything and begin where the leader's begins on its disk. `epoch_before` is that of what
        it had before, as far as it knows. Raises StaleLeaderEpoch when this is no follower,
        LogDirFailure."""
        self._check_follower()
        self.log.truncate_fully_and_start_at(start_offset, epoch_before)
        self._log_was_cut()

    def drop_damaged(self, offset: int) -> bool:
        """Drop damaged `offset` and all above. False where that takes long: this replica is busy
        with it, and who asks again later learns whether it has been done. Raises StaleLeaderEpoch,
        LogDirFailure."""
        self._check_follower()
        if self._cutting_epoch is not None:
            return False
        job = following.cut_damaged(self.log, offset)
        if job is None:
            self._log_was_cut()
            return True
        self._cut_by(job)
        return False

    def _cut_by(self, job: CutJob) -> None:
        self._cutting_epoch = self.leader_epoch
        self._host.request_cut(self, job)

    def _check_follower(self) -> None:
        if not self.role.follows:
            raise StaleLeaderEpoch(f"{self.topic}-{self.index} does not follow")

    def _log_was_cut(self) -> None:
        self.high_watermark = self.log.high_watermark
        self._tell_all()

    # Syncs

    def sync_finished(self, synced_offset: int) -> None:
        """A sync that was asked for has made everything below `synced_offset` durable."""
        own_copy = self.own_copy
        if own_copy.synced(synced_offset):
            self._host.request_sync(self)
        if self.is_leader:
            self._own_waiters.release(own_copy.end_offset)
            self._advance(None)
        self._tell_free()

    def sync_failed(self, error: ErrorCode) -> None:
        """The disk is gone: what waits for it will never be durable here."""
        self.own_copy.is_sync_pending = False
        self.close(error)
        self._tell_free()

    def _tell_free(self) -> None:
        if self.is_busy:
            return
        callbacks, self._free_callbacks = self._free_callbacks, []
        for callback in callbacks:
            callback()

    def log_start_changed(self) -> None:
        """The log start moved (retention, DeleteRecords): readers below it must hear of it."""
        self._tell_all()

    # The high watermark

    def _advance(self, now_ms: int | None) -> None:
        """Commit what is to be committed."""
        offset = self.own_copy.end_offset
        leadership = self.leadership
        if leadership is not None:
            offset = leadership.committed_offset(offset, self.log.log_end_offset, now_ms)
        self._advance_high_watermark(offset)

    def _advance_high_watermark(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self.log.advance_high_watermark(offset)
        if self._committed_waiters.queue:
            self._committed_waiters.release(offset)
        if self.watchers:
            for watcher in self.watchers:
                watcher.partition_changed()
        if self.log_end_watchers:
            for reader in self.log_end_watchers:
                reader.high_watermark_changed()

    def _fail_waiters(self, error: ErrorCode) -> None:
        self._committed_waiters.fail(error)
        self._own_waiters.fail(error)

    def _tell_all(self) -> None:
        for watcher in self.watchers:
            watcher.partition_changed()
        for reader in self.log_end_watchers:
            reader.partition_changed()
