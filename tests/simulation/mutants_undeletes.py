"""Planted bugs of topics that are deleted and come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.coordinators import groups
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.replicas.leading import Leading
from data_plane.broker.replicas.topic_partitions import TopicPartitions
from data_plane.broker.request.wall_clock import WallClock
from data_plane.broker.topics import topic_purges
from data_plane.broker.topics.deletion_watches import DeletionWatches
from data_plane.broker.topics.topic_purges import TopicPurges
from data_plane.cell import topics_draft
from data_plane.cell.metadata import TopicImage
from data_plane.log.config import LogConfig
from data_plane.log.permit import PERMITTED
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

KEPT = Options(
    brokers=3,
    faults=frozenset({"kill", "cut", "pause"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
    extras=frozenset({"undeletes"}),
)
WRONG_CLOCKS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
    extras=frozenset({"undeletes", "clock errors"}),
)


def _logs_go_at_once(patch: Patch) -> None:
    """As those of a topic that is gone for good."""

    original: Any = TopicPartitions.__dict__["_update_topic"]

    def update_topic(
        self: TopicPartitions, old: TopicImage, new: TopicImage, now_ms: int, changed: Any
    ) -> None:
        if new.deletion is not None:
            self._delete_topic(new, changed)
        else:
            original(self, old, new, now_ms, changed)

    patch.set(TopicPartitions, "_update_topic", update_topic)


def _retention_goes_on(patch: Patch) -> None:
    patch.set(TopicImage, "is_kept_whole", property(lambda self: False))


def _pauses_are_forgotten(patch: Patch) -> None:
    def is_expired(self: LogConfig, newest_ms: int, wall_ms: int) -> bool:
        return 0 <= self.retention_ms < wall_ms - newest_ms

    patch.set(LogConfig, "is_expired", is_expired)


def _offsets_go_at_once(patch: Patch) -> None:
    original: Any = topics_draft.changed_topics

    def changed_topics(old: Any, new: Any) -> Any:
        for topic, other in original(old, new):
            is_hidden = other is not None and other.deletion is not None
            yield topic, None if is_hidden else other

    patch.set(groups, "changed_topics", changed_topics)
    patch.set(GroupService, "_look_for_orphans", lambda self, now_ms: None)


def _clients_still_find_it_by_id(patch: Patch) -> None:
    patch.set(Leading, "show_or_hide", lambda self, topic, replicas: None)


def _any_date_will_do(patch: Patch) -> None:
    """What the broker's own clock shows, whether somebody vouches for it or not, and however little
    time has passed."""
    original: Any = TopicPurges.__dict__["tick"]
    patch.set(DeletionWatches, "left_ms", lambda self, topic_id, now_ms: 0)
    patch.set(DeletionWatches, "watched_ms", lambda self, topic, now_ms: 1 << 60)
    patch.set(WallClock, "vouched_offset_ms", property(lambda self: self._offset_ms))

    def tick(self: TopicPurges, now_ms: int) -> None:
        services = self._services
        permit, services.deletion_permit = services.deletion_permit, PERMITTED
        try:
            original(self, now_ms)
        finally:
            services.deletion_permit = permit

    patch.set(TopicPurges, "tick", tick)


def _what_was_due_stays_due(patch: Patch) -> None:
    """A purge goes by what this broker knew of the topic, not by the image it is committed to."""
    patch.set(topic_purges, "is_over", lambda topic, date_ms, watched_ms: True)


UNDELETE_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "logs of deleted topics go at once",
        "the topic comes back without its records",
        _logs_go_at_once,
        options=KEPT,
        is_quick=True,
    ),
    Mutant(
        "retention goes on in deleted topics",
        "what is old when the topic comes back is gone",
        _retention_goes_on,
        seeds=(5,),
        options=KEPT,
        is_quick=True,
    ),
    Mutant(
        "pauses of retention are forgotten",
        "what has come back goes at once, because of the time in which it could not be read",
        _pauses_are_forgotten,
        options=KEPT,
    ),
    Mutant(
        "offsets of deleted topics go at once",
        "groups begin anew in a topic that has come back",
        _offsets_go_at_once,
        options=KEPT,
        is_quick=True,
    ),
    Mutant(
        "clients find deleted topics by id",
        "what is not there is read and written",
        _clients_still_find_it_by_id,
        options=KEPT,
        is_quick=True,
    ),
    Mutant(
        "purges by any date",
        "a clock that is wrong for a moment ends what could have come back",
        _any_date_will_do,
        seeds=(11,),
        options=WRONG_CLOCKS,
        is_quick=True,
    ),
    Mutant(
        "purges of what was due once",
        "a topic that is only to be dated is purged",
        _what_was_due_stays_due,
        options=KEPT,
    ),
)
