"""Apache Kafka's broker properties that have no effect here, and those that are refused.

A property is accepted when ignoring it cannot surprise anybody: it tunes threads, caches or
replication that this broker does not have, or a protocol that it does not serve yet. Each names
its reason, which the documentation and the start-up log repeat. A property is refused when somebody
who sets it would be misled about safety (TLS, SASL, authorizers) or about what runs where
(quorums, tiered storage, plug-in classes).
"""

from __future__ import annotations

from types import MappingProxyType

from data_plane.broker.config.definition import (
    INT32_MAX,
    INT64_MAX,
    Update,
    at_least,
    between,
    by_name,
    define,
    list_of,
)

CLUSTER = Update.CLUSTER_WIDE

_THREADS = "one event loop serves all connections, file work has a small pool of its own"
_REPLICATION = "a cell of one broker does not replicate"
_ELECTION = "a partition with one replica has nobody else to elect"
_PURGATORY = "waiting requests are dropped when they are answered, there is nothing to purge"
_TRANSACTIONS = "transactions are not served yet"
_QUOTAS = "quotas are not served yet"
_CLEANER = "compaction sizes its own buffers"
_CONTROLLER = "metadata has a store of its own and no quorum"
_NEW_GROUPS = "only classic consumer groups are served yet"
_TIERED = "segments are not yet moved to other storage"
_KERBEROS = "it tunes logins with Kerberos, of which there are none"
_METRICS = "metrics are served over HTTP and computed when they are asked for"

_DEFINITIONS = (
    define(
        "auto.leader.rebalance.enable",
        "BOOLEAN",
        True,
        "Move leaders back to their preferred brokers.",
        moot=_ELECTION,
    ),
    define(
        "background.threads", "INT", 10, "Sizes a pool of threads.", at_least(1), CLUSTER, _THREADS
    ),
    define(
        "broker.heartbeat.interval.ms",
        "INT",
        2000,
        "How often a broker reports to the controller.",
        moot=_CONTROLLER,
    ),
    define(
        "broker.session.timeout.ms",
        "INT",
        9000,
        "How long a broker may be silent.",
        moot=_CONTROLLER,
    ),
    define(
        "connection.failed.authentication.delay.ms",
        "INT",
        100,
        "Delay of refusals.",
        at_least(0),
        moot="nothing is authenticated yet",
    ),
    define(
        "controlled.shutdown.enable",
        "BOOLEAN",
        True,
        "Hand leaders over before stopping.",
        moot=_ELECTION,
    ),
    define(
        "controller.quota.window.num",
        "INT",
        11,
        "Sizes the window of a quota.",
        at_least(1),
        moot=_QUOTAS,
    ),
    define(
        "controller.quota.window.size.seconds",
        "INT",
        1,
        "Sizes the window of a quota.",
        at_least(1),
        moot=_QUOTAS,
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
        "offsets.topic.replication.factor",
        "SHORT",
        3,
        "Replicas of __consumer_offsets.",
        at_least(1),
        moot="there are never more replicas than brokers, and there is one",
    ),
    define(
        "producer.purgatory.purge.interval.requests",
        "INT",
        1000,
        "When waiting requests are purged.",
        moot=_PURGATORY,
    ),
    define(
        "group.coordinator.append.linger.ms",
        "INT",
        -1,
        "Batching of group records.",
        at_least(-1),
        moot="group records are written at once",
    ),
    define(
        "group.coordinator.threads",
        "INT",
        4,
        "Sizes a pool of threads.",
        at_least(1),
        moot=_THREADS,
    ),
    define(
        "group.coordinator.background.threads",
        "INT",
        2,
        "Sizes a pool of threads.",
        at_least(1),
        moot=_THREADS,
    ),
    define(
        "group.coordinator.rebalance.protocols",
        "LIST",
        "classic",
        "Group protocols.",
        list_of("classic"),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.assignment.interval.ms",
        "INT",
        1000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(0),
        CLUSTER,
        _NEW_GROUPS,
    ),
    define(
        "group.consumer.heartbeat.interval.ms",
        "INT",
        5000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.min.heartbeat.interval.ms",
        "INT",
        5000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.max.heartbeat.interval.ms",
        "INT",
        15_000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.session.timeout.ms",
        "INT",
        45_000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.min.session.timeout.ms",
        "INT",
        45_000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.max.session.timeout.ms",
        "INT",
        60_000,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "group.consumer.max.size",
        "INT",
        INT32_MAX,
        "A setting of groups with the protocol of KIP-848.",
        at_least(1),
        moot=_NEW_GROUPS,
    ),
    define(
        "leader.imbalance.check.interval.seconds",
        "LONG",
        300,
        "When leaders are moved back.",
        at_least(1),
        moot=_ELECTION,
    ),
    define(
        "leader.imbalance.per.broker.percentage",
        "INT",
        10,
        "When leaders are moved back.",
        moot=_ELECTION,
    ),
    define(
        "log.cleaner.dedupe.buffer.size",
        "LONG",
        134_217_728,
        "Memory of compaction.",
        None,
        CLUSTER,
        _CLEANER,
    ),
    define(
        "log.cleaner.io.buffer.load.factor",
        "DOUBLE",
        0.9,
        "Memory of compaction.",
        None,
        CLUSTER,
        _CLEANER,
    ),
    define(
        "log.cleaner.io.buffer.size",
        "INT",
        524_288,
        "Memory of compaction.",
        at_least(0),
        CLUSTER,
        _CLEANER,
    ),
    define(
        "log.cleaner.io.max.bytes.per.second",
        "DOUBLE",
        1.7976931348623157e308,
        "Compaction rate.",
        None,
        CLUSTER,
        "compaction reads and writes at its own pace",
    ),
    define(
        "log.cleaner.threads", "INT", 1, "Sizes a pool of threads.", at_least(0), CLUSTER, _THREADS
    ),
    define(
        "log.dir.failure.timeout.ms",
        "LONG",
        30_000,
        "How long a failed folder is reported.",
        at_least(1),
        moot=_CONTROLLER,
    ),
    define(
        "log.flush.start.offset.checkpoint.interval.ms",
        "INT",
        60_000,
        "How often a checkpoint is written.",
        at_least(0),
        moot="log starts are written down when they change",
    ),
    define(
        "log.initial.task.delay.ms",
        "LONG",
        30_000,
        "Delay of the first retention check.",
        at_least(0),
        moot="the first check comes after one interval",
    ),
    define(
        "log.local.retention.bytes",
        "LONG",
        -2,
        "Default of local.retention.bytes.",
        at_least(-2),
        CLUSTER,
        _TIERED,
    ),
    define(
        "log.local.retention.ms",
        "LONG",
        -2,
        "Default of local.retention.ms.",
        at_least(-2),
        CLUSTER,
        _TIERED,
    ),
    define(
        "log.preallocate",
        "BOOLEAN",
        False,
        "Default of preallocate.",
        None,
        CLUSTER,
        "segments grow as they are written",
    ),
    define(
        "max.connection.creation.rate",
        "INT",
        INT32_MAX,
        "Connection rate.",
        at_least(0),
        CLUSTER,
        _QUOTAS,
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
        "num.replica.fetchers",
        "INT",
        1,
        "A setting of replication.",
        at_least(1),
        CLUSTER,
        _REPLICATION,
    ),
    define(
        "offsets.load.buffer.size",
        "INT",
        5_242_880,
        "How much is read at a time when groups are loaded.",
        at_least(1),
        moot="groups are loaded in pieces of their own size",
    ),
    define(
        "offsets.topic.compression.codec",
        "INT",
        0,
        "Compression of group records.",
        between(0, 0),
        moot="group records are small and not compressed",
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
        "quota.window.num", "INT", 11, "Sizes the window of a quota.", at_least(1), moot=_QUOTAS
    ),
    define(
        "quota.window.size.seconds",
        "INT",
        1,
        "Sizes the window of a quota.",
        at_least(1),
        moot=_QUOTAS,
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
        "replica.lag.time.max.ms", "LONG", 30_000, "A setting of replication.", moot=_REPLICATION
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
    define(
        "replication.quota.window.num",
        "INT",
        11,
        "Sizes the window of a quota.",
        at_least(1),
        moot=_QUOTAS,
    ),
    define(
        "replication.quota.window.size.seconds",
        "INT",
        1,
        "Sizes the window of a quota.",
        at_least(1),
        moot=_QUOTAS,
    ),
    define("request.timeout.ms", "INT", 30_000, "Requests between brokers.", moot=_REPLICATION),
    define(
        "sasl.kerberos.min.time.before.relogin",
        "LONG",
        60_000,
        "How often Kerberos logins are renewed.",
        update=Update.PER_BROKER,
        moot=_KERBEROS,
    ),
    define(
        "sasl.kerberos.ticket.renew.jitter",
        "DOUBLE",
        0.05,
        "When Kerberos tickets are renewed.",
        update=Update.PER_BROKER,
        moot=_KERBEROS,
    ),
    define(
        "sasl.kerberos.ticket.renew.window.factor",
        "DOUBLE",
        0.8,
        "When Kerberos tickets are renewed.",
        update=Update.PER_BROKER,
        moot=_KERBEROS,
    ),
    define(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "INT",
        10_000,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.max.timeout.ms",
        "INT",
        900_000,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.partition.verification.enable",
        "BOOLEAN",
        True,
        "A setting of transactions.",
        None,
        CLUSTER,
        _TRANSACTIONS,
    ),
    define(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "INT",
        3_600_000,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.state.log.load.buffer.size",
        "INT",
        5_242_880,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.state.log.min.isr",
        "INT",
        2,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.state.log.num.partitions",
        "INT",
        50,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.state.log.replication.factor",
        "SHORT",
        3,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transaction.state.log.segment.bytes",
        "INT",
        104_857_600,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "transactional.id.expiration.ms",
        "INT",
        604_800_000,
        "A setting of transactions.",
        at_least(1),
        moot=_TRANSACTIONS,
    ),
    define(
        "unclean.leader.election.enable",
        "BOOLEAN",
        False,
        "Default of the topic property.",
        None,
        CLUSTER,
        _ELECTION,
    ),
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
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "LONG",
        INT64_MAX,
        "Rate of moves between folders.",
        at_least(0),
        CLUSTER,
        "partitions are not moved between folders",
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
    define(
        "server.max.startup.time.ms",
        "LONG",
        INT64_MAX,
        "How long a start may take.",
        at_least(0),
        moot="a start that cannot finish fails at once",
    ),
)

COMPATIBILITY_DEFINITIONS = MappingProxyType(by_name(_DEFINITIONS))

_NO_TLS = "this broker does not serve TLS yet, and ignoring it would send data in the clear"
_NO_SASL = "this broker does not authenticate yet, and ignoring it would let everybody in"
_NO_CLASSES = "this broker does not load classes"
_NO_QUORUM = "this broker keeps metadata in a store of its own, there is no quorum to join"
_NO_TIERED = "this broker does not move segments to other storage yet"

# Names (exact, or ending in '.' for all others that begin so) → why they are refused.
REFUSED_PROPERTIES = MappingProxyType(
    {
        "ssl.": _NO_TLS,
        "sasl.": _NO_SASL,
        "listener.name.": _NO_SASL,
        "security.inter.broker.protocol": _NO_TLS,
        "authorizer.class.name": _NO_SASL,
        "super.users": _NO_SASL,
        "allow.everyone.if.no.acl.found": _NO_SASL,
        "delegation.token.": _NO_SASL,
        "principal.builder.class": _NO_CLASSES,
        "alter.config.policy.class.name": _NO_CLASSES,
        "create.topic.policy.class.name": _NO_CLASSES,
        "client.quota.callback.class": _NO_CLASSES,
        "replica.selector.class": _NO_CLASSES,
        "metric.reporters": _NO_CLASSES,
        "kafka.metrics.reporters": _NO_CLASSES,
        "config.providers": _NO_CLASSES,
        "controller.quorum.": _NO_QUORUM,
        "controller.listener.names": _NO_QUORUM,
        "process.roles": _NO_QUORUM,
        "metadata.log.dir": _NO_QUORUM,
        "zookeeper.": _NO_QUORUM,
        "inter.broker.listener.name": "brokers of a cell do not talk to each other yet",
        "remote.": _NO_TIERED,
        "group.share.": "this broker does not serve share groups yet",
        "share.": "this broker does not serve share groups yet",
        "group.streams.": "this broker does not serve streams groups yet",
    }
)


def refusal_of(name: str) -> str | None:
    """Why a property of Apache Kafka is refused; None when it is not one of those."""
    if name in COMPATIBILITY_DEFINITIONS:
        return None
    exact = REFUSED_PROPERTIES.get(name)
    if exact is not None:
        return exact
    for prefix, reason in REFUSED_PROPERTIES.items():
        if prefix.endswith(".") and name.startswith(prefix):
            return reason
    return None
