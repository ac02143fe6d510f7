"""What compaction leaves in a log because a fold holds on to it, and what stays for its sake.

    freeze   on the loop, at a roll: what the folds hold, as of the log end then
    settled  once all up to there is committed and durable: no crash and no cut takes it back; a
             flush is due for that (maintenance.py)
    pass     in a thread, front to back: held records stay, and what shadows them

A held record may be superseded: by a newer value, or by a tombstone. The value stays anyway. The
tombstone does not, and the old value would be back for readers; so behind a value that is held no
tombstone of its key goes, and its time begins anew with each pass, the one in which the value goes
at last included: who has read the value then has that time to get to the tombstone.

    0: k=1 (held)   5: k=2        9: k=tombstone
    0: k=1 (held)                 9: k=tombstone     however late
                                  9: k=tombstone     the pass after 0 was let go
                                                     delete.retention.ms after that one

Whether a record is superseded only those passes know that have read its successor. So the log
remembers the first one that stays although it is (`LogState.superseded_from`, in the checkpoint),
and each pass reads from there on again. Where the key map cannot take all of that, it takes several
passes, and none of them lets a tombstone go. Looking again is due when the folds hold on to nothing
any more up to somewhere above it.

Invariants
- Where a record stays that a later one of its key, up to the cleaner offset, supersedes, that is
  at or above `superseded_from`.
- What folds have let go in records that could still be lost is held.

Deliberately absent: records that are no values of their keys (record_kinds.py). They are held as
long as their fold says so, and go with a pass that comes anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.log.config import INT64_MAX
from data_plane.log.fold import FrozenHolds
from data_plane.log.key_map import OffsetsByKey

if TYPE_CHECKING:
    from data_plane.log.log_state import LogState

# Keys behind whose values no tombstone goes, 24 bytes each; where there are more, none goes at all.
SHADOWED_KEYS_MAX = 500_000
NO_OFFSET = -1


def freeze(log: LogState) -> None:
    """Have a later pass go by what the folds hold now. On the loop; after a roll, for the flush of
    what was sealed settles it."""
    # The producer state holds nothing.
    if len(log.folds) > 1:
        frozen = log.frozen_holds
        if not frozen or _is_settled(log, frozen[-1]):
            log.frozen_holds = (*frozen, _frozen_now(log))
        _drop_outdated(log)


def _frozen_now(log: LogState) -> FrozenHolds:
    folds = [(fold.held_from(log.disk_start_offset), fold) for fold in log.folds]
    holds = [(start, fold.freeze_held()) for start, fold in folds if start is not None]
    return FrozenHolds(holds, log.log_end_offset)


def _is_settled(log: LogState, frozen: FrozenHolds) -> bool:
    """Whether no crash and no cut can take back what the folds had let go."""
    return frozen.end_offset <= log.settled_end


def _drop_outdated(log: LogState) -> None:
    """Go by the newest that is settled."""
    frozen = log.frozen_holds
    while len(frozen) > 1 and _is_settled(log, frozen[1]):
        frozen[0].close()
        frozen = frozen[1:]
    log.frozen_holds = frozen


def awaits_flush(log: LogState) -> bool:
    """Whether what the folds hold was asked for at a log end that is committed and not durable: in
    a segment that may not be sealed for long, which keeps those before from being compacted."""
    frozen = log.frozen_holds
    return bool(frozen) and log.recovery_point < frozen[-1].end_offset <= log.high_watermark


def settled_end(log: LogState) -> int:
    """Up to where the next pass knows what is held; 0 where that is not settled yet."""
    if len(log.folds) == 1:
        return INT64_MAX
    frozen = log.frozen_holds
    if not frozen or frozen[-1].held_from != log.held_from:
        freeze(log)
    _drop_outdated(log)
    first = log.frozen_holds[0]
    return first.end_offset if _is_settled(log, first) else 0


def take_settled(log: LogState) -> FrozenHolds | None:
    """What the next pass goes by, and has to close; None without folds that might hold anything."""
    if len(log.folds) == 1:
        return None
    frozen, *later = log.frozen_holds
    log.frozen_holds = tuple(later)
    assert _is_settled(log, frozen)
    return frozen


def released_end(log: LogState) -> int:
    """Up to where there may be superseded records that no fold has held as of the next pass, from
    `superseded_from` on; NO_OFFSET for nowhere."""
    if log.superseded_from == NO_OFFSET or not log.frozen_holds:
        # Without other folds any more nothing is held.
        return log.cleaner_offset if log.superseded_from != NO_OFFSET else NO_OFFSET
    held_from = log.frozen_holds[0].held_from
    end = log.cleaner_offset if held_from is None else min(log.cleaner_offset, held_from)
    return end if end > log.superseded_from else NO_OFFSET


class HeldRecords:
    """What one pass knows. In a worker thread, asked in the order of offsets."""

    def __init__(
        self, frozen: FrozenHolds | None, superseded_from: int, superseded_end: int
    ) -> None:
        """In [superseded_from, superseded_end) lie records that stayed although another one of
        their key, there, supersedes them; none do without `superseded_from`."""
        self._holds = [] if frozen is None else frozen.holds
        has_any = superseded_from != NO_OFFSET
        self._superseded = range(superseded_from, superseded_end) if has_any else range(0)
        self._shadowed = OffsetsByKey(SHADOWED_KEYS_MAX)
        # The first record that stays although superseded, or although its time is over.
        self.first_kept_offset = NO_OFFSET

    def holds(self, offset: int) -> bool:
        """Whether a fold holds on to the record."""
        return any(start <= offset and hold.holds(offset) for start, hold in self._holds)

    def needs(self, offset: int) -> bool:
        """Whether a fold needs the record though readers do not see it."""
        return any(start <= offset and hold.needs(offset) for start, hold in self._holds)

    def keep(self, offset: int) -> None:
        """The record stays because it is held."""
        if self.first_kept_offset == NO_OFFSET:
            self.first_kept_offset = offset

    def add_value(self, key: bytes | None, offset: int, superseded_by: int) -> None:
        """A value, and the offset of its key's newest record as far as this pass knows, NO_OFFSET
        for none. It is held; or it was held once, for it had been superseded before. What is new
        only in this pass tells nothing of that, and a tombstone among that has all its time."""
        if key is None or len(self._shadowed) >= SHADOWED_KEYS_MAX:
            return
        was_held = offset in self._superseded and offset < superseded_by < self._superseded.stop
        if was_held or self.holds(offset):
            self._shadowed.put(key, offset)

    def shadows(self, key: bytes | None) -> bool:
        """Whether a tombstone of `key` has to stay for the sake of a value before it."""
        if len(self._shadowed) >= SHADOWED_KEYS_MAX:
            return True
        return key is not None and self._shadowed.get(key) != NO_OFFSET
