"""The controller's decisions: fences, elections, ISR and ELR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.cell.controller import DRAIN_PROPERTY, Situation, decide
from data_plane.cell.liveness import Observed
from data_plane.cell.metadata import (
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from data_plane.cell.metadata_store import ControllerLease, Heartbeat
from data_plane.cell.settings import ControllerSettings
from tests.cell.cell_images import applied, broker, cell, partition
from tests.cell.controller_player import HEARTBEAT_MS, ControllerPlayer


def three(*partitions: object, **configs: str) -> ControllerPlayer:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return ControllerPlayer(cell([1, 2, 3], partitions, named))  # type: ignore[arg-type]


def test_nothing_happens_while_all_are_well() -> None:
    player = three(partition((1, 2, 3)))
    player.pass_time(60_000)
    assert player.commits == 0


def test_a_dead_broker_is_fenced_and_its_partitions_go_on_in_one_commit() -> None:
    player = three(partition((1, 2, 3)), partition((2, 3, 1)))
    player.settle()
    player.kill(2)
    player.pass_time(2_500)
    assert player.commits == 1
    assert player.image.brokers[2].is_fenced
    assert player.state(0) == ((1, 3), (), 1)
    assert player.orders(0).leader_epoch == 5
    assert player.state(1) == ((3, 1), (), 3)
    assert player.orders(1).leader_epoch == 6


def test_the_example_of_kip_966() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.kill(3)
    player.settle()
    assert player.state() == ((1, 2), (), 1)
    player.kill(1)
    player.settle()
    assert player.state() == ((2,), (1,), 2)
    player.kill(2)
    player.settle()
    assert player.state() == ((), (1, 2), -1)
    assert player.orders().last_known_leader == 2
    # 3 may miss records, 1 has all that were committed.
    player.restart(3, clean=False)
    player.settle()
    assert player.state() == ((), (1, 2), -1)
    player.restart(1, clean=True)
    player.settle()
    assert player.state() == ((1,), (2,), 1)
    assert player.orders().last_known_leader == -1


def test_what_a_tick_has_decided_is_not_decided_again_for_the_same_image() -> None:
    """With thousands of partitions that would hold the loop for twice as long."""
    player = three(partition((1, 2, 3)), partition((1, 2, 3)))
    player.settle()
    controller, image = player.controller, player.image
    fenced = replace(image.brokers[2], is_fenced=True)
    changed = replace(image, brokers={**image.brokers, 2: fenced})
    decided = controller.decide(changed)
    assert decided
    assert controller.decide(changed) is decided
    # It is decided by the image that a commit is for, and by what is known of the brokers then.
    assert not controller.decide(image)
    player.kill(3)
    player.settle()
    assert player.image.brokers[3].is_fenced


def test_a_clean_restart_between_two_looks_keeps_the_isr() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.restart(1, clean=True)
    assert player.state() == ((1, 2, 3), (), -1)
    player.settle()
    assert player.state() == ((1, 2, 3), (), 2)


def test_an_unclean_restart_never_keeps_the_isr() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.restart(1, clean=False)
    player.settle()
    assert player.state() == ((2, 3), (), 2)
    assert not player.image.brokers[1].is_fenced


def test_an_unclean_election_happens_only_where_the_topic_allows_it() -> None:
    for allowed in ("false", "true"):
        player = three(
            partition((1, 2, 3), (1,)),
            unclean_leader_election_enable=allowed,
            min_insync_replicas="1",
        )
        player.settle()
        player.kill(1)
        player.settle()
        expected = ((2,), (), 2) if allowed == "true" else ((), (1,), -1)
        assert player.state() == expected


def test_no_unclean_election_while_a_better_one_may_come() -> None:
    """A new controller does not know yet who lives."""
    player = three(partition((1, 2, 3), (1,), -1, elr=(3,)), unclean_leader_election_enable="true")
    player.kill(1, 3)
    player.step()
    player.step()
    assert player.orders().leader == -1
    player.settle()
    assert player.orders().leader == 2


def test_no_unclean_election_while_an_eligible_replica_is_not_known_to_be_dead() -> None:
    """The ISR is empty, so that nobody of it has to be dead: the ELR has everything."""
    player = three(partition((1, 2, 3), (), elr=(2,)), unclean_leader_election_enable="true")
    player.kill(2)
    player.step()
    player.step()
    # 1 and 3 are seen alive, 2 may be.
    assert player.controller.electable(player.image) == {1, 3}
    assert player.state() == ((), (2,), -1)
    player.alive.add(2)
    player.step()
    assert player.orders().leader == 2


def test_nobody_is_elected_before_the_controller_saw_it_renew() -> None:
    player = three(partition((1, 2, 3), leader=-1))
    player.step()
    assert player.orders().leader == -1
    player.step()
    assert player.orders().leader == 1


def test_a_fenced_broker_comes_back_and_one_that_stops_does_not() -> None:
    player = ControllerPlayer(
        cell([1, broker(2, fenced=True), broker(3, fenced=True, stopping=True)])
    )
    player.settle()
    assert not player.image.brokers[2].is_fenced
    assert player.image.brokers[3].is_fenced


def test_a_fenced_broker_is_not_elected_on_request_before_it_is_let_in() -> None:
    """It is alive and in the ISR, and the commit that unfences it is still to come."""
    player = three(partition((1, 2, 3)))
    player.settle()
    player.restart(1, clean=True)
    for _ in range(2):
        player.now_ms += HEARTBEAT_MS
        player.controller.observe_heartbeat(player.heartbeat(), player.image, player.now_ms)
    assert player.controller.observed.is_alive(player.image.brokers[1])
    assert player.controller.electable(player.image) == {2, 3}
    player.tick()
    assert player.controller.electable(player.image) == {1, 2, 3}


def test_controlled_shutdown_moves_leaders_and_leaves_isr() -> None:
    player = three(partition((1, 2, 3)), partition((2, 1, 3)), partition((1,)))
    player.settle()
    player.change_broker(1, in_controlled_shutdown=True)
    player.step()
    assert player.state(0) == ((2, 3), (), 2)
    assert player.state(1) == ((2, 3), (), 2)
    # Nobody else can lead the third: it is served until the end.
    assert player.state(2) == ((1,), (), 1)
    player.change_broker(1, is_fenced=True)
    player.step()
    assert player.state(2) == ((), (1,), -1)
    player.restart(1, clean=True)
    player.settle()
    assert player.state(2) == ((1,), (), 1)


def test_an_unclean_election_does_not_take_over_from_a_leader_that_still_serves() -> None:
    player = three(partition((1, 2), (1,)), unclean_leader_election_enable="true")
    player.settle()
    player.change_broker(1, in_controlled_shutdown=True)
    player.settle()
    assert player.state() == ((1,), (), 1)


def test_after_an_outage_of_the_store_nobody_is_expired() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.now_ms += 60_000
    everybody = set(player.alive)
    player.alive.clear()
    player.step()
    player.pass_time(1_000)
    player.alive = everybody
    player.pass_time(10_000)
    assert player.commits == 0


def test_who_takes_over_without_having_watched_expires_nobody_for_one_timeout() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.kill(2)
    player.pass_time(1_000)
    player.take_over()
    player.step()
    player.pass_time(1_000)
    assert player.commits == 0
    player.pass_time(500)
    assert player.commits == 1


def watcher() -> ControllerPlayer:
    """A broker that sees another one control the cell, for long enough to know who is alive."""
    player = three(partition((1, 2, 3)))
    player.has_lease = False
    player.settle()
    return player


def test_who_takes_over_goes_by_what_it_has_watched() -> None:
    player = watcher()
    player.kill(2)
    player.pass_time(1_000)
    player.has_lease = True
    player.epoch += 1
    player.step()
    assert player.commits == 1
    assert player.state() == ((1, 3), (), 1)


def test_who_only_watches_decides_nothing() -> None:
    player = watcher()
    player.kill(2)
    player.pass_time(5_000)
    assert player.commits == 0
    assert not player.controller.observed.dead


def test_what_was_seen_before_a_failed_heartbeat_is_no_ground_to_expire_anybody() -> None:
    player = watcher()
    player.kill(2)
    player.pass_time(1_000)
    player.controller.observe_failure()
    player.has_lease = True
    player.pass_time(1_500)
    assert player.commits == 0
    player.step()
    assert player.commits == 1


def test_a_failed_heartbeat_of_the_controller_takes_nothing_from_it() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.kill(2)
    player.pass_time(1_000)
    player.controller.observe_failure()
    player.step()
    assert player.commits == 1


def test_what_was_seen_before_the_lease_ran_out_is_no_ground_either() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.kill(2)
    player.pass_time(1_000)
    player.controller.observe_loss()
    commits = player.commits
    player.pass_time(1_500)
    assert player.commits == commits
    player.step()
    assert player.commits == commits + 1


@pytest.mark.parametrize(
    "state",
    [
        partition((1, 2, 3), (1,), elr=(2,)),
        partition((1, 2, 3), (1,), last_known_elr=(2,)),
    ],
)
def test_elrs_end_when_min_isr_is_lower_than_when_they_began(state: PartitionImage) -> None:
    """By a property that a process was started with. Nothing is committed beside an ELR."""
    for min_insync_replicas, left in (("2", (2,)), ("1", ())):
        player = three(state, min_insync_replicas=min_insync_replicas)
        player.settle()
        orders = player.orders()
        assert (orders.isr, (*orders.elr, *orders.last_known_elr)) == ((1,), left)


def test_a_controller_that_has_not_looked_for_long_decides_nothing() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.kill(2)
    player.pass_time(1_000)
    player.controller.observe_heartbeat(player.heartbeat(), player.image, player.now_ms + 500)
    assert player.controller.observed.dead
    assert not player.controller.tick(player.image, player.now_ms + 1_251)
    assert player.controller.tick(player.image, player.now_ms + 1_250)


def test_without_the_lease_nothing_is_decided() -> None:
    image = cell([1, 2], [partition((1, 2), leader=-1)])
    player = ControllerPlayer(image)
    player.pass_time(1_000)
    assert player.orders().leader == 1
    other = Heartbeat(1, ControllerLease(2, "2-a", 2, is_ours=False), player.heartbeat().sessions)
    player.controller.observe_heartbeat(other, image, player.now_ms)
    assert player.controller.epoch is None
    assert not player.controller.tick(image, player.now_ms)
    assert not player.controller.decide(image)


def test_the_lease_that_ran_out_by_ones_own_clock_is_gone() -> None:
    player = three(partition((1, 2), leader=-1))
    player.settle()
    player.controller.observe_loss()
    assert not player.controller.observed.alive
    assert player.controller.epoch is None
    assert not player.controller.decide(cell([1, 2], [partition((1, 2), leader=-1)]))


def test_draining_follows_the_brokers_property() -> None:
    image = cell([1, 2, 3])
    resource = ConfigResource("default", ResourceType.BROKER, "2")
    player = ControllerPlayer(
        MetadataImage("c", 5, image.brokers, configs={resource: {DRAIN_PROPERTY: "true"}})
    )
    player.settle()
    assert [item.node_id for item in player.image.brokers.values() if item.is_draining] == [2]
    player.image = MetadataImage("c", 9, player.image.brokers)
    player.settle()
    assert not player.image.brokers[2].is_draining


class CountingTopics(dict[str, TopicImage]):
    """Counts how often all topics are looked through."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_a_quiet_tick_looks_at_no_partition() -> None:
    image = cell([1, 2, 3], [partition((1, 2, 3))])
    topics = CountingTopics(image.topics_of("default"))
    player = ControllerPlayer(replace(image, topics_by_tenant={"default": topics}))
    player.settle()
    walks = topics.walks
    player.pass_time(60_000)
    assert topics.walks == walks > 0


def test_a_failed_commit_is_decided_again() -> None:
    player = three(partition((1, 2, 3)))
    player.settle()
    player.kill(1)
    player.now_ms += 500
    for _ in range(4):
        player.controller.observe_heartbeat(player.heartbeat(), player.image, player.now_ms)
        player.now_ms += 500
    first = player.controller.tick(player.image, player.now_ms - 500)
    assert first
    assert player.controller.tick(player.image, player.now_ms - 500) == first


def test_a_large_failure_is_decided_in_several_commits() -> None:
    image = cell([1, 2, 3], [partition((1, 2, 3))] * 100)
    observed = Observed(frozenset({(2, "2-a"), (3, "3-a")}), frozenset({(1, "1-a")}))
    situation = Situation(observed, ControllerSettings())
    commits = 0
    while changes := decide(image, situation, partitions_max=30):
        image = applied(image, changes)
        commits += 1
    assert commits == 4
    assert all(item.leader == 2 for item in image.topics_of("default")["orders"].partitions)
