"""Topics that a control plane declares: repeated, late, contradicting, taken over and released."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.admin import declarations, declared_topics
from data_plane.broker.admin.declarations import decide_declarations, decide_deletions
from data_plane.broker.admin.declared import Outcome, Removal, Resource, Result, Unavailable
from data_plane.broker.topics.create_topics import PARTITIONS_PER_REQUEST_MAX
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.changes import (
    CreateTopic,
    DeleteTopic,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.declarations import API_OWNER, CLIENT_OWNER
from data_plane.cell.features import OPEN_LEVEL, VIRTUAL_TOPICS
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from tests.broker.admin_player import BROKER, DELETE, SET, TOPIC, new_topic
from tests.broker.broker_player import NODE_ID
from tests.broker.declaring_player import DeclaringPlayer

ORDERS = Resource("r1", 1, "default", "orders", TopicSpecification(2))
E = ErrorCode


def with_configs(generation: int, **configs: str) -> Resource:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    specification = TopicSpecification(2, configs=named)
    return replace(ORDERS, generation=generation, specification=specification)


def test_a_declared_topic_is_made_and_a_repeated_call_changes_nothing() -> None:
    player = DeclaringPlayer()
    assert player.declare(ORDERS) == [Result("r1", Outcome.DONE, 1)]
    assert player.partitions("orders") == 2
    version = player.services.image.version
    assert player.declare(ORDERS) == [Result("r1", Outcome.UNCHANGED, 1)]
    assert player.services.image.version == version


def test_a_generation_is_one_content() -> None:
    player = DeclaringPlayer()
    player.declare(ORDERS)
    other = replace(ORDERS, specification=TopicSpecification(3))
    assert player.declare_one(other) is Outcome.CONFLICT
    assert player.partitions("orders") == 2


def test_what_comes_late_changes_nothing() -> None:
    player = DeclaringPlayer()
    player.declare(replace(ORDERS, generation=3, specification=TopicSpecification(3)))
    late = replace(ORDERS, generation=2, specification=TopicSpecification(4))
    assert player.declare(late) == [Result("r1", Outcome.STALE, 3, "the cell has generation 3")]
    assert player.delete("r1", 2) == [Result("r1", Outcome.STALE, 3, "the cell has generation 3")]
    assert player.partitions("orders") == 3


def test_partitions_are_added_and_never_taken_away() -> None:
    player = DeclaringPlayer()
    player.declare(ORDERS)
    grown = replace(ORDERS, generation=2, specification=TopicSpecification(5))
    assert player.declare_one(grown) is Outcome.DONE
    assert player.partitions("orders") == 5
    (result,) = player.declare(replace(ORDERS, generation=3))
    assert (result.outcome, result.code) == (Outcome.REFUSED, E.INVALID_PARTITIONS)
    assert "currently has 5 partition(s); 2 would not be an increase" in result.message
    assert result.generation == 2


def test_declared_configurations_are_set_and_fall_back_when_no_longer_declared() -> None:
    player = DeclaringPlayer()
    player.declare(with_configs(1, retention_ms="1000", segment_bytes="2000000"))
    player.alter(TOPIC, "orders", ("max.message.bytes", SET, "5000"))
    assert player.declare_one(with_configs(2, retention_ms="2000")) is Outcome.DONE
    assert player.configs("orders") == {"retention.ms": "2000", "max.message.bytes": "5000"}


def test_a_value_that_cannot_be_is_refused_as_a_client_is() -> None:
    player = DeclaringPlayer()
    for wanted in (with_configs(1, retention_ms="soon"), with_configs(1, retention_mss="1")):
        (result,) = player.declare(wanted)
        assert (result.outcome, result.code) == (Outcome.REFUSED, E.INVALID_CONFIG)
        assert "retention.ms" in result.message
    assert "orders" not in player.services.image.topics_of("default")
    assert len(player.services.image.declarations) == 0


def test_one_resource_that_fails_does_not_touch_the_others() -> None:
    player = DeclaringPlayer()
    pay = replace(ORDERS, resource_id="r2", name="pay")
    bad = replace(ORDERS, resource_id="r3", name="not a name")
    unknown = replace(ORDERS, resource_id="r4", tenant="nobody")
    outcomes = [result.outcome for result in player.declare(ORDERS, bad, pay, unknown)]
    assert outcomes == [Outcome.DONE, Outcome.REFUSED, Outcome.DONE, Outcome.REFUSED]
    assert {"orders", "pay"} <= player.services.image.topics_of("default").keys()


def test_a_clients_topic_is_taken_over_only_when_asked_to() -> None:
    player = DeclaringPlayer()
    player.create(new_topic("orders", 2, configs={"retention.ms": "7"}))
    assert player.declare_one(ORDERS) is Outcome.CONFLICT
    assert player.delete_as_client("orders") == (0, None)
    player.create(new_topic("orders", 2, configs={"retention.ms": "7"}))
    topic_id = player.services.image.topics_of("default")["orders"].topic_id
    assert player.declare_one(replace(ORDERS, take_over=topic_id)) is Outcome.DONE
    assert player.services.image.topics_of("default")["orders"].topic_id == topic_id
    # Not declared, so it goes on being its client's.
    assert player.configs("orders") == {"retention.ms": "7"}
    assert player.delete_as_client("orders")[0] == E.POLICY_VIOLATION


def test_a_released_topic_is_its_clients_again_and_outlives_its_resource() -> None:
    player = DeclaringPlayer()
    player.declare(with_configs(1, retention_ms="1000"))
    released = replace(with_configs(2, retention_ms="1000"), owner=CLIENT_OWNER)
    assert player.declare_one(released) is Outcome.DONE
    assert player.alter(TOPIC, "orders", ("retention.ms", SET, "5"))[0] == 0
    assert player.declare_one(with_configs(3, retention_ms="9")) is Outcome.CONFLICT
    assert player.delete("r1", 4) == [Result("r1", Outcome.DONE, 4)]
    assert player.configs("orders") == {"retention.ms": "5"}


def test_a_deletion_that_keeps_the_topic_does_so_though_the_release_was_lost() -> None:
    player = DeclaringPlayer()
    player.declare(with_configs(1, retention_ms="1000"))
    assert player.delete("r1", 3, keeps_topic=True) == [Result("r1", Outcome.DONE, 3)]
    assert player.configs("orders") == {"retention.ms": "1000"}
    assert player.delete_as_client("orders") == (0, None)


def test_only_the_topic_that_was_seen_is_taken_over() -> None:
    player = DeclaringPlayer()
    player.create(new_topic("orders", 2))
    seen = player.topic_id("orders")
    player.delete_as_client("orders")
    player.create(new_topic("orders", 2))
    (result,) = player.declare(replace(ORDERS, take_over=seen))
    assert (result.outcome, result.message) == (
        Outcome.CONFLICT,
        "a Kafka client has made another topic of that name since",
    )


def test_a_deletion_goes_by_the_image_it_is_decided_on() -> None:
    """Also when this broker does not serve the tenant yet."""
    player = DeclaringPlayer()
    acme = PutTenant(TenantImage("acme", "acme-cluster"))
    image = apply_change(player.services.image, acme)
    wanted = replace(ORDERS, tenant="acme")
    results: list[Result] = []
    image = apply_changes(image, decide_declarations(player.services, image, [wanted], results))
    topic = image.topic("acme", "orders")
    assert topic is not None
    changes = decide_deletions(player.services, image, [Removal("r1", 2)], results)
    assert DeleteTopic.of(topic) in changes
    assert [result.outcome for result in results] == [Outcome.DONE, Outcome.DONE]


def test_what_has_no_room_is_refused_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "RESOURCES_MAX", 1)
    player = DeclaringPlayer()
    pay = replace(ORDERS, resource_id="r2", name="pay")
    long = {"leader.replication.throttled.replicas": "0:7," * 20_000}
    huge = replace(ORDERS, resource_id="r3", specification=TopicSpecification(1, configs=long))
    results = player.declare(huge, ORDERS, pay)
    outcomes = [result.outcome for result in results]
    assert outcomes == [Outcome.REFUSED, Outcome.DONE, Outcome.REFUSED]
    assert "characters, allowed are 65536" in results[0].message
    assert "which is the limit" in results[2].message
    (result,) = player.delete("r4", 1)
    assert result.outcome is Outcome.REFUSED
    assert player.delete("r1", 2) == [Result("r1", Outcome.DONE, 2)]


def test_there_must_be_something_to_release() -> None:
    player = DeclaringPlayer()
    assert player.declare_one(replace(ORDERS, owner=CLIENT_OWNER)) is Outcome.CONFLICT
    assert "orders" not in player.services.image.topics_of("default")


def test_two_resources_cannot_have_one_topic_nor_one_resource_two() -> None:
    player = DeclaringPlayer()
    player.declare(ORDERS)
    topic_id = player.topic_id("orders")
    (result,) = player.declare(replace(ORDERS, resource_id="r2", take_over=topic_id))
    assert result == Result("r2", Outcome.CONFLICT, 0, "the topic belongs to resource r1")
    (result,) = player.declare(replace(ORDERS, generation=2, name="pay"))
    assert (result.outcome, result.message) == (
        Outcome.CONFLICT,
        "it stands for topic orders of tenant default",
    )


def test_a_deleted_resource_takes_its_topic_along_and_never_comes_back() -> None:
    player = DeclaringPlayer()
    player.declare(ORDERS)
    assert player.delete("r1", 2) == [Result("r1", Outcome.DONE, 2)]
    assert "orders" not in player.services.image.topics_of("default")
    assert player.delete("r1", 2) == [Result("r1", Outcome.UNCHANGED, 2)]
    for generation in (1, 2, 3):
        (result,) = player.declare(replace(ORDERS, generation=generation))
        assert (result.outcome, result.generation) == (Outcome.GONE, 2)
    assert player.declare_one(replace(ORDERS, resource_id="r2")) is Outcome.DONE


def test_a_deletion_that_overtakes_its_declaration_wins() -> None:
    player = DeclaringPlayer()
    assert player.delete("r1", 2) == [Result("r1", Outcome.DONE, 2)]
    assert player.declare_one(ORDERS) is Outcome.GONE
    assert "orders" not in player.services.image.topics_of("default")


def test_clients_cannot_contradict_what_is_declared() -> None:
    player = DeclaringPlayer()
    player.declare(with_configs(1, retention_ms="1000"))
    managed = "by a Kafka client: the control plane manages it (resource r1)."
    assert player.delete_as_client("orders") == (
        E.POLICY_VIOLATION,
        f"Topic 'orders' cannot be deleted {managed}",
    )
    code, message = player.grow_as_client("orders", 3)
    assert (code, message) == (
        E.POLICY_VIOLATION,
        f"Topic 'orders' cannot be given partitions {managed}",
    )
    for operation, value in ((SET, "5"), (DELETE, None)):
        assert player.alter(TOPIC, "orders", ("retention.ms", operation, value)) == (
            E.POLICY_VIOLATION,
            f"retention.ms of topic 'orders' cannot be changed {managed}",
        )
    assert player.alter(TOPIC, "orders", ("retention.ms", SET, "1000"))[0] == 0
    assert player.alter(TOPIC, "orders", ("segment.bytes", SET, "2000000"))[0] == 0
    assert player.configs("orders") == {"retention.ms": "1000", "segment.bytes": "2000000"}
    assert player.partitions("orders") == 2


def test_the_partitions_of_one_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_topics, "PARTITIONS_PER_REQUEST_MAX", 4)
    player = DeclaringPlayer()
    half = TopicSpecification(2)
    wanted = [
        replace(ORDERS, resource_id=f"r{n}", name=f"t{n}", specification=half) for n in range(3)
    ]
    results = player.declare(*wanted)
    assert [result.outcome for result in results] == [Outcome.DONE, Outcome.DONE, Outcome.REFUSED]
    assert results[2].code is E.POLICY_VIOLATION


def test_what_is_refused_for_its_values_takes_no_room_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(declared_topics, "PARTITIONS_PER_REQUEST_MAX", 4)
    player = DeclaringPlayer()
    player.declare(ORDERS)
    bad = TopicSpecification(5, configs={"retention.ms": "soon"})
    results = player.declare(
        replace(ORDERS, generation=2, specification=bad),
        replace(ORDERS, resource_id="r2", name="pay"),
    )
    assert [result.outcome for result in results] == [Outcome.REFUSED, Outcome.DONE]
    assert player.partitions("orders") == 2


def test_what_operators_do_not_allow_tenants_is_refused_when_a_declared_topic_changes() -> None:
    player = DeclaringPlayer()
    player.make_tenant("acme")

    def declared(generation: int, **configs: str) -> Result:
        wanted = replace(with_configs(generation, **configs), tenant="acme")
        (result,) = player.declare(wanted)
        return result

    assert declared(1, retention_ms="1").outcome is Outcome.DONE
    bounds = "retention.ms=1000..,flush.messages=1000.."
    assert player.alter(BROKER, "", ("tenant.topic.bounds", SET, bounds)) == (0, None)
    beyond = declared(2, retention_ms="2")
    assert (beyond.outcome, beyond.code) == (Outcome.REFUSED, E.POLICY_VIOLATION)
    assert beyond.message == "retention.ms is 2, and tenants may have 1000.."
    # What it has already stays.
    assert declared(3, retention_ms="1", flush_messages="1000").outcome is Outcome.DONE
    assert declared(4, retention_ms="1000").outcome is Outcome.DONE


def test_a_cell_that_does_not_know_declarations_says_so() -> None:
    player = DeclaringPlayer(OPEN_LEVEL)
    with pytest.raises(Unavailable, match="declarations need 3"):
        player.declare(ORDERS)
    with pytest.raises(Unavailable, match=r"is at metadata\.version 2"):
        player.delete("r1", 1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["declare", "take over", "release", "delete", "client"]),
        st.sampled_from(["r1", "r2"]),
        st.integers(1, 5),
        st.integers(1, 3),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(STEPS)
def test_any_history_keeps_resources_and_topics_together(
    steps: list[tuple[str, str, int, int]],
) -> None:
    """Generations never go back, the dead stay dead, and what is declared and owned exists as it
    was declared."""
    player = DeclaringPlayer()
    for kind, resource_id, generation, partitions in steps:
        before = dict(player.services.image.declarations.by_id)
        if kind == "client":
            player.delete_as_client("orders")
            player.create(new_topic("orders", partitions))
        elif kind == "delete":
            player.delete(resource_id, generation)
        else:
            wanted = Resource(
                resource_id,
                generation,
                "default",
                "orders",
                TopicSpecification(partitions),
                CLIENT_OWNER if kind == "release" else API_OWNER,
            )
            topic = player.services.image.topic("default", "orders")
            if kind == "take over" and topic is not None:
                wanted = replace(wanted, take_over=topic.topic_id)
            player.declare(wanted)
        image = player.services.image
        for known in before.values():
            now = image.declarations.by_id[known.resource_id]
            assert now.generation >= known.generation
            assert now == known if known.is_deleted else True
        for declared in image.declarations.by_id.values():
            if declared.is_owned_by_api:
                topic = image.topics_of("default")[declared.declared.name]
                specification = TopicSpecification.from_text(declared.specification)
                assert len(topic.partitions) == specification.partitions


def test_a_deletion_that_cannot_be_is_refused_by_itself() -> None:
    """A topic that others are read through: they go first."""
    player = DeclaringPlayer()
    player.declare(ORDERS, replace(ORDERS, resource_id="r2", name="pay"))
    source = (("tidewheel.source", "orders"),)
    orders = player.services.image.topics_of("default")["orders"]
    eu = CreateTopic("default", "eu", UUID(int=7), ((NODE_ID,),), source, source_id=orders.topic_id)
    player.commit(lambda image: [UpdateFeature(VIRTUAL_TOPICS, 1), eu])
    results = player.delete_all([Removal("r1", 2), Removal("r2", 2)])
    assert [result.outcome for result in results] == [Outcome.REFUSED, Outcome.DONE]
    assert (results[0].generation, results[0].code) == (1, E.POLICY_VIOLATION)
    assert "Topic 'orders' is read by 'eu'" in results[0].message
    assert player.partitions("orders") == 2
    assert not player.services.image.declarations.by_id["r1"].is_deleted
    player.commit(lambda image: [DeleteTopic(eu.topic_id)])
    assert player.delete("r1", 2)[0].outcome is Outcome.DONE


def test_what_grows_with_a_source_counts_in_a_call() -> None:
    player = DeclaringPlayer()
    player.declare(ORDERS)
    orders = player.services.image.topics_of("default")["orders"]
    source = (("tidewheel.source", "orders"),)
    eu = CreateTopic(
        "default", "eu", UUID(int=7), ((NODE_ID,),) * 2, source, source_id=orders.topic_id
    )
    player.commit(lambda image: [UpdateFeature(VIRTUAL_TOPICS, 1), eu])
    specification = TopicSpecification(2 + PARTITIONS_PER_REQUEST_MAX // 2 + 1)
    (result,) = player.declare(replace(ORDERS, generation=2, specification=specification))
    assert (result.outcome, result.code) == (Outcome.REFUSED, E.POLICY_VIOLATION)
    assert player.partitions("orders") == 2
    (result,) = player.declare(replace(ORDERS, generation=3, specification=TopicSpecification(3)))
    assert result.outcome is Outcome.DONE
    assert (player.partitions("orders"), player.partitions("eu")) == (3, 3)
