"""What making and deleting partitions costs of `controller_mutation_rate` (KIP-599).

In versions that can say so a topic is refused once the quota is used up; in older ones it is made
all the same, and the client waits. Either way the answer says for how long.

Invariant: a topic of a request is counted once, however often its commit is decided anew.
"""

from __future__ import annotations

from collections.abc import Hashable

from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.registry import ApiKey

# From where on clients know THROTTLING_QUOTA_EXCEEDED.
STRICT_FROM = {
    int(ApiKey.CREATE_TOPICS): 6,
    int(ApiKey.CREATE_PARTITIONS): 3,
    int(ApiKey.DELETE_TOPICS): 5,
}


class Mutations:
    """Those of one request."""

    __slots__ = ("_context", "_counted", "_is_strict", "_services")

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._context = context
        self._is_strict = context.api_version >= STRICT_FROM[context.api_key]
        self._counted: dict[Hashable, bool] = {}

    def count(self, topic: Hashable, partitions: int) -> None:
        """So many of this topic are made or deleted. Raises Refusal."""
        quotas = self._services.quotas
        if not quotas.is_active:
            return
        is_allowed = self._counted.get(topic)
        if is_allowed is None:
            wait_ms = quotas.record_mutations(self._context, partitions, self._is_strict)
            is_allowed = self._counted[topic] = not (self._is_strict and wait_ms)
        if not is_allowed:
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise Refusal(code, "The throttling quota has been exceeded.")
