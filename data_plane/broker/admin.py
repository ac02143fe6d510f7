"""The administrative APIs, all of them, for the composition root.

Deliberately absent, and so not advertised: ACLs, SCRAM credentials, client quotas and delegation
tokens, which come with tenancy.
"""

from __future__ import annotations

from data_plane.broker import (
    alter_configs,
    cluster,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    elect_leaders,
    log_dirs,
    metadata,
    partitions_admin,
    producers,
    quorum,
    reassignments,
    records_admin,
    topics,
    unregister_broker,
    update_features,
)
from data_plane.broker.api import HandlerTable

_MODULES = (
    metadata,
    describe_topic_partitions,
    topics,
    delete_topics,
    partitions_admin,
    records_admin,
    describe_configs,
    alter_configs,
    cluster,
    log_dirs,
    producers,
    quorum,
    elect_leaders,
    reassignments,
    unregister_broker,
    update_features,
)


def register_admin(table: HandlerTable) -> None:
    """Register every administrative API that works."""
    for module in _MODULES:
        module.register(table)
