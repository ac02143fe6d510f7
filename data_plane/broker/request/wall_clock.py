"""The date: what the wall clock shows, and whether to trust it.

Two kinds of time do not mix. `now_ms`, which everything is given, is steady: it comes from elapsed
time, nobody can set it, and deadlines, sessions, leases and intervals go by it. The wall clock says
what date it is: timestamps of records, retention and the expiry of offsets go by that. It follows
whoever sets it, both ways and at once, so an error lasts no longer than the error itself.

What is deleted by a wrong date is gone, so each clock that can be set is watched for jumps:

    offset of a clock to the steady one   0   +2   +1      +2592000000   …          +3
                                              └ drift, ok  └ a jump: not trusted    └ back: trusted
                                                             until it has stood for settle_ms

- A broker that is alone has its own wall clock only. It is trusted once it has stood for
  `settle_ms` since the start or since a jump, or as soon as it agrees with elapsed time again.
- In a cell the metadata store's clock decides, which heartbeats bring. The wall clock is trusted
  while it is within `jump_ms_max` of the store's, as last measured and gone on by elapsed time; and
  the store's own clock may not have jumped either: often both are the same machine's.

The store's first answer is judged by the date that was vouched for last, before this process began
(data_plane/log/vouched_date.py): one further from it than `jump_ms_max` is a jump like any other.

    last vouched for 12:00   first answer 12:00:40              close: trusted
                             12:20, 20 min of elapsed time      close: trusted
                             12:20, a reboot that took so long  trusted once it has stood
                             40 days later, both clocks wrong   not trusted, and in the end mended

Where no such date is known, the first answer has to stand as well; except in a cell that has
nothing yet which a wrong date could take.

Invariants
- `wall_ms` costs an addition: the clock is read once a tick, not once a record.
- Nothing is trusted that has not been compared: before the first answer of its store, a broker of a
  cell does not know the date.

Deliberately absent: reading any clock (the server), and what is held back (deletion_guard.py).
"""

from __future__ import annotations

from dataclasses import dataclass

# A trusted offset follows the clock by at most this share of the time that passes: more than any
# daemon slews by, and little enough that several steps below the bound are not taken for drift.
FOLLOW_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class StoreOffset:
    """This broker's wall clock against the metadata store's, in ms: `ahead_ms` at the steady time
    `measured_ms`, give or take `uncertainty_ms`, half of what the question took."""

    ahead_ms: int
    uncertainty_ms: int
    measured_ms: int


class _Watched:
    """A clock that can be set: its offset to the steady one, and whether that is trusted."""

    __slots__ = (
        "_claimed_ms",
        "_claimed_since_ms",
        "_jump_ms_max",
        "_looked_ms",
        "is_from_before",
        "trusted_ms",
    )

    def __init__(self, jump_ms_max: int, known_ms: int | None = None) -> None:
        """`known_ms`: the offset by what was known before this process."""
        self._jump_ms_max = jump_ms_max
        # None until there is one; it stays while another one is only claimed.
        self.trusted_ms: float | None = known_ms
        # Whether this process has trusted no offset of its own yet.
        self.is_from_before = True
        self._looked_ms = 0
        self._claimed_ms: int | None = None
        self._claimed_since_ms = 0

    @property
    def is_trusted(self) -> bool:
        return self._claimed_ms is None and not self.is_from_before

    @property
    def has_looked(self) -> bool:
        return self._claimed_ms is not None or not self.is_from_before

    @property
    def jump_ms(self) -> int:
        """How far the clock has jumped, if it is not trusted because of that."""
        if self._claimed_ms is None or self.trusted_ms is None:
            return 0
        return self._claimed_ms - int(self.trusted_ms)

    def look(self, offset_ms: int, now_ms: int, settle_ms: int) -> None:
        """Take in where the clock stands."""
        passed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        trusted_ms = self.trusted_ms
        if trusted_ms is not None and abs(offset_ms - trusted_ms) <= self._jump_ms_max:
            if self.is_from_before:
                # Nobody knows how much time has passed between two processes.
                self.trusted_ms = offset_ms
            else:
                most_ms = FOLLOW_SHARE * passed_ms
                self.trusted_ms = trusted_ms + max(-most_ms, min(offset_ms - trusted_ms, most_ms))
            self._claimed_ms, self.is_from_before = None, False
            return
        claimed_ms = self._claimed_ms
        if claimed_ms is None or abs(offset_ms - claimed_ms) > self._jump_ms_max:
            self._claimed_ms, self._claimed_since_ms = offset_ms, now_ms
        if now_ms - self._claimed_since_ms >= settle_ms:
            self.trusted_ms, self._claimed_ms, self.is_from_before = offset_ms, None, False


class WallClock:
    """One per broker; see the module. Without bounds it is trusted whatever it shows."""

    def __init__(
        self,
        jump_ms_max: int = 0,
        settle_ms: int = 0,
        *,
        follows_store: bool = False,
        known_offset_ms: int | None = None,
        has_past: bool = True,
    ) -> None:
        """`follows_store`: this broker has a metadata store in common with others. Then
        `known_offset_ms` is what to add to the steady time for the date that was vouched for last;
        without `has_past` there is nothing yet that a wrong date could take."""
        self._jump_ms_max = jump_ms_max
        self._settle_ms = settle_ms
        self._offset_ms = 0
        self._own = _Watched(jump_ms_max)
        self._store: _Watched | None = None
        if follows_store:
            self._store = _Watched(jump_ms_max, known_offset_ms if has_past else None)
        self._has_past = has_past
        self.store_offset: StoreOffset | None = None

    def wall_ms(self, now_ms: int) -> int:
        """The date at the steady time `now_ms`, which may be a little before or after now."""
        return now_ms + self._offset_ms

    def observe(self, now_ms: int, wall_ms: int) -> None:
        """Both clocks, read at the same time. Each second or so."""
        self._offset_ms = wall_ms - now_ms
        self._own.look(self._offset_ms, now_ms, self._settle_ms)

    def store_answered(self, store_ms: int, sent_ms: int, answered_ms: int) -> None:
        """The store read its clock some time between these two."""
        if self._store is None:
            return
        measured_ms = (sent_ms + answered_ms) // 2
        uncertainty_ms = (answered_ms - sent_ms + 1) // 2
        if uncertainty_ms > self._jump_ms_max:
            # Such an answer cannot tell a jump from the way it took.
            return
        offset_ms = store_ms - measured_ms
        is_harmless = self._store.is_from_before and not self._has_past
        self._store.look(offset_ms, answered_ms, 0 if is_harmless else self._settle_ms)
        self.store_offset = StoreOffset(self._offset_ms - offset_ms, uncertainty_ms, measured_ms)

    @property
    def skew_ms(self) -> int | None:
        """How far this clock is from what all brokers go by: the metadata store's, as last compared
        and gone on by elapsed time. A broker that is alone goes by its own. None while nobody
        knows."""
        store = self._store
        if store is None:
            return 0
        if store.trusted_ms is None or not store.is_trusted:
            return None
        return abs(self._offset_ms - int(store.trusted_ms))

    @property
    def vouched_offset_ms(self) -> int | None:
        """What to add to the steady time for a date that is vouched for: what the wall clock shows
        or, where that is in doubt, what the metadata store's does. None while that is, too."""
        if not self.doubt:
            return self._offset_ms
        store = self._store
        if store is None or store.trusted_ms is None or not store.is_trusted:
            return None
        return int(store.trusted_ms)

    @property
    def is_settling_at_start(self) -> bool:
        """Whether this process has trusted no date since it began."""
        watched = self._own if self._store is None else self._store
        return watched.is_from_before

    @property
    def doubt(self) -> str:
        """Why nothing may be deleted because of what date it is; "" when it may."""
        store = self._store
        if store is None:
            if self._own.is_trusted:
                return ""
            if self._own.trusted_ms is None:
                return f"the clock has not stood for {self._settle_ms} ms since the start yet"
            return f"the clock has jumped by {self._own.jump_ms} ms"
        if not store.has_looked:
            return "the clock has not been compared with the metadata store's yet"
        if store.trusted_ms is None:
            return (
                f"the metadata store's clock has not stood for {self._settle_ms} ms "
                "since the start yet"
            )
        if not store.is_trusted:
            if store.is_from_before:
                return f"the metadata store's clock is {store.jump_ms} ms from the last known date"
            return f"the metadata store's clock has jumped by {store.jump_ms} ms"
        ahead_ms = self._offset_ms - int(store.trusted_ms)
        if abs(ahead_ms) > self._jump_ms_max:
            where = "ahead of" if ahead_ms > 0 else "behind"
            return f"the clock is {abs(ahead_ms)} ms {where} the metadata store's"
        return ""
