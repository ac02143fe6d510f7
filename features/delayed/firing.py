"""Firing: what is due on a led partition is appended as records that readers see.

    due ─► a thread reads the originals and makes one batch (due_batch.py)
        ─► on the loop: all as it was? ─► append ─► the fold takes them for delivered

Each partition with something pending has a timer for the next of it, and at most one batch in the
making. In all MAKING_AT_ONCE_MAX batches are: the threads are others', too, and more of them would
only take the interpreter from the loop. Partitions whose turn it is not wait in a queue.

Partitions come to it when hidden records are appended, when they are opened, when roles change, and
once a second all that are open are looked at, followers' for their upkeep; none before the feature
is finalized, which it stays.

Invariants
- Nothing is appended that was not due by the date when its batch was made, and none while the
  clock is not to be trusted (`trusted_wall_ms`).
- While there is a gate (`Services.firing_gate`) no more is appended than it lets through.
- A batch is appended only in the leader epoch and to the fold for which it was made, and only if
  all that it delivers is still pending, and due when it was. Else it is dropped, and made anew.

Deliberately absent: noting what was fired; the batch in the log says so, and nothing else does.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from data_plane.broker.produce.hiding import trusted_wall_ms
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.cell.features import DELAYED_MESSAGES, RETRIES, level_of
from data_plane.log.errors import LogError
from data_plane.log.log import FEATURE, Log
from data_plane.replica.partition import Partition
from features.delayed.due_batch import DueBatch, make_due_batch
from features.delayed.fold import DelayedMessages
from features.delayed.metrics import DelayedMetrics
from features.delayed.pending_set import PendingSet
from features.delayed.runs import Entry
from features.delayed.wheel import TimingWheel
from features.fold_upkeep import Upkeep

# Records of a batch.
BATCH_RECORDS_MAX: Final = 1_000
MAKING_AT_ONCE_MAX: Final = 2
SWEEP_INTERVAL_MS: Final = 1_000
# Looked at in one tick.
SWEPT_PER_TICK_MAX: Final = 1_000
# After which the clock is looked at again, and a log that could not be read or appended to.
CLOCK_RETRY_MS: Final = 100
RETRY_MS: Final = 1_000
# The wall clock may be set forward meanwhile, or an entry be nearer than its slot says.
TIMER_MS_MAX: Final = 60_000
UPKEEP_WAIT_MS: Final = 10


def fold_of(log: Log) -> DelayedMessages | None:
    """The log's fold; None when it has none, or is not loaded."""
    for fold in log.folds_if_loaded or ():
        if isinstance(fold, DelayedMessages):
            return fold
    return None


class Firing:
    """One per broker, a component."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.upkeep = Upkeep(services)
        self.metrics = DelayedMetrics(self._pending)
        services.metrics.register(self.metrics)
        self._firing: dict[Partition, _PartitionFiring] = {}
        self._woken: dict[Partition, None] = {}
        # With something due, in the order of their turns.
        self._queue: dict[Partition, None] = {}
        self.making_count = 0
        self._to_sweep: list[Partition] = []
        self._sweep_ms = 0
        self.is_stopped = False
        services.hidden_listeners.append(self.wake)
        services.partitions.on_roles_changed(self._roles_changed)
        services.partitions.opened_listeners.append(self._opened)

    def start(self, now_ms: int) -> None:
        self._sweep_ms = now_ms

    def wake(self, partition: Partition) -> None:
        """Look at it when this pass ends."""
        self._woken[partition] = None
        self.services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        woken, self._woken = self._woken, {}
        for partition in woken:
            self._look(partition, now_ms)
        while self._queue and self.making_count < MAKING_AT_ONCE_MAX:
            partition = next(iter(self._queue))
            del self._queue[partition]
            one = self._firing.get(partition)
            if one is not None:
                one.look(now_ms, is_its_turn=True)

    def queue(self, partition: Partition) -> None:
        """It has something due."""
        self._queue[partition] = None
        self.services.wakes.wake(self)

    def _opened(self, partition: Partition) -> None:
        if partition.log.due_folds:
            self.wake(partition)

    def _roles_changed(self, changed: list[tuple[UUID, int]], now_ms: int) -> None:
        self._sweep_ms = min(self._sweep_ms, now_ms)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + SWEEP_INTERVAL_MS
            levels = self.services.image.features
            if level_of(levels, DELAYED_MESSAGES) >= 1 or level_of(levels, RETRIES) >= 1:
                self._to_sweep = list(self.services.partitions.opened())
        swept = self._to_sweep[-SWEPT_PER_TICK_MAX:]
        del self._to_sweep[-SWEPT_PER_TICK_MAX:]
        for partition in swept:
            if partition.log.due_folds:
                self._look(partition, now_ms)

    def next_deadline_ms(self) -> int | None:
        return 0 if self._to_sweep else self._sweep_ms

    def stop(self, now_ms: int) -> None:
        self.is_stopped = True
        for one in self._firing.values():
            one.stop()
        self._firing.clear()
        self._woken.clear()
        self._queue.clear()
        self._to_sweep.clear()

    def _pending(self) -> tuple[int, int | None]:
        """How many are pending in led partitions, and when the first is due."""
        found = (fold_of(partition.log) for partition in self.services.partitions.leading())
        folds = [fold for fold in found if fold is not None and len(fold)]
        dues = [fold.pending.first_due_ms for fold in folds]
        first_ms = min((due_ms for due_ms in dues if due_ms is not None), default=None)
        return sum(map(len, folds)), first_ms

    def forget(self, partition: Partition) -> None:
        self._firing.pop(partition, None)

    def _look(self, partition: Partition, now_ms: int) -> None:
        log = partition.log
        fold = fold_of(log)
        if fold is None or fold.pending.is_empty:
            return
        self.upkeep.look(log, fold, partial(self.wake, partition))
        if partition.is_leader:
            one = self._firing.get(partition)
            if one is None:
                one = self._firing[partition] = _PartitionFiring(self, partition)
            one.look(now_ms)


def _ms_until(pending: PendingSet, wall_ms: int) -> int:
    """For how long nothing more is due at the date `wall_ms`."""
    wheel = pending.wheel
    if not wheel.count:
        # What is far is brought near by upkeep, which tells when it has.
        return UPKEEP_WAIT_MS
    # What came due before the clock went back, perhaps.
    times_ms = [due_ms for due_ms, _ in wheel.first_ready(BATCH_RECORDS_MAX) if due_ms > wall_ms]
    if wheel.later_ms is not None:
        times_ms.append(wheel.later_ms)
    return max(1, min(times_ms, default=wall_ms + TIMER_MS_MAX) - wall_ms)


class _PartitionFiring:
    """A led partition that has something pending."""

    __slots__ = (
        "_count",
        "_firing",
        "_is_making",
        "_made",
        "_not_before_ms",
        "_partition",
        "_timer",
    )

    def __init__(self, firing: Firing, partition: Partition) -> None:
        self._firing = firing
        self._partition = partition
        self._timer: Timer | None = None
        self._is_making = False
        # How many entries are looked up for a batch: not many more than go into one.
        self._count = BATCH_RECORDS_MAX
        # What a thread has made: with the fold and the leader epoch that it was made for.
        self._made: tuple[DueBatch, DelayedMessages, int] | None = None
        # Of originals that could not be read: when they are tried again.
        self._not_before_ms: dict[int, int] = {}

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self, now_ms: int, *, is_its_turn: bool = False) -> None:
        """Do what can be done now, and see to it that the rest is done in time. A batch is made
        when it is its turn."""
        if self._is_making:
            return
        self.stop()
        partition = self._partition
        fold = fold_of(partition.log)
        # Of a topic that is deleted nobody is the tenant. The sweep finds it when it is back.
        is_in_use = partition.is_leader and partition.is_writable and partition.tenant
        if fold is None or fold.pending.is_empty or not is_in_use:
            self._firing.forget(partition)
            return
        wall_ms = trusted_wall_ms(self._firing.services, now_ms)
        if wall_ms is None:
            self._wait(now_ms + CLOCK_RETRY_MS)
            return
        entries = self._due(fold.pending.wheel, now_ms, wall_ms)
        gate = self._firing.services.firing_gate
        room = None if gate is None or not entries else gate.may_fire(partition, now_ms)
        if room == 0:
            assert gate is not None
            self._wait(max(now_ms + 1, gate.look_again_ms(partition, now_ms)))
        elif entries and is_its_turn:
            count = self._count if room is None else min(room, self._count)
            self._make(fold, entries[:count], wall_ms)
        elif entries:
            self._firing.queue(partition)
        else:
            wait_ms = min(TIMER_MS_MAX, _ms_until(fold.pending, wall_ms))
            self._wait(min([now_ms + wait_ms, *self._not_before_ms.values()]))

    def _due(self, wheel: TimingWheel, now_ms: int, wall_ms: int) -> list[Entry]:
        """The first `_count` entries that are due, perhaps some more."""
        wheel.advance(wall_ms)
        self._not_before_ms = {
            offset: at_ms for offset, at_ms in self._not_before_ms.items() if at_ms > now_ms
        }
        return [
            entry
            for entry in wheel.first_ready(self._count + len(self._not_before_ms))
            # The clock may have gone back since they came due.
            if entry[0] <= wall_ms and entry[1] not in self._not_before_ms
        ]

    def _wait(self, until_ms: int) -> None:
        self._timer = self._firing.services.timers.schedule(until_ms, self.look)

    def _make(self, fold: DelayedMessages, entries: list[tuple[int, int]], wall_ms: int) -> None:
        partition = self._partition
        log, epoch = partition.log, partition.leader_epoch
        work = partial(make_due_batch, log, entries, log.log_end_offset, fold.delivered, wall_ms)

        def done(made: DueBatch | None, error: BaseException | None) -> None:
            self._firing.making_count -= 1
            if made is None:
                assert error is not None
                made = DueBatch(bytearray(), [], {offset: str(error) for _, offset in entries})
            self._made = (made, fold, epoch)
            found_count = len(made.entries) + len(made.unreadable)
            more = 2 * (len(made.entries) if found_count < len(entries) else self._count)
            self._count = max(1, min(more, BATCH_RECORDS_MAX))
            self._firing.services.wakes.wake(self)

        self._is_making = True
        self._firing.making_count += 1
        self._firing.services.executor.submit(work, done)

    def run(self, now_ms: int) -> None:
        """Take up what a thread has made."""
        assert self._made is not None
        (made, fold, epoch), self._made = self._made, None
        self._is_making = False
        if self._firing.is_stopped:
            return
        partition = self._partition
        if made.unreadable:
            self._tell_unreadable(made.unreadable)
            retry_ms = now_ms + RETRY_MS
            self._not_before_ms.update(dict.fromkeys(made.unreadable, retry_ms))
        is_as_it_was = (
            partition.is_leader
            and partition.leader_epoch == epoch
            and fold_of(partition.log) is fold
            and all(fold.pending.near_due_ms(offset) == due_ms for due_ms, offset in made.entries)
        )
        if made.entries and is_as_it_was and self._is_let_through(len(made.entries), now_ms):
            try:
                self._append(made, now_ms)
            except LogError as error:
                offsets = [offset for _, offset in made.entries]
                self._tell_unreadable(dict.fromkeys(offsets, str(error)))
                self._not_before_ms.update(dict.fromkeys(offsets, now_ms + RETRY_MS))
        self._firing.wake(partition)

    def _is_let_through(self, count: int, now_ms: int) -> bool:
        """What is not is dropped, and made anew when it is."""
        gate = self._firing.services.firing_gate
        room = None if gate is None else gate.may_fire(self._partition, now_ms)
        return room is None or count <= room

    def _append(self, made: DueBatch, now_ms: int) -> None:
        """Raises LogError, and nothing is stored then."""
        batch, partition = made.batch, self._partition
        offset = partition.log.log_end_offset
        partition.append_as_leader(batch, 0, len(batch), now_ms=now_ms, origin=FEATURE)
        gate = self._firing.services.firing_gate
        if gate is not None:
            gate.fired(partition, offset, len(made.entries), now_ms)
        wall_ms = self._firing.services.wall_clock.wall_ms(now_ms)
        for due_ms, _ in made.entries:
            self._firing.metrics.note_delivered(max(0, wall_ms - due_ms))

    def _tell_unreadable(self, reasons: dict[int, str]) -> None:
        partition = self._partition
        offset, reason = next(iter(reasons.items()))
        self._firing.services.log.warning(
            "delayed_messages_not_delivered",
            topic=partition.topic,
            partition=partition.index,
            count=len(reasons),
            offset=offset,
            reason=reason,
        )
