"""How many partitions are remembered between Fetch requests, and how they are let go of.

Each set that outlives its request, a session's or a connection's, counts for its tenant. All that
there is may be one tenant's while nobody else wants any. When there is no room the tenant that has
most gives up its oldest sets for one that has less, until they have as much:

    A A A A A A A A A A     B comes
    A A A A A A A A B B     …
    A A A A A B B B B B     each has its half, and takes nothing from the other any more

Invariants
- What is counted is given back when it is freed, not when it is given up: memory follows. So there
  may not be room yet for whoever it was given up for; he is served, and remembered the next time.

Deliberately absent: what becomes of a set for which there is no room (fetch_sets.py).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Final

from data_plane.broker.fetch.fetch_sessions import FetchSet
from data_plane.broker.request.budget import Budget, Share, TooManyNamespaces

# Of all sessions and connections together, at some 400 bytes each.
KEPT_PARTITIONS_MAX: Final = 250_000

# Sets that are given up for one request.
GIVEN_UP_MAX: Final = 100

# Partitions that sets which are over let go of in one turn of the loop, at some 0.6 µs each.
CLOSED_PER_TURN_MAX: Final = 2_000


class KeptPartitions:
    """The count, by tenant."""

    def __init__(self, partitions_max: int = KEPT_PARTITIONS_MAX) -> None:
        self.budget = Budget(partitions_max)
        # The sets that may be given up, the oldest first, and how; by share.
        self._sets: dict[Share, dict[FetchSet, Callable[[], None]]] = {}

    @property
    def count(self) -> int:
        """Of all tenants."""
        return self.budget.used

    def take(self, fetch_set: FetchSet) -> bool:
        """Count all that the set has by now. Nothing changes when there is no room for that."""
        share = fetch_set.kept_share
        if share is None:
            try:
                share = self.budget.of(fetch_set.tenant)
            except TooManyNamespaces:
                return False
        more = fetch_set.partitions_count - fetch_set.counted
        if more > share.left():
            self._make_room(share, more)
            if more > share.left():
                return False
        share.add(more)
        fetch_set.counted += more
        fetch_set.kept_share = share
        return True

    def may_give_up(self, fetch_set: FetchSet, give_up: Callable[[], None]) -> None:
        """It has been taken, and outlives its request: `give_up` ends that."""
        assert fetch_set.kept_share is not None
        self._sets.setdefault(fetch_set.kept_share, {})[fetch_set] = give_up

    def forget(self, fetch_set: FetchSet) -> None:
        """It does not outlive its request any more. It counts until it is closed."""
        share = fetch_set.kept_share
        sets = None if share is None else self._sets.get(share)
        if sets is not None and share is not None:
            sets.pop(fetch_set, None)
            if not sets:
                del self._sets[share]

    def count_anyway(self, fetch_set: FetchSet) -> None:
        """Of a set that is there, be there room for it or not."""
        try:
            share = fetch_set.kept_share or self.budget.of(fetch_set.tenant)
        except TooManyNamespaces:
            return
        share.add(fetch_set.partitions_count - fetch_set.counted)
        fetch_set.counted = fetch_set.partitions_count
        fetch_set.kept_share = share

    def _make_room(self, share: Share, amount: int) -> None:
        """Have those who have more than `share` would have give up something."""
        # What has been given up, and is in use until its poll is answered.
        in_use = 0
        # Who has most, first; the number decides among equals.
        greediest = [(-one.used, number, one) for number, one in enumerate(self._sets)]
        heapify(greediest)
        for _ in range(GIVEN_UP_MAX):
            if amount <= share.left() + in_use or not greediest:
                return
            _, number, other = greediest[0]
            if other is share or other.used <= share.used + amount:
                return
            fetch_set, give_up = next(iter(self._sets[other].items()))
            self.forget(fetch_set)
            give_up()
            in_use += fetch_set.counted
            if other in self._sets:
                heapreplace(greediest, (-other.used, number, other))
            else:
                heappop(greediest)


class ClosingSets:
    """Sets that nobody uses any more. Large ones let go of their partitions turn by turn, and count
    as kept until then."""

    def __init__(self, kept: KeptPartitions) -> None:
        self._kept = kept
        # Those that have not let go of everything yet.
        self._sets: dict[FetchSet, None] = {}

    @property
    def has_work(self) -> bool:
        """Whether there is something left to let go of."""
        return bool(self._sets)

    def close(self, fetch_set: FetchSet) -> None:
        """Stop watching, now or soon. The set must not be used afterwards. It may be closed again:
        a connection, a session and a poll each close it when they end."""
        if fetch_set in self._sets:
            return
        if fetch_set.partitions_count <= CLOSED_PER_TURN_MAX:
            fetch_set.close()
            return
        fetch_set.parked = None
        self._kept.count_anyway(fetch_set)
        self._sets[fetch_set] = None

    def run(self) -> None:
        """A turn's work."""
        room = CLOSED_PER_TURN_MAX
        while self._sets and room > 0:
            first = next(iter(self._sets))
            room -= first.let_go(room)
            if not first.partitions_count:
                del self._sets[first]

    def run_all(self) -> None:
        """There will be no turns any more."""
        while self._sets:
            self.run()
