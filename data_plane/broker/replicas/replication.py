"""Follows what this broker has a copy of and others lead: a fetcher for each leading broker.

    the image changes roles ─► follow, unfollow ─┐
    a response, a sync, a deadline ──────────────┴─► the fetcher's next request ─► peers.send

The fetchers (data_plane/replica/fetcher.py) know what to ask and what to do with the answer; here
is who leads, when to ask, and what of it stands in the log.

Invariants
- A partition is fetched from the leader that the current image names, in the leader epoch of the
  local replica, and by one fetcher only.
- Requests leave at the end of a pass, however many roles one image has changed.
- Logs that are to be followed are opened, and made, a few for each millisecond: for a topic with
  thousands of partitions it takes long.
- What could not be opened for want of descriptors or memory is tried again until it is; what lies
  on a disk that has failed waits for the next start.
- Replicas that are being added come at `follower.replication.throttled.rate` in all until they are
  in the ISR; from then on producers wait for them.

Deliberately absent: connections (the Peers port), ISR changes (isr_changes.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from data_plane.broker.cell.cell_view import endpoint_of
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.cell.metadata import NO_LEADER, MetadataImage, PartitionImage
from data_plane.replica.fetch_session import API_KEY, API_VERSION, Limits, PartitionKey
from data_plane.replica.fetcher import ReplicaFetcher
from data_plane.replica.followed import FetchProblem
from data_plane.replica.throttle import Throttle

if TYPE_CHECKING:
    from data_plane.broker.request.metrics import BrokerCollector

THROTTLED_RATE = "follower.replication.throttled.rate"
# Problems of single partitions in the log; a leader that dies is one for each that it led.
PROBLEM_LOGS_PER_SECOND_MAX = 10
# Opening a log, or making one, takes up to half a millisecond.
OPENED_PER_MS_MAX = 10
# How long to wait before opening again what could not be opened.
REOPEN_MS = 1000


class _Origin(NamedTuple):
    """Where a partition is fetched from."""

    leader: int
    leader_epoch: int
    is_throttled: bool


class ReplicationManager:
    """The component. Make it before `services.start`, after `services.peers`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._links: dict[int, _Link] = {}
        self._origins: dict[PartitionKey, _Origin] = {}
        self._throttled: set[PartitionKey] = set()
        self._unopened: dict[PartitionKey, None] = {}
        # To be opened and followed, when their turn comes; how many may be in this millisecond.
        self._to_open: dict[PartitionKey, None] = {}
        self._opening_ms = -1
        self._opens_left = 0
        self._reopen_ms: int | None = None
        self._throttle = Throttle(services.config.get_int(THROTTLED_RATE), 0)
        self._replica_epoch = self._registered_epoch(services.image)
        # By fetchers that are gone.
        self._replicated_bytes = 0
        self.is_running = False
        services.partitions.on_roles_changed(self._roles_changed)
        services.image_listeners.append(self._image_changed)
        services.retention_listeners.append(self._log_start_changed)

    # The component.

    def start(self, now_ms: int) -> None:
        self.is_running = True
        self._replica_epoch = self._registered_epoch(self._services.image)
        self._throttle = Throttle(self._services.config.get_int(THROTTLED_RATE), now_ms)
        for followed in self._services.partitions.followed():
            self._to_open[(followed.topic.topic_id.bytes, followed.index)] = None
        self._open_some(now_ms)

    def damage_changed(self, topic_id: UUID, index: int) -> None:
        """This replica's log is known to be damaged, or not any more."""
        if self.is_running:
            self._review(topic_id, index)

    def _log_start_changed(self, topic_id: UUID, index: int) -> None:
        """Tell the leader where this replica begins now: it sends consumers here (KIP-392)."""
        key = (topic_id.bytes, index)
        origin = self._origins.get(key)
        if origin is not None:
            link = self._link(origin.leader)
            link.fetcher.log_start_changed(*key)
            link.wake()

    def directory_failed(self) -> None:
        """Fetch no more of what is on a data directory that has just failed."""
        for topic_id, index in list(self._origins):
            self._review(UUID(bytes=topic_id), index)

    def tick(self, now_ms: int) -> None:
        """Open what is to be opened; other deadlines are in the broker's timers."""
        self._open_some(now_ms)
        if not self._unopened:
            self._reopen_ms = None
        elif self._reopen_ms is None:
            self._reopen_ms = now_ms + REOPEN_MS
        elif now_ms >= self._reopen_ms:
            unopened, self._unopened = self._unopened, {}
            self._reopen_ms = None
            for topic_id, index in unopened:
                self._review(UUID(bytes=topic_id), index)

    def next_deadline_ms(self) -> int | None:
        if self._to_open:
            return self._opening_ms + 1
        if not self._unopened:
            return None
        # What was put on the list since the last tick has no time yet.
        return self._reopen_ms or 0

    def stop(self, now_ms: int) -> None:
        self.is_running = False
        for node_id, link in self._links.items():
            link.cancel_timer()
            self._services.wakes.forget(link)
            self._services.peers.disconnect(node_id)
        self._links.clear()
        self._origins.clear()
        self._unopened.clear()
        self._to_open.clear()

    # What the image says.

    def _roles_changed(self, changed: list[tuple[UUID, int]], now_ms: int) -> None:
        if not self.is_running:
            return
        partitions = self._services.partitions
        for topic_id, index in changed:
            key = (topic_id.bytes, index)
            if partitions.is_open(key) or self._partition_image(key) is None:
                self._review(topic_id, index)
            else:
                self._leave(key, self._origins.get(key))
                self._to_open[key] = None
        self._open_some(now_ms)

    def _open_some(self, now_ms: int) -> None:
        """Open and follow as many as this millisecond has time for, by the image of now."""
        if now_ms != self._opening_ms:
            self._opening_ms, self._opens_left = now_ms, OPENED_PER_MS_MAX
        while self._to_open and self._opens_left > 0:
            self._opens_left -= 1
            topic_id, index = next(iter(self._to_open))
            self._review(UUID(bytes=topic_id), index)

    def _review(self, topic_id: UUID, index: int) -> None:
        """Fetch this partition from whom the image says, or not at all."""
        key = (topic_id.bytes, index)
        self._unopened.pop(key, None)
        self._to_open.pop(key, None)
        image = self._partition_image(key)
        before = self._origins.get(key)
        if image is None:
            self._leave(key, before)
            return
        replica = self._services.partitions.replica(*key)
        if replica is None or replica.log.log_directory.failure is not None:
            # Its disk has failed, which the log says. To go on fetching where it stands would look
            # to the leader like a replica that has caught up.
            self._leave(key, before)
            if replica is None and not self._services.logs.is_lost(topic_id, index):
                # No disk is to blame.
                self._unopened[key] = None
            return
        if replica.log.damaged_from >= 0:
            # To fetch is to say that everything below is there.
            self._leave(key, before)
            return
        origin = _Origin(image.leader, replica.leader_epoch, self._is_throttled(image))
        if before is not None and before[:2] == origin[:2]:
            self._set_throttled(key, origin)
            return
        if before is not None and before.leader != origin.leader:
            self._leave(key, before)
        self._origins[key] = origin
        (self._throttled.add if origin.is_throttled else self._throttled.discard)(key)
        link = self._link(origin.leader)
        link.fetcher.follow(*key, replica, is_throttled=origin.is_throttled)
        link.wake()

    def _partition_image(self, key: PartitionKey) -> PartitionImage | None:
        """The image of a partition that this broker is to fetch, else None."""
        topic = self._services.image.topics_by_id.get(UUID(bytes=key[0]))
        if topic is None or key[1] >= len(topic.partitions):
            return None
        image = topic.partitions[key[1]]
        node_id = self._services.node_id
        if node_id not in image.replicas or image.leader in (node_id, NO_LEADER):
            return None
        return image

    def _is_throttled(self, image: PartitionImage) -> bool:
        node_id = self._services.node_id
        return node_id in image.adding_replicas and node_id not in image.isr

    def _leave(self, key: PartitionKey, before: _Origin | None) -> None:
        if before is not None:
            del self._origins[key]
            self._throttled.discard(key)
            link = self._links[before.leader]
            link.fetcher.unfollow(*key)
            link.wake()

    def _set_throttled(self, key: PartitionKey, origin: _Origin) -> None:
        self._origins[key] = origin
        (self._throttled.add if origin.is_throttled else self._throttled.discard)(key)
        link = self._links[origin.leader]
        link.fetcher.set_throttled(*key, origin.is_throttled)
        link.wake()

    def _link(self, node_id: int) -> _Link:
        link = self._links.get(node_id)
        if link is None:
            services = self._services
            fetcher = ReplicaFetcher(
                services.node_id, self._limits(), self._backoff_ms_max(), self._throttle
            )
            fetcher.set_replica_epoch(self._replica_epoch)
            link = self._links[node_id] = _Link(self, services, node_id, fetcher)
        return link

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if not self.is_running:
            return
        if self._throttled and old.topics_by_id is not new.topics_by_id:
            for key in list(self._throttled):
                image = self._partition_image(key)
                if image is not None and not self._is_throttled(image):
                    # It has joined the ISR.
                    self._set_throttled(key, self._origins[key]._replace(is_throttled=False))
        if old.brokers is not new.brokers:
            self._brokers_changed(old, new)
        if old.configs is not new.configs:
            self._throttle.set_rate(self._services.config.get_int(THROTTLED_RATE), now_ms)
            for link in self._links.values():
                link.fetcher.limits = self._limits()
                link.fetcher.backoff_ms_max = self._backoff_ms_max()

    def _brokers_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        self._replica_epoch = self._registered_epoch(new)
        for node_id, link in list(self._links.items()):
            link.fetcher.set_replica_epoch(self._replica_epoch)
            before, after = old.brokers.get(node_id), new.brokers.get(node_id)
            if before is after:
                link.wake()
                continue
            if endpoint_of(before) != endpoint_of(after):
                # What is connected now is not that broker any more, or soon will not be.
                self._services.peers.disconnect(node_id)
                link.fetcher.retry_now()
            if after is None and not len(link.fetcher):
                self._replicated_bytes += link.fetcher.fetched_bytes
                link.cancel_timer()
                self._services.wakes.forget(link)
                del self._links[node_id]
            else:
                link.wake()

    def _registered_epoch(self, image: MetadataImage) -> int:
        broker = image.brokers.get(self._services.node_id)
        return -1 if broker is None else broker.broker_epoch

    # Settings.

    def _limits(self) -> Limits:
        config = self._services.config
        return Limits(
            wait_ms_max=config.get_int("replica.fetch.wait.max.ms"),
            response_bytes_min=config.get_int("replica.fetch.min.bytes"),
            response_bytes_max=config.get_int("replica.fetch.response.max.bytes"),
            partition_bytes_max=config.get_int("replica.fetch.max.bytes"),
        )

    def _backoff_ms_max(self) -> int:
        return self._services.config.get_int("replica.fetch.backoff.ms")

    # Metrics.

    def add_metrics(self, collector: BrokerCollector) -> None:
        links = self._links
        collector.add_gauge(
            "tidewheel_followed_partitions",
            "Partitions copied from other brokers.",
            lambda: len(self._origins),
        )
        collector.add_gauge(
            "tidewheel_paused_follower_partitions",
            "Of these, left out for a while: failed, throttled, or waiting for a sync.",
            lambda: sum(link.fetcher.paused_count for link in links.values()),
        )
        collector.add_gauge(
            "tidewheel_follower_lag_max",
            "The most records that a copy lacks of what its leader has committed.",
            lambda: max((link.fetcher.lag_max() for link in links.values()), default=0),
        )
        collector.add_total(
            "tidewheel_replicated_bytes",
            "Bytes of records copied from other brokers.",
            lambda: self._replicated_bytes + sum(x.fetcher.fetched_bytes for x in links.values()),
        )


class _Link:
    """A fetcher, the peer it asks, and its next deadline."""

    def __init__(
        self,
        manager: ReplicationManager,
        services: Services,
        node_id: int,
        fetcher: ReplicaFetcher,
    ) -> None:
        self.fetcher = fetcher
        self._manager = manager
        self._services = services
        self._node_id = node_id
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._log_second = 0
        self._logs_count = 0
        fetcher.on_ready = self.wake

    def wake(self) -> None:
        """Ask at the end of this pass."""
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Send what there is to ask, and see to the next time."""
        if not self._manager.is_running:
            return
        fetcher = self.fetcher
        request, problems = fetcher.next_request(now_ms)
        if problems:
            self._log_problems(problems, now_ms)
        if request is not None:
            self._services.peers.send(
                self._node_id,
                API_KEY,
                API_VERSION,
                [request.body],
                partial(self._answered, request.number),
            )
        deadline_ms = fetcher.next_deadline_ms()
        if deadline_ms is not None and (self._timer is None or deadline_ms < self._timer_ms):
            self.cancel_timer()
            self._timer_ms = deadline_ms
            self._timer = self._services.timers.schedule(deadline_ms, self._timer_due)

    def _timer_due(self, now_ms: int) -> None:
        self._timer = None
        self.run(now_ms)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(self, number: int, body: memoryview | None, now_ms: int) -> None:
        if not self._manager.is_running:
            return
        outcome = self.fetcher.handle_response(number, body, now_ms)
        if outcome.problems:
            self._log_problems(outcome.problems, now_ms)
        if outcome.connection_problem:
            self._services.log.warning(
                "replica_fetch_failed", leader=self._node_id, reason=outcome.connection_problem
            )
            self._services.peers.disconnect(self._node_id)
        self.run(now_ms)

    def _log_problems(self, problems: list[FetchProblem], now_ms: int) -> None:
        """The first failure of each, and those that last; so many a second."""
        log = self._services.log
        second = now_ms // 1000
        if second != self._log_second:
            suppressed_count = self._logs_count - PROBLEM_LOGS_PER_SECOND_MAX
            if suppressed_count > 0:
                log.warning(
                    "follower_problem_logs_suppressed",
                    leader=self._node_id,
                    count=suppressed_count,
                )
            self._log_second = second
            self._logs_count = 0
        for problem in problems:
            if problem.is_expected and problem.pause_ms < self.fetcher.backoff_ms_max:
                continue
            self._logs_count += 1
            if self._logs_count > PROBLEM_LOGS_PER_SECOND_MAX:
                continue
            topic = self._services.image.topics_by_id.get(UUID(bytes=problem.key[0]))
            log.warning(
                "follower_problem",
                leader=self._node_id,
                topic=None if topic is None else topic.name,
                partition=problem.key[1],
                reason=problem.reason,
                pause_ms=problem.pause_ms,
            )
