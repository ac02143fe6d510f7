"""Broker properties: where replicas are, and who leads (the controller's decisions)."""

from __future__ import annotations

from data_plane.broker.config.definition import Update, at_least, between, define

CLUSTER = Update.CLUSTER_WIDE

CONTROLLER_DEFINITIONS = (
    define(
        "default.replication.factor",
        "INT",
        3,
        "Replicas of a topic that names none. Unless it is set, at most as many as there are "
        "brokers. Apache Kafka has 1.",
        at_least(1),
    ),
    define(
        "min.insync.replicas",
        "INT",
        2,
        "Default of the topic property of this name. Apache Kafka has 1.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "offsets.topic.replication.factor",
        "SHORT",
        3,
        "Replicas of __consumer_offsets. Unless it is set, at most as many as there are brokers "
        "when the topic is made.",
        at_least(1),
    ),
    define(
        "unclean.leader.election.enable",
        "BOOLEAN",
        False,
        "Default of the topic property of this name.",
        None,
        CLUSTER,
    ),
    define(
        "auto.leader.rebalance.enable",
        "BOOLEAN",
        True,
        "Move leaders back to their preferred brokers, those that come first among the replicas.",
    ),
    define(
        "leader.imbalance.check.interval.seconds",
        "LONG",
        300,
        "How often leaders are moved back.",
        at_least(1),
    ),
    define(
        "leader.imbalance.per.broker.percentage",
        "INT",
        10,
        "Leaders are moved back to a broker when more than this part of the partitions that "
        "prefer it are led elsewhere.",
        between(0, 100),
    ),
    define(
        "replica.rebuild.delay.ms",
        "LONG",
        600_000,
        "A broker that has been dead for so long gets its replicas replaced by new ones on other "
        "brokers. Not Apache Kafka's.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "replica.moves.per.broker.max",
        "INT",
        20,
        "How many replicas a broker receives at a time when they are rebuilt, drained or "
        "balanced. Not Apache Kafka's.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "auto.replica.rebalance.enable",
        "BOOLEAN",
        False,
        "Move replicas to brokers that have fewer of them, until all have their share: what a new "
        "broker waits for. Not Apache Kafka's.",
        None,
        CLUSTER,
    ),
    define(
        "broker.drain",
        "BOOLEAN",
        False,
        "Give this broker no new replicas and move those that it has to others, for instance to "
        "take it out of the cell. Not Apache Kafka's.",
        None,
        Update.PER_BROKER,
    ),
)
