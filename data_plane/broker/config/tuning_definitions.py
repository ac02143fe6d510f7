"""Apache Kafka's broker properties that tune threads, caches and queues which this broker lacks."""

from __future__ import annotations

from data_plane.broker.config.definition import (
    INT64_MAX,
    Update,
    at_least,
    define,
)

CLUSTER = Update.CLUSTER_WIDE

_THREADS = "one event loop serves all connections, file work has a small pool of its own"
_PURGATORY = "waiting requests are dropped when they are answered, there is nothing to purge"
_METRICS = "metrics are served over HTTP and computed when they are asked for"

TUNING_DEFINITIONS = (
    define(
        "background.threads", "INT", 10, "Sizes a pool of threads.", at_least(1), CLUSTER, _THREADS
    ),
    define(
        "delete.records.purgatory.purge.interval.requests",
        "INT",
        1,
        "When waiting requests are purged.",
        moot=_PURGATORY,
    ),
    define(
        "fetch.purgatory.purge.interval.requests",
        "INT",
        1000,
        "When waiting requests are purged.",
        moot=_PURGATORY,
    ),
    define(
        "producer.purgatory.purge.interval.requests",
        "INT",
        1000,
        "When waiting requests are purged.",
        moot=_PURGATORY,
    ),
    define(
        "metrics.num.samples", "INT", 2, "A setting of Kafka's metrics.", at_least(1), moot=_METRICS
    ),
    define(
        "metrics.recording.level", "STRING", "INFO", "A setting of Kafka's metrics.", moot=_METRICS
    ),
    define(
        "metrics.sample.window.ms",
        "LONG",
        30_000,
        "A setting of Kafka's metrics.",
        at_least(1),
        moot=_METRICS,
    ),
    define("num.io.threads", "INT", 8, "Sizes a pool of threads.", at_least(1), CLUSTER, _THREADS),
    define(
        "num.network.threads", "INT", 3, "Sizes a pool of threads.", at_least(1), CLUSTER, _THREADS
    ),
    define(
        "num.recovery.threads.per.data.dir",
        "INT",
        2,
        "Sizes a pool of threads.",
        at_least(1),
        CLUSTER,
        _THREADS,
    ),
    define(
        "num.replica.alter.log.dirs.threads", "INT", None, "Sizes a pool of threads.", moot=_THREADS
    ),
    define(
        "queued.max.request.bytes",
        "LONG",
        -1,
        "Size of the request queue.",
        moot="requests are handled as they arrive and not queued",
    ),
    define(
        "queued.max.requests",
        "INT",
        500,
        "Size of the request queue.",
        at_least(1),
        moot="requests are handled as they arrive and not queued",
    ),
    define(
        "server.max.startup.time.ms",
        "LONG",
        INT64_MAX,
        "How long a start may take.",
        at_least(0),
        moot="a start that cannot finish fails at once",
    ),
)
