"""The group service: carries out what the pure group coordinator decides.

    handler ──► GroupCoordinator ──► effects ──► answers, appends to __consumer_offsets, log lines
                     ▲                              │
                     └──────── append_done ◄────────┘

It follows the metadata image: partitions of `__consumer_offsets` that this broker comes to lead are
read in worker threads and loaded, those that it loses are unloaded, and when a topic is deleted its
committed offsets go, too. `services.groups` is this object; the handlers are in group_handlers.

Invariants
- A partition is loaded when all it held as leading began is committed: what a client is told of
  offsets and groups survives the next failover, too.
- Committed offsets are told only when it is certain that this broker still led after the request
  had come (read_index.py).
- Effects are carried out in the order in which they were decided, also when an append completes
  within the call that asked for it.
- At most LOADS_AT_ONCE_MAX partitions are being read at any time.

Deliberately absent: every rule about groups and offsets (data_plane.groups).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from data_plane.broker.api import Deferred, RequestContext
from data_plane.broker.group_metrics import GroupMetrics
from data_plane.broker.loop_bounds import LOOP_BOUNDS, LoopBounds
from data_plane.broker.offsets_topic import BrokerOffsetsTopic, OffsetsTopic
from data_plane.broker.services import Config, Services
from data_plane.cell.metadata import MetadataImage
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.effects import (
    AppendRecords,
    ClientContext,
    Effect,
    GroupEvent,
    Respond,
)
from data_plane.groups.loading import Folded, fold_records
from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.primitives import ZERO_UUID
from data_plane.wire.records import Record

# Folding holds the interpreter: more threads would fold no faster, and the loop would have to wait
# for each of them in turn.
LOADS_AT_ONCE_MAX: Final = 1
# A partition that could not be read is read again after so long, and each time after twice as long
# until the maximum: what kept it from being opened may be over within moments, such as a want of
# descriptors, or later, such as a full disk beside another one.
LOAD_RETRY_MS_MIN: Final = 1000
LOAD_RETRY_MS_MAX: Final = 30_000

MINUTE_MS: Final = 60_000


def group_coordinator_config(
    config: Config, partition_count: int | None, bounds: LoopBounds = LOOP_BOUNDS
) -> GroupCoordinatorConfig:
    """The broker's properties for groups; an existing topic decides the number of partitions."""
    return GroupCoordinatorConfig(
        offsets_topic_num_partitions=partition_count
        or config.get_int("offsets.topic.num.partitions"),
        group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        group_max_size=config.get_int("group.max.size"),
        groups_max=config.get_int("group.coordinator.groups.max"),
        members_max_bytes=config.get_int("group.coordinator.members.max.bytes"),
        offsets_max_bytes=config.get_int("group.coordinator.offsets.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * MINUTE_MS,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offset_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        work_per_turn_max=bounds.group_work_per_turn_max,
        tombstones_per_append_max=bounds.group_tombstones_per_append_max,
        chore_appends_max=bounds.group_chore_appends_max,
    )


class Reply:
    """The token of one request: where its answer goes, now or later."""

    __slots__ = ("_deferred", "_response", "_shape")

    def __init__(self, shape: Callable[[Any], Any] | None = None) -> None:
        self._shape = shape
        self._response: Any = None
        self._deferred: Deferred[Any] | None = None

    def answer(self, response: Any) -> None:
        assert self._response is None, "a request is answered exactly once"
        self._response = response if self._shape is None else self._shape(response)
        if self._deferred is not None:
            self._deferred.complete(self._response)

    def result(self) -> Any:
        """What the handler returns: the answer if it is there already, else a Deferred."""
        if self._response is not None:
            return self._response
        self._deferred = Deferred()
        return self._deferred


class GroupService:
    """A component of the broker; see Services."""

    def __init__(self, services: Services, topic: OffsetsTopic | None = None) -> None:
        self._services = services
        self.topic = topic if topic is not None else BrokerOffsetsTopic(services)
        self._now_ms = 0
        self._effects: deque[Effect] = deque()
        self._is_carrying_out = False
        self._settled: deque[tuple[int, ErrorCode]] = deque()
        self._to_load: deque[tuple[int, int]] = deque()
        self._loading_count = 0
        # Of partitions that could not be read: how long to wait when that happens again.
        self._load_pauses_ms: dict[int, int] = {}
        self._led: dict[int, int] = {}
        self._topic_id = self.topic.topic_id()
        self.coordinator = self._new_coordinator()
        # Of topics that were deleted: they have not let go of everything yet.
        self._former_coordinators: list[GroupCoordinator] = []
        services.image_listeners.append(self.image_changed)
        services.metrics.register(GroupMetrics(services, lambda: self.coordinator))

    def _new_coordinator(self) -> GroupCoordinator:
        services = self._services
        config = group_coordinator_config(
            services.config, self.topic.partition_count(), services.loop_bounds
        )
        return GroupCoordinator(
            config,
            new_uuid=self._new_uuid,
            wall_ms=services.wall_clock.wall_ms,
            topics_inside=services.namespaces.topics_inside,
        )

    @property
    def now_ms(self) -> int:
        """The time of the last call; for what is called back without one."""
        return self._now_ms

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._services.random.getrandbits(128), version=4))

    # ---- component

    def start(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._follow_leadership(now_ms)

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.coordinator.may_expire_offsets = not self._services.deletion_permit.why_not_by_date
        for coordinator in (self.coordinator, *self._former_coordinators):
            deadline_ms = coordinator.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self.carry_out(coordinator.tick(now_ms), now_ms)
        if self._former_coordinators:
            self._former_coordinators = [
                each for each in self._former_coordinators if each.next_deadline_ms() is not None
            ]
        self._look_for_orphans(now_ms)

    def next_deadline_ms(self) -> int | None:
        if not self._former_coordinators:
            return self.coordinator.next_deadline_ms()
        coordinators = (self.coordinator, *self._former_coordinators)
        deadlines_ms = (each.next_deadline_ms() for each in coordinators)
        return min((each for each in deadlines_ms if each is not None), default=None)

    def stop(self, now_ms: int) -> None:
        """Let go of all partitions; members that wait are told to look for the coordinator."""
        self._to_load.clear()
        for partition in list(self._led):
            self._unload(partition, now_ms)
        for coordinator in (self.coordinator, *self._former_coordinators):
            self.carry_out(coordinator.finish(now_ms), now_ms)

    # ---- effects

    def carry_out(self, effects: list[Effect], now_ms: int) -> None:
        self._now_ms = now_ms
        self._effects.extend(effects)
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._effects:
                self._carry_out_one(self._effects.popleft(), now_ms)
        finally:
            self._is_carrying_out = False

    def _carry_out_one(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case Respond(token, response):
                assert isinstance(token, Reply)
                token.answer(response)
            case AppendRecords(partition, epoch, records, append_id):
                on_done = partial(self._append_settled, self.coordinator, append_id)
                self.topic.append(partition, epoch, records, now_ms, on_done)
            case GroupEvent(group_id, kind, detail):
                self._services.log.info("group_" + kind, group=group_id, detail=detail)

    def _append_settled(
        self, coordinator: GroupCoordinator, append_id: int, error: ErrorCode
    ) -> None:
        """An append may settle while effects are carried out, or when a sync has finished; in
        both cases it is looked at when the present pass ends, with its time."""
        if coordinator is not self.coordinator:
            return  # Of a topic that has been deleted and made anew since.
        self._settled.append((append_id, error))
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Tell the coordinator which appends have settled, and load what is committed (see
        WakeQueue)."""
        self._now_ms = now_ms
        while self._settled:
            append_id, error = self._settled.popleft()
            self.carry_out(self.coordinator.append_done(append_id, error, now_ms), now_ms)
        self._load_next()
        self._look_for_orphans(now_ms)

    # ---- reads

    def confirm(
        self, group_ids: Iterable[str], now_ms: int, on_done: Callable[[frozenset[str]], None]
    ) -> None:
        """Make sure that what is known here of these groups is still true: `on_done` is called
        once, perhaps before this returns, with those whose coordinator may be another broker by
        now; it finds the time in `now_ms`. Groups that are not loaded here are left to the coordinator's own answer."""
        self._now_ms = max(self._now_ms, now_ms)
        coordinator = self.coordinator
        partitions = {group_id: coordinator.partition_of(group_id) for group_id in group_ids}
        asked = {each: self._led[each] for each in partitions.values() if coordinator.is_loaded(each)}
        waiting = set(asked)
        confirmed: dict[int, int] = {}

        def finish() -> None:
            # What was loaded meanwhile is another epoch's, of which nobody has asked.
            on_done(
                frozenset(
                    group_id
                    for group_id, partition in partitions.items()
                    if self.coordinator.is_loaded(partition)
                    and (
                        coordinator is not self.coordinator
                        or confirmed.get(partition) != self._led.get(partition)
                    )
                )
            )

        def note(partition: int, is_confirmed: bool) -> None:
            if is_confirmed:
                confirmed[partition] = asked[partition]
            waiting.discard(partition)
            if not waiting:
                finish()

        if not waiting:
            finish()
        for partition, epoch in asked.items():
            self.topic.confirm_leading(partition, epoch, now_ms, partial(note, partition))

    # ---- leadership

    def image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        self._now_ms = now_ms
        self._follow_leadership(now_ms)
        if old.topics_by_id is new.topics_by_id:
            return
        deleted = {
            topic.name: topic.topic_id
            for topic_id, topic in old.topics_by_id.items()
            if topic_id not in new.topics_by_id
        }
        if deleted:
            self.carry_out(self.coordinator.topics_deleted(deleted, now_ms), now_ms)

    def _follow_leadership(self, now_ms: int) -> None:
        topic_id = self.topic.topic_id()
        is_another = topic_id not in (None, self._topic_id)
        led = dict(self.topic.led_partitions())
        for partition, epoch in list(self._led.items()):
            if is_another or led.get(partition) != epoch:
                self._unload(partition, now_ms)
        if is_another:
            # Partitions, leaders and epochs may be those of the one before, of which something may
            # still be read or written.
            self._topic_id = topic_id
            self._former_coordinators.append(self.coordinator)
            self.coordinator = self._new_coordinator()
            self._to_load.clear()
            self._settled.clear()
        for partition, epoch in led.items():
            if partition not in self._led and self.coordinator.start_loading(partition, epoch):
                self._led[partition] = epoch
                self._load_when_committed(partition, epoch)
        self._load_next()

    def _load_when_committed(self, partition: int, epoch: int) -> None:
        on_done = partial(self._committed, self.coordinator, partition, epoch)
        self.topic.when_committed(partition, on_done)

    def _committed(
        self, coordinator: GroupCoordinator, partition: int, epoch: int, error: ErrorCode
    ) -> None:
        """What a new leader has beyond the high watermark may still be lost with it."""
        if coordinator is not self.coordinator:
            return  # Of a topic that has been deleted and made anew since.
        if error is ErrorCode.NONE:
            self._to_load.append((partition, epoch))
            self._services.wakes.wake(self)
        elif error is ErrorCode.KAFKA_STORAGE_ERROR:
            # Other errors come with an image that ends leading, and this service follows it.
            self._load_failed(partition, epoch, error.name)

    def _unload(self, partition: int, now_ms: int) -> None:
        del self._led[partition]
        self._load_pauses_ms.pop(partition, None)
        self.carry_out(self.coordinator.unload(partition, now_ms), now_ms)

    def _load_next(self) -> None:
        while self._to_load and self._loading_count < LOADS_AT_ONCE_MAX:
            partition, epoch = self._to_load.popleft()
            if self._led.get(partition) != epoch:
                continue
            try:
                reader = self.topic.reader(partition)
            except LogError as error:
                self._load_failed(partition, epoch, error)
                continue
            if reader is None:
                # As in a topic just made: no thread is needed to find nothing, and the clients
                # that are about to join need not be put off.
                self._load(partition, epoch, Folded())
                continue
            self._loading_count += 1
            self._services.executor.submit(
                partial(_read_and_fold, reader),
                partial(self._loaded, self.coordinator, partition, epoch),
            )

    def _loaded(
        self,
        coordinator: GroupCoordinator,
        partition: int,
        epoch: int,
        result: tuple[Folded, int] | None,
        error: BaseException | None,
    ) -> None:
        self._loading_count -= 1
        if coordinator is not self.coordinator:
            pass  # As above.
        elif result is None:
            self._load_failed(partition, epoch, error)
        else:
            folded, unreadable_count = result
            self._load(partition, epoch, folded)
            if unreadable_count:
                self._services.log.warning(
                    "offsets_topic_unreadable_records", partition=partition, count=unreadable_count
                )
        self._load_next()
        self._look_for_orphans(self._now_ms)

    def _load(self, partition: int, epoch: int, folded: Folded) -> None:
        self._load_pauses_ms.pop(partition, None)
        now_ms = self._now_ms
        self.carry_out(self.coordinator.load(partition, epoch, folded, now_ms), now_ms)

    def _load_failed(self, partition: int, epoch: int, error: object) -> None:
        self.coordinator.load_failed(partition, epoch)
        self._services.log.error("groups_not_loaded", partition=partition, error=repr(error))
        again = partial(self._load_again, self.coordinator, partition, epoch)
        pause_ms = self._load_pauses_ms.get(partition, LOAD_RETRY_MS_MIN)
        self._load_pauses_ms[partition] = min(2 * pause_ms, LOAD_RETRY_MS_MAX)
        self._services.timers.schedule(self._now_ms + pause_ms, again)

    def _load_again(
        self, coordinator: GroupCoordinator, partition: int, epoch: int, now_ms: int
    ) -> None:
        """Nobody else coordinates these groups as long as this broker leads."""
        if coordinator is not self.coordinator or self._led.get(partition) != epoch:
            return
        if coordinator.start_loading(partition, epoch):
            self._now_ms = now_ms
            self._load_when_committed(partition, epoch)

    def _look_for_orphans(self, now_ms: int) -> None:
        """A crash between a topic's deletion and the end of its offsets leaves offsets that a
        topic made anew under the same name must not inherit."""
        if self.coordinator.may_have_orphans and not self._services.deletion_permit.why_nothing:
            self.carry_out(self.coordinator.delete_orphans(self._is_orphan, now_ms), now_ms)

    def _is_orphan(self, name: str, topic_id: uuid.UUID) -> bool:
        """Whether an offset of a topic of this name and id is of one that exists no more."""
        if self._services.deletion_permit.why_nothing:
            return False  # An old image does not name the topics that were made since.
        # Nor does one on the way to the newest, in which this broker may coordinate already.
        topic = self._services.newest_image.topics_by_name.get(name)
        return topic is None or topic_id not in (topic.topic_id, ZERO_UUID)


def _read_and_fold(reader: Callable[[], Iterator[Record]]) -> tuple[Folded, int]:
    return fold_records(reader())


def service_of(services: Services) -> GroupService:
    """The group service, for handlers."""
    service = services.groups
    assert isinstance(service, GroupService)
    return service


def client_of(context: RequestContext) -> ClientContext:
    """Who asks, as the coordinator wants to know it."""
    return ClientContext(
        client_id=context.client_id or "",
        # Java's InetAddress.toString, which tools take apart.
        client_host=f"/{context.connection.host}",
        api_version=context.api_version,
    )
