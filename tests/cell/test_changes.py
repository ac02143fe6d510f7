"""The metadata image and its changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Change,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    InvalidChange,
    RegisterBroker,
    UnregisterBroker,
    apply_change,
    apply_changes,
)
from data_plane.cell.metadata import (
    BrokerImage,
    LogEnd,
    MetadataImage,
    PartitionImage,
    ResourceType,
    decode_image,
    decode_partition,
    encode_image,
    encode_partition,
)
from tests.cell.cases import histories

ORDERS = UUID(int=1)
EMPTY = MetadataImage("cluster")
LEADERLESS: Any = PartitionImage((2, 1), (), -1, leader_epoch=1, partition_epoch=1)


def with_orders() -> MetadataImage:
    return apply_change(
        EMPTY, CreateTopic("default", "orders", ORDERS, ((1,), (2, 1)), (("a", "1"),))
    )


@given(histories())
def test_an_image_and_its_changes_survive_encoding(changes: list[Change]) -> None:
    image = EMPTY
    again = EMPTY
    for change in changes:
        image = apply_change(image, change)
        encoded = json.loads(json.dumps(encode_change(change, image.metadata_level)))
        again = apply_change(again, decode_change(encoded))
    assert again == image
    assert again.digest() == image.digest()
    decoded = decode_image(encode_image(image))
    assert decoded == image
    assert encode_image(decoded) == encode_image(image)


NODES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
NUMBERS = st.integers(-1, 1 << 40)
ANY_PARTITION = st.builds(
    PartitionImage,
    replicas=NODES,
    isr=NODES,
    leader=NUMBERS,
    leader_epoch=NUMBERS,
    partition_epoch=NUMBERS,
    elr=NODES,
    last_known_leader=NUMBERS,
    adding_replicas=NODES,
    removing_replicas=NODES,
    last_known_elr=NODES,
    log_ends=st.lists(st.builds(LogEnd, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    state=st.sampled_from(["active", "archived"]),
    unknown_fields=st.sampled_from(["", '{"new":[1]}']),
)


@given(ANY_PARTITION)
def test_a_partition_survives_encoding_by_itself_and_in_a_change(partition: PartitionImage) -> None:
    assert decode_partition(json.loads(json.dumps(encode_partition(partition, 2)))) == partition
    change = ChangePartition(ORDERS, 1, partition)
    assert decode_change(json.loads(json.dumps(encode_change(change, 2)))) == change


def test_what_was_written_before_there_were_log_ends_is_read() -> None:
    assert decode_partition([[1, 2], [1], 1, 3, 4]) == PartitionImage((1, 2), (1,), 1, 3, 4)
    old = [[1, 2], [], -1, 3, 4, [2], 1, [], []]
    assert decode_partition(old) == PartitionImage((1, 2), (), -1, 3, 4, (2,), 1)
    assert encode_partition(decode_partition(old), 1) == old


@given(histories())
def test_topics_are_the_same_by_name_and_by_id_and_images_never_change(
    changes: list[Change],
) -> None:
    image = EMPTY
    for change in changes:
        before = encode_image(image)
        new = apply_change(image, change)
        assert encode_image(image) == before
        assert new.version == image.version + 1
        assert sorted(topic.name for topic in new.topics_by_id.values()) == sorted(
            new.topics_of("default")
        )
        assert all(new.topics_by_id[t.topic_id] is t for t in new.topics_of("default").values())
        image = new


@given(histories())
def test_one_commit_of_many_changes_equals_many_commits(changes: list[Change]) -> None:
    image = EMPTY
    for change in changes:
        image = apply_change(image, change)
    at_once = apply_changes(EMPTY, changes)
    assert at_once.version == 1
    assert at_once.topics_of("default") == image.topics_of("default")
    assert at_once.configs == image.configs
    assert at_once.next_producer_id == image.next_producer_id


def test_a_new_topic_is_led_by_its_first_replicas() -> None:
    topic = with_orders().topics_of("default")["orders"]
    assert topic.partitions == (
        PartitionImage(replicas=(1,), isr=(1,), leader=1),
        PartitionImage(replicas=(2, 1), isr=(2, 1), leader=2),
    )
    assert topic.configs == {"a": "1"}
    assert not topic.internal


def test_equal_partitions_are_one_object() -> None:
    image = apply_change(EMPTY, CreateTopic("default", "big", ORDERS, ((1,),) * 1000))
    assert len({id(partition) for partition in image.topics_of("default")["big"].partitions}) == 1
    decoded = decode_image(encode_image(image))
    assert len({id(partition) for partition in decoded.topics_of("default")["big"].partitions}) == 1


def test_partitions_are_added_behind_the_last() -> None:
    image = apply_change(with_orders(), AddPartitions(ORDERS, ((3,),)))
    assert [p.leader for p in image.topics_of("default")["orders"].partitions] == [1, 2, 3]
    assert image.topics_by_id[ORDERS] is image.topics_of("default")["orders"]


def test_overrides_are_merged_and_taken_away() -> None:
    change = AlterConfigs("default", ResourceType.TOPIC, "orders", (("a", None), ("b", "2")))
    image = apply_change(with_orders(), change)
    assert image.config_of("default", ResourceType.TOPIC, "orders") == {"b": "2"}
    image = apply_change(image, AlterConfigs("default", ResourceType.BROKER, "", (("x", "1"),)))
    assert image.config_of("default", ResourceType.BROKER, "") == {"x": "1"}
    image = apply_change(image, AlterConfigs("default", ResourceType.BROKER, "", (("x", None),)))
    assert image.configs == {}
    assert image.config_of("default", ResourceType.TOPIC, "nobody") == {}


def test_changes_of_partitions_mix_with_others_of_their_topic() -> None:
    def state(epoch: int, *replicas: int) -> PartitionImage:
        return PartitionImage(replicas, replicas, replicas[0], partition_epoch=epoch)

    changes: list[Change] = [
        ChangePartition(ORDERS, 1, PartitionImage((2, 1), (2,), 2, partition_epoch=1)),
        AddPartitions(ORDERS, ((3, 1),)),
        ChangePartition(ORDERS, 2, PartitionImage((3, 1), (3,), 3, partition_epoch=1)),
        AlterConfigs("default", ResourceType.TOPIC, "orders", (("b", "2"),)),
        ChangePartition(ORDERS, 1, state(2, 2, 1)),
        CreateTopic("default", "other", UUID(int=2), ((1, 2),)),
        ChangePartition(UUID(int=2), 0, PartitionImage((1, 2), (1,), 1, partition_epoch=1)),
        DeleteTopic(UUID(int=2)),
    ]
    one_by_one = with_orders()
    for change in changes:
        one_by_one = apply_change(one_by_one, change)
    at_once = apply_changes(with_orders(), changes)
    assert at_once.topics_of("default") == one_by_one.topics_of("default")
    assert at_once.topics_by_id[ORDERS] is at_once.topics_of("default")["orders"]
    assert [item.isr for item in at_once.topics_of("default")["orders"].partitions] == [
        (1,),
        (2, 1),
        (3,),
    ]


@pytest.mark.parametrize(
    "change",
    [
        CreateTopic("default", "orders", UUID(int=2), ((1,),)),
        CreateTopic("default", "other", ORDERS, ((1,),)),
        CreateTopic("default", "none", UUID(int=2), ()),
        CreateTopic("default", "none", UUID(int=2), ((),)),
        DeleteTopic(UUID(int=2)),
        AddPartitions(UUID(int=2), ((1,),)),
        AlterConfigs("default", ResourceType.TOPIC, "none", ()),
        AllocateProducerIds(1, 10),
        AllocateProducerIds(0, 0),
        *(
            ChangePartition(ORDERS, 1, replace(LEADERLESS, **fields))
            for fields in (
                {"last_known_elr": (3,)},
                {"elr": (1,), "last_known_elr": (1,)},
                {"isr": (1,), "last_known_elr": (1,)},
                {"log_ends": (LogEnd(1, 0, 0),)},
                {"last_known_elr": (1,), "log_ends": (LogEnd(2, 0, 0),)},
                {"last_known_elr": (1,), "log_ends": (LogEnd(1, 0, 0), LogEnd(1, 0, 1))},
                {"elr": (2,), "last_known_elr": (1,), "log_ends": (LogEnd(1, 0, 0),)},
            )
        ),
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_changes_nothing(change: Change) -> None:
    image = with_orders()
    before = encode_image(image)
    with pytest.raises(InvalidChange):
        apply_changes(
            image, (AlterConfigs("default", ResourceType.TOPIC, "orders", (("z", "1"),)), change)
        )
    assert encode_image(image) == before


LED = PartitionImage((2, 1), (2, 1), 2, partition_epoch=1)


def test_a_state_that_follows_is_taken() -> None:
    apply_change(with_orders(), ChangePartition(ORDERS, 1, LED))


@pytest.mark.parametrize(
    "state",
    [
        replace(LED, partition_epoch=0),
        replace(LED, partition_epoch=2),
        replace(LED, leader=1),
        replace(LED, leader=-1),
        replace(LED, leader_epoch=2),
        replace(LED, isr=(1,)),
        replace(LED, isr=(2, 3)),
        replace(LED, elr=(1,)),
        replace(LED, replicas=(2, 1, 1)),
    ],
)
def test_a_state_that_does_not_follow_is_refused(state: PartitionImage) -> None:
    with pytest.raises(InvalidChange):
        apply_change(with_orders(), ChangePartition(ORDERS, 1, state))


def test_a_broker_with_replicas_stays_registered() -> None:
    image = apply_changes(
        with_orders(), [RegisterBroker(BrokerImage(node_id, "h", 1)) for node_id in (1, 3)]
    )
    epoch = image.brokers[1].broker_epoch
    with pytest.raises(InvalidChange):
        apply_change(image, UnregisterBroker(1, epoch))
    assert 3 not in apply_change(image, UnregisterBroker(3, epoch)).brokers
