"""Topics that were deleted and can come back: what an image remembers of it, and when they go.

    active ──delete──► deleted ──undelete──► active, after a pause
                          │
                          └──purge (its time is over, or by order)──► gone: `DeleteTopic`

A deleted topic is in the image as before, with all that belongs to it: its partitions have leaders
and replicas that follow, its name is taken, nothing of it is deleted by age or size. That it does
not exist for clients is the business of those who look up names for them.

When its time is over says one clock, the cell's, and only while somebody vouches for it. So what
happens at a date that nobody vouches for is UNDATED, and dated as soon as somebody does: it lasts
longer then, never shorter. Only the beginning of a pause is not dated afterwards, which would make
the pause shorter: it stays unknown, and with it the length of the pause.

    deleted, UNDATED    dated 12:00    undeleted 12:30     kept until 12:00 and `undelete_ms`;
                                                           a pause of unknown length until 12:30

A clock that was vouched for may be corrected. So as much time must have passed as well, by what
brokers have watched (data_plane/broker/topics/deletion_watches.py).

Invariants
- Nothing here deletes: who is due is deleted by a `DeleteTopic`, in a commit of its own.
- What was paused (retention by time, the expiry of offsets) goes on after the pause as if no time
  had passed; after one of unknown length, as if what was there were from its end.

Deliberately absent: which topics are kept for how long, and whose date it is
(data_plane/broker/topics).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from data_plane.cell.invalid_change import InvalidChange

if TYPE_CHECKING:
    from data_plane.cell.metadata import TopicImage

UNDATED: Final = -1
# As `next_date_ms`: as soon as somebody vouches for a date.
TO_BE_DATED_MS: Final = 0
# By what names a topic that is stored says it.
DELETION_FIELD: Final = "deletion"
PAUSE_FIELD: Final = "pause"


class Deletion(NamedTuple):
    """A topic was deleted at `deleted_ms`, and can come back for `undelete_ms`. For `watched_ms` at
    least it has been deleted, by elapsed time, as was noted last."""

    deleted_ms: int
    undelete_ms: int
    watched_ms: int = 0

    @property
    def purge_ms(self) -> int:
        """The date at which its time is over; UNDATED while that cannot be said."""
        return UNDATED if self.deleted_ms == UNDATED else self.deleted_ms + self.undelete_ms


class Pause(NamedTuple):
    """A topic was deleted from `begun_ms` to `ended_ms`, and before that for `earlier_ms`. One that
    has not ended yet may stand beside a deletion: the two end together."""

    begun_ms: int
    ended_ms: int
    earlier_ms: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it is known when it ended."""
        return self.ended_ms != UNDATED

    @property
    def length_ms(self) -> int | None:
        """Of one that is over; None: nobody knows when it began."""
        if self.begun_ms == UNDATED:
            return None
        return self.earlier_ms + max(0, self.ended_ms - self.begun_ms)


@dataclass(frozen=True, slots=True)
class ChangeDeletion:
    """A topic is deleted and can come back, has come back, or one of that is dated."""

    topic_id: UUID
    deletion: Deletion | None
    pause: Pause | None


def undeleted(topic: TopicImage, date_ms: int) -> ChangeDeletion:
    """A deleted topic comes back, at that date or UNDATED."""
    assert topic.deletion is not None, f"{topic} is not deleted"
    before, begun_ms, earlier_ms = topic.pause, topic.deletion.deleted_ms, 0
    if before is not None and before.is_over:
        if before.length_ms is None:
            begun_ms = UNDATED
        else:
            earlier_ms = before.length_ms
    elif before is not None:
        # It goes on in this one: rather longer than too short.
        begun_ms, earlier_ms = before.begun_ms, before.earlier_ms
    return ChangeDeletion(topic.topic_id, None, Pause(begun_ms, date_ms, earlier_ms))


def next_date_ms(topic: TopicImage) -> int | None:
    """From what date on something is to be done about a topic (`due_change`); None: nothing."""
    if topic.deletion is not None:
        purge_ms = topic.deletion.purge_ms
        return TO_BE_DATED_MS if purge_ms == UNDATED else purge_ms
    return TO_BE_DATED_MS if topic.pause is not None and not topic.pause.is_over else None


def dated(topic: TopicImage, date_ms: int) -> ChangeDeletion | None:
    """What happened to a topic at a date that nobody vouched for is dated; None: nothing has."""
    deletion, pause = topic.deletion, topic.pause
    if deletion is not None and deletion.deleted_ms == UNDATED:
        if pause is None or pause.is_over:
            # It began before this date, and nobody knows when.
            pause = Pause(UNDATED, UNDATED)
        return ChangeDeletion(topic.topic_id, deletion._replace(deleted_ms=date_ms), pause)
    if deletion is None and pause is not None and not pause.is_over:
        return ChangeDeletion(topic.topic_id, None, pause._replace(ended_ms=date_ms))
    return None


def noted(topic: TopicImage, watched_ms: int) -> ChangeDeletion | None:
    """A deletion has been watched for so long; None: that is known, or it is none."""
    deletion = topic.deletion
    if deletion is None or watched_ms <= deletion.watched_ms:
        return None
    return ChangeDeletion(topic.topic_id, deletion._replace(watched_ms=watched_ms), topic.pause)


def is_over(topic: TopicImage, date_ms: int, watched_ms: int) -> bool:
    """Whether a deleted topic's time is over: at a date that somebody vouches for, and by the time
    for which it has been deleted as far as anybody has watched."""
    deletion = topic.deletion
    if deletion is None or deletion.deleted_ms == UNDATED:
        return False
    return deletion.purge_ms <= date_ms and deletion.undelete_ms <= watched_ms


def with_deletion(topic: TopicImage, change: ChangeDeletion) -> TopicImage:
    """The topic's next state. Raises InvalidChange."""
    if topic.internal:
        raise InvalidChange(f"{topic} is one of the broker's own")
    if change.deletion is not None and change.deletion.undelete_ms <= 0:
        raise InvalidChange(f"{topic} cannot come back after {change.deletion.undelete_ms} ms")
    return replace(topic, deletion=change.deletion, pause=change.pause)


def named_deletion(deletion: Deletion | None, pause: Pause | None) -> dict[str, Any]:
    """The fields by name of a topic, or of a change; without those that have nothing to say."""
    named: dict[str, Any] = {}
    if deletion is not None:
        named[DELETION_FIELD] = list(deletion)
    if pause is not None:
        named[PAUSE_FIELD] = list(pause)
    return named


def deletion_in(named: Mapping[str, Any]) -> tuple[Deletion | None, Pause | None]:
    """The inverse of `named_deletion`."""
    deletion, pause = named.get(DELETION_FIELD), named.get(PAUSE_FIELD)
    return (
        None if deletion is None else Deletion(*deletion),
        None if pause is None else Pause(*pause),
    )
