"""What the records of a compacted log are to compaction, by what a feature's fold says of them.

    value     seen by readers: the newest one of its key stays
    hidden    no value of any key, also without a value of its own: it supersedes nothing, and stays
              while a fold holds it (`RecordHold.holds`)
    fact      says what became of a hidden record, and stays: it may be a value at the same time

A delayed message of key k, from its producer to readers, and what is left in the end:

    0 [k hidden]   1 k=a   2 fact of 0: k=b   3 k=c
                           2 fact of 0: k=    3 k=c

A fact stays when what it speaks of is gone from here: another replica may be away, or an older
snapshot there, that has the one and not the other, and goes on from where it is (thinning.py).
Superseded it loses its value, as the end of a producer's sequence does, and is a tombstone with
headers. One without a key keeps its value.

Invariants
- Of a record that was hidden and goes, the fact that let go of it lies below what the log has on
  record as cleaned (cleaned_end.py): cut below, it begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import and_, or_

from data_plane.log.file_system import Buffer
from data_plane.log.fold import Fold, HidingFold, StoredBatch, sees
from data_plane.wire.records import BatchHeader


class RecordKinds:
    """Of one log, for one pass. In a worker thread; made on the loop."""

    def __init__(self, folds: Iterable[Fold]) -> None:
        # Asked for nothing but what batches say.
        self._folds = [fold for fold in folds if isinstance(fold, HidingFold)]
        # Whether a hidden record goes in this pass.
        self.lets_go = False

    def values_in(self, data: Buffer, header: BatchHeader) -> bytes | None:
        """A byte for each record, not 0 for values; None where all are."""
        found = [_selection(one.values_in(batch), header) for one, batch in self._of(data, header)]
        return _merged(found, and_)

    def facts_in(self, data: Buffer, header: BatchHeader) -> bytes | None:
        """A byte for each record, not 0 for facts; None where none is."""
        found = [_selection(one.facts_in(batch), header) for one, batch in self._of(data, header)]
        return _merged(found, or_)

    def _of(self, data: Buffer, header: BatchHeader) -> list[tuple[HidingFold, StoredBatch]]:
        return [(fold, StoredBatch(header, data)) for fold in self._folds if sees(fold, header)]


def _selection(found: bytes | bool, header: BatchHeader) -> bytes:
    return bytes([found]) * header.record_count if isinstance(found, bool) else found


def _merged(found: list[bytes], merge: Callable[[int, int], int]) -> bytes | None:
    merged: bytes | None = None
    for one in found:
        merged = one if merged is None else bytes(map(merge, merged, one))
    return merged
