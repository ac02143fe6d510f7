"""The administrative APIs, all of them, for the composition root."""

from __future__ import annotations

from data_plane.broker import alter_configs, describe_configs, metadata, topics
from data_plane.broker.api import HandlerTable

_MODULES = (metadata, topics, describe_configs, alter_configs)


def register_admin(table: HandlerTable) -> None:
    """Register every administrative API that works."""
    for module in _MODULES:
        module.register(table)
