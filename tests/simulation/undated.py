"""Records that do not say when they were made: their timestamp is -1, as old producers send it.

    segment 0..40   all of them undated      as old as its last append, which is kept with it

Such a topic has a retention of an hour, so nothing of it may go within the seconds of a history, on
whichever replica, after whatever start; or one of less than a second, so that it does go and its
readers are told. How old a segment is at most, retention.py asks the time of the world.
"""

from __future__ import annotations

from random import Random

from data_plane.wire.records import NewRecord
from tests.simulation.admin import TopicPlan
from tests.simulation.producer import Outgoing, Producer

UNDATED = "undated"
NO_TIMESTAMP = -1


def plan_undated(rng: Random) -> TopicPlan:
    """Segments of it are sealed within a second."""
    configs = {
        "segment.ms": rng.choice(("200", "600")),
        "retention.ms": rng.choice(("3600000", "3600000", "400")),
        "file.delete.delay.ms": rng.choice(("0", "60000")),
    }
    return TopicPlan(UNDATED, 1, 3, configs)


class UndatedProducer(Producer):
    """Idempotent, of records without timestamps."""

    def _records(self, batch: Outgoing) -> list[NewRecord]:
        return [one._replace(timestamp=NO_TIMESTAMP) for one in super()._records(batch)]
