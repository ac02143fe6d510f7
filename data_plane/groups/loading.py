"""Reading a partition of `__consumer_offsets` into what a coordinator loads.

Only the newest record of each key counts, so a partition folds into tables, whatever of it
compaction has left. Folding touches nothing else and may run in another thread: what it makes is
taken over as it is, so that the loop has little to do with each offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from data_plane.groups.offsets import OffsetStore
from data_plane.groups.record_formats import (
    GroupRecord,
    OffsetKey,
    decode_committed_offset,
    decode_group,
    decode_key,
)
from data_plane.wire.errors import WireError
from data_plane.wire.records import Record


@dataclass(slots=True)
class Folded:
    """Of one tenant: the newest value of each key. Both lists are taken from their ends."""

    # The newest position in the log decides the order in which groups are restored.
    groups: list[tuple[str, GroupRecord]] = field(default_factory=list)
    # Those with offsets that have no record of their own.
    simple_groups: list[str] = field(default_factory=list)
    offsets: OffsetStore = field(default_factory=OffsetStore)


class _Tenant:
    """What was found of one tenant so far."""

    __slots__ = ("groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, GroupRecord] = {}
        self.offsets = OffsetStore()

    def folded(self) -> Folded:
        groups, offsets = self.groups, self.offsets
        return Folded(
            groups=[*reversed(groups.items())],
            simple_groups=[each for each in reversed(offsets.group_ids()) if each not in groups],
            offsets=offsets,
        )


# What `fold_records` hands to `GroupCoordinator.load`, which takes it apart.
FoldedTenants = dict[str, Folded]


def fold_records(records: Iterable[Record]) -> tuple[FoldedTenants, int]:
    """The newest value of each key by tenant, tombstones applied, and how many records were not
    understood.

    Records of coordinators that do not exist here are not counted. A record that cannot be read is
    skipped, and what it replaced is gone: one bad record must not take away all groups of a
    partition, nor bring back what was true before it.
    """
    tenants: dict[str, _Tenant] = {}
    unreadable_count = 0
    for record in records:
        if record.key is None:
            unreadable_count += 1
            continue
        value = record.value
        try:
            found = decode_key(record.key)
        except WireError:
            unreadable_count += 1
            continue
        if found is None:
            continue
        name, key = found
        tenant = tenants.get(name)
        if tenant is None:
            tenant = tenants[name] = _Tenant()
        if isinstance(key, OffsetKey):
            if value is not None:
                value = bytes(value)
                try:
                    decode_committed_offset(value)
                except WireError:
                    unreadable_count += 1
                    value = None
            tenant.offsets.apply(key, value)
            continue
        tenant.groups.pop(key.group_id, None)
        if value is not None:
            try:
                tenant.groups[key.group_id] = decode_group(value)
            except WireError:
                unreadable_count += 1
    return {name: tenant.folded() for name, tenant in tenants.items()}, unreadable_count
