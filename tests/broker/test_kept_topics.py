"""Topics that were deleted and can come back: gone for clients, whole for whoever brings them back,
and purged by a date that somebody vouches for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.quotas.stored import StoredBytes
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.deletion_watches import NOTES_PER_DELETION
from data_plane.broker.topics.kept_topics import UNDELETE_MS, KeptTopics
from data_plane.broker.topics.topic_purges import INTERVAL_MS, TopicPurges
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.tenants import PutTenant
from data_plane.cell.topic_deletions import UNDATED
from data_plane.log.config import LogConfig
from data_plane.log.permit import PERMITTED, DeletionPermit
from data_plane.wire.errors import ErrorCode
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import values_of
from tests.broker.namespace_player import SECOND, NamespacePlayer
from tests.broker.test_namespaces import (
    by_ids,
    coordinators,
    created,
    deleted,
    deleted_id,
    epoch_ends,
    fetched,
    listed_offsets,
    more_partitions,
    named,
    produced,
)
from tests.groups.requests import commit, fetch

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
# What the clock shows is this much after the steady time.
DATE_OFFSET_MS = 1_000_000
GROUP = "readers"


class KeepingPlayer(NamespacePlayer):
    """With a topic `x` of the second tenant, and a committed offset of it."""

    def __init__(self, undelete_ms: int = WEEK_MS, *, is_dated: bool = True) -> None:
        super().__init__({UNDELETE_MS: str(undelete_ms)})
        services = self.services
        services.partitions.leading_ones.on_hidden = self.sessions.look_up_again
        self.purges = TopicPurges(services)
        services.components.append(self.purges)
        self.purges.start(self.now_ms)
        if is_dated:
            self.vouch()
        self.topic_id: UUID = self.ask_for(ApiKey.CREATE_TOPICS, 7, created("x")).topics[0].topic_id
        self.ask_for(ApiKey.PRODUCE, 12, produced(12, "x", self.topic_id, b"kept"))
        self.ask_for(ApiKey.FIND_COORDINATOR, 6, coordinators(6, GROUP))
        offsets: Any = {("x", 0): 1}
        self.ask_for(ApiKey.OFFSET_COMMIT, 9, commit(GROUP, offsets))

    def ask_for(self, api_key: ApiKey, version: int, request: Any) -> Any:
        return self.second.ask(api_key, version, request)

    def vouch(self) -> None:
        """The date is known from now on."""
        self.services.wall_clock.observe(self.now_ms, self.now_ms + DATE_OFFSET_MS)

    def put_clock_forward(self, days: int) -> None:
        """It was wrong, and what it shows now is vouched for, too."""
        offset_ms = DATE_OFFSET_MS + days * DAY_MS
        self.services.wall_clock.observe(self.now_ms, self.now_ms + offset_ms)

    def begin_anew(self) -> None:
        """Another broker is the controller now, which has just started."""
        services = self.services
        services.components.remove(self.purges)
        self.purges = TopicPurges(services)
        services.components.append(self.purges)
        self.purges.start(self.now_ms)

    @property
    def date_ms(self) -> int:
        return self.now_ms + DATE_OFFSET_MS

    @property
    def topic(self) -> TopicImage:
        return self.services.image.topics_by_id[self.topic_id]

    @property
    def is_purged(self) -> bool:
        return self.topic_id not in self.services.image.topics_by_id

    def delete(self) -> None:
        (answer,) = self.ask_for(ApiKey.DELETE_TOPICS, 5, deleted(5, "x")).responses
        assert answer.error_code == 0, answer.error_message

    def order(self, decide: Callable[[KeptTopics, MetadataImage], Change]) -> None:
        """An operator's order is committed."""
        self.commit(decide(KeptTopics(self.services), self.services.image))

    def undelete(self) -> None:
        self.order(lambda kept, image: kept.undeletion(image, SECOND, "x"))

    def pass_days(self, days: float) -> None:
        """All at once: a broker that slept."""
        self.pass_time(int(days * DAY_MS))
        self.run_jobs()
        self.pass_time(INTERVAL_MS)
        self.run_jobs()

    def partition_end(self) -> int:
        partition = self.services.partitions.replica(self.topic_id, 0)
        assert partition is not None
        return partition.log.log_end_offset

    def log_config(self) -> LogConfig:
        return self.services.logs.get(self.topic_id, 0).config

    def log_retention_ms(self) -> int:
        return self.log_config().retention_ms

    def committed(self, version: int = 9) -> int:
        answer = self.ask_for(ApiKey.OFFSET_FETCH, version, fetch(GROUP, {"x": [0]}))
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset


def test_a_deleted_topic_does_not_exist_for_its_clients() -> None:
    """The answers are those about a topic that never was."""
    player = KeepingPlayer()
    never = NamespacePlayer({UNDELETE_MS: str(WEEK_MS)})
    never.second.ask(ApiKey.CREATE_TOPICS, 7, created("y"))
    never.second.ask(ApiKey.DELETE_TOPICS, 5, deleted(5, "y"))
    player.delete()
    topic_id = player.topic_id
    for api_key, version, request in (
        (ApiKey.METADATA, 13, named(["x"])),
        (ApiKey.METADATA, 13, by_ids(topic_id)),
        (ApiKey.PRODUCE, 12, produced(12, "x", topic_id, b"no")),
        (ApiKey.PRODUCE, 13, produced(13, "x", topic_id, b"no")),
        (ApiKey.FETCH, 12, fetched(12, "x", topic_id)),
        (ApiKey.FETCH, 13, fetched(13, "x", topic_id)),
        (ApiKey.LIST_OFFSETS, 7, listed_offsets("x")),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, epoch_ends("x")),
        (ApiKey.CREATE_PARTITIONS, 3, more_partitions("x")),
        (ApiKey.DELETE_TOPICS, 5, deleted(5, "x")),
        (ApiKey.DELETE_TOPICS, 6, deleted_id(topic_id)),
    ):
        told = player.ask_for(api_key, version, request)
        assert told == never.second.ask(api_key, version, request), (api_key.name, version)
    everything = player.ask_for(ApiKey.METADATA, 13, named(None))
    assert everything.topics == []
    assert player.partition_end() == 1, "nothing was written"


def test_its_name_is_reserved_and_who_wants_it_is_told_until_when() -> None:
    player = KeepingPlayer()
    player.delete()
    (answer,) = player.ask_for(ApiKey.CREATE_TOPICS, 7, created("x")).topics
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert answer.error_message == (
        "Topic 'x' was deleted and can be brought back; its name is reserved until "
        "2023-11-21T22:30:00Z."
    )
    # Nor one that would collide with it, nor in passing; other tenants have names of their own.
    player.ask_for(ApiKey.METADATA, 12, named(["x"]))
    assert player.services.image.topics_of(SECOND) == {"x": player.topic}
    assert player.first.ask(ApiKey.CREATE_TOPICS, 7, created("x")).topics[0].error_code == 0


def test_it_comes_back_with_its_id_its_data_and_its_offsets() -> None:
    player = KeepingPlayer()
    player.configure_topic("x", tenant=SECOND, retention_ms="123456789")
    player.delete()
    assert player.committed() == -1, "offsets are nobody's meanwhile"
    player.undelete()
    assert player.topic.name == "x"
    assert player.topic.configs["retention.ms"] == "123456789"
    (topic,) = player.ask_for(ApiKey.METADATA, 13, named(["x"])).topics
    assert topic.topic_id == player.topic_id
    for version in (12, 13):
        (topic,) = player.ask_for(
            ApiKey.FETCH, version, fetched(version, "x", player.topic_id)
        ).responses
        assert values_of(topic.partitions[0].records)[0] == (0, b"kept")
        (topic,) = player.ask_for(
            ApiKey.PRODUCE, version, produced(version, "x", player.topic_id, b"more")
        ).responses
        assert topic.partition_responses[0].error_code == 0
    assert player.committed() == 1


def test_it_is_stored_for_its_tenant_until_it_is_purged() -> None:
    player = KeepingPlayer()
    stored = StoredBytes(player.services.partitions)
    (size,) = stored.look_on([SECOND]).values()
    assert size > 0
    player.delete()
    assert stored.look_on([SECOND]) == {SECOND: size}
    player.undelete()
    assert stored.look_on([SECOND]) == {SECOND: size}
    player.delete()
    player.pass_days(8)
    assert player.is_purged
    assert stored.look_on([SECOND]) == {}


def test_a_fetch_that_waits_is_told() -> None:
    player = KeepingPlayer()
    for version in (12, 13):
        waiting = fetched(version, "x", player.topic_id)
        waiting.topics[0].partitions[0].fetch_offset = 1
        waiting.max_wait_ms, waiting.min_bytes = 30_000, 1
        pending = player.second.send(ApiKey.FETCH, version, waiting)
        assert not pending.is_answered
        player.delete()
        player.services.wakes.run(player.now_ms)
        (topic,) = pending.response.responses
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        assert topic.partitions[0].error_code in unknown
        player.undelete()


def test_it_is_purged_when_its_time_is_over_and_not_before() -> None:
    player = KeepingPlayer()
    player.delete()
    player.pass_days(6.9)
    assert not player.is_purged
    player.pass_days(0.2)
    assert player.is_purged
    assert player.purges.purged_count == 1
    assert player.ask_for(ApiKey.CREATE_TOPICS, 7, created("x")).topics[0].error_code == 0
    player.run_jobs()
    assert player.committed() == -1


def test_nothing_is_purged_by_a_date_that_nobody_vouches_for() -> None:
    player = KeepingPlayer()
    player.delete()
    player.services.deletion_permit = DeletionPermit(why_not_by_date="the clock has jumped")
    player.pass_days(30)
    assert not player.is_purged
    player.services.deletion_permit = PERMITTED
    player.pass_days(0)
    assert player.is_purged


def test_what_is_deleted_without_a_date_counts_from_when_there_is_one() -> None:
    player = KeepingPlayer(is_dated=False)
    player.delete()
    assert player.topic.deletion is not None
    assert player.topic.deletion.deleted_ms == UNDATED
    (answer,) = player.ask_for(ApiKey.CREATE_TOPICS, 7, created("x")).topics
    assert answer.error_message is not None
    assert f"for {WEEK_MS} ms from when the cell knows the date" in answer.error_message
    player.pass_days(30)
    player.vouch()
    player.pass_days(0)
    assert player.topic.deletion is not None
    assert abs(player.topic.deletion.deleted_ms - player.date_ms) <= 2 * INTERVAL_MS
    player.pass_days(6.9)
    assert not player.is_purged
    player.pass_days(0.2)
    assert player.is_purged


def test_who_comes_back_without_a_date_is_kept_whole_until_there_is_one() -> None:
    player = KeepingPlayer(is_dated=False)
    player.delete()
    player.undelete()
    assert player.topic.deletion is None
    assert player.log_retention_ms() == -1
    player.vouch()
    player.pass_days(0)
    assert player.log_retention_ms() > 0


@pytest.mark.parametrize("is_known_before", [False, True])
def test_who_was_deleted_without_a_date_comes_back_with_all_that_was_there(
    is_known_before: bool,
) -> None:
    """Nobody knows for how long it was deleted: what was there counts as new."""
    player = KeepingPlayer(undelete_ms=60 * DAY_MS, is_dated=False)
    player.configure_topic("x", tenant=SECOND, retention_ms=str(DAY_MS))
    record_ms = player.now_ms
    player.delete()
    player.pass_days(20)
    if is_known_before:
        player.vouch()
        player.pass_days(1)
    player.undelete()
    player.vouch()
    player.pass_days(0)
    back_ms = player.date_ms
    config = player.log_config()
    assert config.retention_ms == DAY_MS
    assert not config.is_expired(record_ms, back_ms + DAY_MS - INTERVAL_MS)
    assert config.is_expired(record_ms, back_ms + DAY_MS + 1)
    player.pass_days(6.9)
    assert player.committed() == 1
    player.pass_days(0.2)
    player.pass_days(0.1)
    assert player.committed() == -1, "seven days of use are over"


def test_it_is_dated_while_the_brokers_own_clock_is_wrong_and_not_purged() -> None:
    """The date is the metadata store's then, which somebody vouches for."""
    player = KeepingPlayer(is_dated=False)
    player.delete()
    player.vouch()
    player.services.deletion_permit = DeletionPermit(why_not_by_date="the clock is ahead")
    player.pass_days(0)
    assert player.topic.deletion is not None
    assert abs(player.topic.deletion.deleted_ms - player.date_ms) <= INTERVAL_MS
    player.pass_days(30)
    assert not player.is_purged
    player.undelete()
    player.services.deletion_permit = PERMITTED
    player.pass_days(0)
    assert not player.is_purged


def test_nothing_is_dated_by_an_image_that_nobody_vouches_for() -> None:
    player = KeepingPlayer(is_dated=False)
    player.delete()
    player.vouch()
    player.services.deletion_permit = DeletionPermit.refused("the store does not answer")
    player.pass_days(0)
    assert player.topic.deletion is not None
    assert player.topic.deletion.deleted_ms == UNDATED


def test_it_is_not_purged_because_a_clock_was_put_right() -> None:
    """Both dates were vouched for, and a week lies between them in which nothing happened."""
    player = KeepingPlayer()
    player.delete()
    player.put_clock_forward(40)
    player.pass_days(0)
    player.pass_days(6.9)
    assert not player.is_purged
    player.pass_days(0.2)
    assert player.is_purged


def test_the_next_controller_goes_on_from_what_was_noted() -> None:
    player = KeepingPlayer()
    player.delete()
    for _ in range(6):
        player.pass_days(1)
    noted = player.topic.deletion
    assert noted is not None
    step_ms = WEEK_MS // NOTES_PER_DELETION
    assert 6 * DAY_MS - step_ms <= noted.watched_ms <= 6 * DAY_MS + 20 * INTERVAL_MS
    player.begin_anew()
    player.put_clock_forward(40)
    left_days = (WEEK_MS - noted.watched_ms) / DAY_MS
    player.pass_days(left_days - 0.01)
    assert not player.is_purged
    player.pass_days(0.02)
    assert player.is_purged


def test_a_deletion_of_now_has_not_been_watched_before() -> None:
    player = KeepingPlayer()
    player.delete()
    player.pass_days(6)
    player.undelete()
    player.delete()
    player.put_clock_forward(40)
    player.pass_days(6)
    assert not player.is_purged
    player.pass_days(1.1)
    assert player.is_purged


def test_an_operator_may_purge_it_at_once_whatever_date_it_is() -> None:
    player = KeepingPlayer(is_dated=False)
    with pytest.raises(Refusal, match="no deleted topic 'x'"):
        player.order(lambda kept, image: kept.purge(image, SECOND, "x"))
    player.delete()
    player.order(lambda kept, image: kept.purge(image, SECOND, "x"))
    assert player.is_purged
    with pytest.raises(Refusal, match="no deleted topic 'x'"):
        player.undelete()


def test_who_comes_back_while_the_purge_is_on_its_way_stays() -> None:
    """What is purged is decided on the image that it is committed to."""
    player = KeepingPlayer()
    player.delete()
    player.services.deletion_permit = DeletionPermit(why_not_by_date="not yet")
    player.pass_days(8)
    services = player.services
    # The store has it already, and this broker has not heard of it.
    change = KeptTopics(services).undeletion(services.image, SECOND, "x")
    services.store.apply((change,), services.image.version, "undelete")
    services.deletion_permit = PERMITTED
    player.pass_days(0)
    assert services.store.read().topics_by_id[player.topic_id].deletion is None
    assert player.purges.purged_count == 0


def test_nothing_of_it_is_deleted_by_age_or_size_meanwhile() -> None:
    player = KeepingPlayer()
    player.configure_topic("x", tenant=SECOND, retention_ms="1000", retention_bytes="1")
    assert player.log_retention_ms() == 1000
    player.delete()
    assert player.log_retention_ms() == -1
    assert player.log_config().retention_bytes == -1
    player.pass_days(3)
    player.undelete()
    config = player.log_config()
    assert config.retention_ms == 1000
    assert config.retention_pause_ms is not None
    assert config.retention_pause_ms >= 3 * DAY_MS
    assert abs(config.retention_resumed_ms - player.date_ms) <= INTERVAL_MS


def test_its_offsets_do_not_expire_meanwhile_and_not_at_once_afterwards() -> None:
    player = KeepingPlayer(undelete_ms=30 * DAY_MS)
    player.delete()
    player.pass_days(20)
    player.pass_days(1)
    player.undelete()
    player.pass_days(1)
    assert player.committed() == 1
    player.pass_days(6.1)
    player.pass_days(0.1)
    assert player.committed() == -1, "seven days of use are over"


def test_a_topics_own_value_counts_then_its_tenants_then_the_brokers() -> None:
    player = KeepingPlayer(undelete_ms=1)

    def undelete_ms() -> int:
        return KeptTopics(player.services).undelete_ms(player.services.image, player.topic)

    assert undelete_ms() == 1
    tenant = player.services.image.tenants[SECOND]
    settings = {**tenant.settings, UNDELETE_MS: "2"}
    player.commit(PutTenant(replace(tenant, settings=settings)))
    assert undelete_ms() == 2
    player.configure_topic("x", tenant=SECOND, tidewheel_undelete_ms="3")
    assert undelete_ms() == 3
    player.configure_topic("x", tenant=SECOND, tidewheel_undelete_ms="0")
    player.delete()
    assert player.is_purged


def test_the_brokers_own_topics_are_deleted_for_good() -> None:
    player = KeepingPlayer()
    topic = player.services.image.topics_of("default")["__consumer_offsets"]
    assert KeptTopics(player.services).undelete_ms(player.services.image, topic) == 0


def test_a_broker_that_is_not_the_controller_forgets_what_was_purged() -> None:
    player = KeepingPlayer()
    other: Any = SimpleNamespace(is_controller=False)
    player.services.membership = other
    for _ in range(3):
        player.delete()
        player.pass_time(INTERVAL_MS)
        assert len(player.purges._heap) == 1
        player.undelete()
        player.pass_time(INTERVAL_MS)
    assert len(player.purges._heap) == 0
