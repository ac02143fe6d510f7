"""For how long topics have been deleted, by elapsed time: what this broker has watched itself, and
what the image says that others had watched before.

A date is vouched for by a clock that may be corrected. Where it was 40 days behind when a topic was
deleted, and is right now, the topic's week seems to be over at once. Elapsed time is not corrected:

    controller 1    sees the deletion         2 h later: notes 2 h in the image
    controller 2                              sees the note      5 h later: at least 7 h

Invariants
- What is said here is never more than the time since the deletion; less after a restart, or a
  change of controllers, by what was not noted yet.
- What is said of a topic is about the deletion that was watched: one that came back meanwhile, and
  was deleted anew, has not been watched.

Bounds: LOOKED_AT_MAX topics are looked at in one go.

Deliberately absent: writing the notes, and what follows from them (topic_purges.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.cell.metadata import TopicImage
from data_plane.cell.topic_deletions import UNDATED, Deletion, Pause

LOOKED_AT_MAX: Final = 100
# A week is noted in so many steps, of this length at least: each is a commit.
NOTES_PER_DELETION: Final = 60
STEP_MS_MIN: Final = 60_000


class _Watch(NamedTuple):
    deletion: Deletion
    pause: Pause | None
    seen_ms: int


class DeletionWatches:
    """Those of one broker, in steady time."""

    def __init__(self) -> None:
        # The one that was looked at longest ago first.
        self._watches: dict[UUID, _Watch] = {}

    def see(self, topic: TopicImage, now_ms: int) -> None:
        """The image has the topic so."""
        topic_id, deletion = topic.topic_id, topic.deletion
        if deletion is None:
            self._watches.pop(topic_id, None)
            return
        known = self._watches.get(topic_id)
        if known is None or (known.deletion, known.pause) != (deletion, topic.pause):
            self._watches[topic_id] = _Watch(deletion, topic.pause, now_ms)

    def forget(self, topic_id: UUID) -> None:
        self._watches.pop(topic_id, None)

    def watched_ms(self, topic: TopicImage, now_ms: int) -> int:
        """For how long this deletion of the topic has been watched; 0 when it is another one."""
        watch = self._watches.get(topic.topic_id)
        if watch is None or (watch.deletion, watch.pause) != (topic.deletion, topic.pause):
            return 0
        return _watched_ms(watch, now_ms)

    def left_ms(self, topic_id: UUID, now_ms: int) -> int:
        """How much longer a deletion is to be watched."""
        watch = self._watches.get(topic_id)
        return 0 if watch is None else watch.deletion.undelete_ms - _watched_ms(watch, now_ms)

    def to_be_noted(self, now_ms: int) -> Iterator[UUID]:
        """Of the next few, those of which the image should say more than it does."""
        watches = self._watches
        for _ in range(min(LOOKED_AT_MAX, len(watches))):
            topic_id = next(iter(watches))
            watch = watches[topic_id] = watches.pop(topic_id)
            if watch.deletion.deleted_ms != UNDATED and _is_worth_a_note(watch, now_ms):
                yield topic_id


def _watched_ms(watch: _Watch, now_ms: int) -> int:
    return watch.deletion.watched_ms + now_ms - watch.seen_ms


def _is_worth_a_note(watch: _Watch, now_ms: int) -> bool:
    undelete_ms = watch.deletion.undelete_ms
    step_ms = max(STEP_MS_MIN, undelete_ms // NOTES_PER_DELETION)
    is_enough = watch.deletion.watched_ms >= undelete_ms
    return now_ms - watch.seen_ms >= step_ms and not is_enough
