"""How many bytes tenants store in the partitions that this broker leads.

A partition is counted once, where it is led, however many replicas it has: what a tenant stores
does not change when an operator replicates more. Deleted topics that can come back count until they
are purged. The partitions are looked at some at a time, so that the loop is not held up by how many
there are.

Deliberately absent: what other brokers lead (share_exchange.py), and limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from data_plane.broker.replicas.topic_partitions import TopicPartitions
from data_plane.replica.partition import Partition

LOOKED_AT_MAX: Final = 2_000


class StoredBytes:
    """Those of some tenants."""

    def __init__(self, partitions: TopicPartitions) -> None:
        self._partitions = partitions
        self._left: list[Partition] = []
        self._counted: dict[str, int] = {}
        # As of the last time that all partitions had been looked at.
        self.sizes: Mapping[str, int] = {}

    def look_on(self, tenants: Collection[str]) -> Mapping[str, int]:
        """Look at some more partitions; what is known by then of these tenants."""
        if not tenants:
            self.sizes, self._left, self._counted = {}, [], {}
            return self.sizes
        if not self._left:
            self._left = list(self._partitions.leading())
        counted = self._counted
        part, self._left = self._left[-LOOKED_AT_MAX:], self._left[:-LOOKED_AT_MAX]
        for partition in part:
            # Not the partition's: a topic that can be undeleted is hidden, and stored all the same.
            tenant = partition.use.tenant
            if tenant in tenants:
                counted[tenant] = counted.get(tenant, 0) + partition.log.size_bytes
        if not self._left:
            self.sizes, self._counted = counted, {}
        return {name: size for name, size in self.sizes.items() if name in tenants}
