"""What one connection takes of what all share, by namespace (broker/request/budget.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data_plane.broker.request.budget import Share

if TYPE_CHECKING:
    from data_plane.server.listener import Listener


class Shares(NamedTuple):
    """Its namespace's shares."""

    connections: Share
    unsent: Share
    received: Share

    @classmethod
    def of(cls, listener: Listener, namespace: str) -> Shares:
        """Raises TooManyNamespaces."""
        return cls(
            listener.connections_budget.of(namespace),
            listener.unsent.of(namespace),
            listener.memory.budget.of(namespace),
        )
