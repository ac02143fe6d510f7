"""The group service: carries out what the pure group coordinator decides.

    handler ──► GroupCoordinator ──► effects ──► answers, appends to __consumer_offsets, log lines
                     ▲                              │
                     └──────── append_done ◄────────┘

Which partitions of `__consumer_offsets` are loaded, and when, is coordinator_log.py's; this is its
`StateMachine`. When a topic is deleted its committed offsets go, too. `services.groups` is this
object; the handlers are in group_handlers.

Invariants
- Committed offsets are told only when it is certain that this broker still led after the request
  had come (read_index.py).
- Effects are carried out in the order in which they were decided, also when an append completes
  within the call that asked for it.

Deliberately absent: every rule about groups and offsets (data_plane.groups).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from data_plane.broker.coordinators.coordinator_log import CoordinatorLog
from data_plane.broker.coordinators.group_metrics import GroupMetrics
from data_plane.broker.coordinators.internal_topic import (
    BrokerInternalTopic,
    InternalTopic,
    LoggedBatch,
    records_of,
)
from data_plane.broker.coordinators.offsets_topic import OFFSETS_TOPIC
from data_plane.broker.loop_bounds import LOOP_BOUNDS, LoopBounds
from data_plane.broker.request.api import Deferred, RequestContext
from data_plane.broker.services import Config, Services
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.tenants import DEFAULT_TENANT, with_id
from data_plane.cell.topics_draft import changed_topics
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.effects import (
    AppendRecords,
    ClientContext,
    Effect,
    GroupEvent,
    Respond,
)
from data_plane.groups.loading import FoldedTenants, fold_records
from data_plane.groups.shard import NO_PAUSE, ExpiryPause
from data_plane.wire.errors import ErrorCode
from data_plane.wire.primitives import ZERO_UUID

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

    kind = "groups"

    def __init__(self, services: Services, topic: InternalTopic | None = None) -> None:
        self._services = services
        topic = topic if topic is not None else BrokerInternalTopic(services, OFFSETS_TOPIC)
        self._effects: deque[Effect] = deque()
        self._is_carrying_out = False
        self.log: CoordinatorLog[tuple[FoldedTenants, int]] = CoordinatorLog(services, topic, self)
        self.coordinator = self._new_coordinator()
        # Of topics that were deleted: they have not let go of everything yet.
        self._former_coordinators: list[GroupCoordinator] = []
        services.image_listeners.append(self.image_changed)
        has_tenants = services.config.get_bool("metrics.tenant.labels")
        services.metrics.register(
            GroupMetrics(services, lambda: self.coordinator, has_tenants=has_tenants)
        )

    @property
    def topic(self) -> InternalTopic:
        return self.log.topic

    @property
    def now_ms(self) -> int:
        """The time of the last call; for what is called back without one."""
        return self.log.now_ms

    def _new_coordinator(self) -> GroupCoordinator:
        services = self._services
        config = group_coordinator_config(
            services.config, self.topic.partition_count(), services.loop_bounds
        )
        coordinator = GroupCoordinator(
            config,
            new_uuid=self._new_uuid,
            wall_ms=services.wall_clock.wall_ms,
            expiry_pause=self._expiry_pause,
            # The quotas are made later, and know what other brokers have.
            limit_of=lambda tenant_id, quota: services.quotas.limit_of_groups(tenant_id, quota),
        )
        coordinator.totals.leaves_room = self._has_tenants
        return coordinator

    @property
    def _has_tenants(self) -> bool:
        """Whether there are others than `default`."""
        return len(self._services.namespaces.names) > 1

    def _expiry_pause(self, tenant_id: str, name: str) -> ExpiryPause | None:
        """The expiry of a topic's offsets pauses while it is deleted and can come back."""
        topic = _topic_of(self._services.newest_image, tenant_id, name)
        if topic is None:
            return NO_PAUSE
        if topic.is_kept_whole:
            return None
        pause = topic.pause
        return NO_PAUSE if pause is None else ExpiryPause(pause.ended_ms, pause.length_ms)

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._services.random.getrandbits(128), version=4))

    # ---- component

    def start(self, now_ms: int) -> None:
        self.log.start(now_ms)

    def tick(self, now_ms: int) -> None:
        self.log.now_ms = now_ms
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
        self.log.stop(now_ms)
        for coordinator in (self.coordinator, *self._former_coordinators):
            self.carry_out(coordinator.finish(now_ms), now_ms)

    # ---- effects

    def carry_out(self, effects: list[Effect], now_ms: int) -> None:
        self.log.now_ms = now_ms
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
            case AppendRecords(partition, epoch, records, append_id, _):
                on_settled = partial(self._append_settled, append_id)
                self.log.append(partition, epoch, records, now_ms, on_settled)
            case GroupEvent(tenant, group_id, kind, detail):
                fields = {} if tenant == DEFAULT_TENANT else {"tenant": tenant}
                self._services.log.info("group_" + kind, group=group_id, detail=detail, **fields)

    def _append_settled(self, append_id: int, error: ErrorCode, now_ms: int) -> None:
        self.carry_out(self.coordinator.append_done(append_id, error, now_ms), now_ms)

    # ---- reads

    def confirm(
        self,
        tenant_id: str,
        group_ids: Iterable[str],
        now_ms: int,
        on_done: Callable[[frozenset[str]], None],
    ) -> None:
        """Make sure that what is known here of a tenant's groups is still true: `on_done` is called
        once, perhaps before this returns, with those whose coordinator may be another broker by
        now; it finds the time in `now_ms`. Groups that are not loaded here are left to the
        coordinator's own answer."""
        coordinator = self.coordinator
        partitions = {
            group_id: coordinator.partition_of(tenant_id, group_id) for group_id in group_ids
        }
        loaded = {each for each in partitions.values() if coordinator.is_loaded(each)}

        def confirmed(found: frozenset[int]) -> None:
            on_done(
                frozenset(
                    group_id
                    for group_id, partition in partitions.items()
                    if partition not in found and self.coordinator.is_loaded(partition)
                )
            )

        self.log.confirm(loaded, now_ms, confirmed)

    # ---- what the log wants of its state

    def fold(self, batches: Iterator[LoggedBatch]) -> tuple[FoldedTenants, int]:
        """The newest value of each key, and how many records were not understood."""
        return fold_records(records_of(batches))

    def start_loading(self, partition: int, epoch: int) -> bool:
        return self.coordinator.start_loading(partition, epoch)

    def load(
        self, partition: int, epoch: int, folded: tuple[FoldedTenants, int], now_ms: int
    ) -> None:
        found, unreadable_count = folded
        self.carry_out(self.coordinator.load(partition, epoch, found, now_ms), now_ms)
        if unreadable_count:
            self._services.log.warning(
                "offsets_topic_unreadable_records", partition=partition, count=unreadable_count
            )
        self._look_for_orphans(now_ms)

    def load_failed(self, partition: int, epoch: int) -> None:
        self.coordinator.load_failed(partition, epoch)

    def unload(self, partition: int, now_ms: int) -> None:
        self.carry_out(self.coordinator.unload(partition, now_ms), now_ms)

    def begin_anew(self) -> None:
        self._former_coordinators.append(self.coordinator)
        self.coordinator = self._new_coordinator()

    # ---- topics that are deleted

    def image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        """What becomes of leadership the log has been told before."""
        if old.tenants is not new.tenants:
            self.coordinator.totals.leaves_room = self._has_tenants
        if old.topics_by_id is new.topics_by_id:
            return
        deleted: dict[str, dict[str, uuid.UUID]] = {}
        for topic, other in changed_topics(old, new):
            if other is None or other.topic_id != topic.topic_id:
                # On the way to an image its topics may be there before their tenant is.
                tenant = old.tenant(topic.tenant) or new.tenant(topic.tenant)
                if tenant is None:
                    continue
                deleted.setdefault(tenant.tenant_id, {})[topic.name] = topic.topic_id
        for tenant_id, topics in deleted.items():
            self.carry_out(self.coordinator.topics_deleted(tenant_id, topics, now_ms), now_ms)

    def _look_for_orphans(self, now_ms: int) -> None:
        """A crash between a topic's deletion and the end of its offsets leaves offsets that a
        topic made anew under the same name must not inherit."""
        if self.coordinator.may_have_orphans and not self._services.deletion_permit.why_nothing:
            self.carry_out(self.coordinator.delete_orphans(self._is_orphan, now_ms), now_ms)

    def _is_orphan(self, tenant_id: str, name: str, topic_id: uuid.UUID) -> bool:
        """Whether an offset of a topic of this name and id is of one that exists no more."""
        if self._services.deletion_permit.why_nothing:
            return False  # An old image does not name the topics that were made since.
        # Nor does one on the way to the newest, in which this broker may coordinate already.
        topic = _topic_of(self._services.newest_image, tenant_id, name)
        return topic is None or topic_id not in (topic.topic_id, ZERO_UUID)


def _topic_of(image: MetadataImage, tenant_id: str, name: str) -> TopicImage | None:
    """A topic of the tenant with that id. The one of `default` is its name, stored or not."""
    tenant = with_id(image.tenants, tenant_id)
    if tenant is None and tenant_id != DEFAULT_TENANT:
        return None
    return image.topic(DEFAULT_TENANT if tenant is None else tenant.name, name)


def service_of(services: Services) -> GroupService:
    """The group service, for handlers."""
    return services.groups


def client_of(context: RequestContext) -> ClientContext:
    """Who asks, as the coordinator wants to know it."""
    return ClientContext(
        client_id=context.client_id or "",
        # Java's InetAddress.toString, which tools take apart.
        client_host=f"/{context.connection.host}",
        api_version=context.api_version,
    )
