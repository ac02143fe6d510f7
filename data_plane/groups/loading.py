"""Reading a partition of `__consumer_offsets` into what a coordinator loads.

Only the newest record of each key counts, so a partition folds into a dictionary, whatever of it
compaction has left. Folding touches nothing else and may run in another thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from data_plane.groups.record_formats import (
    CommittedOffset,
    GroupKey,
    GroupRecord,
    OffsetKey,
    decode_committed_offset,
    decode_group,
    decode_key,
)
from data_plane.wire.errors import WireError
from data_plane.wire.records import Record

# What `fold_records` hands to `GroupCoordinator.load`: the newest value of each key.
Folded: TypeAlias = dict[OffsetKey | GroupKey, CommittedOffset | GroupRecord]


def fold_records(records: Iterable[Record]) -> tuple[Folded, int]:
    """The newest value of each key, tombstones applied, and how many records were not understood.

    Records of coordinators that do not exist here are not counted. A record that cannot be read is
    skipped, and what it replaced is gone: one bad record must not take away all groups of a
    partition, nor bring back what was true before it.
    """
    folded: Folded = {}
    unreadable_count = 0
    for record in records:
        if record.key is None:
            unreadable_count += 1
            continue
        try:
            key = decode_key(record.key)
            if key is None:
                continue
            # The newest position in the log decides the order in which groups are restored.
            folded.pop(key, None)
            if record.value is None:
                continue
            if isinstance(key, OffsetKey):
                folded[key] = decode_committed_offset(record.value)
            else:
                folded[key] = decode_group(record.value)
        except WireError:
            unreadable_count += 1
    return folded, unreadable_count
