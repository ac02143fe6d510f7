"""Which partition of `__consumer_offsets` keeps a group: Kafka's rule, since clients, tools and
other brokers must agree on a group's coordinator. Groups of other tenants than `default` are spread
by tenant and name, so that what many tenants call alike is not all on one broker."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from data_plane.groups.record_formats import DEFAULT_TENANT

# Heartbeats and commits ask for the same groups over and over, and the hash is slow in Python.
GROUPS_REMEMBERED_MAX: Final = 16_384
# Longer ones are nobody's daily business, and would fill the memory with themselves.
REMEMBERED_CHARACTERS_MAX: Final = 255
SEPARATOR: Final = "\0"


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        unit = encoded[position] << 8 | encoded[position + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_group(tenant: str, group_id: str, partition_count: int) -> int:
    """The partition that keeps a tenant's group; the one hash without a positive counterpart counts
    0."""
    if len(group_id) > REMEMBERED_CHARACTERS_MAX:
        return _partition_for_group(tenant, group_id, partition_count)
    return _remembered_partition(tenant, group_id, partition_count)


def _partition_for_group(tenant: str, group_id: str, partition_count: int) -> int:
    # No tenant's name has the character between the two.
    value = java_string_hash(
        group_id if tenant == DEFAULT_TENANT else f"{tenant}{SEPARATOR}{group_id}"
    )
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


_remembered_partition = lru_cache(maxsize=GROUPS_REMEMBERED_MAX)(_partition_for_group)
