"""All broker properties: Apache Kafka's names, and a few of this broker's own.

Defaults are those of Apache Kafka 4.3 unless the documentation of a property says otherwise. The
tables stand in one module a theme. A property is accepted without effect (`moot` names the reason,
which the documentation and the start-up log repeat) when ignoring it cannot surprise anybody: it
tunes threads, caches or a protocol that this broker does not have. What would mislead is refused.
"""

from __future__ import annotations

from types import MappingProxyType

from data_plane.broker.config.authorization_definitions import AUTHORIZATION_DEFINITIONS
from data_plane.broker.config.cell_admin_definitions import CELL_ADMIN_DEFINITIONS
from data_plane.broker.config.cell_definitions import CELL_DEFINITIONS
from data_plane.broker.config.controller_definitions import CONTROLLER_DEFINITIONS
from data_plane.broker.config.coordinator_definitions import COORDINATOR_DEFINITIONS
from data_plane.broker.config.definition import ConfigDefinition, by_name
from data_plane.broker.config.listener_definitions import LISTENER_DEFINITIONS
from data_plane.broker.config.log_definitions import LOG_DEFINITIONS
from data_plane.broker.config.quota_definitions import QUOTA_DEFINITIONS
from data_plane.broker.config.refused_properties import REFUSED_PROPERTIES
from data_plane.broker.config.replication_definitions import REPLICATION_DEFINITIONS
from data_plane.broker.config.tls_definitions import TLS_DEFINITIONS
from data_plane.broker.config.tuning_definitions import TUNING_DEFINITIONS
from data_plane.broker.config.unserved_definitions import UNSERVED_DEFINITIONS

BROKER_DEFINITIONS = MappingProxyType(
    by_name(
        LISTENER_DEFINITIONS,
        TLS_DEFINITIONS,
        AUTHORIZATION_DEFINITIONS,
        CELL_DEFINITIONS,
        CELL_ADMIN_DEFINITIONS,
        LOG_DEFINITIONS,
        CONTROLLER_DEFINITIONS,
        COORDINATOR_DEFINITIONS,
        REPLICATION_DEFINITIONS,
        QUOTA_DEFINITIONS,
        UNSERVED_DEFINITIONS,
        TUNING_DEFINITIONS,
    )
)

EFFECTIVE_DEFINITIONS = MappingProxyType(
    {name: one for name, one in BROKER_DEFINITIONS.items() if not one.moot}
)

COMPATIBILITY_DEFINITIONS = MappingProxyType(
    {name: one for name, one in BROKER_DEFINITIONS.items() if one.moot}
)


def definition_of(name: str) -> ConfigDefinition | None:
    return BROKER_DEFINITIONS.get(name)


def refusal_of(name: str) -> str | None:
    """Why a property of Apache Kafka is refused; None when it is not one of those."""
    if name in BROKER_DEFINITIONS:
        return None
    exact = REFUSED_PROPERTIES.get(name)
    if exact is not None:
        return exact
    for prefix, reason in REFUSED_PROPERTIES.items():
        if prefix.endswith(".") and name.startswith(prefix):
            return reason
    return None
