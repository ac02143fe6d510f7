"""Broker properties: who may do everything, and what holds where no ACL says anything."""

from __future__ import annotations

from data_plane.broker.config.definition import define

AUTHORIZATION_DEFINITIONS = (
    define(
        "metrics.tenant.labels",
        "BOOLEAN",
        False,
        "Whether /metrics names the groups and topics of all tenants, with a label `tenant`; "
        "else those of `default` alone. Not Apache Kafka's.",
    ),
    define(
        "cell.operators",
        "STRING",
        "",
        "Principals of the tenant `default` that operate the cell, as User:alice;User:bob: they "
        "may do everything, and see the brokers and the topics of all tenants. Without any, "
        "`default` sees the brokers and its own topics, as in Apache Kafka; with some, nobody "
        "else does. The same on all brokers. Not Apache Kafka's.",
    ),
    define(
        "super.users",
        "STRING",
        "",
        "Principals of the tenant `default` that may do everything, whatever ACLs say, as "
        "User:alice;User:bob. The same on all brokers, so that one is left who can mend the ACLs.",
    ),
    define(
        "allow.everyone.if.no.acl.found",
        "BOOLEAN",
        True,
        "Whether everybody of the tenant `default` may do what no ACL is about, unless the tenant "
        "has a setting of this name. Apache Kafka, which asks only where an authorizer is "
        "configured, has false.",
    ),
)
