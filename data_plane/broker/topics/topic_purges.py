"""Purges: a deleted topic goes for good when its time is over.

    deleted at a date that nobody vouched for    dated, as soon as somebody vouches for one
    its time is over                             `DeleteTopic`, which takes logs and offsets with it
    it was watched for a while                   noted for the next controller (deletion_watches.py)

One broker does this, the controller, or a broker that is alone; by a date that is vouched for, on
an image that is vouched for, and never otherwise (deletion_guard.py): a clock that is wrong for a
moment purges nothing. While the broker's own clock is wrong the metadata store's still dates, as it
dates deletions, and purges nothing. What is decided is decided anew on the image that it is
committed to: a topic that has come back meanwhile, or was deleted anew, stays.

Deliberately absent: purging by order (kept_topics.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final
from uuid import UUID

from data_plane.broker.services import Services
from data_plane.broker.topics.deletion_watches import DeletionWatches
from data_plane.cell.changes import Change, DeleteTopic
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.topic_deletions import TO_BE_DATED_MS, dated, is_over, next_date_ms, noted
from data_plane.cell.topics_draft import changed_topics

INTERVAL_MS: Final = 1_000
# The rest comes with the next commit.
TOPICS_PER_COMMIT_MAX: Final = 100


class TopicPurges:
    """A component."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # From what date on something is to be done about a topic. The heap may also have what does
        # not hold any more.
        self._dates_ms: dict[UUID, int] = {}
        self._heap: list[tuple[int, bytes]] = []
        # By its date a topic's time was over, and too little time has passed: from when, in steady
        # time, that is different.
        self._too_early: list[tuple[int, bytes]] = []
        self._watches = DeletionWatches()
        self._is_writing = False
        self._next_ms = 0
        self.purged_count = 0
        services.image_listeners.append(self._image_changed)

    def start(self, now_ms: int) -> None:
        for topic in self._services.image.topics_by_id.values():
            self._note(topic, now_ms)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.topics_by_id is new.topics_by_id:
            return
        for topic, other in changed_topics(old, new):
            if other is None or other.topic_id != topic.topic_id:
                self._dates_ms.pop(topic.topic_id, None)
                self._watches.forget(topic.topic_id)
            else:
                self._note(other, now_ms)
        for topic, other in changed_topics(new, old):
            # An image that was read as a whole may bring one that was deleted before it was known.
            if other is None or other.topic_id != topic.topic_id:
                self._note(topic, now_ms)

    def _note(self, topic: TopicImage, now_ms: int) -> None:
        self._watches.see(topic, now_ms)
        date_ms = next_date_ms(topic)
        if date_ms is None:
            self._dates_ms.pop(topic.topic_id, None)
        elif self._dates_ms.get(topic.topic_id) != date_ms:
            self._dates_ms[topic.topic_id] = date_ms
            heappush(self._heap, (date_ms, topic.topic_id.bytes))

    def tick(self, now_ms: int) -> None:
        has_work = self._heap or self._too_early
        if not has_work or self._is_writing or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + INTERVAL_MS
        self._forget_past()
        services = self._services
        membership = services.membership
        if membership is not None and not membership.is_controller:
            return
        offset_ms = services.wall_clock.vouched_offset_ms
        permit = services.deletion_permit
        if permit.why_nothing or offset_ms is None:
            return
        date_ms = now_ms + offset_ms
        may_purge = not permit.why_not_by_date
        due = self._take_due(date_ms if may_purge else TO_BE_DATED_MS, now_ms)
        to_note = list(self._watches.to_be_noted(now_ms))
        if due or to_note:
            self._write(due, to_note, now_ms, date_ms, may_purge=may_purge)

    def next_deadline_ms(self) -> int | None:
        """Every broker has a tick each second anyway."""
        return None

    def stop(self, now_ms: int) -> None:
        """Nothing to let go of."""

    def _forget_past(self) -> None:
        """Every broker notes dates, and most brokers never take what is due."""
        heap = self._heap
        for _ in range(TOPICS_PER_COMMIT_MAX):
            if not heap or self._dates_ms.get(UUID(bytes=heap[0][1])) == heap[0][0]:
                return
            heappop(heap)

    def _take_due(self, until_ms: int, now_ms: int) -> dict[UUID, int]:
        due: dict[UUID, int] = {}
        heap, too_early = self._heap, self._too_early
        for _ in range(TOPICS_PER_COMMIT_MAX):
            if not too_early or too_early[0][0] > now_ms:
                break
            _, id_bytes = heappop(too_early)
            since_ms = self._dates_ms.get(UUID(bytes=id_bytes))
            if since_ms is not None:
                heappush(heap, (since_ms, id_bytes))
        for _ in range(TOPICS_PER_COMMIT_MAX):
            if not heap or heap[0][0] > until_ms:
                break
            since_ms, id_bytes = heappop(heap)
            topic_id = UUID(bytes=id_bytes)
            if self._dates_ms.get(topic_id) != since_ms:
                continue
            left_ms = self._watches.left_ms(topic_id, now_ms)
            if since_ms != TO_BE_DATED_MS and left_ms > 0:
                heappush(too_early, (now_ms + left_ms, id_bytes))
            else:
                due[topic_id] = since_ms
        return due

    def _write(
        self,
        due: dict[UUID, int],
        to_note: Sequence[UUID],
        now_ms: int,
        date_ms: int,
        *,
        may_purge: bool,
    ) -> None:
        services = self._services
        self._is_writing = True
        purged: list[str] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            purged.clear()
            changes: list[Change] = []
            for topic_id in dict.fromkeys((*due, *to_note)):
                topic = image.topics_by_id.get(topic_id)
                if topic is None:
                    continue
                watched_ms = self._watches.watched_ms(topic, now_ms)
                change: Change | None = dated(topic, date_ms) or noted(topic, watched_ms)
                if may_purge and is_over(topic, date_ms, watched_ms):
                    purged.append(str(topic))
                    change = DeleteTopic.of(topic)
                if change is not None:
                    changes.append(change)
            return changes

        def done(error: BaseException | None) -> None:
            self._is_writing = False
            for topic_id, since_ms in due.items():
                # Whatever came of it: what still holds is looked at again.
                if self._dates_ms.get(topic_id) == since_ms:
                    heappush(self._heap, (since_ms, topic_id.bytes))
            if error is not None:
                services.log.warning("topics_not_purged", error=repr(error))
                return
            self.purged_count += len(purged)
            for name in purged:
                services.log.info("topic_purged", topic=name)

        epoch = None if services.membership is None else services.membership.controller.epoch
        services.metadata.write(decide, done, epoch)
