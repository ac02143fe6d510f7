"""How a client is set up: time-outs, producing, consuming. Checked when made, immutable after.

Durations are in milliseconds and sizes in bytes, as the names say. `librdkafka` fields pass
properties under librdkafka's own names for what these settings do not cover; they win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from tidewheel.errors import ConfigurationError
from tidewheel.partitioner import Partitioner

REQUEST_TIMEOUT_MS: Final = 5_000
"""A broker that takes longer to answer counts as frozen or cut off, and its connection is given up:
by then the cell has long made others the leaders."""

REQUEST_TIMEOUT_MS_MIN: Final = 1_000
REQUEST_TIMEOUT_MS_MAX: Final = 300_000
CONSUMER_REQUEST_TIMEOUT_MS: Final = 10_000
"""Longer, because a fetch brings megabytes, over slow networks, too."""

Acks = Literal[0, 1, "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Assignment = Literal["cooperative-sticky", "range", "roundrobin"]
Isolation = Literal["read_committed", "read_uncommitted"]

MESSAGE_BYTES_MAX_DEFAULT: Final = 1_048_588
"""What brokers take by default (`max.message.bytes`), batch overhead included."""


def _check(condition: bool, message: str, hint: str) -> None:
    if not condition:
        raise ConfigurationError(message, hint=hint)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How messages are sent. `ProducerSettings.throughput()` and `.latency()` are presets.

    Attributes:
        acks: "all" waits for every in-sync replica, 1 for the leader, 0 for nobody.
        idempotent: no duplicates and no reordering by retries; None means: with acks="all".
        linger_ms: how long a batch waits for more messages.
        batch_bytes: a batch this large leaves at once.
        compression: of whole batches.
        partitioner: "hash" (Kafka's murmur2 of the key), "random", or a function.
        queue_messages_max, queue_bytes_max: what may wait in the client for its acknowledgement;
            beyond it `send` waits and `send_nowait` raises QueueFull.
        delivery_timeout_ms: after this time without an acknowledgement a message has failed.
        request_timeout_ms: after this time without an answer, messages are sent again to whoever
            leads by then: what survives a broker that is frozen or cut off. None means 5 s (a third
            of the delivery time-out where that is less); without idempotence half the delivery
            time-out, because the messages may be stored twice then.
        message_bytes_max: larger messages are refused by the client.
    """

    acks: Acks = "all"
    idempotent: bool | None = None
    linger_ms: float = 5
    batch_bytes: int = 131_072
    compression: Compression = "none"
    partitioner: Partitioner = "hash"
    queue_messages_max: int = 100_000
    queue_bytes_max: int = 67_108_864
    delivery_timeout_ms: int = 30_000
    request_timeout_ms: int | None = None
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT
    librdkafka: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.acks in (0, 1, "all"), f"acks={self.acks!r}", 'Use 0, 1 or "all"')
        _check(
            not (self.idempotent and self.acks != "all"),
            f"idempotent=True with acks={self.acks!r}",
            'Idempotence needs acks="all"',
        )
        _check(
            self.compression in ("none", "gzip", "snappy", "lz4", "zstd"),
            f"compression={self.compression!r}",
            "Use none, gzip, snappy, lz4 or zstd",
        )
        _check(
            callable(self.partitioner) or self.partitioner in ("hash", "random"),
            f"partitioner={self.partitioner!r}",
            'Use "hash", "random" or a function (topic, key, value, partition_count) -> partition',
        )
        _check(0 <= self.linger_ms <= 900_000, f"linger_ms={self.linger_ms}", "Use 0 to 900000")
        for name in ("batch_bytes", "queue_messages_max", "queue_bytes_max", "delivery_timeout_ms"):
            _check(getattr(self, name) > 0, f"{name}={getattr(self, name)}", "Use a number above 0")
        _check(
            self.request_timeout_ms is None
            or REQUEST_TIMEOUT_MS_MIN <= self.request_timeout_ms <= REQUEST_TIMEOUT_MS_MAX,
            f"request_timeout_ms={self.request_timeout_ms}",
            f"Use {REQUEST_TIMEOUT_MS_MIN} to {REQUEST_TIMEOUT_MS_MAX}",
        )
        _check(
            1000 <= self.message_bytes_max <= 1_000_000_000,
            f"message_bytes_max={self.message_bytes_max}",
            "Use 1000 to 1000000000",
        )

    @property
    def is_idempotent(self) -> bool:
        """Whether the producer asks the broker for an identity against duplicates."""
        return self.acks == "all" if self.idempotent is None else self.idempotent

    @property
    def request_time_ms(self) -> int:
        """How long a broker may take to answer."""
        if self.request_timeout_ms is not None:
            return self.request_timeout_ms
        if self.is_idempotent:
            wanted = min(REQUEST_TIMEOUT_MS, self.delivery_timeout_ms // 3)
        else:
            wanted = self.delivery_timeout_ms // 2
        return max(REQUEST_TIMEOUT_MS_MIN, min(wanted, REQUEST_TIMEOUT_MS_MAX))

    @classmethod
    def throughput(cls, **changes: Any) -> Self:
        """Large compressed batches: the most messages per second, some tens of ms more latency."""
        preset = cls(linger_ms=50, batch_bytes=524_288, compression="lz4")
        return replace(preset, **changes)

    @classmethod
    def latency(cls, **changes: Any) -> Self:
        """Every message leaves at once."""
        return replace(cls(linger_ms=0, batch_bytes=65_536), **changes)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How messages are fetched and how the group behaves.

    Attributes:
        instance_id: static membership (KIP-345): a restart within the session time-out
            keeps the partitions.
        assignment: how partitions are shared out; cooperative-sticky moves the fewest.
        isolation: read_committed hides records of open and aborted transactions.
        session_timeout_ms: a member silent for this long is dropped from the group.
        heartbeat_interval_ms: how often a member says that it lives.
        poll_interval_ms_max: a member that does not ask for messages for this long is dropped.
        commit_interval_ms: how often processed offsets are committed while consuming.
        fetch_wait_ms: how long the broker may hold a fetch that finds nothing.
        fetch_bytes_max: of one partition in one fetch.
        request_timeout_ms: a broker that takes longer to answer (beyond `fetch_wait_ms`) counts as
            frozen or cut off; the new leader or coordinator is looked for.
        prefetch_bytes_max: what may wait in the client ahead of the application.
    """

    instance_id: str | None = None
    assignment: Assignment = "cooperative-sticky"
    isolation: Isolation = "read_committed"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    poll_interval_ms_max: int = 300_000
    commit_interval_ms: int = 1_000
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 1_048_576
    request_timeout_ms: int = CONSUMER_REQUEST_TIMEOUT_MS
    prefetch_bytes_max: int = 33_554_432
    librdkafka: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(
            self.assignment in ("cooperative-sticky", "range", "roundrobin"),
            f"assignment={self.assignment!r}",
            "Use cooperative-sticky, range or roundrobin",
        )
        _check(
            self.isolation in ("read_committed", "read_uncommitted"),
            f"isolation={self.isolation!r}",
            "Use read_committed or read_uncommitted",
        )
        _check(
            0 < self.heartbeat_interval_ms < self.session_timeout_ms <= self.poll_interval_ms_max,
            "heartbeat_interval_ms, session_timeout_ms and poll_interval_ms_max do not fit",
            "Use heartbeat < session time-out <= poll interval",
        )
        for name in ("commit_interval_ms", "fetch_bytes_max", "prefetch_bytes_max"):
            _check(getattr(self, name) > 0, f"{name}={getattr(self, name)}", "Use a number above 0")
        _check(
            REQUEST_TIMEOUT_MS_MIN <= self.request_timeout_ms <= REQUEST_TIMEOUT_MS_MAX,
            f"request_timeout_ms={self.request_timeout_ms}",
            f"Use {REQUEST_TIMEOUT_MS_MIN} to {REQUEST_TIMEOUT_MS_MAX}",
        )
        _check(self.fetch_wait_ms >= 0, f"fetch_wait_ms={self.fetch_wait_ms}", "Use 0 or more")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What all connections of a client share.

    Attributes:
        client_id: shown in the broker's logs and metrics.
        connect_timeout_ms: how long opening the client waits for a first broker.
        request_timeout_ms: of administrative requests.
        librdkafka: properties for every connection, under librdkafka's names.
    """

    client_id: str = "tidewheel"
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    librdkafka: Mapping[str, Any] = field(default_factory=dict)
