"""What operations ask of dead letters: that they are put back, or purged. A port, filled by a
feature.

    begin    the leader of a partition writes down what is to be done, and does it from then on,
             or whoever leads after it
    change   it pauses, goes on, or ends where it is
    listed   what is under way, and what was lately

All of it on the loop. Deliberately absent: rights, which callers look at.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode


class Wish(Enum):
    """What somebody has asked of an operation last."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class Status(Enum):
    """How an operation is. PAUSING, CANCELLING: as soon as what is on its way has arrived. GONE: it
    has ended, as the topic that it goes to is there no more."""

    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    DONE = "done"
    CANCELLED = "cancelled"
    GONE = "gone"


class Selection(NamedTuple):
    """Which dead letters: all conditions that are given hold. What is None or empty says nothing.

    `reason` is a part of it, in any case of letters; `exception` a class, with its module or
    without; times are those of the letters' deaths. `again`: also what was redriven before."""

    filter: str = ""
    from_ms: int | None = None
    until_ms: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None
    offsets: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    reason: str = ""
    exception: str = ""
    is_all: bool = False
    again: bool = False

    @property
    def conditions_count(self) -> int:
        """How many are given."""
        told = (self.filter, self.offsets, self.ids, self.reason, self.exception)
        numbers = (self.from_ms, self.until_ms, self.from_offset, self.until_offset)
        return sum(bool(one) for one in told) + sum(one is not None for one in numbers)


class Wanted(NamedTuple):
    """What is asked for. `id` is the caller's: the same once more is the same operation. `target`
    is a topic's name, or empty: back to the subscription that each came from. `rate_max`: letters
    a second, or 0 for as many as there can be."""

    id: str
    is_purge: bool
    selection: Selection
    target: str
    rate_max: int
    principal: str


class Counts(NamedTuple):
    """Of letters. `moved` were redriven or purged; the others matched and were left where they are:
    they had been redriven too often, or no subscription is known for them."""

    looked: int = 0
    moved: int = 0
    over_limit: int = 0
    no_origin: int = 0


class View(NamedTuple):
    """An operation as it is. It looks at [first_offset, end_offset), and has got to `next_offset`.
    `held` says why it does not get on, or is empty."""

    wanted: Wanted
    status: Status
    first_offset: int
    next_offset: int
    end_offset: int
    counts: Counts
    begun_ms: int
    ended_ms: int
    held: str


class NotPossible(Exception):
    """Why an operation is refused, with Kafka's code for it."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


# Called on the loop, once.
Done = Callable[[View | None, NotPossible | None], None]


class DeadLetterOperations(Protocol):
    """A feature that has them. Each is asked of a partition that this broker leads."""

    def problem(self, selection: Selection) -> str | None:
        """What is wrong with it; None when nothing."""

    def origins(self, partition: Partition) -> list[str]:
        """The names of the subscriptions that dead letters have come from, and that are there.
        Raises NotPossible."""

    def begin(self, partition: Partition, wanted: Wanted, now_ms: int, done: Done) -> None:
        """Done when it is committed. Raises NotPossible."""

    def change(
        self, partition: Partition, operation_id: str, wish: Wish, now_ms: int, done: Done
    ) -> None:
        """Done when it is committed. Raises NotPossible."""

    def listed(self, partition: Partition) -> list[View]:
        """In the order in which they began. Raises NotPossible."""

    def marked(
        self, partition: Partition, from_offset: int, until_offset: int
    ) -> tuple[list[int], list[int]]:
        """Which of these offsets were redriven, and which were purged. Raises NotPossible."""
