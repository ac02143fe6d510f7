"""Broker properties: consumer groups and their committed offsets.

What a single group may set for itself stands in group_definitions.py.
"""

from __future__ import annotations

from data_plane.broker.config.definition import (
    INT32_MAX,
    Update,
    at_least,
    between,
    define,
    list_of,
)

CLUSTER = Update.CLUSTER_WIDE

_THREADS = "one event loop serves all connections, file work has a small pool of its own"
_NEW_GROUPS = "only classic consumer groups are served yet"

COORDINATOR_DEFINITIONS = (
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
        "group.coordinator.groups.max",
        "INT",
        1_000_000,
        "Groups that one broker coordinates. Not a property of Apache Kafka.",
        at_least(1),
    ),
    define(
        "group.coordinator.members.max.bytes",
        "LONG",
        256 * 1024 * 1024,
        "About what all members of a broker's groups may take in memory, with their metadata and "
        "assignments. Not a property of Apache Kafka.",
        at_least(0),
    ),
    define(
        "group.coordinator.offsets.max.bytes",
        "LONG",
        1024 * 1024 * 1024,
        "About what all committed offsets of a broker may take in memory, with their metadata. "
        "Not a property of Apache Kafka.",
        at_least(0),
    ),
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
)
