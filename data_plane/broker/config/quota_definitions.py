"""Broker properties: how what clients use is measured, and what a broker can take."""

from __future__ import annotations

from data_plane.broker.config.definition import Update, at_least, between, define
from data_plane.broker.config.topic_bounds import BOUNDS, TOPIC_BOUNDS
from data_plane.cell.tenant_quotas import CONSUME_CAPACITY, PRODUCE_CAPACITY

QUOTA_DEFINITIONS = (
    define(
        "quota.window.num",
        "INT",
        11,
        "Over how many windows the rates of client quotas are measured.",
        between(1, 1000),
    ),
    define(
        "quota.window.size.seconds",
        "INT",
        1,
        "How long one of these windows is.",
        between(1, 3600),
    ),
    define(
        "controller.quota.window.num",
        "INT",
        11,
        "Over how many windows partitions that are made and deleted are counted.",
        between(1, 1000),
    ),
    define(
        "controller.quota.window.size.seconds",
        "INT",
        1,
        "How long one of these windows is.",
        between(1, 3600),
    ),
    define(
        PRODUCE_CAPACITY,
        "LONG",
        0,
        "How many bytes per second this broker can take from producers. Up to it, over all "
        "brokers, rates are reserved for tenants, who get theirs when the broker is at it; 0 "
        "reserves nothing. Not Apache Kafka's.",
        at_least(0),
        Update.CLUSTER_WIDE,
    ),
    define(
        CONSUME_CAPACITY,
        "LONG",
        0,
        "As the one of producers, for what consumers fetch. Not Apache Kafka's.",
        at_least(0),
        Update.CLUSTER_WIDE,
    ),
    define(
        TOPIC_BOUNDS,
        "LIST",
        "",
        "What clients of tenants other than `default` may set for topics: configurations, "
        "replication.factor and manual.assignment, as segment.bytes=1048576.. or "
        "unclean.leader.election.enable=false. Not Apache Kafka's.",
        BOUNDS,
        Update.CLUSTER_WIDE,
    ),
)
