"""Changes of the metadata that wait for their commit, in fair turns.

The cell's own (leaders, ISRs, fencing) come first, since everybody depends on them, but leave half
of a commit to tenants that wait. These have one change taken in turn, each in its own order: what
one asks for thousands of times holds up the others by their number, not by its.

    the cell   f g                      commit 1   f g a1 b1 a2 a3 …
    a          a1 a2 a3 …
    b          b1

Invariants
- What the cell decides keeps its order, and so does what each tenant asks for.
- Changes of different controller epochs are not taken together. Only the cell's own have any; when
  tenants wait two such commits do not follow each other.
- A tenant has at most WAITING_MAX waiting.
- What is taken together costs COST_MAX, and that of one more: what is decided in one go is bounded.

Deliberately absent: deciding and committing (metadata_writer.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from data_plane.broker.request.refusal import Refusal
from data_plane.cell.authors import Author
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode

WAITING_MAX: Final = 1_000
# In things that are made or changed: partitions, ACLs, resources. Some ten milliseconds.
COST_MAX: Final = 2_000

# Returns the changes to commit; none at all means that the image is already as wanted.
Decide = Callable[[MetadataImage], Sequence[Change]]
# Gets the error when the commit failed or its outcome is unknown, else None.
OnDone = Callable[[BaseException | None], None]


class TooManyWaiting(Refusal):
    """A tenant has as many as it may have: nothing has become of the change, and clients ask again.
    Control planes are one tenant in this, without a name."""

    def __init__(self, tenant: str) -> None:
        whose = f"the tenant {tenant}" if tenant else "control planes"
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Nothing was changed: {WAITING_MAX} changes of {whose} wait, which is the maximum",
        )


@dataclass(slots=True, eq=False)
class Wanted:
    """One call of `MetadataWriter.write`."""

    decide: Decide
    on_done: OnDone
    controller_epoch: int | None
    deadline_ms: int
    author: Author | None
    # About how many things its decision goes through.
    cost: int = 1
    is_answered: bool = False
    # Its decision has been called once at least: `on_done` may go by what that has noted.
    is_decided: bool = False
    # Why it fails, if its decision raised.
    failure: Exception | None = None


class WaitingWrites:
    """See the module."""

    def __init__(self) -> None:
        self._own: deque[Wanted] = deque()
        # By tenant, in the order of their turns.
        self._of_tenants: dict[str, deque[Wanted]] = {}
        # The last ones taken were of a controller, and without any of tenants.
        self._were_controllers = False

    def __bool__(self) -> bool:
        return bool(self._own or self._of_tenants)

    def add(self, wanted: Wanted) -> None:
        """Raises TooManyWaiting."""
        author = wanted.author
        if author is None or wanted.controller_epoch is not None:
            self._own.append(wanted)
            return
        waiting = self._of_tenants.setdefault(author.tenant, deque())
        if len(waiting) >= WAITING_MAX:
            raise TooManyWaiting(author.tenant)
        waiting.append(wanted)

    def take(self, most: int) -> list[Wanted]:
        """The next ones that may share a commit."""
        own = self._own
        epoch = own[0].controller_epoch if own else None
        taken: list[Wanted] = []
        cost = 0
        if epoch is None or not (self._of_tenants and self._were_controllers):
            most_own = most if epoch is not None or not self._of_tenants else most // 2
            while (
                own
                and own[0].controller_epoch == epoch
                and len(taken) < most_own
                and cost < COST_MAX
            ):
                taken.append(own.popleft())
                cost += taken[-1].cost
        self._were_controllers = bool(taken) and epoch is not None
        if not self._were_controllers:
            self._take_turns(taken, most, cost)
        return taken

    def _take_turns(self, taken: list[Wanted], most: int, cost: int) -> None:
        tenants = self._of_tenants
        while tenants and len(taken) < most and cost < COST_MAX:
            tenant = next(iter(tenants))
            waiting = tenants.pop(tenant)
            taken.append(waiting.popleft())
            cost += taken[-1].cost
            if waiting:
                tenants[tenant] = waiting

    def take_overdue(self, now_ms: int) -> list[Wanted]:
        """Those that have waited too long wait no more."""
        overdue: list[Wanted] = []
        for waiting in (self._own, *self._of_tenants.values()):
            overdue += [wanted for wanted in waiting if wanted.deadline_ms <= now_ms]
            left = [wanted for wanted in waiting if wanted.deadline_ms > now_ms]
            waiting.clear()
            waiting.extend(left)
        for tenant in [name for name, waiting in self._of_tenants.items() if not waiting]:
            del self._of_tenants[tenant]
        return overdue
