"""Operations on dead letters, run by the leader of their partition, step by step.

    no plan ─► a thread looks for the next letters ─► a step with a plan is stored
            ─► committed? ─► Produce, acks=all, to the target's leader, on the brokers' own listener
            ─► stored there, or there already (retry_dlq/arrivals.py)
            ─► the next letters ─► a step that says that these have arrived, with the next plan

A plan is sent from a step that is committed, and once more by whoever leads next; the target's
leader leaves out what it has. So nothing is lost or doubled by a death at any place of this.

Invariants
- Only what the log has planned is sent, one plan of a partition at a time.
- A step follows a plan when its letters have arrived, or never can: their topic is gone for good.
- Letters go no faster than the operation says, but for one plan after another leader.

Deliberately absent: which letters (letters.py), and what is asked for (asked.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

from data_plane.broker.dead_letter_operations import Status, Wish
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.cell.features import REDRIVES, level_of
from data_plane.cell.metadata import NO_LEADER
from data_plane.log.errors import LogError
from data_plane.log.log import FEATURE, Log
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from features.redrive.fold import Redrives, redrives_of
from features.redrive.letters import (
    RECORDS_MAX,
    Found,
    Letters,
    Outlook,
    find_letters,
    read_letters,
    redriven_batch,
)
from features.redrive.matching import Choice
from features.redrive.metrics import RedriveMetrics
from features.redrive.operations import Operation, Step, step_batch
from features.retry_dlq.sending import TOO_LARGE, error_in, produce_to, request_for

SWEEP_INTERVAL_MS: Final = 1_000
# Looked at in one tick.
SWEPT_PER_TICK_MAX: Final = 1_000
RETRY_MS_MIN: Final = 100
RETRY_MS_MAX: Final = 10_000
# A plan has as many letters as the rate allows in so long.
PLAN_MS: Final = 100


class RedriveRunner:
    """One per broker, a component."""

    def __init__(self, services: Services, metrics: RedriveMetrics) -> None:
        self.services = services
        self.metrics = metrics
        self._running: dict[Partition, _PartitionRunner] = {}
        self._woken: dict[Partition, None] = {}
        self._to_sweep: list[Partition] = []
        self._sweep_ms = 0
        self.is_stopped = False

    def start(self, now_ms: int) -> None:
        self._sweep_ms = now_ms

    def wake(self, partition: Partition) -> None:
        """Look at it when this pass ends."""
        if not self.is_stopped:
            self._woken[partition] = None
            self.services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        woken, self._woken = self._woken, {}
        for one in woken:
            self._look(one, now_ms)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + SWEEP_INTERVAL_MS
            if level_of(self.services.image.features, REDRIVES) >= 1:
                self._to_sweep = list(self.services.partitions.leading())
        swept = self._to_sweep[-SWEPT_PER_TICK_MAX:]
        del self._to_sweep[-SWEPT_PER_TICK_MAX:]
        for one in swept:
            self._look(one, now_ms)

    def next_deadline_ms(self) -> int | None:
        return 0 if self._to_sweep else self._sweep_ms

    def stop(self, now_ms: int) -> None:
        self.is_stopped = True
        for one in self._running.values():
            one.stop()
        self._running.clear()
        self._woken.clear()
        self._to_sweep.clear()

    def held(self, partition: Partition) -> str:
        """Why its operation does not get on; empty while it does."""
        one = self._running.get(partition)
        return "" if one is None else one.held

    def forget(self, partition: Partition) -> None:
        self._running.pop(partition, None)

    def _look(self, partition: Partition, now_ms: int) -> None:
        fold = redrives_of(partition.log)
        one = self._running.get(partition)
        if fold is None or fold.due_ms is None or not partition.is_leader:
            if one is not None and not one.is_waiting:
                del self._running[partition]
            return
        if one is None:
            one = self._running[partition] = _PartitionRunner(self, partition)
        one.look(now_ms)


class _PartitionRunner:
    """A led partition with an operation that has work."""

    def __init__(self, runner: RedriveRunner, partition: Partition) -> None:
        self.held = ""
        self._runner = runner
        self._services = runner.services
        self._partition = partition
        self._timer: Timer | None = None
        self._pause_ms = RETRY_MS_MIN
        self._is_busy = False
        # What it is run by: fold, log, leader epoch, and which operation.
        self._begun: tuple[Redrives, Log, int, str] | None = None
        self._choice: Choice | None = None
        # The last plan, by the offset of its step: its letters, and whether they have arrived.
        self._letters: Letters | None = None
        self._arrived_offset = -1
        # How many of a plan's letters go in one batch.
        self._part_max = RECORDS_MAX
        # Before it no more letters are planned.
        self._next_ms = 0
        # What a thread has made, to be taken up on the loop.
        self._made: Callable[[int], None] | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_waiting(self) -> bool:
        """Whether it will be called back."""
        return self._is_busy or self._timer is not None

    def look(self, now_ms: int) -> None:
        """Do what can be done now."""
        if self.is_waiting:
            return
        operation = self._operation()
        if operation is None:
            self._runner.forget(self._partition)
            return
        # To end one that has nothing under way moves nothing.
        is_over = operation.plan is None and operation.wish is Wish.CANCEL
        reason = "" if is_over else self._why_not()
        if reason:
            self._hold("refused", now_ms, reason)
        elif operation.plan is None:
            self._go_on(operation, now_ms)
        elif operation.plan.offset == self._arrived_offset:
            moved = operation.counts.moved + operation.plan.letters.size
            counts = operation.counts._replace(moved=moved)
            self._go_on(operation._replace(counts=counts), now_ms)
        elif operation.plan.offset >= self._partition.high_watermark:
            self._is_busy = True
            self._partition.when_committed(operation.plan.offset, self._committed)
        elif self._letters is None:
            partition = self._partition
            work = partial(read_letters, partition.log, operation, partition.high_watermark)
            self._in_thread(work, self._letters_read)
        else:
            self._deliver(operation, self._letters, now_ms)

    def _operation(self) -> Operation | None:
        """What is to be run, if this broker may; what is kept is of it."""
        partition = self._partition
        fold = redrives_of(partition.log)
        operation = None if fold is None else fold.active
        is_in_use = partition.is_leader and partition.is_writable and partition.tenant
        if fold is None or operation is None or not operation.has_work or not is_in_use:
            return None
        begun = (fold, partition.log, partition.leader_epoch, operation.order.id)
        if self._begun != begun:
            self._begun = begun
            self._choice = Choice(operation.order.selection)
            self._letters, self._arrived_offset = None, -1
            self._part_max = RECORDS_MAX
        return operation

    def _why_not(self) -> str:
        """Why nothing is moved for the tenant now; "" when it may be."""
        names = self._services.namespaces.names.get(self._partition.tenant)
        return "" if names is None else names.refused_by_state or names.storage_refusal

    # Looking for letters

    def _go_on(self, operation: Operation, now_ms: int) -> None:
        """With no plan, or one whose letters have arrived."""
        order = operation.order
        has_arrived = operation.plan is not None
        step = Step(order.id, operation.cursor, operation.counts)
        if operation.wish is Wish.CANCEL:
            self._note(operation, step._replace(ended=Status.CANCELLED.value), None, now_ms)
        elif has_arrived and (operation.wish is Wish.PAUSE or now_ms < self._next_ms):
            self._note(operation, step, None, now_ms)
        elif now_ms < self._next_ms:
            self._wait(self._next_ms)
        else:
            self._find(operation, now_ms)

    def _find(self, operation: Operation, now_ms: int) -> None:
        assert self._begun is not None
        assert self._choice is not None
        fold, log, _, _ = self._begun
        order = operation.order
        if self._partition.high_watermark < order.end_offset:
            # What cannot be read yet is not to be taken for gone.
            self._is_busy = True
            self._partition.when_committed(order.end_offset - 1, self._committed)
            return
        count_max = RECORDS_MAX
        if order.rate_max:
            count_max = min(RECORDS_MAX, max(1, order.rate_max * PLAN_MS // 1000))
        partitions_count = 0
        if order.target:
            topic = self._services.image.topics_by_id.get(UUID(hex=order.target))
            if topic is None or topic.deletion is not None:
                step = Step(order.id, operation.cursor, operation.counts, ended=Status.GONE.value)
                self._note(operation, step, None, now_ms)
                return
            partitions_count = len(topic.partitions)
        outlook = Outlook(
            self._partition.high_watermark,
            count_max,
            partitions_count,
            fold.redriven.copy(),
            fold.purged.copy(),
        )
        work = partial(find_letters, log, operation, self._choice, outlook)
        self._in_thread(work, partial(self._found, operation))

    def _found(self, operation: Operation, found: Found, now_ms: int) -> None:
        order, letters = operation.order, found.letters
        count = len(letters.records)
        step = Step(order.id, found.cursor, found.counts)
        plan = found.plan()
        if order.is_purge and plan is not None:
            counts = found.counts._replace(moved=found.counts.moved + count)
            step = step._replace(counts=counts, purged=plan.letters)
        elif plan is not None:
            step = step._replace(plan=plan)
        if found.cursor >= order.end_offset and step.plan is None:
            step = step._replace(ended=Status.DONE.value)
        if order.rate_max:
            self._next_ms = max(now_ms, self._next_ms) + count * 1000 // order.rate_max
        if self._note(operation, step, letters if step.plan else None, now_ms) and step.purged:
            self._runner.metrics.purged_count += count

    def _note(self, operation: Operation, step: Step, letters: Letters | None, now_ms: int) -> bool:
        """Store a step behind the operation as it is now; whether it was."""
        assert self._begun is not None
        known = self._begun[0].active
        looked_at = (operation.order.id, operation.plan, operation.wish)
        if known is None or (known.order.id, known.plan, known.wish) != looked_at:
            # It is none of what was looked at, or somebody has paused it meanwhile.
            self._runner.wake(self._partition)
            return False
        wall_ms = self._services.wall_clock.wall_ms(now_ms)
        batch = step_batch(step, wall_ms)
        try:
            self._partition.append_as_leader(batch, 0, len(batch), now_ms=now_ms, origin=FEATURE)
        except LogError as error:
            self._hold("not_noted", now_ms, str(error))
            return False
        if known.plan is not None and not step.is_void:
            self._runner.metrics.redriven_count += known.plan.letters.size
        self._letters = letters
        self._get_on()
        return True

    # Delivering

    def _letters_read(self, letters: Letters, now_ms: int) -> None:
        self._letters = letters
        self._get_on()

    def _deliver(self, operation: Operation, letters: Letters, now_ms: int) -> None:
        services, plan = self._services, operation.plan
        assert plan is not None
        if not letters.records:
            # All are there, or have left the log meanwhile.
            self._arrived_offset = plan.offset
            self._get_on()
            return
        topic = services.image.topics_by_id.get(UUID(hex=plan.topic))
        if topic is None or topic.tenant != self._partition.tenant:
            step = Step(operation.order.id, operation.cursor, operation.counts)
            gone = step._replace(ended=Status.GONE.value, is_void=True)
            self._note(operation, gone, None, now_ms)
            return
        if topic.deletion is not None:
            self._hold("topic_deleted", now_ms, f"topic {topic.name} is deleted")
            return
        leader = topic.partitions[plan.partition].leader
        index = 2 * plan.partition + 1 if topic.is_virtual else plan.partition
        if leader == NO_LEADER:
            self._hold("no_leader", now_ms, f"{topic.name}-{index} has no leader")
            return
        wall_ms = services.wall_clock.wall_ms(now_ms)
        part = letters._replace(records=letters.records[: self._part_max])
        left = letters._replace(records=letters.records[self._part_max :])
        work = partial(redriven_batch, self._partition.log, operation, part, wall_ms)

        def made(batch: bytearray, made_ms: int) -> None:
            self._is_busy = True
            answered = partial(self._answered, len(part.records), left, f"{topic.name}-{index}")
            produce_to(services, leader, request_for(topic, index, batch), answered, made_ms)

        self._in_thread(work, made)

    def _answered(
        self,
        sent_count: int,
        left: Letters,
        target: str,
        body: memoryview | None,
        now_ms: int,
    ) -> None:
        self._is_busy = False
        error = error_in(body)
        if not self._is_as_it_was():
            self._runner.wake(self._partition)
        elif error in TOO_LARGE and sent_count > 1:
            self._part_max = sent_count // 2
            self._runner.wake(self._partition)
        elif error is not ErrorCode.NONE:
            self._hold(error.name.lower(), now_ms, f"{target} was not appended to: {error.name}")
        else:
            # Those that are left are known to be of the same plan: one of them is under way.
            self._letters = left
            self._get_on()

    # Waiting

    def _committed(self, error: ErrorCode) -> None:
        self._is_busy = False
        self._runner.wake(self._partition)

    def _in_thread(self, work: Callable[[], Any], take_up: Callable[[Any, int], None]) -> None:
        """Have a thread do it, and take up on the loop what it has made."""

        def done(made: Any, error: BaseException | None) -> None:
            def on_loop(now_ms: int) -> None:
                if error is None:
                    take_up(made, now_ms)
                else:
                    self._hold("unreadable", now_ms, str(error) or repr(error))

            self._made = on_loop
            self._services.wakes.wake(self)

        self._is_busy = True
        self._services.executor.submit(work, done)

    def run(self, now_ms: int) -> None:
        """Take up what a thread has made."""
        made, self._made = self._made, None
        self._is_busy = False
        if self._is_as_it_was():
            assert made is not None
            made(now_ms)
        else:
            self._runner.wake(self._partition)

    def _is_as_it_was(self) -> bool:
        partition, begun = self._partition, self._begun
        if begun is None or self._runner.is_stopped or not partition.is_leader:
            return False
        fold, log, epoch, operation_id = begun
        active = fold.active
        return (
            partition.log is log
            and redrives_of(log) is fold
            and partition.leader_epoch == epoch
            and active is not None
            and active.order.id == operation_id
        )

    def _get_on(self) -> None:
        self.held, self._pause_ms = "", RETRY_MS_MIN
        self._runner.wake(self._partition)

    def _hold(self, reason: str, now_ms: int, message: str) -> None:
        """The letters stay where they are, and are tried again."""
        self.held = message
        self._runner.metrics.held_counts[reason] += 1
        self._services.log.warning(
            "redrive_held",
            topic=self._partition.topic,
            partition=self._partition.index,
            reason=reason,
            message=message,
        )
        self._wait(now_ms + self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def _wait(self, until_ms: int) -> None:
        self._timer = self._services.timers.schedule(until_ms, self._try_again)

    def _try_again(self, now_ms: int) -> None:
        self._timer = None
        self._runner.wake(self._partition)
