"""Replicas that move: by hand, off dead and draining brokers, and towards balance."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.cell.balance import plan_balance
from data_plane.cell.changes import ChangePartition
from data_plane.cell.metadata import (
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.reassignment import cancel, complete, original_of, start, target_of
from data_plane.cell.settings import ControllerSettings
from data_plane.cell.topics_draft import by_tenant
from tests.cell.cell_images import ORDERS, applied, broker, cell, partition
from tests.cell.controller_player import ControllerPlayer

ALL = frozenset(range(10))


def test_added_replicas_join_at_once_and_the_others_stay_until_they_are_in_sync() -> None:
    started = start(partition((1, 2, 3)), (4, 2, 5))
    assert started == partition((4, 2, 5, 1, 3), (1, 2, 3), adding=(4, 5), removing=(1, 3))
    assert (target_of(started), set(original_of(started))) == ((4, 2, 5), {1, 2, 3})
    halfway = replace(started, isr=(1, 2, 3, 4))
    assert complete(halfway, ALL, 2) is halfway
    done = complete(replace(started, isr=(1, 2, 3, 4, 5)), ALL, 2)
    assert (done.replicas, done.isr, done.leader) == ((4, 2, 5), (2, 4, 5), 4)
    assert done.adding_replicas == done.removing_replicas == ()


def test_a_leader_that_stays_goes_on_leading() -> None:
    started = start(partition((1, 2, 3), leader=2), (4, 2, 3))
    done = complete(replace(started, isr=(1, 2, 3, 4)), ALL, 2)
    assert (done.leader, done.isr) == (2, (2, 3, 4))


def test_a_leader_that_goes_waits_for_somebody_who_can_take_over() -> None:
    started = replace(start(partition((1,)), (2,)), isr=(1, 2))
    assert complete(started, {1}, 1) is started
    assert complete(started, {1, 2}, 1).leader == 2


def test_removal_waits_until_the_rest_is_safe() -> None:
    """Broker 2 is not in sync: without 3 there would be one copy where two are asked for."""
    started = start(partition((1, 2, 3), (1, 3)), (1, 2))
    assert complete(started, ALL, 2) is started
    assert complete(started, ALL, 1).replicas == (1, 2)
    assert complete(replace(started, isr=(1, 2, 3)), ALL, 2).isr == (1, 2)


def test_a_copy_that_is_not_in_sync_may_go_at_any_time() -> None:
    started = start(partition((1, 2, 3), (1,), elr=(2,)), (1, 2))
    done = complete(started, ALL, 2)
    assert (done.replicas, done.isr, done.elr) == ((1, 2), (1,), (2,))


def test_an_eligible_leader_is_not_dropped() -> None:
    started = start(partition((1, 2, 3), (1,), elr=(3,)), (1, 2))
    assert complete(started, ALL, 2) is started


def test_a_new_order_of_the_same_replicas_takes_effect_at_once() -> None:
    started = start(partition((1, 2, 3)), (3, 1, 2))
    assert started == partition((3, 1, 2), (1, 2, 3))


def test_a_reassignment_can_change_its_target_midway() -> None:
    started = start(partition((1, 2, 3)), (1, 2, 4))
    other = start(started, (1, 2, 5))
    assert (other.replicas, other.adding_replicas, other.removing_replicas) == (
        (1, 2, 5, 3),
        (5,),
        (3,),
    )
    # 4 is in sync by now, and so a copy like any other until the end.
    other = start(replace(started, isr=(1, 2, 3, 4)), (1, 2, 5))
    assert (other.replicas, other.removing_replicas) == ((1, 2, 5, 4, 3), (4, 3))
    # What is still being added is still being waited for.
    again = start(started, (4, 1, 2))
    assert (again.adding_replicas, again.removing_replicas) == ((4,), (3,))


def test_cancelling_goes_back() -> None:
    assert cancel(partition((1, 2))) is None
    back = cancel(start(partition((1, 2, 3)), (1, 2, 4)))
    assert back is not None
    assert set(back.replicas) == {1, 2, 3}
    assert back.adding_replicas == back.removing_replicas == ()
    # 4 holds what 1 alone holds besides: it stays until 2 or 3 is back.
    needed = replace(start(partition((1, 2, 3), (1,)), (1, 2, 4)), isr=(1, 4))
    back = cancel(needed)
    assert back is not None
    assert complete(back, ALL, 2) is back
    assert complete(replace(back, isr=(1, 4, 3)), ALL, 2).isr == (1, 3)


def in_sync(player: ControllerPlayer) -> bool:
    """All followers that live catch up; whether there was anything to do."""
    before = player.image
    topic = before.topics_of("default")["orders"]
    partitions = tuple(
        item
        if item.leader < 0
        else replace(
            item,
            isr=(
                *item.isr,
                *(
                    node_id
                    for node_id in item.replicas
                    if node_id in player.alive and node_id not in item.isr
                ),
            ),
            elr=(),
            partition_epoch=item.partition_epoch + 1,
        )
        for item in topic.partitions
    )
    if all(
        len(new.isr) == len(old.isr) for new, old in zip(partitions, topic.partitions, strict=True)
    ):
        return False
    topic = replace(topic, partitions=partitions)
    player.image = replace(
        before,
        version=before.version + 1,
        topics_by_tenant=by_tenant([topic]),
        topics_by_id={ORDERS: topic},
    )
    return True


def run_moves(player: ControllerPlayer) -> int:
    """Copy and decide in turn until all is quiet; the most that any broker received at a time."""
    receiving_max = 0
    for _ in range(1_000):
        player.step()
        commits = player.commits
        adding = [node_id for item in partitions(player) for node_id in item.adding_replicas]
        receiving_max = (
            max(receiving_max, *map(adding.count, adding), 0) if adding else receiving_max
        )
        if not in_sync(player) and player.commits == commits and not adding:
            player.step()
            if player.commits == commits:
                return receiving_max
    raise AssertionError("moves without end")


def partitions(player: ControllerPlayer) -> tuple[PartitionImage, ...]:
    return player.image.topics_of("default")["orders"].partitions


def with_property(image: MetadataImage, name: str, key: str) -> MetadataImage:
    resource = ConfigResource("default", ResourceType.BROKER, name)
    return replace(image, configs={resource: {key: "true"}}, version=image.version + 1)


def test_the_replicas_of_a_dead_broker_are_rebuilt_after_the_delay() -> None:
    settings = ControllerSettings(rebuild_delay_ms=60_000, moves_per_broker_max=3)
    image = cell([1, 2, 3, 4], [partition((1, 2, 3)), partition((3, 1, 2))] * 10)
    player = ControllerPlayer(image, settings)
    player.settle()
    player.kill(3)
    player.pass_time(60_000)
    assert all(3 in item.replicas and 4 not in item.replicas for item in partitions(player))
    player.pass_time(2_500)
    assert run_moves(player) == 3
    for index, item in enumerate(partitions(player)):
        assert item.replicas == ((1, 2, 4) if index % 2 == 0 else (4, 1, 2))
        assert set(item.isr) == {1, 2, 4}


def test_a_new_controller_goes_on_where_the_last_one_was() -> None:
    """One a minute: each begins with a whole session, and with what the others have noted."""
    settings = ControllerSettings(rebuild_delay_ms=600_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    minutes = 0
    while not player.orders().adding_replicas:
        player.pass_time(60_000)
        player.take_over()
        minutes += 1
        assert minutes <= 13
    assert minutes > 10, "not before the delay is over"
    noted = player.image.brokers[3].dead_ms
    assert noted == 600_000
    # Nothing is left to note, whoever is the controller; and what has moved stays so.
    run_moves(player)
    commits = player.commits
    player.take_over()
    player.pass_time(600_000)
    assert player.commits == commits


def test_a_broker_seen_alive_begins_at_nothing_when_it_dies_again() -> None:
    settings = ControllerSettings(rebuild_delay_ms=60_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    for _ in range(3):
        player.kill(3)
        player.pass_time(50_000)
        assert player.image.brokers[3].dead_ms in (47_000, 48_000)
        player.alive.add(3)
        player.pass_time(5_000)
        assert player.image.brokers[3].dead_ms == 0
        player.take_over()
    assert player.orders().replicas == (1, 2, 3)


def test_time_alive_under_another_controller_is_no_time_dead() -> None:
    """The same process is dead whenever the first controller looks, and was not in between."""
    settings = ControllerSettings(rebuild_delay_ms=60_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(20_000)
    player.has_lease = False
    player.alive.add(3)
    player.pass_time(30_000)
    # What the other controller has committed.
    player.change_broker(3, is_fenced=False, dead_ms=0)
    player.kill(3)
    player.pass_time(5_000)
    player.has_lease = True
    player.epoch += 2
    player.pass_time(55_000)
    assert player.image.brokers[3].dead_ms == 54_000
    assert player.orders().replicas == (1, 2, 3)
    player.pass_time(6_000)
    assert player.orders().adding_replicas == (4,)


def test_a_note_that_another_controller_has_taken_back_does_not_count() -> None:
    """The image is behind when the first controller has the lease again."""
    settings = ControllerSettings(rebuild_delay_ms=60_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(50_000)
    assert player.image.brokers[3].dead_ms == 48_000
    player.has_lease = False
    player.alive.add(3)
    player.pass_time(5_000)
    player.kill(3)
    player.pass_time(5_000)
    player.has_lease = True
    player.epoch += 2
    behind = player.image
    player.change_broker(3, is_fenced=False, dead_ms=0)
    heartbeat = player.heartbeat()
    player.controller.observe_heartbeat(heartbeat, behind, player.now_ms)
    player.controller.tick(behind, player.now_ms)
    player.pass_time(30_000)
    assert player.image.brokers[3].dead_ms == 29_000
    assert player.orders().replicas == (1, 2, 3)


def test_time_without_a_controller_does_not_count() -> None:
    """The cell was off for a night; one broker takes longer to come back."""
    settings = ControllerSettings(rebuild_delay_ms=60_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(30_000)
    player.now_ms += 12 * 3_600_000
    player.take_over()
    player.pass_time(30_000)
    assert player.orders().replicas == (1, 2, 3)
    player.pass_time(10_000)
    assert player.orders().adding_replicas == (4,)


def test_a_dead_broker_that_comes_back_in_time_keeps_its_replicas() -> None:
    settings = ControllerSettings(rebuild_delay_ms=60_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(50_000)
    player.restart(3, clean=False)
    player.pass_time(100_000)
    assert player.orders().replicas == (1, 2, 3)


def test_a_broker_that_has_just_registered_again_is_not_lost() -> None:
    """The decision runs again on an image in which the dead broker is a new process."""
    settings = ControllerSettings(rebuild_delay_ms=10_000)
    player = ControllerPlayer(cell([1, 2, 3, 4], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(10_000)
    before = player.image
    assert before.brokers[3].is_fenced
    player.pass_time(5_000)
    assert player.orders().adding_replicas == (4,)
    player.image = before
    assert player.controller.decide(before)
    player.restart(3, clean=False)
    assert not player.controller.decide(player.image)


def test_without_another_broker_nothing_is_rebuilt() -> None:
    settings = ControllerSettings(rebuild_delay_ms=1_000)
    player = ControllerPlayer(cell([1, 2, 3], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(30_000)
    assert player.orders().replicas == (1, 2, 3)


def test_a_partition_without_leader_is_not_rebuilt_from_nothing() -> None:
    settings = ControllerSettings(rebuild_delay_ms=1_000)
    player = ControllerPlayer(cell([1, 2, 3], [partition((3,))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(30_000)
    assert (player.orders().replicas, player.orders().elr) == ((3,), (3,))


def test_a_new_replica_whose_broker_dies_too_is_placed_elsewhere() -> None:
    settings = ControllerSettings(rebuild_delay_ms=10_000)
    player = ControllerPlayer(cell([1, 2, 3, 4, 5], [partition((1, 2, 3))]), settings)
    player.settle()
    player.kill(3)
    player.pass_time(13_000)
    assert player.orders().adding_replicas == (4,)
    player.kill(4)
    player.pass_time(13_000)
    assert player.orders().adding_replicas == (5,)
    run_moves(player)
    assert player.orders().replicas == (1, 2, 5)


def test_draining_moves_replicas_and_leaders_away_a_few_at_a_time() -> None:
    image = cell(
        [1, 2, 3, 4], [partition((3, 1, 2)), partition((1, 3, 4)), partition((1, 2, 4))] * 8
    )
    player = ControllerPlayer(image, ControllerSettings(moves_per_broker_max=2))
    player.settle()
    assert player.commits == 0
    player.image = with_property(player.image, "3", "broker.drain")
    assert run_moves(player) <= 2
    assert all(3 not in item.replicas and item.leader != 3 for item in partitions(player))
    assert all(len(item.isr) == 3 for item in partitions(player))
    assert all(not item.adding_replicas for item in partitions(player))


def test_replacements_go_to_other_racks_and_hosts_first() -> None:
    brokers = [
        broker(1, rack="a", host_id="x"),
        broker(2, rack="b", host_id="y"),
        broker(3, rack="c", host_id="z"),
        broker(4, rack="b", host_id="y"),
        broker(5, rack="b", host_id="w"),
        broker(6, rack="c", host_id="z"),
    ]
    # 6 alone is in a rack of its own, though it has the most replicas.
    image = cell(brokers, [partition((1, 2, 3)), *[partition((6, 1, 2))] * 5])
    player = ControllerPlayer(image, ControllerSettings(rebuild_delay_ms=0))
    player.settle()
    player.kill(3)
    player.settle()
    assert player.orders(0).adding_replicas == (6,)


def test_internal_topics_get_more_replicas_when_brokers_come() -> None:
    offsets = TopicImage("default", "__consumer_offsets", ORDERS, (partition((1,)),) * 6)
    users = TopicImage("default", "orders", UUID(int=9), (partition((1,)),))
    image = replace(
        cell([1, broker(2, fenced=True), 3]),
        topics_by_tenant=by_tenant([offsets, users]),
        topics_by_id={ORDERS: offsets, UUID(int=9): users},
    )
    player = ControllerPlayer(image, ControllerSettings(moves_per_broker_max=4))
    player.alive.discard(2)
    player.settle()
    grown = player.image.topics_of("default")["__consumer_offsets"].partitions
    # Only broker 3 is there to take them, four at a time.
    assert [item.adding_replicas for item in grown] == [(3,)] * 4 + [()] * 2
    assert grown[0].replicas == (1, 3)
    assert player.image.topics_of("default")["orders"] == users


def test_an_internal_topic_that_moves_grows_when_it_has_moved() -> None:
    """What somebody has taken a replica away for goes on: it is not taken back to grow."""
    offsets = TopicImage(
        "default",
        "__consumer_offsets",
        ORDERS,
        (partition((3, 1), (1,), adding=(3,), removing=(1,)), partition((1,))),
    )
    image = replace(
        cell([1, 2, 3, 4]),
        topics_by_tenant=by_tenant([offsets]),
        topics_by_id={ORDERS: offsets},
    )
    player = ControllerPlayer(image)
    player.settle()
    moving, growing = player.image.topics_of("default")["__consumer_offsets"].partitions
    assert moving == offsets.partitions[0]
    assert len(growing.replicas) == 3
    caught_up = ChangePartition(ORDERS, 0, next_epochs(moving, replace(moving, isr=(1, 3))))
    player.image = applied(player.image, [caught_up])
    player.settle()
    moved = player.image.topics_of("default")["__consumer_offsets"].partitions[0]
    assert (moved.isr, moved.leader, moved.removing_replicas) == ((3,), 3, ())
    assert (moved.replicas[0], len(moved.replicas)) == (3, 3)


def planned(image: MetadataImage) -> dict[int, tuple[int, ...]]:
    return {move.place.partition_index: move.target for move in plan_balance(image)}


def counts(image: MetadataImage, plan: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, int]]:
    """(replicas, preferred leaderships) of each broker once the plan is done."""
    result = dict.fromkeys(image.brokers, (0, 0))
    for index, item in enumerate(image.topics_of("default")["orders"].partitions):
        replicas = plan.get(index, item.replicas)
        for position, node_id in enumerate(replicas):
            held, preferred = result[node_id]
            result[node_id] = (held + 1, preferred + (position == 0))
    return result


def test_a_new_broker_gets_its_share_of_replicas_and_leaders() -> None:
    image = cell(
        [1, 2, 3, 4], [partition((1, 2, 3)), partition((2, 3, 1)), partition((3, 1, 2))] * 8
    )
    plan = planned(image)
    # 72 replicas on 4 brokers, each moved replica moves once.
    assert counts(image, plan) == dict.fromkeys([1, 2, 3, 4], (18, 6))
    moved = [index for index, target in plan.items() if 4 in target]
    assert len(moved) == 18


def test_balance_does_nothing_where_there_is_balance_and_never_brings_replicas_together() -> None:
    assert planned(cell([1, 2, 3], [partition((1, 2, 3)), partition((2, 3, 1))])) == {}
    hosts = [broker(1, host_id="x"), broker(2, host_id="y"), broker(3, host_id="y")]
    image = cell(hosts, [partition((1, 2))] * 10)
    plan = planned(image)
    assert all(set(target) != {2, 3} for target in plan.values())
    result = counts(image, plan)
    assert [held for held, _ in result.values()] == [10, 5, 5]
    # All of 2 and 3 have 1 for their partner: half of the leaders can move.
    assert result[1][1] - min(result[2][1], result[3][1]) < 2


def test_the_controller_carries_the_plan_out_when_it_is_told_to() -> None:
    image = cell([1, 2, 3, 4], [partition((1, 2, 3))] * 20)
    player = ControllerPlayer(image, ControllerSettings(moves_per_broker_max=4))
    player.pass_time(60_000)
    assert player.commits == 0
    player.controller.configure(
        ControllerSettings(moves_per_broker_max=4, auto_replica_rebalance=True)
    )
    assert run_moves(player) <= 4
    assert planned(player.image) == {}
    assert counts(player.image, {}) == dict.fromkeys([1, 2, 3, 4], (15, 5))


@pytest.mark.parametrize(("percent", "moves"), [(49, True), (50, False)])
def test_leaders_go_back_when_too_many_are_elsewhere(percent: int, moves: bool) -> None:
    settings = ControllerSettings(leader_imbalance_percent_max=percent)
    image = cell([1, 2], [partition((1, 2)), partition((1, 2), leader=2)])
    player = ControllerPlayer(image, settings)
    player.pass_time(299_500)
    assert player.commits == 0
    player.pass_time(5_000)
    assert player.orders(1).leader == (1 if moves else 2)
    # And once in a while again.
    if moves:
        topic = replace(image.topics_of("default")["orders"])
        player.image = replace(
            image, version=5_000, topics_by_tenant=by_tenant([topic]), topics_by_id={ORDERS: topic}
        )
        player.pass_time(290_000)
        assert player.orders(1).leader == 2
        player.pass_time(15_000)
        assert player.orders(1).leader == 1


def test_leaders_stay_where_balancing_is_switched_off_or_the_preferred_one_cannot_lead() -> None:
    off = ControllerSettings(auto_leader_rebalance=False)
    image = cell([1, 2], [partition((1, 2), leader=2)])
    for settings, changed in (
        (off, image),
        (ControllerSettings(), cell([1, 2], [partition((1, 2), (2,), 2)])),
    ):
        player = ControllerPlayer(changed, settings)
        player.pass_time(900_000)
        assert player.orders().leader == 2
