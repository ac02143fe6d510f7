"""The topic properties that every broker knows: all of Apache Kafka 4.3's, `durability` and
`tidewheel.undelete.ms`.

Each topic property has a broker property that gives its default where a topic does not set it
(`SYNONYMS`; several when there are coarser units, the finest first). Properties that have no effect
on a cell of one broker, or without tiered storage, are accepted with a reason in `moot`.
"""

from __future__ import annotations

from types import MappingProxyType

from data_plane.broker.config.definition import (
    GZIP_LEVEL,
    INT64_MAX,
    THROTTLED_REPLICAS,
    at_least,
    between,
    by_name,
    define,
    list_of,
    one_of,
)

DAY_MS = 24 * 3600 * 1000
# A deleted topic takes space until it is purged.
UNDELETE_MS_MAX = 90 * DAY_MS
# 14 days, where Apache Kafka has 7: the product's promise for history on the broker.
RETENTION_MS_DEFAULT = 14 * DAY_MS

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
DURABILITIES = ("os", "fsync")

TIERED_STORAGE = "segments are not yet moved to other storage"

_DEFINITIONS = (
    define(
        "cleanup.policy",
        "LIST",
        "delete",
        "What happens to old segments: `delete` drops them by age and size, `compact` keeps the "
        "newest record of each key, both do both. An empty list keeps everything.",
        list_of(*CLEANUP_POLICIES),
    ),
    define(
        "compression.gzip.level",
        "INT",
        -1,
        "Level for records that the broker compresses with gzip; -1 is the library's default.",
        GZIP_LEVEL,
    ),
    define(
        "compression.lz4.level",
        "INT",
        9,
        "Level for records that the broker compresses with lz4.",
        between(1, 17),
    ),
    define(
        "compression.type",
        "STRING",
        "producer",
        "How batches are stored: `producer` keeps what the producer chose, anything else has the "
        "broker compress again.",
        one_of(*COMPRESSION_TYPES),
    ),
    define(
        "compression.zstd.level",
        "INT",
        3,
        "Level for records that the broker compresses with zstd.",
        between(-131072, 22),
    ),
    define(
        "delete.retention.ms",
        "LONG",
        DAY_MS,
        "How long a compacted topic keeps tombstones, so that a reader from the start sees them.",
        at_least(0),
    ),
    define(
        "durability",
        "STRING",
        "os",
        "When a record counts as written: `os` once the operating system has it (it survives the "
        "process), `fsync` once the disk has it (it survives a loss of power); acknowledgements "
        "then wait for a sync that many requests share.",
        one_of(*DURABILITIES),
    ),
    define(
        "file.delete.delay.ms",
        "LONG",
        60_000,
        "How long the files of a deleted segment stay for readers that are in the midst of them.",
        at_least(0),
    ),
    define(
        "flush.messages",
        "LONG",
        INT64_MAX,
        "Sync the log to disk after this many records.",
        at_least(1),
    ),
    define(
        "flush.ms",
        "LONG",
        INT64_MAX,
        "Sync the log to disk when a record has waited this long.",
        at_least(0),
    ),
    define(
        "follower.replication.throttled.replicas",
        "LIST",
        "",
        "Replicas whose replication is throttled on the follower's side.",
        THROTTLED_REPLICAS,
        moot="follower.replication.throttled.rate holds for all replicas that are being added",
    ),
    define(
        "index.interval.bytes",
        "INT",
        4096,
        "An entry of the offset index is written after this many bytes of log.",
        at_least(0),
    ),
    define(
        "leader.replication.throttled.replicas",
        "LIST",
        "",
        "Partitions whose leaders limit what followers that are not in sync get, to "
        "leader.replication.throttled.rate: `*` for all, or partition:broker with the leader.",
        THROTTLED_REPLICAS,
    ),
    define(
        "local.retention.bytes",
        "LONG",
        -2,
        "Bytes that stay on the broker once segments are archived; -2 means retention.bytes.",
        at_least(-2),
        moot=TIERED_STORAGE,
    ),
    define(
        "local.retention.ms",
        "LONG",
        -2,
        "How long segments stay on the broker once archived; -2 means retention.ms.",
        at_least(-2),
        moot=TIERED_STORAGE,
    ),
    define(
        "max.compaction.lag.ms",
        "LONG",
        INT64_MAX,
        "A record of a compacted topic is compacted at the latest after this long.",
        at_least(1),
    ),
    define(
        "max.message.bytes",
        "INT",
        1024 * 1024 + 12,
        "The largest record batch that is accepted, after compression.",
        at_least(0),
    ),
    define(
        "message.timestamp.after.max.ms",
        "LONG",
        3_600_000,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        at_least(0),
    ),
    define(
        "message.timestamp.before.max.ms",
        "LONG",
        INT64_MAX,
        "How far a record's timestamp may lie behind the broker's clock.",
        at_least(0),
    ),
    define(
        "message.timestamp.type",
        "STRING",
        "CreateTime",
        "Whose timestamp a record has: the producer's, or the time of its append.",
        one_of(*TIMESTAMP_TYPES),
    ),
    define(
        "min.cleanable.dirty.ratio",
        "DOUBLE",
        0.5,
        "Share of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
    ),
    define(
        "min.compaction.lag.ms",
        "LONG",
        0,
        "A record of a compacted topic stays uncompacted at least this long.",
        at_least(0),
    ),
    define(
        "min.insync.replicas",
        "INT",
        2,
        "Replicas that must have a record before acks=all is answered; never more than there are.",
        at_least(1),
    ),
    define(
        "preallocate",
        "BOOLEAN",
        False,
        "Reserve a segment's space when it is made.",
        moot="segments grow as they are written, the tail of a preallocated one cannot be mapped",
    ),
    define(
        "remote.log.copy.disable",
        "BOOLEAN",
        False,
        "Stop moving segments to other storage.",
        moot=TIERED_STORAGE,
    ),
    define(
        "remote.log.delete.on.disable",
        "BOOLEAN",
        False,
        "Delete what was moved when remote storage is switched off.",
        moot=TIERED_STORAGE,
    ),
    define(
        "remote.storage.enable",
        "BOOLEAN",
        False,
        "Move sealed segments to other storage; true is refused, as by a Kafka broker without "
        "tiered storage.",
        moot=TIERED_STORAGE,
    ),
    define(
        "replica.lag.max.messages",
        "LONG",
        -1,
        "A follower that lacks more records than this leaves the in-sync replicas, however short "
        "the time; -1 for no bound.",
        at_least(-1),
    ),
    define(
        "retention.bytes",
        "LONG",
        -1,
        "Bytes that a partition keeps before its oldest segments go; -1 is no limit.",
    ),
    define(
        "retention.ms",
        "LONG",
        RETENTION_MS_DEFAULT,
        "How long records are kept; -1 is for ever.",
        at_least(-1),
    ),
    define(
        "segment.bytes",
        "INT",
        1 << 30,
        "Size at which a segment is sealed and the next one begun.",
        at_least(1 << 20),
    ),
    define(
        "segment.index.bytes",
        "INT",
        10 << 20,
        "Size of a segment's offset index; a full index seals the segment.",
        at_least(4),
    ),
    define(
        "segment.jitter.ms",
        "LONG",
        0,
        "Random part that is taken off segment.ms, so that not all logs roll at once.",
        at_least(0),
    ),
    define(
        "segment.ms",
        "LONG",
        7 * DAY_MS,
        "Age at which a segment is sealed even if it is not full.",
        at_least(1),
    ),
    define(
        "tidewheel.undelete.ms",
        "LONG",
        0,
        "For how long the topic can be brought back after it was deleted; 0: not at all. Its data "
        "takes space until then, and no topic of its name can be made. Where a topic does not set "
        "it, its tenant's setting counts, then that of the brokers.",
        between(0, UNDELETE_MS_MAX),
    ),
    define(
        "unclean.leader.election.enable",
        "BOOLEAN",
        False,
        "Whether a replica that is not in sync may become leader when no other is left, losing "
        "records.",
    ),
)

TOPIC_DEFINITIONS = MappingProxyType(by_name(_DEFINITIONS))

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

# topic property → (broker property, factor to the topic property's unit), the finest unit first.
SYNONYMS = MappingProxyType(
    {
        "cleanup.policy": (("log.cleanup.policy", 1),),
        "compression.gzip.level": (("compression.gzip.level", 1),),
        "compression.lz4.level": (("compression.lz4.level", 1),),
        "compression.type": (("compression.type", 1),),
        "compression.zstd.level": (("compression.zstd.level", 1),),
        "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
        "durability": (("log.durability", 1),),
        "tidewheel.undelete.ms": (("tidewheel.undelete.ms", 1),),
        "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
        "flush.messages": (("log.flush.interval.messages", 1),),
        "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        "index.interval.bytes": (("log.index.interval.bytes", 1),),
        "local.retention.bytes": (("log.local.retention.bytes", 1),),
        "local.retention.ms": (("log.local.retention.ms", 1),),
        "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
        "max.message.bytes": (("message.max.bytes", 1),),
        "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
        "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
        "message.timestamp.type": (("log.message.timestamp.type", 1),),
        "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
        "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
        "min.insync.replicas": (("min.insync.replicas", 1),),
        "preallocate": (("log.preallocate", 1),),
        "retention.bytes": (("log.retention.bytes", 1),),
        "retention.ms": (
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
        "segment.bytes": (("log.segment.bytes", 1),),
        "segment.index.bytes": (("log.index.size.max.bytes", 1),),
        "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
        "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
        "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    }
)
