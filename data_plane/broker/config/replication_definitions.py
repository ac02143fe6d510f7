"""Broker properties: brokers of one cell, their replicas, and the metadata they share."""

from __future__ import annotations

from data_plane.broker.config.definition import (
    INT64_MAX,
    Update,
    at_least,
    define,
    one_of,
)

CLUSTER = Update.CLUSTER_WIDE

_REPLICATION = "a cell of one broker does not replicate"
_ELECTION = "a partition with one replica has nobody else to elect"
_CONTROLLER = "metadata has a store of its own and no quorum"

REPLICATION_DEFINITIONS = (
    define(
        "num.replica.fetchers",
        "INT",
        1,
        "A setting of replication.",
        at_least(1),
        CLUSTER,
        _REPLICATION,
    ),
    define(
        "replica.fetch.backoff.ms",
        "INT",
        1000,
        "A setting of replication.",
        at_least(0),
        moot=_REPLICATION,
    ),
    define(
        "replica.fetch.max.bytes",
        "INT",
        1_048_576,
        "A setting of replication.",
        at_least(0),
        moot=_REPLICATION,
    ),
    define("replica.fetch.min.bytes", "INT", 1, "A setting of replication.", moot=_REPLICATION),
    define(
        "replica.fetch.response.max.bytes",
        "INT",
        10_485_760,
        "A setting of replication.",
        at_least(0),
        moot=_REPLICATION,
    ),
    define("replica.fetch.wait.max.ms", "INT", 500, "A setting of replication.", moot=_REPLICATION),
    define(
        "replica.high.watermark.checkpoint.interval.ms",
        "LONG",
        5000,
        "How often a checkpoint is written.",
        moot="the high watermark is the log's end where nobody follows",
    ),
    define(
        "replica.lag.time.max.ms",
        "LONG",
        30_000,
        "A follower that has not had all records for this long leaves the in-sync replicas.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "replica.selector.class",
        "STRING",
        "",
        "Where consumers that name their rack read: at an in-sync replica in that rack with "
        "`org.apache.kafka.common.replica.RackAwareReplicaSelector`, else at the leader.",
        one_of("", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    ),
    define(
        "replica.socket.receive.buffer.bytes",
        "INT",
        65_536,
        "A setting of replication.",
        moot=_REPLICATION,
    ),
    define(
        "replica.socket.timeout.ms", "INT", 30_000, "A setting of replication.", moot=_REPLICATION
    ),
    define("request.timeout.ms", "INT", 30_000, "Requests between brokers.", moot=_REPLICATION),
    define(
        "leader.replication.throttled.rate",
        "LONG",
        INT64_MAX,
        "A setting of replication.",
        at_least(0),
        CLUSTER,
        _REPLICATION,
    ),
    define(
        "follower.replication.throttled.rate",
        "LONG",
        INT64_MAX,
        "A setting of replication.",
        at_least(0),
        CLUSTER,
        _REPLICATION,
    ),
    define(
        "metadata.log.max.snapshot.interval.ms",
        "LONG",
        3_600_000,
        "A setting of the metadata log.",
        at_least(0),
        moot=_CONTROLLER,
    ),
    define(
        "metadata.max.retention.ms",
        "LONG",
        604_800_000,
        "A setting of the metadata log.",
        moot=_CONTROLLER,
    ),
)
