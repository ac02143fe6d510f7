"""The port between the client and what carries its messages.

Two adapters implement it: `tidewheel.transport.librdkafka` talks to brokers, and
`tidewheel.testing.memory` keeps everything in this process. The same contract tests run on both.

Invariants every adapter keeps
- All methods are called on the event loop's thread. Rebalance events run as coroutines there.
  Only reports of deliveries may be called on another thread, always the same one; they never run
  code of the application.
- Faults are raised as `tidewheel.errors` classes.
- A `RebalanceListener` coroutine may call `commit`, `pause`, `seek` and the other methods of its
  consumer except `fetch` and `close`; the rebalance goes on when the coroutine has returned.
- After `on_lost` nothing is committed for the lost partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from tidewheel.message import HeaderValue, Message, TopicPartition
from tidewheel.settings import ConsumerSettings, ProducerSettings


class Clock(Protocol):
    """Where the client gets the time from; tests pass a virtual one."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""

    async def sleep(self, seconds: float) -> None:
        """Return when that much of this clock's time has passed."""


class Fault(Protocol):
    """An error value of a delivery report, in confluent-kafka's shape."""

    def name(self) -> str: ...
    def str(self) -> str: ...
    def retriable(self) -> bool: ...


class Reported(Protocol):
    """The message part of a delivery report, in confluent-kafka's shape (it is hot)."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...


OnReport = Callable[[Fault | None, Reported], None]


class ProducerTransport(Protocol):
    """Sends records. `produce` only queues; every queued record is reported once."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_report: OnReport,
        timestamp_ms: int,
        headers: list[tuple[str, HeaderValue]] | None,
    ) -> None:
        """Queue one record; partition -1 means by the key's hash, timestamp 0 means now.

        Raises QueueFull, or the error that says why the record can never be sent.
        """

    async def partition_count(self, topic: str) -> int:
        """Raises TopicNotFound."""

    async def close(self) -> None:
        """Give up what is outstanding (its reports say so) and let go of the connections."""


class RebalanceListener(Protocol):
    """What the consumer wants to know when the group moves partitions."""

    async def on_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Partitions added. Returns offsets to start from, where not from the committed one."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions about to go; the listener may still commit for them."""

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions that have gone already; others may read them by now."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """What a consumer transport is made from. Without a group, `assign` chooses partitions."""

    topics: tuple[str, ...]
    group: str | None
    reset: str
    settings: ConsumerSettings


class ConsumerTransport(Protocol):
    """Fetches records and keeps the group membership."""

    async def fetch(self, messages_max: int, timeout_s: float) -> list[Message]:
        """Up to that many messages, at once when there are any; [] when time is up."""

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets; for consumers without a group."""

    def assignment(self) -> frozenset[TopicPartition]: ...
    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit these next offsets, with a text that is kept beside each ("" unless given),
        waiting for the broker. Raises CommitFailed and others."""

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]: ...
    async def committed_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Committed offsets with the texts beside them; partitions without one are missing."""

    async def pause(self, partitions: Iterable[TopicPartition]) -> None: ...
    async def resume(self, partitions: Iterable[TopicPartition]) -> None: ...
    async def seek(self, partition: TopicPartition, offset: int) -> None: ...
    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """First offset whose timestamp is not before the given one; the end when there is none."""

    async def positions(self) -> dict[TopicPartition, int]:
        """Next offsets to be handed out; partitions that have not begun are missing."""

    async def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """(first offset kept, next offset to be written)."""

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Raises TopicNotFound."""

    async def close(self) -> None:
        """Leave the group (its listener hears `on_revoked`) and let go of the connections."""


class Transport(Protocol):
    """Makes producers, consumers and the admin for one cell."""

    @property
    def clock(self) -> Clock: ...
    async def open(self) -> None:
        """Find a first broker. Raises BrokerUnreachable naming the addresses."""

    async def producer(
        self, settings: ProducerSettings, on_due: Callable[[], None]
    ) -> ProducerTransport:
        """A producer that calls `on_due` on the loop after it has called reports."""

    async def consumer(
        self, plan: ConsumerPlan, listener: RebalanceListener
    ) -> ConsumerTransport: ...
    @property
    def admin(self) -> AdminTransport: ...
    @property
    def delayed(self) -> DelayedTransport: ...
    async def close(self) -> None: ...


class DelayedTransport(Protocol):
    """Delayed messages of one partition, as its leader has them."""

    async def send_commands(
        self, topic: str, partition: int, commands: Sequence[tuple[str, bytes]]
    ) -> dict[int, str]:
        """Send records that are commands, a header each, as one batch, and wait until all in-sync
        replicas have it. Which were refused, by their place, and in whose words: with one refused
        none is done. It may send them twice. Raises TopicNotFound, NotAuthorized, and others."""

    async def describe(self, topic: str, partition: int, wanted: WantedDelayed) -> DelayedPage:
        """What is pending. Needs READ on the topic; what is to be cancelled, WRITE. Raises
        TopicNotFound, NotAuthorized, Unsupported, and others."""


@dataclass(frozen=True, slots=True)
class WantedDelayed:
    """Messages due in [since_ms, until_ms) behind `after`, of which `filter` matches, up to
    `messages_max` of them; or, `to_cancel`, their offsets only. And how many are due between each
    two of `edges_ms`. Values are cut to `value_bytes_max`, 0: not."""

    since_ms: int | None = None
    until_ms: int | None = None
    filter: str = ""
    after: tuple[int, int] | None = None
    messages_max: int = 0
    to_cancel: bool = False
    value_bytes_max: int = 0
    edges_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that is not due yet, as it was sent. `is_cut`: its value is longer, or it cannot be
    read now."""

    deliver_at_ms: int
    message: Message
    is_cut: bool = False

    @property
    def deliver_at(self) -> datetime:
        """When it is due, in UTC."""
        return datetime.fromtimestamp(self.deliver_at_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """`pending_count` of all; up to `uncertain_count` of those counted may be delivered already.
    `next` is where to go on: (deliver_at_ms, offset), None when nothing is behind."""

    pending_count: int
    uncertain_count: int
    first_ms: int | None
    counts: list[int]
    messages: list[PendingMessage]
    offsets: list[int]
    next: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition and who serves it. `leader` is a broker id, or -1 when there is none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic. `topic_id` is Kafka's base64 form, "" when the broker did not say."""

    name: str
    partitions: tuple[PartitionInfo, ...]
    internal: bool = False
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One topic property as the broker sees it. `is_default` says that nobody set it."""

    name: str
    value: str | None
    is_default: bool
    source: str
    read_only: bool
    sensitive: bool


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One member of a consumer group and the partitions it reads."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One consumer group. `state` is Kafka's word: Stable, Empty, Dead, PreparingRebalance, …"""

    group: str
    state: str
    protocol: str
    coordinator: int
    members: tuple[MemberInfo, ...]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker's address."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cell as a Kafka cluster."""

    cluster_id: str
    controller: int
    brokers: tuple[BrokerInfo, ...]


class AdminTransport(Protocol):
    """Administrative requests. `Admin` adds what is computed from several of them."""

    async def cluster(self) -> ClusterInfo: ...
    async def topics(self) -> list[TopicInfo]: ...
    async def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """Raises TopicNotFound for the first that is missing."""

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None: ...
    async def delete_topic(self, name: str) -> None: ...
    async def create_partitions(self, name: str, total_count: int) -> None: ...
    async def configs(self, name: str) -> list[ConfigEntry]: ...
    async def alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """None takes a property back to its default."""

    async def broker_configs(self, broker_id: int) -> list[ConfigEntry]:
        """Of one broker, which must run."""

    async def alter_broker_configs(self, broker_id: int, changes: Mapping[str, str | None]) -> None:
        """Properties of one broker, which must run. None as above."""

    async def groups(self) -> list[str]: ...
    async def describe_group(self, group: str) -> GroupInfo:
        """Raises GroupNotFound."""

    async def delete_group(self, group: str) -> None: ...
    async def group_offsets(self, group: str) -> dict[TopicPartition, int]: ...
    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> None: ...
    async def offsets(
        self, partitions: Iterable[TopicPartition], at: str | int
    ) -> dict[TopicPartition, int]:
        """Offsets at "earliest", "latest", or the first at or after an epoch ms (end if none)."""

    async def shown_counts(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """How many committed records subscriptions show from each offset on, and the epoch ms of
        the first (-1 for none). Partitions of plain topics are missing."""

    async def retry_pauses(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int, int]]:
        """Of retry partitions that pause: since when (epoch ms), and how many messages were nacked
        of how many that were passed. The others are missing."""

    async def record_timestamps(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Epoch ms of the record at (or first after) each offset; missing when not read in time."""

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Forget records below the offsets; returns the new first offsets."""
