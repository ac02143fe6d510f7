"""Apache Kafka's broker properties that tune what this broker does not serve yet.

Only what may be ignored without misleading about safety; the rest is in refused_properties.py.
"""

from __future__ import annotations

from data_plane.broker.config.definition import (
    INT32_MAX,
    Update,
    at_least,
    define,
)

CLUSTER = Update.CLUSTER_WIDE

_TRANSACTIONS = "transactions are not served yet"
_QUOTAS = "quotas of addresses and of replication are not served"
_KERBEROS = "it tunes logins with Kerberos, of which there are none"

UNSERVED_DEFINITIONS = (
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
)
