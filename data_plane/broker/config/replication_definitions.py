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

_ELECTION = "a partition with one replica has nobody else to elect"
_CONTROLLER = "metadata has a store of its own and no quorum"

REPLICATION_DEFINITIONS = (
    define(
        "num.replica.fetchers",
        "INT",
        1,
        "How many threads copy from other brokers.",
        at_least(1),
        CLUSTER,
        "one connection for each leader serves all its partitions, without a thread",
    ),
    define(
        "replica.fetch.backoff.ms",
        "INT",
        1000,
        "The longest pause before a leader, or one of its partitions, is asked again after an "
        "error. The first pause is 20 ms, each further one twice as long.",
        at_least(0),
    ),
    define(
        "replica.fetch.max.bytes",
        "INT",
        1_048_576,
        "How much a follower asks for of one partition at a time. A larger batch is copied all the "
        "same.",
        at_least(0),
    ),
    define(
        "replica.fetch.min.bytes",
        "INT",
        1,
        "A leader waits until it has so much for a follower, for replica.fetch.wait.max.ms at "
        "most. More than 1 delays acknowledgements.",
        at_least(0),
    ),
    define(
        "replica.fetch.response.max.bytes",
        "INT",
        10_485_760,
        "How much a follower asks for at a time of all partitions that it copies from one leader.",
        at_least(0),
    ),
    define(
        "replica.fetch.wait.max.ms",
        "INT",
        500,
        "How long a leader that has nothing new lets a follower's request wait.",
        at_least(0),
    ),
    define(
        "replica.high.watermark.checkpoint.interval.ms",
        "LONG",
        5000,
        "How often a checkpoint is written.",
        moot="it is in the checkpoint that log.flush.offset.checkpoint.interval.ms is for",
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
        "The receive buffer of connections to other brokers.",
        moot="the system finds the size that a connection needs",
    ),
    define(
        "replica.socket.timeout.ms",
        "INT",
        30_000,
        "A connection to another broker is given up when a request has no answer for so long. One "
        "that is cut is noticed within seconds.",
        at_least(1),
    ),
    define(
        "request.timeout.ms",
        "INT",
        30_000,
        "How long a request between brokers may take.",
        moot="replica.socket.timeout.ms says so for all requests between brokers",
    ),
    define(
        "leader.replication.throttled.rate",
        "LONG",
        INT64_MAX,
        "Bytes per second that a broker gives, in all, to followers that are not in sync, of the "
        "partitions that it leads and that topics name in leader.replication.throttled.replicas. "
        "Followers in sync are not limited, nor counted.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "follower.replication.throttled.rate",
        "LONG",
        INT64_MAX,
        "Bytes per second that a broker copies for replicas that are being added, in all, until "
        "they are in sync. Which ones these are the cell knows by itself.",
        at_least(0),
        CLUSTER,
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
