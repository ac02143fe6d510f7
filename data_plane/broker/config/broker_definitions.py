"""The broker properties that have an effect: Apache Kafka's names, and a few of this broker's own.

Defaults are those of Apache Kafka 4.3 unless the documentation of a property says otherwise.
What Kafka has and this broker accepts without effect stands in compatibility_definitions.py.
"""

from __future__ import annotations

from types import MappingProxyType

from data_plane.broker.config.compatibility_definitions import COMPATIBILITY_DEFINITIONS
from data_plane.broker.config.definition import (
    GZIP_LEVEL,
    INT32_MAX,
    INT64_MAX,
    Allowed,
    ConfigDefinition,
    Update,
    Value,
    at_least,
    between,
    by_name,
    define,
    list_of,
    one_of,
)
from data_plane.broker.config.topic_definitions import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DAY_MS,
    DURABILITIES,
    TIMESTAMP_TYPES,
)

CLUSTER = Update.CLUSTER_WIDE

LOG_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
LOG_FORMATS = ("console", "json")


def _check_port(_: str, value: Value) -> str | None:
    assert isinstance(value, int)
    return None if 0 <= value <= 65535 else "Value must be between 0 and 65535"


PORT = Allowed("0 (any free port) to 65535", _check_port)

_IDENTITY_AND_LISTENERS = (
    define("node.id", "INT", 0, "This broker's number in the cell.", at_least(0)),
    define("broker.id", "INT", None, "The old name of node.id; both must agree.", at_least(0)),
    define(
        "cluster.id",
        "STRING",
        None,
        "The cell's id. Chosen at random at the first start when it is not given; data of another "
        "cell is refused. A property of this broker, not of Apache Kafka.",
    ),
    define("broker.rack", "STRING", None, "Where this broker stands, for clients and placement."),
    define(
        "listeners",
        "LIST",
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses to listen on, as NAME://host:port. An empty host is every interface, port 0 any "
        "free one. Apache Kafka's default listens on every interface; this one does not.",
    ),
    define(
        "advertised.listeners",
        "LIST",
        None,
        "Addresses that clients are told to connect to, when they differ from `listeners`.",
    ),
    define(
        "listener.security.protocol.map",
        "STRING",
        "PLAINTEXT:PLAINTEXT",
        "Which security protocol each listener's name stands for, as NAME:PLAINTEXT,…; no other "
        "protocol is served yet.",
    ),
    define(
        "http.host",
        "STRING",
        "127.0.0.1",
        "Where /metrics and /healthz are served. Not a property of Apache Kafka.",
    ),
    define(
        "http.port",
        "INT",
        0,
        "Port of /metrics and /healthz; 0 takes a free one. Not a property of Apache Kafka.",
        PORT,
    ),
    define(
        "log.dirs",
        "LIST",
        None,
        "Folders for data, separated by commas. The first one also holds the metadata.",
    ),
    define("log.dir", "STRING", "data", "The folder for data when log.dirs is not set."),
    define(
        "logging.level",
        "STRING",
        "INFO",
        "The least severe event that is written. Not a property of Apache Kafka.",
        one_of(*LOG_LEVELS),
    ),
    define(
        "logging.format",
        "STRING",
        "console",
        "How events are written: lines for people or one JSON object each. Not a property of "
        "Apache Kafka.",
        one_of(*LOG_FORMATS),
    ),
    define(
        "shutdown.timeout.ms",
        "LONG",
        5_000,
        "How long a stopping broker waits for requests in progress. Not Apache Kafka's.",
        at_least(0),
    ),
)

_CONNECTIONS = (
    define(
        "connections.max.idle.ms",
        "LONG",
        600_000,
        "A connection without a request for this long is closed; -1 never closes one.",
        at_least(-1),
    ),
    define(
        "max.connections",
        "INT",
        INT32_MAX,
        "Connections that this broker accepts in all.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "max.connections.per.ip",
        "INT",
        INT32_MAX,
        "Connections from one address.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "max.connections.per.ip.overrides",
        "STRING",
        "",
        "Other limits for single addresses, as address:count,address:count.",
        None,
        CLUSTER,
    ),
    define(
        "socket.listen.backlog.size",
        "INT",
        1024,
        "Connections that the operating system holds until the broker accepts them. Apache "
        "Kafka has 50, which a thousand clients that reconnect at once overrun.",
        at_least(1),
    ),
    define(
        "socket.receive.buffer.bytes",
        "INT",
        -1,
        "SO_RCVBUF of a connection; -1 leaves it to the operating system, which adapts it. Apache "
        "Kafka has 102400.",
        at_least(-1),
    ),
    define(
        "socket.send.buffer.bytes",
        "INT",
        -1,
        "SO_SNDBUF of a connection; -1 leaves it to the operating system, which adapts it. Apache "
        "Kafka has 102400.",
        at_least(-1),
    ),
    define(
        "socket.request.max.bytes",
        "INT",
        104_857_600,
        "The largest request; a larger one closes its connection.",
        at_least(1),
    ),
    define(
        "fetch.max.bytes",
        "INT",
        57_671_680,
        "The most that one fetch is answered with.",
        at_least(1024),
    ),
    define(
        "max.incremental.fetch.session.cache.slots",
        "INT",
        1000,
        "Incremental fetch sessions that are kept.",
        at_least(0),
    ),
    define(
        "max.request.partition.size.limit",
        "INT",
        2000,
        "Partitions in one answer of DescribeTopicPartitions.",
        at_least(1),
    ),
)

_TOPICS = (
    define(
        "auto.create.topics.enable",
        "BOOLEAN",
        True,
        "Make a topic when a client asks for its metadata and wants it made.",
    ),
    define("delete.topic.enable", "BOOLEAN", True, "Whether DeleteTopics is allowed."),
    define("num.partitions", "INT", 1, "Partitions of a topic that names none.", at_least(1)),
    define(
        "default.replication.factor",
        "INT",
        1,
        "Replicas of a topic that names none.",
        at_least(1),
    ),
    define(
        "min.insync.replicas",
        "INT",
        1,
        "Default of the topic property of this name.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "compression.type",
        "STRING",
        "producer",
        "Default of the topic property of this name.",
        one_of(*COMPRESSION_TYPES),
        CLUSTER,
    ),
    define(
        "compression.gzip.level",
        "INT",
        -1,
        "Default of the topic property of this name.",
        GZIP_LEVEL,
        CLUSTER,
    ),
    define(
        "compression.lz4.level",
        "INT",
        9,
        "Default of the topic property of this name.",
        between(1, 17),
        CLUSTER,
    ),
    define(
        "compression.zstd.level",
        "INT",
        3,
        "Default of the topic property of this name.",
        between(-131072, 22),
        CLUSTER,
    ),
    define(
        "message.max.bytes",
        "INT",
        1024 * 1024 + 12,
        "Default of max.message.bytes.",
        at_least(0),
        CLUSTER,
    ),
)

_LOG = (
    define(
        "log.cleanup.policy",
        "LIST",
        "delete",
        "Default of cleanup.policy.",
        list_of(*CLEANUP_POLICIES),
        CLUSTER,
    ),
    define(
        "log.durability",
        "STRING",
        "os",
        "Default of durability. Not a property of Apache Kafka.",
        one_of(*DURABILITIES),
        CLUSTER,
    ),
    define(
        "log.flush.interval.messages",
        "LONG",
        INT64_MAX,
        "Default of flush.messages.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "log.flush.interval.ms",
        "LONG",
        None,
        "Default of flush.ms; where not set, log.flush.scheduler.interval.ms.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "log.flush.scheduler.interval.ms",
        "LONG",
        INT64_MAX,
        "How often logs are looked at for syncing by time.",
        at_least(0),
    ),
    define(
        "log.flush.offset.checkpoint.interval.ms",
        "INT",
        60_000,
        "How often recovery points are written down.",
        at_least(0),
    ),
    define(
        "log.index.interval.bytes",
        "INT",
        4096,
        "Default of index.interval.bytes.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "log.index.size.max.bytes",
        "INT",
        10 << 20,
        "Default of segment.index.bytes.",
        at_least(4),
        CLUSTER,
    ),
    define(
        "log.message.timestamp.type",
        "STRING",
        "CreateTime",
        "Default of message.timestamp.type.",
        one_of(*TIMESTAMP_TYPES),
        CLUSTER,
    ),
    define(
        "log.message.timestamp.before.max.ms",
        "LONG",
        INT64_MAX,
        "Default of message.timestamp.before.max.ms.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "log.message.timestamp.after.max.ms",
        "LONG",
        3_600_000,
        "Default of message.timestamp.after.max.ms.",
        at_least(0),
        CLUSTER,
    ),
    define("log.retention.bytes", "LONG", -1, "Default of retention.bytes.", None, CLUSTER),
    define(
        "log.retention.ms",
        "LONG",
        None,
        "Default of retention.ms; where not set, log.retention.minutes.",
        at_least(-1),
        CLUSTER,
    ),
    define(
        "log.retention.minutes",
        "INT",
        None,
        "As log.retention.ms, in minutes; where not set, log.retention.hours.",
        at_least(-1),
    ),
    define(
        "log.retention.hours",
        "INT",
        14 * 24,
        "As log.retention.ms, in hours. 14 days, where Apache Kafka has 7.",
        at_least(-1),
    ),
    define(
        "log.retention.check.interval.ms",
        "LONG",
        300_000,
        "How often logs are looked at for retention.",
        at_least(1),
    ),
    define(
        "log.roll.ms",
        "LONG",
        None,
        "Default of segment.ms; where not set, log.roll.hours.",
        at_least(1),
        CLUSTER,
    ),
    define("log.roll.hours", "INT", 168, "As log.roll.ms, in hours.", at_least(1)),
    define(
        "log.roll.jitter.ms",
        "LONG",
        None,
        "Default of segment.jitter.ms; where not set, log.roll.jitter.hours.",
        at_least(0),
        CLUSTER,
    ),
    define("log.roll.jitter.hours", "INT", 0, "As log.roll.jitter.ms, in hours.", at_least(0)),
    define(
        "log.segment.bytes",
        "INT",
        1 << 30,
        "Default of segment.bytes.",
        at_least(1 << 20),
        CLUSTER,
    ),
    define(
        "log.segment.delete.delay.ms",
        "LONG",
        60_000,
        "Default of file.delete.delay.ms.",
        at_least(0),
        CLUSTER,
    ),
    define("log.cleaner.enable", "BOOLEAN", True, "Whether compacted topics are compacted."),
    define(
        "log.cleaner.backoff.ms",
        "LONG",
        15_000,
        "How long to wait for something to compact before looking again.",
        at_least(0),
    ),
    define(
        "log.cleaner.delete.retention.ms",
        "LONG",
        DAY_MS,
        "Default of delete.retention.ms.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "log.cleaner.max.compaction.lag.ms",
        "LONG",
        INT64_MAX,
        "Default of max.compaction.lag.ms.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "log.cleaner.min.cleanable.ratio",
        "DOUBLE",
        0.5,
        "Default of min.cleanable.dirty.ratio.",
        between(0, 1),
        CLUSTER,
    ),
    define(
        "log.cleaner.min.compaction.lag.ms",
        "LONG",
        0,
        "Default of min.compaction.lag.ms.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "producer.id.expiration.check.interval.ms",
        "INT",
        600_000,
        "How often producer ids are looked at for expiry.",
        at_least(1),
    ),
    define(
        "producer.id.expiration.ms",
        "INT",
        86_400_000,
        "A producer id without writes for this long is forgotten.",
        at_least(1),
        CLUSTER,
    ),
)

_GROUPS = (
    define(
        "group.initial.rebalance.delay.ms",
        "INT",
        3000,
        "How long a new group waits for more members before its first assignment.",
        at_least(0),
    ),
    define(
        "group.min.session.timeout.ms",
        "INT",
        6000,
        "The shortest session time-out that a member may ask for.",
    ),
    define(
        "group.max.session.timeout.ms",
        "INT",
        1_800_000,
        "The longest session time-out that a member may ask for.",
    ),
    define("group.max.size", "INT", INT32_MAX, "Members that one group may have.", at_least(1)),
    define(
        "offset.metadata.max.bytes",
        "INT",
        4096,
        "The longest text that may be committed with an offset.",
        at_least(0),
    ),
    define(
        "offsets.commit.timeout.ms",
        "INT",
        5000,
        "How long a commit waits for its record to be written.",
        at_least(1),
    ),
    define(
        "offsets.retention.minutes",
        "INT",
        10_080,
        "Offsets of a group without members are dropped after this long.",
        at_least(1),
    ),
    define(
        "offsets.retention.check.interval.ms",
        "LONG",
        600_000,
        "How often offsets are looked at for retention.",
        at_least(1),
    ),
    define(
        "offsets.topic.num.partitions",
        "INT",
        50,
        "Partitions of __consumer_offsets; must not change once the topic exists.",
        at_least(1),
    ),
    define(
        "offsets.topic.segment.bytes",
        "INT",
        104_857_600,
        "segment.bytes of __consumer_offsets.",
        at_least(1),
    ),
)

EFFECTIVE_DEFINITIONS = MappingProxyType(
    by_name(_IDENTITY_AND_LISTENERS, _CONNECTIONS, _TOPICS, _LOG, _GROUPS)
)

BROKER_DEFINITIONS = MappingProxyType(
    by_name(tuple(EFFECTIVE_DEFINITIONS.values()), tuple(COMPATIBILITY_DEFINITIONS.values()))
)


def definition_of(name: str) -> ConfigDefinition | None:
    return BROKER_DEFINITIONS.get(name)
