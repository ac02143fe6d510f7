"""The administrative APIs, all of them, for the composition root.

Deliberately absent, and so not advertised: delegation tokens.
"""

from __future__ import annotations

from data_plane.broker.admin import (
    acls,
    alter_configs,
    client_quotas,
    client_telemetry,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_producers,
    describe_quorum,
    elect_leaders,
    log_dirs,
    reassignments,
    scram_credentials,
    unregister_broker,
)
from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.cell import update_features
from data_plane.broker.request.api import HandlerTable
from data_plane.broker.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    metadata,
)

_MODULES = (
    metadata,
    describe_topic_partitions,
    create_topics,
    delete_topics,
    create_partitions,
    delete_records,
    describe_configs,
    alter_configs,
    client_quotas,
    client_telemetry,
    describe_cluster,
    acls,
    log_dirs,
    describe_producers,
    describe_quorum,
    elect_leaders,
    reassignments,
    scram_credentials,
    unregister_broker,
    update_features,
)


def register_admin(table: HandlerTable) -> None:
    """Register every administrative API that works, and what all APIs need."""
    table.guards.update(GUARDS)
    for module in _MODULES:
        module.register(table)
