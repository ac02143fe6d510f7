"""Large images are followed in steps: what lies between two images, and who sees how much of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.cell.image_steps import CHANGES_PER_STEP_MAX, ImageSteps
from data_plane.broker.replicas.replication import OPENED_PER_MS_MAX
from data_plane.cell.acls import NO_ACLS
from data_plane.cell.changes import Change, ChangePartition, CreateTopic, RegisterBroker
from data_plane.cell.client_quotas import QuotaEntity
from data_plane.cell.credentials import Credential
from data_plane.cell.metadata import (
    BrokerImage,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from data_plane.cell.tenants import TenantImage
from data_plane.cell.topic_deletions import Deletion, Pause
from data_plane.cell.topics_draft import by_tenant
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import NODE_ID, BrokerPlayer
from tests.broker.cell_player import TOPIC_ID, CellPlayer
from tests.broker.member_player import Member

ME = 1
STATES = st.builds(
    lambda leader, epoch: PartitionImage((1, 2, 3), (1, 2), leader, epoch),
    st.sampled_from((1, 2, -1)),
    st.integers(0, 2),
)


@st.composite
def topics(draw: st.DrawFn) -> dict[str, TopicImage]:
    names = draw(st.sets(st.sampled_from("abcd")))
    return {
        name: TopicImage(
            "default",
            name,
            # The same name may be another topic's.
            UUID(int=10 * ord(name) + draw(st.integers(0, 1))),
            tuple(draw(st.lists(STATES, min_size=1, max_size=5))),
            draw(st.sampled_from(({}, {"retention.ms": "1"}))),
            deletion=draw(st.sampled_from((None, Deletion(1, 2)))),
            pause=draw(st.sampled_from((None, Pause(3, 4)))),
        )
        for name in sorted(names)
    }


def image_of(version: int, topics: dict[str, TopicImage], tag: str = "") -> MetadataImage:
    return MetadataImage(
        "cluster",
        version,
        {1: BrokerImage(1, tag, 1)},
        by_tenant(topics.values()),
        {topic.topic_id: topic for topic in topics.values()},
        {ConfigResource("default", ResourceType.BROKER, ""): {"x": tag}} if tag else {},
        next_producer_id=version,
        features={"metadata.version": 2} if tag else {},
        unknown_fields=tag,
    )


def walk(old: MetadataImage, goal: MetadataImage, changes_max: int) -> list[MetadataImage]:
    steps = ImageSteps(old, goal, ME, changes_max)
    images = [old]
    while not steps.is_last:
        images.append(steps.next_step(images[-1]))
        assert len(images) < 100
    return [*images, steps.next_step(images[-1])]


def leads(image: MetadataImage) -> set[tuple[UUID, int, int]]:
    return {
        (topic.topic_id, index, state.leader_epoch)
        for topic in image.topics_by_id.values()
        for index, state in enumerate(topic.partitions)
        if state.leader == ME
    }


@given(topics(), topics(), st.sampled_from(("", "new")), st.integers(1, 4))
def test_every_step_is_between_the_two_images_and_the_last_is_the_new_one(
    before: dict[str, TopicImage], after: dict[str, TopicImage], tag: str, changes_max: int
) -> None:
    old, goal = image_of(7, before), image_of(8, after, tag)
    images = walk(old, goal, changes_max)
    assert images[-1] == goal
    for image in images[:-1]:
        assert image.version == old.version
        assert {topic.name: topic for topic in image.topics_by_id.values()} == dict(
            image.topics_of("default")
        )
        for name, topic in image.topics_of("default").items():
            sources = [each[name] for each in (before, after) if name in each]
            sources = [each for each in sources if each.topic_id == topic.topic_id]
            assert len(topic.partitions) in {len(each.partitions) for each in sources}
            for index, state in enumerate(topic.partitions):
                known = [each.partitions[index : index + 1] for each in sources]
                assert (state,) in known
    for following in images[1:]:
        if following.brokers != old.brokers:
            assert following.topics_of("default") == goal.topics_of("default")


@given(topics(), topics(), st.integers(1, 4))
def test_leaders_that_are_given_up_come_first(
    before: dict[str, TopicImage], after: dict[str, TopicImage], changes_max: int
) -> None:
    old, goal = image_of(7, before), image_of(8, after)
    given_up = {
        (topic.topic_id, index)
        for topic in before.values()
        for index, state in enumerate(topic.partitions)
        if state.leader == ME
        and (new := goal.topics_by_id.get(topic.topic_id)) is not None
        and len(new.partitions) >= len(topic.partitions)
        and new.partitions[index].leader != ME
    }
    for image in walk(old, goal, changes_max):
        if leads(image) - leads(old):
            assert not {(topic_id, index) for topic_id, index, _ in leads(image)} & given_up


def test_what_has_not_changed_stays_the_same_object() -> None:
    one, two = (PartitionImage((1, 2), (1, 2), 1, epoch) for epoch in (0, 1))
    old = image_of(7, {"a": TopicImage("default", "a", UUID(int=1), (one,) * 3)})
    read_anew = (replace(one), two, replace(one))
    images = walk(old, image_of(8, {"a": TopicImage("default", "a", UUID(int=1), read_anew)}), 1)
    states = images[-1].topics_of("default")["a"].partitions
    assert [state is one for state in states] == [True, False, True]


def test_what_may_be_done_and_by_whom_waits_for_no_partition() -> None:
    """A grant or a key that is taken back during a failover is taken back at once."""
    one, two = (PartitionImage((1, 2), (1, 2), 1, epoch) for epoch in (0, 1))
    old = image_of(7, {"a": TopicImage("default", "a", UUID(int=1), (one,) * 5)})
    goal = image_of(8, {"a": TopicImage("default", "a", UUID(int=1), (two,) * 5)})
    alice = Credential("alice", "default", "alice")
    old = replace(old, credentials={"alice": alice}, decoy_key=b"old")
    acls = {"default": NO_ACLS}
    goal = replace(goal, credentials={}, acls=acls, decoy_key=b"new")
    images = walk(old, goal, 1)
    assert len(images) > 2
    for image in images[1:]:
        assert (image.credentials, image.acls, image.decoy_key) == ({}, acls, b"new")


def test_states_and_quotas_of_tenants_wait_for_no_partition_and_who_goes_goes_last() -> None:
    """A tenant that is blocked during a failover is blocked at once. What a topic had is looked
    after by the id of its tenant, which is still known when the topic goes."""
    one, two = (PartitionImage((1, 2), (1, 2), 1, epoch) for epoch in (0, 1))
    topic = TopicImage("gone", "b", UUID(int=2), (one,) * 5)
    old = image_of(7, {"a": TopicImage("gone", "a", UUID(int=1), (one,) * 5), "b": topic})
    goal = image_of(8, {"a": TopicImage("default", "a", UUID(int=3), (two,) * 5)})
    acme, anew = TenantImage("acme", "c1"), TenantImage("anew", "c2")
    quotas = {"acme": {QuotaEntity("alice", None): {"producer_byte_rate": 1.0}}}
    old = replace(old, tenants={"acme": acme, "anew": anew, "gone": TenantImage("gone", "c3")})
    blocked = replace(acme, state="blocked")
    other = replace(anew, cluster_id="c4", made_at=8)
    tenants = {"acme": blocked, "anew": other, "new": TenantImage("new", "c5")}
    goal = replace(goal, tenants=tenants, client_quotas=quotas)
    images = walk(old, goal, 1)
    assert len(images) > 2
    for image in images[1:-1]:
        assert image.tenants == {**goal.tenants, "anew": anew, "gone": old.tenants["gone"]}
        assert image.tenants is images[1].tenants, "listeners look at it once"
        assert image.client_quotas == quotas
    assert images[-2].topics_of("gone") == {}
    assert images[-1] == goal


def test_a_role_at_a_time() -> None:
    one, two = (PartitionImage((1, 2), (1, 2), 1, epoch) for epoch in (0, 1))
    old = image_of(7, {"a": TopicImage("default", "a", UUID(int=1), (one,) * 5)})
    goal = image_of(8, {"a": TopicImage("default", "a", UUID(int=1), (two,) * 5)})
    assert not ImageSteps(old, goal, ME, 4).fits_in_one
    assert ImageSteps(old, goal, ME, 5).fits_in_one
    counts = [image.topics_of("default")["a"].partitions.count(two) for image in walk(old, goal, 2)]
    assert counts == [0, 2, 4, 5, 5]


# The broker.


COUNT = 5 * CHANGES_PER_STEP_MAX


def led(cell: CellPlayer, node_id: int) -> int:
    """How many partitions the image of that broker says it leads. Its replicas agree."""
    services = cell.brokers[node_id].services
    topic = services.image.topics_by_id[TOPIC_ID]
    for index, state in enumerate(topic.partitions):
        replica = services.partitions.replica(TOPIC_ID, index)
        assert replica is not None
        assert (replica.leader_id, replica.leader_epoch) == (state.leader, state.leader_epoch)
        assert replica.is_leader == (state.leader == node_id)
        found = services.partitions.get(TOPIC_ID, index)
        assert found is (replica if state.leader == node_id else None)
    return sum(state.leader == node_id for state in topic.partitions)


def move_all(cell: CellPlayer, leader: int) -> None:
    topic = cell.image.topics_by_id[TOPIC_ID]
    states = tuple(
        replace(
            state,
            leader=leader,
            leader_epoch=state.leader_epoch + 1,
            partition_epoch=state.partition_epoch + 1,
        )
        for state in topic.partitions
    )
    topic = replace(topic, partitions=states)
    cell.image = replace(
        cell.image,
        version=cell.image.version + 1,
        topics_by_tenant=by_tenant([topic]),
        topics_by_id={TOPIC_ID: topic},
    )
    cell.tell()


def test_roles_change_a_few_at_a_time_and_agree_with_the_image() -> None:
    cell = CellPlayer(2, COUNT)
    assert led(cell, 1) == COUNT
    move_all(cell, 2)
    assert led(cell, 1) == COUNT - CHANGES_PER_STEP_MAX
    services = cell.brokers[1].services
    assert services.image.version == 1
    assert services.newest_image.version == 2
    seen = []
    while not services.images.is_settled:
        cell.brokers[1].pass_time(1)
        seen.append(led(cell, 1))
    assert seen[:4] == [300, 200, 100, 0]
    assert services.image == cell.image


def test_a_newer_image_is_gone_to_at_once() -> None:
    cell = CellPlayer(2, COUNT)
    led(cell, 1)
    move_all(cell, 2)
    # What has not been given up yet stays, in the newest epoch.
    move_all(cell, 1)
    services = cell.brokers[1].services
    heard: list[int] = []
    services.images.when_in_force(2, lambda: heard.append(services.image.version))
    while not services.images.is_settled:
        assert not heard
        cell.brokers[1].pass_time(1)
        assert led(cell, 1) >= COUNT - CHANGES_PER_STEP_MAX
    assert services.image == cell.image
    assert heard == [3]


def test_a_broker_that_stops_follows_no_further() -> None:
    cell = CellPlayer(2, COUNT)
    led(cell, 1)
    move_all(cell, 2)
    services = cell.brokers[1].services
    before = services.image
    services.stop(cell.now_ms)
    for _ in range(10):
        cell.brokers[1].pass_time(1)
    assert services.image is before
    assert not services.images.is_settled


def test_logs_that_are_followed_are_made_a_few_at_a_time() -> None:
    cell = CellPlayer(2, COUNT)
    follower = cell.brokers[2]
    assert len(follower.services.partitions) == OPENED_PER_MS_MAX
    follower.services.tick(cell.now_ms)
    assert len(follower.services.partitions) == OPENED_PER_MS_MAX
    deadline_ms = follower.services.next_deadline_ms()
    assert deadline_ms == cell.now_ms + 1
    follower.pass_time(1)
    assert len(follower.services.partitions) == 2 * OPENED_PER_MS_MAX
    for _ in range(COUNT // OPENED_PER_MS_MAX):
        follower.pass_time(1)
    assert len(follower.services.partitions) == COUNT
    assert not cell.managers[2]._to_open


def test_what_is_led_before_its_turn_to_be_opened_is_not_followed() -> None:
    cell = CellPlayer(2, 3 * OPENED_PER_MS_MAX)
    last = 3 * OPENED_PER_MS_MAX - 1
    cell.change(last, leader=2)
    for _ in range(5):
        cell.brokers[2].pass_time(1)
    assert (TOPIC_ID.bytes, last) not in cell.managers[2]._origins
    assert len(cell.managers[2]._origins) == last


@pytest.mark.parametrize("count", [3, COUNT])
def test_a_deleted_topic_is_gone_at_once_and_its_logs_when_it_is_answered(count: int) -> None:
    broker = BrokerPlayer()
    topic_id = broker.create_topic("t", count)
    while not broker.services.images.is_settled:
        broker.pass_time(1)
    for index in range(count):
        assert broker.services.partitions.get(topic_id, index) is not None
    broker.delete_topic(topic_id)
    partitions = broker.services.partitions
    assert partitions.get(topic_id, 0) is None
    assert partitions.error(topic_id, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    version = broker.services.newest_image.version
    left = []
    broker.services.images.when_in_force(version, lambda: left.append(len(broker.logs.logs())))
    while not left:
        broker.pass_time(1)
    assert left == [0]


def test_settings_are_in_force_for_all_logs_when_the_version_is() -> None:
    broker = BrokerPlayer()
    topic_id = broker.create_topic("t", COUNT)
    while not broker.services.images.is_settled:
        broker.pass_time(1)
    for index in range(COUNT):
        broker.services.partitions.get(topic_id, index)
    broker.configure_topic("t", retention_ms="1234")
    changed: list[int] = []
    while not broker.services.images.is_settled:
        changed.append(sum(log.config.retention_ms == 1234 for log in broker.logs.logs()))
        broker.pass_time(1)
    assert changed[-1] == COUNT
    assert max(b - a for a, b in itertools.pairwise(changed)) <= CHANGES_PER_STEP_MAX


def test_what_a_group_is_configured_to_is_no_partition_s_business() -> None:
    broker = BrokerPlayer()
    broker.create_topic("t", COUNT)
    while not broker.services.images.is_settled:
        broker.pass_time(1)
    partitions = broker.services.partitions
    for type_, name, is_work in (
        (ResourceType.GROUP, "g", False),
        (ResourceType.BROKER, "99", False),
        (ResourceType.BROKER, str(NODE_ID), True),
        (ResourceType.BROKER, "", True),
    ):
        old = broker.services.image
        resource = ConfigResource("default", type_, name)
        configs = {**old.configs, resource: {"log.retention.ms": "1000"}}
        new = replace(old, version=old.version + 1, configs=configs)
        assert ImageSteps(old, new, NODE_ID).fits_in_one is not is_work
        assert walk(old, new, 1)[-1] == new
        partitions.apply_step(new, broker.now_ms)
        assert partitions.has_work_left is is_work, resource
        while partitions.has_work_left:
            partitions.do_work_left(COUNT, broker.now_ms)
        broker.services.image = new


# Commits.


def create(member: Member, count: int) -> UUID:
    topic_id = UUID(int=5)
    replicas = ((NODE_ID, 2),) * count
    member.write(CreateTopic("default", "t", topic_id, replicas))
    member.run_jobs()
    return topic_id


def test_who_commits_much_is_told_when_it_is_in_force_and_the_next_is_decided_on_all_of_it() -> (
    None
):
    member = Member()
    topic_id = create(member, COUNT)
    member.pass_time(200)
    image = member.image
    changes = [
        ChangePartition(topic_id, index, replace(state, leader_epoch=1, partition_epoch=1))
        for index, state in enumerate(image.topics_by_id[topic_id].partitions)
    ]
    outcome = member.write(*changes)
    member.run_jobs()
    assert outcome.calls == 0
    assert member.image.version == image.version
    seen: list[MetadataImage] = []

    def decide(newest: MetadataImage) -> tuple[Change, ...]:
        seen.append(newest)
        return ()

    member.decide(decide)
    # Another broker's commit comes in the middle, and is applied to the whole image.
    change = RegisterBroker(BrokerImage(9, "host", 1))
    member.cell_store.apply([change], member.cell_store.read().version, "elsewhere")
    member.follower.request_update()
    member.run_jobs()
    assert member.services.newest_image == member.cell_store.read()
    files = len(member.files)
    member.follower.write_now()
    assert len(member.files) == files, "what lies between two images is written down nowhere"
    member.pass_time(200)
    assert outcome.is_ok
    assert outcome.version == member.image.version == image.version + 2
    assert seen
    assert all(len(each.brokers) == 1 for each in seen)
    assert member.image == member.cell_store.read()


def test_what_is_decided_in_between_is_decided_on_the_newest_image() -> None:
    member = Member()
    topic_id = UUID(int=5)
    replicas = tuple((1, 2) for _ in range(COUNT))
    member.cell_store.apply(
        [CreateTopic("default", "t", topic_id, replicas)], member.image.version, "made"
    )
    member.follower.request_update()
    member.run_jobs()
    member.pass_time(200)
    image = member.image
    changes = [
        ChangePartition(topic_id, index, replace(state, leader_epoch=1, partition_epoch=1))
        for index, state in enumerate(image.topics_by_id[topic_id].partitions)
    ]
    newest = member.cell_store.apply(changes, image.version, "moved")
    member.follower.request_update()
    member.run_jobs()
    assert member.image != image
    assert member.image.version == image.version
    seen: list[MetadataImage] = []

    def decide(decided_on: MetadataImage) -> tuple[Change, ...]:
        seen.append(decided_on)
        return (RegisterBroker(BrokerImage(9, "host", 1)),)

    outcome = member.decide(decide)
    member.run_jobs()
    assert seen == [newest], "nobody was faster, and nothing had to be decided twice"
    assert outcome.calls == 0
    member.pass_time(200)
    assert outcome.is_ok
    assert member.image == member.cell_store.read()
