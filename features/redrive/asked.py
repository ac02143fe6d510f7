"""Operations as they are asked for: what is sound becomes a record of the partition's log.

Invariants
- Nothing is begun that selects nothing in particular, or that has nowhere to go.
- Who asks twice with the same id has one operation.

Deliberately absent: rights (whoever asks has looked at them), and running (runner.py).
"""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from data_plane.broker.dead_letter_operations import (
    Done,
    NotPossible,
    Selection,
    Status,
    View,
    Wanted,
    Wish,
)
from data_plane.broker.services import Services
from data_plane.cell.features import REDRIVES, RETRIES, level_of
from data_plane.cell.metadata import TopicImage
from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.log.errors import LogError
from data_plane.log.log import FEATURE
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from features.redrive.fold import Redrives, redrives_of
from features.redrive.limits import limit_of
from features.redrive.matching import problem_of
from features.redrive.operations import Operation, Order, begin_batch, wish_batch
from features.redrive.runner import RedriveRunner
from features.retry_dlq.arrivals import Arrivals

ID_CHARACTERS_MAX: Final = 64


class AskedOperations:
    """The `DeadLetterOperations` of a broker."""

    def __init__(self, services: Services, runner: RedriveRunner) -> None:
        self._services = services
        self._runner = runner

    def problem(self, selection: Selection) -> str | None:
        return problem_of(selection)

    def origins(self, partition: Partition) -> list[str]:
        self._fold(partition)
        return sorted(one.name for one in self._subscriptions(partition))

    def begin(self, partition: Partition, wanted: Wanted, now_ms: int, done: Done) -> None:
        fold = self._fold(partition)
        known = fold.operations.get(wanted.id)
        if known is not None:
            if not _is_same(known, wanted, self._target_name(known)):
                words = f"{wanted.id} is the id of another operation"
                raise NotPossible(ErrorCode.INVALID_REQUEST, words)
            # Whoever asks again may be the first to hear that it is safe.
            self._when_committed(partition, known.number[1], wanted.id, done)
            return
        active = fold.active
        if active is not None:
            raise NotPossible(
                ErrorCode.INVALID_REQUEST,
                f"operation {active.order.id} is under way in this partition: wait for its end, or "
                "cancel it",
            )
        order = self._order(partition, fold, wanted)
        batch = begin_batch(order, self._services.wall_clock.wall_ms(now_ms))
        self._append(partition, batch, wanted.id, now_ms, done)

    def change(
        self, partition: Partition, operation_id: str, wish: Wish, now_ms: int, done: Done
    ) -> None:
        known = self._fold(partition).operations.get(operation_id)
        if known is None:
            words = f"there is no operation {operation_id} in this partition"
            raise NotPossible(ErrorCode.RESOURCE_NOT_FOUND, words)
        if not known.is_active:
            if wish is Wish.CANCEL and known.ended == Status.CANCELLED.value:
                done(self._view(partition, known), None)
                return
            words = f"operation {operation_id} is over: {known.ended}"
            raise NotPossible(ErrorCode.INVALID_REQUEST, words)
        if known.wish is Wish.CANCEL and wish is not Wish.CANCEL:
            words = f"operation {operation_id} was cancelled"
            raise NotPossible(ErrorCode.INVALID_REQUEST, words)
        wall_ms = self._services.wall_clock.wall_ms(now_ms)
        self._append(partition, wish_batch(operation_id, wish, wall_ms), operation_id, now_ms, done)

    def listed(self, partition: Partition) -> list[View]:
        return [self._view(partition, one) for one in self._fold(partition).operations.values()]

    def marked(
        self, partition: Partition, from_offset: int, until_offset: int
    ) -> tuple[list[int], list[int]]:
        fold = self._fold(partition)
        return (
            fold.redriven.within(from_offset, until_offset),
            fold.purged.within(from_offset, until_offset),
        )

    # What is asked for

    def _fold(self, partition: Partition) -> Redrives:
        if level_of(self._services.image.features, REDRIVES) < 1:
            words = f"redriving and purging need the feature {REDRIVES} at level 1"
            raise NotPossible(ErrorCode.UNSUPPORTED_VERSION, words)
        fold = next((one for one in partition.log.folds if isinstance(one, Redrives)), None)
        if fold is None:
            words = f"topic {partition.topic} has no dead letters: {HEADERS_PROPERTY} is not true"
            raise NotPossible(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        return fold

    def _order(self, partition: Partition, fold: Redrives, wanted: Wanted) -> Order:
        if not 1 <= len(wanted.id) <= ID_CHARACTERS_MAX or not wanted.id.isprintable():
            words = f"the id of an operation has 1 to {ID_CHARACTERS_MAX} printable characters"
            raise NotPossible(ErrorCode.INVALID_REQUEST, words)
        problem = problem_of(wanted.selection)
        if problem is not None:
            raise NotPossible(ErrorCode.INVALID_REQUEST, f"the selection: {problem}")
        target = ""
        subscriptions: dict[str, int] = {}
        itself = self._services.image.topics_by_id[partition.log.topic_id]
        if wanted.target:
            target = self._target(partition, wanted.target).topic_id.hex
        elif not wanted.is_purge:
            found = self._subscriptions(partition)
            log = partition.log
            # What is written of operations is no message: of an empty partition there may be some.
            has_messages = log.log_end_offset > log.log_start_offset and not fold.operations
            if not found and has_messages:
                raise NotPossible(
                    ErrorCode.INVALID_REQUEST,
                    f"no subscription is known that messages of {partition.topic}-"
                    f"{partition.index} came from: name the topic that they go to",
                )
            subscriptions = {one.topic_id.hex: limit_of(itself, one) for one in found}
        return Order(
            wanted.id,
            wanted.is_purge,
            wanted.selection,
            target,
            subscriptions,
            limit_of(itself),
            wanted.rate_max,
            *_range(partition, wanted.selection),
            wanted.principal,
        )

    def _target(self, partition: Partition, name: str) -> TopicImage:
        image = self._services.image
        topic = image.topic(partition.tenant, name)
        if topic is None or topic.deletion is not None:
            words = f"there is no topic {name}"
            raise NotPossible(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        if topic.is_virtual:
            words = f"{name} is a subscription: without a topic each goes back to its own"
            raise NotPossible(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        if topic.topic_id == partition.log.topic_id:
            words = f"{name} is the topic that they are in"
            raise NotPossible(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        if topic.configs.get(HEADERS_PROPERTY, "").strip().lower() != "true":
            words = f"topic {name} takes no dead letters: {HEADERS_PROPERTY} is not true"
            raise NotPossible(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        return topic

    def _subscriptions(self, partition: Partition) -> list[TopicImage]:
        """Those that something has come from, and that are there."""
        image = self._services.image
        if level_of(image.features, RETRIES) < 1:
            return []
        ids = {origin[:32] for origin in partition.log.fold(Arrivals).last}
        found = (image.topics_by_id.get(UUID(hex=one.decode())) for one in sorted(ids))
        return [
            one
            for one in found
            if one is not None
            and one.is_virtual
            and one.deletion is None
            and one.tenant == partition.tenant
        ]

    # What is said of it

    def _append(
        self, partition: Partition, batch: bytearray, operation_id: str, now_ms: int, done: Done
    ) -> None:
        if partition.is_under_min_isr:
            raise NotPossible(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas are in sync")
        try:
            result = partition.append_as_leader(batch, 0, len(batch), now_ms=now_ms, origin=FEATURE)
        except LogError as error:
            raise NotPossible(error.error_code, str(error)) from error
        self._runner.wake(partition)
        self._when_committed(partition, result.last_offset, operation_id, done)

    def _when_committed(
        self, partition: Partition, offset: int, operation_id: str, done: Done
    ) -> None:
        partition.when_committed(offset, partial(self._committed, partition, operation_id, done))

    def _committed(
        self, partition: Partition, operation_id: str, done: Done, error: ErrorCode
    ) -> None:
        fold = redrives_of(partition.log)
        known = None if fold is None else fold.operations.get(operation_id)
        if error is not ErrorCode.NONE or known is None:
            words = "the partition is led anew: ask once more"
            done(None, NotPossible(ErrorCode.NOT_LEADER_OR_FOLLOWER, words))
        else:
            done(self._view(partition, known), None)

    def _view(self, partition: Partition, operation: Operation) -> View:
        order = operation.order
        held = self._runner.held(partition) if operation.has_work else ""
        return View(
            Wanted(
                order.id,
                order.is_purge,
                order.selection,
                self._target_name(operation),
                order.rate_max,
                order.principal,
            ),
            _status(operation),
            order.first_offset,
            operation.cursor,
            order.end_offset,
            operation.counts,
            operation.begun_ms,
            operation.ended_ms,
            held,
        )

    def _target_name(self, operation: Operation) -> str:
        """The topic's, as it is called now, or its id when it is there no more."""
        target = operation.order.target
        if not target:
            return ""
        topic = self._services.image.topics_by_id.get(UUID(hex=target))
        return target if topic is None else topic.name


def _range(partition: Partition, selection: Selection) -> tuple[int, int]:
    """The offsets that have to be looked at: the first, and the first one behind them."""
    # What a new leader has is committed, though it may not know yet: the runner waits for that.
    start, log_end = partition.log.log_start_offset, partition.log.log_end_offset
    end = log_end
    if selection.offsets:
        start = max(start, min(selection.offsets))
        end = min(end, max(selection.offsets) + 1)
    start = max(start, selection.from_offset or 0)
    if selection.until_offset is not None:
        end = min(end, selection.until_offset)
    start = min(start, log_end)
    return start, max(start, end)


def _is_same(known: Operation, wanted: Wanted, target: str) -> bool:
    order = known.order
    said = (order.is_purge, order.selection, target, order.rate_max)
    return said == (wanted.is_purge, wanted.selection, wanted.target, wanted.rate_max)


def _status(operation: Operation) -> Status:
    if operation.ended:
        return Status(operation.ended)
    if operation.wish is Wish.CANCEL:
        return Status.CANCELLING
    if operation.wish is Wish.PAUSE:
        return Status.PAUSED if operation.plan is None else Status.PAUSING
    return Status.RUNNING
