"""What request handlers work with: one `Services` object per broker.

Every handler gets it as its first argument. It holds the broker's parts and their common
heartbeat; it decides nothing itself. The server (or the simulator) builds it, passes the time to
`start`, `tick` and `stop`, and sets one timer at `next_deadline_ms`.

Invariants
- Everything reached from here runs on one thread. Slow file work goes through `executor`.
- `image` is replaced, never changed; a handler that keeps a reference keeps a consistent view.
- Partitions, configurations and listeners agree with `image` whenever a pass ends. It may be on the
  way to `newest_image` (image_application.py); what is to be committed is decided on that one.

Deliberately absent: sockets, clocks, threads; the policy of any API family.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from data_plane.broker.cell.commits import Commits
from data_plane.broker.cell.image_application import ImageApplication
from data_plane.broker.fetch.projection import Projections
from data_plane.broker.fetch.shown_lags import ShownLags
from data_plane.broker.loop_bounds import LOOP_BOUNDS, LoopBounds
from data_plane.broker.produce.takers import PartitionTurns
from data_plane.broker.request.authorizer import (
    ALLOW_EVERYONE,
    OPERATORS,
    SUPER_USERS,
    Authorizer,
    BrokerSettings,
)
from data_plane.broker.request.budget import UNSENT_BYTES_TOTAL_MAX, Budget
from data_plane.broker.request.metrics import BrokerCounters
from data_plane.broker.request.namespaces import Namespaces
from data_plane.broker.request.quotas import NoQuotas, QuotaManager
from data_plane.broker.request.request_work import WORK_AT_ONCE_MAX, RequestWork
from data_plane.broker.request.timers import TimerQueue
from data_plane.broker.request.turns import Turns, UnwatchedTurns
from data_plane.broker.request.waiting import WakeQueue
from data_plane.broker.request.wall_clock import WallClock
from data_plane.broker.topics.shown_topics import ShownTopics
from data_plane.cell.features import SUPPORTED_FEATURES, SupportedFeatures
from data_plane.log.permit import PERMITTED, DeletionPermit
from data_plane.wire.compression import Unpacker, UnpackerPool

if TYPE_CHECKING:
    from uuid import UUID

    from prometheus_client import CollectorRegistry

    from data_plane.broker.admin.log_dirs import MeasureSpace
    from data_plane.broker.admin.log_threshold import LogThreshold
    from data_plane.broker.authentication.authentication import Authentication
    from data_plane.broker.cell.broker_lifecycle import Membership
    from data_plane.broker.cell.deletion_guard import DeletionGuard
    from data_plane.broker.cell.metadata_follower import MetadataFollower
    from data_plane.broker.cell.metadata_writer import MetadataWriter
    from data_plane.broker.coordinators.groups import GroupService
    from data_plane.broker.dead_letter_operations import DeadLetterOperations
    from data_plane.broker.fetch.open_fetches import OpenFetches
    from data_plane.broker.fetch.projection import SentListener
    from data_plane.broker.pending_messages import FiringGate, PendingMessages
    from data_plane.broker.produce.duplicates import DuplicateFinder
    from data_plane.broker.produce.init_producer_id import ProducerIds
    from data_plane.broker.produce.judging import Judges
    from data_plane.broker.produce.takers import Taker
    from data_plane.broker.quotas.share_exchange import ShareExchange
    from data_plane.broker.replicas.read_index import ReadIndex
    from data_plane.broker.replicas.topic_partitions import TopicPartitions
    from data_plane.broker.request.api import Executor, HandlerTable
    from data_plane.broker.request.peers import Peers
    from data_plane.broker.topics.auto_creation import AutoCreation
    from data_plane.broker.topics.metadata_encoding import EncodedTopics
    from data_plane.cell.metadata import Endpoint, MetadataImage
    from data_plane.cell.metadata_store import MetadataStore
    from data_plane.log.manager import LogManager
    from data_plane.replica.partition import Partition


class Logger(Protocol):
    """The part of a structlog logger that the broker uses: an event name and fields."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class Config(Protocol):
    """Effective broker properties under Kafka's names, dynamic values included.

    Asking for a property that has no definition is a bug (KeyError)."""

    def get_int(self, name: str) -> int: ...
    def get_float(self, name: str) -> float: ...
    def get_bool(self, name: str) -> bool: ...
    def get_str(self, name: str) -> str: ...
    def get_list(self, name: str) -> list[str]: ...
    def update(self, image: MetadataImage) -> bool:
        """Take over the dynamic values of `image`; whether any of them changed."""


class Component(Protocol):
    """A part with a life of its own: the group service, log maintenance, fetch sessions."""

    def start(self, now_ms: int) -> None: ...
    def tick(self, now_ms: int) -> None:
        """Do what is due. Called at the latest when `next_deadline_ms` said, possibly earlier."""

    def next_deadline_ms(self) -> int | None: ...
    def stop(self, now_ms: int) -> None:
        """Let go of everything before the logs are closed. Requests may no longer arrive."""


ImageListener = Callable[["MetadataImage", "MetadataImage", int], None]


@dataclass(slots=True)
class Services:
    """The broker's parts, for handlers.

    - `partitions.get(topic_id, index)` / `.get_by_name(topic, index)` → replica `Partition` or
      None; `Partition.append_as_leader`, `.when_committed`, `.log`.
    - `groups` is the component of data_plane/broker/coordinators/groups.py.
    - `timers.schedule(deadline_ms, callback)` for answers that must not wait for ever.
    - `random` is seeded by the simulator; nothing else in the broker draws random numbers.
    - `metrics.register(collector)` for a component's own series; hot paths add to `counters`.
    - Metadata changes: `metadata.write(decide, on_done)`, never `store.apply` on the loop.
    """

    config: Config
    store: MetadataStore
    image: MetadataImage
    logs: LogManager
    partitions: TopicPartitions
    handlers: HandlerTable
    executor: Executor
    counters: BrokerCounters
    metrics: CollectorRegistry
    node_id: int
    cluster_id: str
    random: random.Random
    log: Logger
    # Answers that clients have not read; the server keeps the count.
    unsent: Budget = field(default_factory=lambda: Budget(UNSENT_BYTES_TOTAL_MAX))
    # Of clients that are authenticated, by tenant; the server keeps the count.
    connections: Budget = field(default_factory=Budget)
    # Of which no tenant may have more than it leaves the others, where there are any.
    shared_budgets: list[Budget] = field(default_factory=list)
    advertised_host: str = "127.0.0.1"
    advertised_port: int = 9092
    # All of this broker's, by name, if there are several.
    advertised_listeners: tuple[Endpoint, ...] = ()
    rack: str | None = None
    # What this broker supports; what the cell has finalized is in the image.
    features: SupportedFeatures = SUPPORTED_FEATURES
    loop_bounds: LoopBounds = LOOP_BOUNDS
    # Who has to wait, and for how long.
    quotas: QuotaManager = field(default_factory=NoQuotas)
    # Filled by the composition root: these are built around this object.
    metadata: MetadataWriter = field(init=False)
    # Calls of the store, and what the controller decides on large images: file work that is slow
    # must hold up neither.
    store_executor: Executor = field(init=False)
    # What consumers read from disk: it must not hold up what else is done for requests.
    read_executor: Executor = field(init=False)
    peers: Peers = field(init=False)
    # For what features send, which waits for replicas elsewhere.
    feature_peers: Peers | None = None
    authentication: Authentication = field(init=False)
    groups: GroupService = field(init=False)
    fetches: OpenFetches = field(init=False)
    producer_ids: ProducerIds = field(init=False)
    deletion_guard: DeletionGuard = field(init=False)
    # Of a broker that has others.
    membership: Membership | None = None
    metadata_follower: MetadataFollower | None = None
    read_index: ReadIndex | None = None
    # What other brokers say of the tenants' use goes there.
    share_exchange: ShareExchange | None = None
    # What such a broker leaves for its next life, besides the logs, with its broker epoch.
    kept_at_stop: list[Callable[[int | None], None]] = field(default_factory=list)
    # Of the process that the broker runs in, if it gives them.
    measure_space: MeasureSpace | None = None
    log_threshold: LogThreshold | None = None
    # Made when they are first needed.
    auto_creation: AutoCreation | None = None
    encoded_topics: EncodedTopics | None = None
    shown_topics: ShownTopics = field(default_factory=ShownTopics)
    timers: TimerQueue = field(default_factory=TimerQueue)
    turns: Turns = field(default_factory=UnwatchedTurns)
    wakes: WakeQueue = field(default_factory=WakeQueue)
    # The date belongs to `wall_clock.wall_ms(now_ms)`; all other time is `now_ms`.
    wall_clock: WallClock = field(default_factory=WallClock)
    # As of this tick (deletion_guard.py).
    deletion_permit: DeletionPermit = PERMITTED
    # For what is unpacked on the loop, and by `request_work`.
    unpacker: Unpacker = field(default_factory=Unpacker)
    thread_unpackers: UnpackerPool = field(
        default_factory=lambda: UnpackerPool(kept_max=WORK_AT_ONCE_MAX)
    )
    request_work: RequestWork = field(init=False)
    # What consumers read otherwise than as it stands in the logs.
    projections: Projections = field(init=False)
    shown_lags: ShownLags = field(init=False)
    images: ImageApplication = field(init=False)
    commits: Commits = field(init=False)
    components: list[Component] = field(default_factory=list)
    image_listeners: list[ImageListener] = field(default_factory=list)
    # Called with topic id and partition when retention has let a log of this broker begin later.
    retention_listeners: list[Callable[[UUID, int], None]] = field(default_factory=list)

    # Of a feature that has commands.
    judges: Judges | None = None
    # Of one that hides messages until they are due.
    pending_messages: PendingMessages | None = None
    # Of one that may hold them back; and that hears what readers of virtual topics are sent.
    firing_gate: FiringGate | None = None
    on_sent: SentListener | None = None
    # Of one that puts dead letters back.
    dead_letter_operations: DeadLetterOperations | None = None
    # Told of led partitions to which records were appended that are hidden from readers.
    hidden_listeners: list[Callable[[Partition], None]] = field(default_factory=list)

    # What leaves out messages that were taken before, where a topic asks for it.
    duplicates: DuplicateFinder | None = None
    # Who says what is stored of what is produced to virtual topics; their batches' turns.
    taker: Taker | None = None
    taken_turns: PartitionTurns = field(default_factory=PartitionTurns)

    # Who may do what.
    authorizer: Authorizer = field(init=False)
    # What the names in requests stand for.
    namespaces: Namespaces = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        of_broker = BrokerSettings(
            config.get_str(SUPER_USERS), config.get_bool(ALLOW_EVERYONE), config.get_str(OPERATORS)
        )
        self.authorizer = Authorizer(self, of_broker)
        self.image_listeners.append(self.authorizer.image_changed)
        self.namespaces = Namespaces(self, self.cluster_id, self.authorizer)
        self.image_listeners.append(self.namespaces.image_changed)
        self.share_out(self.unsent)
        self.image_listeners.append(self._follow_tenants)
        self.store_executor = self.read_executor = self.executor
        self.request_work = RequestWork(self.executor, lambda: self.quotas)
        self.projections = Projections(self.partitions)
        self.shown_lags = ShownLags(self)
        self.images = ImageApplication(self)
        self.commits = Commits(self.image.version)

    def hidden_appended(self, partition: Partition) -> None:
        for listener in self.hidden_listeners:
            listener(partition)

    def share_out(self, budget: Budget) -> None:
        """From now on no tenant has more of it than it leaves the others, if there are any."""
        budget.leaves_room = len(self.namespaces.names) > 1
        self.shared_budgets.append(budget)

    def _follow_tenants(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.tenants is not new.tenants:
            for budget in self.shared_budgets:
                budget.leaves_room = len(self.namespaces.names) > 1

    def start(self, now_ms: int) -> None:
        for component in self.components:
            component.start(now_ms)

    def tick(self, now_ms: int) -> None:
        step = self.turns.step
        self.timers.run_due(now_ms, step)
        for component in self.components:
            step(component.tick)
            component.tick(now_ms)
        step("wakes")
        self.wakes.run(now_ms)

    def stop(self, now_ms: int) -> None:
        """Stop components in the reverse order of their start."""
        self.images.stop()
        for component in reversed(self.components):
            component.stop(now_ms)

    def next_deadline_ms(self) -> int | None:
        earliest_ms = self.timers.next_deadline_ms()
        for component in self.components:
            deadline_ms = component.next_deadline_ms()
            if deadline_ms is not None and (earliest_ms is None or deadline_ms < earliest_ms):
                earliest_ms = deadline_ms
        return earliest_ms

    @property
    def newest_image(self) -> MetadataImage:
        """What is known of the store. `image` follows it."""
        return self.images.newest

    def apply_image(self, image: MetadataImage, now_ms: int) -> None:
        """Make `image` the current one, now or in steps: partitions first (logs are created,
        deleted and configured), then the listeners in the order of their registration. An image
        that is not newer than what is known is passed over: several ways lead here, not all equally
        fast."""
        self.images.learn(image, now_ms)
