"""Subscriptions at one broker without a server: who may make them, and what becomes of them when
their source, or they themselves, change."""

from __future__ import annotations

from uuid import UUID

import pytest

from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.broker.fetch.projection import ProjectedPartition
from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.quotas import NoQuotas
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.create_topics import PARTITIONS_PER_REQUEST_MAX
from data_plane.broker.topics.kept_topics import KeptTopics
from data_plane.broker.topics.virtual_creation import VIRTUAL_TOPICS_PER_SOURCE_MAX
from data_plane.cell.acls import (
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    ResourcePattern,
)
from data_plane.cell.changes import Change, DeleteTopic, InvalidChange, UpdateFeature
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL, VIRTUAL_TOPICS
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.records import NewRecord, build_batch, decode_batch, iter_batch_headers
from data_plane.wire.registry import ApiKey
from features.catalogue import FEATURES
from features.filtering import subscriptions
from features.filtering.subscriptions import Subscriptions
from features.filtering.tag_indexes import TagIndexes
from tests.broker.admin_player import TOPIC, AdminPlayer, Outcome, new_topic
from tests.broker.broker_player import NOW_MS, Pending

SET, DELETE = 0, 1


def properties() -> TopicProperties:
    found = KAFKA_TOPIC_PROPERTIES
    for feature in FEATURES:
        found = feature.add_properties(found)
    return found


class Player(AdminPlayer):
    """With `orders` of two partitions, and all features."""

    def __init__(self, *, level: int = 1) -> None:
        super().__init__(topics=properties())
        for feature in FEATURES:
            if feature.plug_in is not None:
                feature.plug_in(self.services)
        self.services.handlers.guards.update(GUARDS)
        self.commit(UpdateFeature(METADATA_VERSION, TENANCY_LEVEL))
        if level:
            self.commit(UpdateFeature(VIRTUAL_TOPICS, level))
        self.create_topic("orders", 2, {"tidewheel.headers": "true"})

    def commit(self, *changes: Change) -> None:
        services = self.services
        version = services.image.version
        services.apply_image(services.store.apply(changes, version, f"after {version}"), NOW_MS)
        self.run_jobs()

    def subscribe(self, name: str = "pay", **configs: str) -> Outcome:
        return self.made(name, -1, {"tidewheel.source": "orders", **configs})

    def made(self, name: str, partitions: int, configs: dict[str, str]) -> Outcome:
        wanted = {key.replace("filter", "tidewheel.filter"): text for key, text in configs.items()}
        (result,) = self.create(new_topic(name, partitions, -1, configs=dict(wanted)))
        return result.error_code, result.error_message

    def append(self, *tags: str, index: int = 0) -> None:
        """A record with each of these tags, in one batch; its value is the tag."""
        records = [
            NewRecord(NOW_MS, None, tag.encode(), ((b"tw-tag", tag.encode()),)) for tag in tags
        ]
        pending = self.produce("orders", [], index=index, batch=build_batch(records))
        ((error,),) = (
            [part.error_code for part in topic.partition_responses]
            for topic in pending.response.responses
        )
        assert error == 0

    def read(self, topic: str, index: int = 0, offset: int = 0) -> list[bytes]:
        pending = self.fetch({(topic, index): offset})
        self.run_jobs()
        return shown_values(pending)

    def shown(self, name: str) -> int:
        """How many partitions Metadata shows."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (topic,) = self.ask(ApiKey.METADATA, 12, request).topics
        return len(topic.partitions)

    def grow(self, name: str, count: int, version: int = 3) -> Outcome:
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted])
        (result,) = self.ask(ApiKey.CREATE_PARTITIONS, version, request).results
        return result.error_code, result.error_message

    def delete(self, *names: str) -> list[Outcome]:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
        results = self.ask(ApiKey.DELETE_TOPICS, 6, request).responses
        return [(result.error_code, result.error_message) for result in results]


def shown_values(pending: Pending) -> list[bytes]:
    """Of the only partition of an answer, which may be left out when it has nothing to say."""
    records = [part.records for topic in pending.response.responses for part in topic.partitions]
    return [
        record.value or b""
        for data in records
        if data
        for batch in iter_batch_headers(data, 0, len(data))
        if not batch.is_control
        for record in decode_batch(data, batch.position)
    ]


def grant(operation: AclOperation, name: str) -> Acl:
    entry = AclEntry("User:ANONYMOUS", "*", operation, int(Permission.ALLOW))
    pattern = ResourcePattern(int(AclResourceType.TOPIC), int(PatternType.LITERAL), name)
    return Acl(pattern, entry)


def test_each_partition_shows_what_matches_of_the_source_s() -> None:
    player = Player()
    assert player.subscribe(filter="a or c") == (0, None)
    player.append("a", "b", "c")
    player.append("b", "c", index=1)
    assert player.shown("pay") == 4
    assert player.read("pay", 0) == [b"a", b"c"]
    assert player.read("pay", 2) == [b"c"]
    assert player.read("pay", 1) == player.read("pay", 3) == []
    assert player.read("orders") == [b"a", b"b", b"c"]


def test_an_edit_holds_from_the_next_fetch_on() -> None:
    player = Player()
    player.subscribe(filter="a")
    player.append("a", "b")
    assert player.read("pay") == [b"a"]
    assert player.alter(TOPIC, "pay", ("tidewheel.filter", SET, "b")) == (0, None)
    assert player.read("pay") == [b"b"]
    assert player.alter(TOPIC, "pay", ("tidewheel.filter", SET, "")) == (0, None)
    assert player.read("pay") == [b"a", b"b"]


def test_a_fetch_that_waits_goes_by_the_new_filter() -> None:
    player = Player()
    player.subscribe(filter="a")
    waiting = player.fetch({("pay", 0): 0}, max_wait_ms=1_000)
    assert not waiting.is_answered
    player.alter(TOPIC, "pay", ("tidewheel.filter", SET, "b"))
    player.append("a", "b")
    player.run_jobs()
    assert shown_values(waiting) == [b"b"]


def test_what_a_topic_is_created_with_stays() -> None:
    player = Player()
    player.subscribe()
    player.create_topic("others", 2)
    for topic, name, value in (
        ("pay", "tidewheel.source", "others"),
        ("orders", "tidewheel.source", "others"),
        ("orders", "tidewheel.headers", "false"),
        ("others", "tidewheel.headers", "true"),
    ):
        code, message = player.alter(TOPIC, topic, (name, SET, value))
        assert code == ErrorCode.INVALID_CONFIG
        assert message == f"{name} cannot change: it is set when the topic is created"
    assert player.alter(TOPIC, "others", ("tidewheel.headers", SET, "false")) == (0, None)


def test_a_source_goes_with_its_subscriptions_or_not_at_all() -> None:
    player = Player()
    player.subscribe("pay")
    player.subscribe("ship")
    assert player.delete("orders", "ship") == [
        (
            ErrorCode.POLICY_VIOLATION,
            "Topic 'orders' is read by 'pay': delete these as well, before or in the same request.",
        ),
        (0, None),
    ]
    assert player.delete("orders", "pay") == [(0, None), (0, None)]
    assert player.services.image.topics_of("default") == {}


def test_a_fetch_of_what_is_deleted_is_told() -> None:
    player = Player()
    player.subscribe()
    waiting = player.fetch({("pay", 0): 0}, max_wait_ms=10_000)
    player.delete("pay")
    player.run_jobs()
    (topic,) = waiting.response.responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_all_brokers_have_to_know_virtual_topics() -> None:
    code, message = Player(level=0).subscribe()
    assert code == ErrorCode.UNSUPPORTED_VERSION
    assert message is not None
    assert "needs the feature tidewheel.virtual.topics at level 1" in message


@pytest.mark.parametrize("source", ["orders", "nowhere"])
def test_who_makes_one_may_read_the_source(source: str) -> None:
    player = Player()
    player.commit(AddAcls("default", (grant(AclOperation.CREATE, "pay"),)))
    player.commit(AddAcls("default", (grant(AclOperation.READ, "other"),)))
    settings = {"allow.everyone.if.no.acl.found": "false"}
    cluster_id = player.services.image.cluster_id
    player.commit(PutTenant(TenantImage("default", cluster_id, settings=settings)))
    # The same, whether there is such a topic or not.
    assert player.made("pay", -1, {"tidewheel.source": source}) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"Who reads from topic '{source}' needs READ on it.",
    )
    player.commit(AddAcls("default", (grant(AclOperation.READ, "orders"),)))
    assert player.subscribe() == (0, None)


def test_who_edits_the_filter_may_read_the_source() -> None:
    player = Player()
    player.subscribe(filter="a")
    player.commit(AddAcls("default", (grant(AclOperation.ALTER_CONFIGS, "pay"),)))
    player.commit(AddAcls("default", (grant(AclOperation.READ, "pay"),)))
    settings = {"allow.everyone.if.no.acl.found": "false"}
    cluster_id = player.services.image.cluster_id
    player.commit(PutTenant(TenantImage("default", cluster_id, settings=settings)))
    refused = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "Who changes what is read of topic 'orders' needs READ on it.",
    )
    for operation, value in ((SET, ""), (SET, "b"), (DELETE, None)):
        assert player.alter(TOPIC, "pay", ("tidewheel.filter", operation, value)) == refused
    assert player.alter(TOPIC, "pay", ("retention.ms", SET, "60000")) == (0, None)
    player.commit(AddAcls("default", (grant(AclOperation.READ, "orders"),)))
    assert player.alter(TOPIC, "pay", ("tidewheel.filter", DELETE, None)) == (0, None)


def test_a_source_has_tags() -> None:
    player = Player()
    player.create_topic("plain", 1)
    assert player.made("pay", -1, {"tidewheel.source": "plain"}) == (
        ErrorCode.INVALID_CONFIG,
        "tidewheel.source: topic 'plain' has no tags: it was created without "
        "tidewheel.headers=true.",
    )


def test_a_source_is_of_the_same_tenant() -> None:
    player = Player()
    player.make_tenant("acme")
    player.create_topic("secrets", 2, tenant="acme")
    assert player.made("pay", -1, {"tidewheel.source": "secrets"}) == (
        ErrorCode.INVALID_CONFIG,
        "tidewheel.source: topic 'secrets' does not exist.",
    )


@pytest.mark.parametrize("refused", ["named twice", "named and with an id"])
def test_a_source_stays_when_a_subscription_s_own_deletion_is_refused(refused: str) -> None:
    player = Player()
    player.subscribe()
    pay = [DeleteTopicState(name="pay"), DeleteTopicState(name="pay")]
    if refused == "named and with an id":
        pay = [DeleteTopicState(name="pay", topic_id=UUID(int=5))]
    wanted = [DeleteTopicState(name="orders"), *pay]
    request = DeleteTopicsRequest(topics=wanted)
    results = player.ask(ApiKey.DELETE_TOPICS, 6, request).responses
    assert [result.name for result in results] == ["orders", "pay"]
    assert [result.error_code for result in results] == [
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert set(player.services.image.topics_of("default")) == {"orders", "pay"}


def kept_player() -> Player:
    """With `pay`, which is deleted and can come back; `orders` would be gone at once."""
    player = Player()
    player.subscribe(**{"tidewheel.undelete.ms": "1000"})
    assert player.delete("pay") == [(0, None)]
    return player


def undelete(player: Player, name: str) -> None:
    kept = KeptTopics(player.services)
    player.commit(kept.undeletion(player.services.image, "default", name))


def test_a_deleted_subscription_does_not_come_back_over_another_topic() -> None:
    player = kept_player()
    assert player.delete("orders") == [(0, None)]
    player.create_topic("orders", 2, {"tidewheel.headers": "true"})
    with pytest.raises(Refusal, match="reads from topic 'orders', which is deleted"):
        undelete(player, "pay")


def test_a_later_topic_of_its_source_s_name_is_never_read() -> None:
    """However it came to be: what counts is the id."""
    player = Player()
    player.subscribe()
    player.append("old")
    assert player.read("pay") == [b"old"]
    orders = player.services.image.topics_of("default")["orders"]
    player.commit(DeleteTopic.of(orders))
    player.create_topic("orders", 2, {"tidewheel.headers": "true"})
    player.append("secret")
    pending = player.fetch({("pay", 0): 0})
    player.run_jobs()
    (topic,) = pending.response.responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not topic.partitions[0].records
    assert player.shown("pay") == 0
    assert player.delete("orders", "pay") == [(0, None), (0, None)]


def test_a_deleted_subscription_grows_with_its_source() -> None:
    player = kept_player()
    assert player.grow("orders", 4) == (0, None)
    undelete(player, "pay")
    assert player.shown("pay") == 8
    player.append("late", index=3)
    assert player.read("pay", 6) == [b"late"]


def test_the_feature_stays_as_long_as_there_are_subscriptions() -> None:
    player = Player()
    player.subscribe()
    with pytest.raises(InvalidChange, match="no room for what is there"):
        player.commit(UpdateFeature(VIRTUAL_TOPICS, 0))
    player.delete("pay")
    player.commit(UpdateFeature(VIRTUAL_TOPICS, 0))
    assert player.subscribe()[0] == ErrorCode.UNSUPPORTED_VERSION


def test_a_quota_of_partitions_counts_what_grows_with_a_source() -> None:
    player = Player()
    player.subscribe("pay")
    player.subscribe("ship")
    player.delete("ship")
    cluster_id = player.services.image.cluster_id
    player.commit(PutTenant(TenantImage("default", cluster_id)))
    # Two of the source, two of its subscription.
    player.commit(PutTenantQuotas("default", TenantQuotas(partitions=7)))
    code, message = player.grow("orders", 4)
    assert code == ErrorCode.POLICY_VIOLATION
    assert message == ("The tenant has 4 partition(s), and may have 7: 4 more would be too many.")
    player.commit(PutTenantQuotas("default", TenantQuotas(partitions=8)))
    assert player.grow("orders", 4) == (0, None)


def test_a_request_s_limit_counts_what_grows_with_a_source() -> None:
    player = Player()
    player.subscribe()
    too_many = 2 + PARTITIONS_PER_REQUEST_MAX // 2 + 1
    code, message = player.grow("orders", too_many)
    assert code == ErrorCode.POLICY_VIOLATION
    assert message == "Excessively large number of partitions per request."


def test_a_request_s_limit_counts_the_partitions_of_subscriptions() -> None:
    player = Player()
    player.create_topic("wide", PARTITIONS_PER_REQUEST_MAX // 2 + 1, {"tidewheel.headers": "true"})
    wanted = [new_topic(name, -1, -1, configs={"tidewheel.source": "wide"}) for name in "ab"]
    for result in player.create(*wanted):
        assert result.error_code == ErrorCode.POLICY_VIOLATION
        assert result.error_message == "Excessively large number of partitions per request."
    (result,) = player.create(wanted[0])
    assert result.error_code == 0


class CountedMutations(NoQuotas):
    """Nobody waits, and all mutations are remembered."""

    is_active = True

    def __init__(self) -> None:
        self.counted: list[int] = []

    def record_mutations(self, context: RequestContext, partitions: int, is_strict: bool) -> int:
        self.counted.append(partitions)
        return 0


def test_growth_counts_for_each_subscription_as_a_mutation() -> None:
    player = Player()
    player.subscribe("pay")
    player.subscribe("ship")
    player.services.quotas = quotas = CountedMutations()
    player.grow("orders", 4)
    assert quotas.counted == [6]


def test_a_source_has_no_more_subscriptions_than_it_may_have() -> None:
    player = Player()
    source = {"tidewheel.source": "orders"}
    names = [f"s{number}" for number in range(VIRTUAL_TOPICS_PER_SOURCE_MAX + 1)]
    results = player.create(*(new_topic(name, -1, -1, configs=source) for name in names))
    codes = [result.error_code for result in results]
    assert codes == [0] * VIRTUAL_TOPICS_PER_SOURCE_MAX + [ErrorCode.POLICY_VIOLATION]
    assert player.subscribe() == (
        ErrorCode.POLICY_VIOLATION,
        "Topic 'orders' is read by 100 topics already, and may be by 100.",
    )
    player.delete("s0")
    assert player.subscribe() == (0, None)


def test_the_same_object_stands_for_a_partition_that_is_not_there_until_it_may_be() -> None:
    player = Player()
    player.subscribe()
    find = player.services.projections.find
    beyond = find("default", "pay", b"", 4)
    assert beyond is not None
    assert beyond is find("default", "pay", b"", 4) is find("default", "pay", b"", 99)
    assert beyond is not find("default", "pay", b"", 3)
    player.grow("orders", 3)
    assert find("default", "pay", b"", 4) is not beyond
    # Its source is gone, however that came to be.
    player.commit(DeleteTopic.of(player.services.image.topics_of("default")["orders"]))
    nowhere = find("default", "pay", b"", 0)
    assert nowhere is not None
    assert nowhere is find("default", "pay", b"", 0) is find("default", "pay", b"", 1)
    for index in range(4):
        assert player.services.projections.replica("default", "pay", index) is None
        assert player.services.projections.current_leader("default", "pay", b"", index) is None


def test_a_fetch_reads_on_when_its_subscription_has_grown() -> None:
    player = Player()
    player.subscribe()
    waiting = player.fetch({("pay", 0): 0}, max_wait_ms=1_000)
    player.grow("orders", 3)
    assert not waiting.is_answered
    player.append("late")
    player.run_jobs()
    assert shown_values(waiting) == [b"late"]


def test_what_nobody_reads_is_forgotten_when_there_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SUBSCRIPTIONS_KEPT_MAX", 2)
    player = Player()
    names = ["first", "second", "third"]
    for name in names:
        player.subscribe(name)
    services = player.services
    provider = Subscriptions(services, TagIndexes(services.executor, services.log))

    def found(name: str) -> ProjectedPartition:
        projected = provider.find("default", name, b"", 0)
        assert projected is not None
        return projected

    kept = {name: found(name) for name in names[:2]}
    assert all(found(name) is projected for name, projected in kept.items())
    kept["first"].watchers[Watcher()] = None
    found("third")
    assert found("first") is kept["first"]
    assert found("second") is not kept["second"]


class Watcher:
    """Somebody who reads."""

    def reader_changed(self) -> None:
        raise AssertionError("nothing has ended")
