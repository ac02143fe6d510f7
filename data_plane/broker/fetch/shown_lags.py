"""How far groups are behind in projected partitions: the records that are shown between what a
group has committed and the end, without those of aborted transactions.

    a scrape asks for (group, partition)s ──► noted ──► counted by a thread ──► the next scrape's

Counting may read, so whoever asks gets what was counted when he asked last. Nobody asks, nothing
is counted.

Invariants
- One round at a time, of NOTED_MAX partitions; what is beyond, and what cannot be counted by
  reading as little as a round may, is unknown.
- A round forgets the one before: what nobody asks for any more is not kept.

Deliberately absent: counting (projected_searches.py), single questions (list_offsets.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from data_plane.broker.fetch.projected_searches import (
    ReadBudget,
    aborted_between,
    count_shown,
    find_first,
)
from data_plane.log.errors import LogError

if TYPE_CHECKING:
    from data_plane.broker.fetch.projection import Projection
    from data_plane.broker.services import Services
    from data_plane.log.log import Log

NOTED_MAX: Final = 1_000
NO_TIMESTAMP: Final = -1


class _GroupPartition(NamedTuple):
    """A partition that a tenant's group has committed an offset of."""

    tenant: str
    group: str
    topic: str
    partition: int


class ShownLag(NamedTuple):
    """So many records, the first of which has this timestamp; -1 for none."""

    records_count: int
    oldest_ms: int


class _Question(NamedTuple):
    projection: Projection
    log: Log
    start: int
    end: int

    def answer(self, budget: ReadBudget) -> ShownLag | None:
        """In a worker thread; None where it is not known."""
        try:
            log, start, end = self.log, max(self.start, self.log.log_start_offset), self.end
            if start >= end:
                return ShownLag(0, NO_TIMESTAMP)
            aborted = aborted_between(log, start, end)
            count = count_shown(self.projection, log, start, end, aborted, budget)
            first = None
            if count:
                first = find_first(self.projection, log, start, end, NO_TIMESTAMP, aborted, budget)
            return ShownLag(count, NO_TIMESTAMP if first is None else first[1])
        except LogError:
            return None


class ShownLags:
    """See the module. On the loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._noted: dict[_GroupPartition, int] = {}
        self._found: dict[_GroupPartition, ShownLag] = {}
        self._is_counting = False

    def look(self, tenant: str, group: str, topic: str, index: int, offset: int) -> ShownLag | None:
        """What was found last of a group's partition; it will be counted from the committed
        `offset` on."""
        partition = _GroupPartition(tenant, group, topic, index)
        if len(self._noted) < NOTED_MAX:
            self._noted[partition] = offset
        return self._found.get(partition)

    def count(self) -> None:
        """Begin to count what was noted."""
        if self._is_counting or not self._noted:
            return
        noted, self._noted = self._noted, {}
        questions: dict[_GroupPartition, _Question] = {}
        for partition, offset in noted.items():
            question = self._question(partition, offset)
            if question is not None:
                questions[partition] = question
        self._is_counting = True

        def done(answers: list[ShownLag | None] | None, error: BaseException | None) -> None:
            self._is_counting = False
            if answers is None:
                self._services.log.error("lags_not_counted", error=repr(error))
                return
            pairs = zip(questions, answers, strict=True)
            self._found = {partition: found for partition, found in pairs if found is not None}

        budget = ReadBudget(len(questions))
        self._services.executor.submit(
            lambda: [question.answer(budget) for question in questions.values()], done
        )

    def _question(self, partition: _GroupPartition, offset: int) -> _Question | None:
        """None where the partition's records are not led here, or its log is at rest."""
        services = self._services
        tenant, topic, index = partition.tenant, partition.topic, partition.partition
        projected = services.projections.find(tenant, topic, b"", index)
        if projected is None:
            return None
        found = services.partitions.get(projected.source_topic_id, projected.source_index)
        if found is None or not found.log.is_loaded:
            return None
        return _Question(projected.projection, found.log, offset, found.last_stable_offset)
