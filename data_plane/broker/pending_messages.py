"""What operations ask of messages that are hidden until they are due: a port, filled by a feature;
and what whoever delivers them asks first, of another one.

    look    on the loop: a partition's as they are now, at no cost that grows with their number
    read    in a worker thread: pages by time, counts
    close   on the loop

Deliberately absent: which messages these are, and cancelling: that is a record that is produced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from data_plane.replica.partition import Partition
from data_plane.wire.records import Record


class Position(NamedTuple):
    """Messages that are due at the same time come in the order of their offsets."""

    deliver_at_ms: int
    offset: int


class Wanted(NamedTuple):
    """Those due in [from_ms, until_ms), behind a position, whose tags match."""

    from_ms: int | None = None
    until_ms: int | None = None
    filter: str = ""
    after: Position | None = None


class PendingMessage(NamedTuple):
    """`record` is the original; None where it cannot be read now, or nobody has asked for it."""

    position: Position
    record: Record | None


class Page(NamedTuple):
    """`next`: where to go on; None when nothing is behind."""

    messages: list[PendingMessage]
    next: Position | None


class Counted(NamedTuple):
    """How many are pending in all, and `counts` between each two edges. Up to `uncertain_count` of
    those counted may be over."""

    pending_count: int
    counts: list[int]
    uncertain_count: int
    first_ms: int | None


class PendingView(Protocol):
    """A partition's pending messages, as they were."""

    def page(self, wanted: Wanted, messages_max: int, bytes_max: int, looked_max: int) -> Page:
        """Some of them, of so many bytes of keys, values and headers, or one. In a worker thread;
        raises LogError and OSError."""

    def positions(self, wanted: Wanted, looked_max: int) -> Page:
        """As `page`, without their records."""

    def count(self, edges_ms: Sequence[int]) -> Counted:
        """Between ascending times. In a worker thread; raises OSError."""

    def close(self) -> None:
        """Nobody asks any more; on the loop, once."""


class PendingMessages(Protocol):
    """A feature that hides messages."""

    def filter_problem(self, text: str) -> str | None:
        """What is wrong with a filter; None when nothing."""

    def look(self, partition: Partition) -> PendingView:
        """On the loop; the partition's log is loaded."""


class Pause(NamedTuple):
    """Nothing is delivered of a partition since a date, as `nacked` of `passed` messages were."""

    since_ms: int
    passed: int
    nacked: int


class FiringGate(Protocol):
    """Who may hold back what is due."""

    def may_fire(self, partition: Partition, now_ms: int) -> int | None:
        """How many messages may be delivered now; None for all of them."""

    def look_again_ms(self, partition: Partition, now_ms: int) -> int:
        """When that changes at the earliest, where some are held back."""

    def pause_of(self, partition: Partition) -> Pause | None:
        """Why messages are held back; None when none are."""

    def fired(self, partition: Partition, offset: int, count: int, now_ms: int) -> None:
        """So many were delivered, from this offset on."""
