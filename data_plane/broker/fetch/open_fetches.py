"""What all Fetch requests share: sessions, parked polls, cold reads, and who may read what.

Deliberately absent: how one request is answered (fetch_handler.py, fetch_poll.py).
"""

from __future__ import annotations

from data_plane.broker.fetch.cold_reads import ColdReads
from data_plane.broker.fetch.fetch_rights import RightsOfRequests
from data_plane.broker.fetch.fetch_sessions import (
    FetchPartition,
    FetchSessionCache,
    FetchSet,
    ParkedPoll,
)
from data_plane.broker.fetch.kept_partitions import ClosingSets, KeptPartitions
from data_plane.broker.fetch.leader_throttle import LeaderThrottle
from data_plane.broker.services import Services
from data_plane.replica.partition import Partition


class OpenFetches:
    """The component that holds all sessions and parked polls."""

    def __init__(self, services: Services) -> None:
        slots_max = services.config.get_int("max.incremental.fetch.session.cache.slots")
        # What sessions and connections remember, or have not let go of.
        self.kept = KeptPartitions()
        self.closing = ClosingSets(self.kept)
        self.cache = FetchSessionCache(slots_max, services.random, self._close_session)
        self.throttle = LeaderThrottle(services)
        self.rights = RightsOfRequests(services, self.throttle)
        self.cold_reads = ColdReads(services)
        self.parked: dict[ParkedPoll, None] = {}
        self._now_ms = 0

    def _close_session(self, fetch_set: FetchSet) -> None:
        self.kept.forget(fetch_set)
        self.closing.close(fetch_set)

    def look_up_again(self, partition: Partition) -> None:
        """`partition` is not what it was to those who read it: a projection is to be read in its
        place, or its topic was deleted. They look it up again."""
        for watcher in list(partition.watchers):
            if isinstance(watcher, FetchPartition):
                watcher.reader_changed()

    def start(self, now_ms: int) -> None:
        """Nothing runs by itself."""

    def tick(self, now_ms: int) -> None:
        """Deadlines of polls are in the broker's timers."""
        self._now_ms = now_ms
        self.closing.run()

    def next_deadline_ms(self) -> int | None:
        return self._now_ms + 1 if self.closing.has_work else None

    def stop(self, now_ms: int) -> None:
        """Answer every parked poll with what there is."""
        for poll in list(self.parked):
            poll.finish_early()
        self.closing.run_all()
