"""Work that grows with what a coordinator holds, done in pieces between requests.

A coordinator may hold millions of offsets. To take them over, give them up, look for expired ones
or list their groups in one go would hold the broker's loop for seconds, which ends sessions. So
such work is a *chore*: a generator that does a piece and yields what that was worth, about a unit
for each microsecond. `run` does as much as a turn of the loop may take; the rest is due a
millisecond later, and requests, ticks and images come in between.

So a chore must find the world changed whenever it goes on: it keeps names, not the things that they
name, and looks each one up again. A chore that has to wait for an append yields WAITING, and is
asked again when some append has settled.

Invariants
- All chores together do at most `work_per_turn_max` for each millisecond, and one piece more.
- Loading and unloading come first: clients wait for them.
- Of the others each tenant has a piece done in turn, its own in the order in which they were begun:
  who has millions of offsets holds up nobody else's chores.
- A chore whose owner is given up does not run again. To give it up costs what its tenant has to do,
  however many tenants have: a partition that is given up may have a shard of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import Final, TypeAlias

# Yields what a piece was worth, or WAITING; is sent the time.
Pieces: TypeAlias = Generator[int, int, None]

WAITING: Final = -1
# A few milliseconds.
WORK_PER_TURN_MAX: Final = 2_000


class _Chore:
    __slots__ = ("is_begun", "is_urgent", "owner", "pieces", "tenant")

    def __init__(self, owner: object, pieces: Pieces, tenant: str, is_urgent: bool) -> None:
        self.owner = owner
        self.tenant = tenant
        self.pieces = pieces
        self.is_urgent = is_urgent
        self.is_begun = False

    def do_piece(self, now_ms: int) -> int:
        if self.is_begun:
            return self.pieces.send(now_ms)
        self.is_begun = True
        return next(self.pieces)


class Chores:
    """What is left to do."""

    def __init__(self, work_per_turn_max: int = WORK_PER_TURN_MAX) -> None:
        self._work_per_turn_max = work_per_turn_max
        self._urgent: deque[_Chore] = deque()
        # By tenant, in the order of their turns.
        self._others: dict[str, deque[_Chore]] = {}
        # By tenant, those that wait for an append.
        self._waiting: dict[str, list[_Chore]] = {}
        self._is_running = False
        self._turn_ms = -1
        self._work_left = 0

    def begin(
        self,
        owner: object,
        pieces: Pieces,
        now_ms: int,
        *,
        tenant: str = "",
        is_urgent: bool = False,
    ) -> None:
        """Do `pieces`, beginning now if this turn has time left."""
        self._enqueue(_Chore(owner, pieces, tenant, is_urgent))
        self.run(now_ms)

    def drop(self, owner: object, *, tenant: str = "", is_urgent: bool = False) -> None:
        """Leave the chores of `owner` as they are. All were begun with this tenant and urgency."""
        if is_urgent:
            self._urgent = deque(_not_of(owner, self._urgent))
        elif left := _not_of(owner, self._others.get(tenant, ())):
            self._others[tenant] = deque(left)
        else:
            self._others.pop(tenant, None)
        if waiting := _not_of(owner, self._waiting.pop(tenant, ())):
            self._waiting[tenant] = waiting

    def wake(self, now_ms: int) -> None:
        """An append has settled."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for chores in waiting.values():
                for chore in chores:
                    self._enqueue(chore)
            self.run(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When there is something to do; None when there is not, or not before an append."""
        return self._turn_ms + 1 if self._urgent or self._others else None

    def run(self, now_ms: int) -> None:
        """Do as many pieces as this turn has time for. A chore may begin others."""
        if self._is_running:
            return
        if now_ms != self._turn_ms:
            self._turn_ms = now_ms
            self._work_left = self._work_per_turn_max
        self._is_running = True
        try:
            while self._work_left > 0 and (chore := self._take()) is not None:
                try:
                    work = chore.do_piece(now_ms)
                except StopIteration:
                    continue
                if work == WAITING:
                    self._waiting.setdefault(chore.tenant, []).append(chore)
                else:
                    self._work_left -= work
                    self._queue_of(chore).appendleft(chore)
        finally:
            self._is_running = False

    def finish(self, now_ms: int) -> None:
        """Do all that waits for no append now: there will be no turns any more."""
        while self._urgent or self._others:
            self._turn_ms = -1
            self.run(now_ms)

    def _enqueue(self, chore: _Chore) -> None:
        self._queue_of(chore).append(chore)

    def _queue_of(self, chore: _Chore) -> deque[_Chore]:
        return self._urgent if chore.is_urgent else self._others.setdefault(chore.tenant, deque())

    def _take(self) -> _Chore | None:
        """The one of which a piece is done next; its tenant has his turn behind the others then."""
        if self._urgent:
            return self._urgent.popleft()
        if not self._others:
            return None
        tenant = next(iter(self._others))
        queue = self._others.pop(tenant)
        chore = queue.popleft()
        if queue:
            self._others[tenant] = queue
        return chore


def _not_of(owner: object, chores: Iterable[_Chore]) -> list[_Chore]:
    return [chore for chore in chores if chore.owner is not owner]
