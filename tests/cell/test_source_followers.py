"""Retry partitions stay where their source is, whatever happens to either."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.cell.balance import plan_balance
from data_plane.cell.changes import ChangePartition
from data_plane.cell.metadata import (
    ConfigResource,
    LogEnd,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from data_plane.cell.partition_state import (
    next_epochs,
    with_isr,
    with_leader,
    with_log_end,
)
from data_plane.cell.reassignment import start, target_of
from data_plane.cell.settings import ControllerSettings
from data_plane.cell.topics_draft import by_tenant
from tests.cell.cell_images import ORDERS, applied, cell, partition
from tests.cell.controller_player import ControllerPlayer

READERS = (UUID(int=11), UUID(int=12))
SETTINGS = ControllerSettings(
    rebuild_delay_ms=10_000, moves_per_broker_max=2, auto_replica_rebalance=True
)


def with_readers(image: MetadataImage, count: int = 2) -> MetadataImage:
    """The image with so many virtual topics over `orders`, whose replicas are the source's."""
    source = image.topics_by_id[ORDERS]
    readers = [
        TopicImage(
            "default", f"pay{topic_id.int}", topic_id, source.partitions, {}, source_id=ORDERS
        )
        for topic_id in READERS[:count]
    ]
    topics = [source, *readers]
    return replace(
        image,
        topics_by_tenant=by_tenant(topics),
        topics_by_id={topic.topic_id: topic for topic in topics},
    )


class Followed(ControllerPlayer):
    """A cell with `orders` and what follows it."""

    def put(self, topic_id: UUID, index: int, new: PartitionImage) -> None:
        old = self.image.topics_by_id[topic_id].partitions[index]
        if new != old:
            change = ChangePartition(topic_id, index, next_epochs(old, new))
            self.image = applied(self.image, [change])

    def all(self) -> list[tuple[UUID, int, PartitionImage]]:
        return [
            (topic.topic_id, index, one)
            for topic in self.image.topics_by_id.values()
            for index, one in enumerate(topic.partitions)
        ]

    def catch_up(self, rng: random.Random | None = None) -> None:
        """Followers that live get into ISRs: all of them, or one here and there. Those that may
        be the last ones tell where their logs end."""
        for topic_id, index, one in self.all():
            told = {end.node_id for end in one.log_ends}
            is_asked = one.leader < 0 and not one.isr and not one.elr
            for at in (set(one.last_known_elr) & self.alive) - told if is_asked else ():
                old = self.image.topics_by_id[topic_id].partitions[index]
                self.put(topic_id, index, with_log_end(old, LogEnd(at, old.leader_epoch, 7)))
            if one.leader not in self.alive or (rng is not None and rng.random() < 0.7):
                continue
            late = [at for at in one.replicas if at in self.alive and at not in one.isr]
            if late:
                joined = late if rng is None else [rng.choice(late)]
                self.put(topic_id, index, with_isr(one, (*one.isr, *joined), 2))

    def calm(self) -> None:
        """Until nothing has changed for a while."""
        for _ in range(400):
            before = self.image.version
            for _ in range(4):
                self.catch_up()
                self.step()
            if self.image.version == before and self.is_still():
                return
        raise AssertionError("there is no end to it")

    def is_still(self) -> bool:
        """Nothing is being moved any more."""
        return not any(one.adding_replicas or one.removing_replicas for _, _, one in self.all())

    def check(self) -> None:
        source = self.image.topics_by_id[ORDERS].partitions
        for topic_id, index, one in self.all():
            if topic_id != ORDERS:
                assert one.replicas == source[index].replicas
                assert one.leader == source[index].leader


def test_a_source_that_is_reassigned_takes_its_followers_along() -> None:
    player = Followed(with_readers(cell([1, 2, 3, 4], [partition((1, 2, 3))])))
    player.settle()
    assert player.commits == 0
    player.put(ORDERS, 0, start(player.orders(), (4, 2, 3)))
    player.step()
    for _, _, one in player.all():
        assert target_of(one) == (4, 2, 3)
        assert one.adding_replicas == (4,)
    player.calm()
    player.check()
    assert player.orders().replicas == (4, 2, 3)


def test_the_leader_is_the_sources_where_it_is_in_sync_and_lives() -> None:
    image = with_readers(cell([1, 2, 3], [partition((1, 2, 3))]), 1)
    player = Followed(image)
    player.settle()
    player.put(ORDERS, 0, with_leader(player.orders(), 3))
    follower = player.image.topics_by_id[READERS[0]].partitions[0]
    player.put(READERS[0], 0, replace(follower, isr=(1, 2)))
    player.step()
    assert player.image.topics_by_id[READERS[0]].partitions[0].leader == 1
    player.catch_up()
    player.step()
    player.check()


def test_what_was_moved_by_itself_is_brought_back() -> None:
    """By an older controller, or before retry partitions followed."""
    player = Followed(with_readers(cell([1, 2, 3, 4], [partition((1, 2, 3))])))
    player.put(READERS[1], 0, partition((4, 1, 2), (4, 1, 2), 4))
    player.settle()
    player.calm()
    player.check()


def test_without_a_source_it_moves_by_itself() -> None:
    """A virtual topic that was deleted stays for a while after its source."""
    image = with_readers(cell([1, 2, 3, 4], [partition((1, 2, 3))]), 1)
    alone = image.topics_by_id[READERS[0]]
    image = replace(
        image, topics_by_tenant=by_tenant([alone]), topics_by_id={alone.topic_id: alone}
    )
    player = Followed(image, SETTINGS)
    player.settle()
    player.kill(3)
    player.pass_time(20_000)
    player.calm()
    (only,) = player.image.topics_by_id[READERS[0]].partitions
    assert 3 not in only.replicas


def test_balance_counts_what_follows_and_comes_to_an_end() -> None:
    """One source with two followers weighs three: as much as two brokers may be apart."""
    image = with_readers(cell([1, 2], [partition((1,)), partition((2,))]))
    assert plan_balance(image) == []
    image = with_readers(cell([1, 2], [partition((1,))] * 4))
    assert sorted(move.target for move in plan_balance(image)) == [(2,), (2,)]
    assert {move.place.topic.topic_id for move in plan_balance(image)} == {ORDERS}
    # An odd one stays: it would only change sides.
    image = with_readers(cell([1, 2], [partition((1,))] * 3))
    assert [move.target for move in plan_balance(image)] == [(2,)]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_they_come_to_be_in_the_same_place(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [1, 2, 3, 4, 5]
    replicas = [tuple(rng.sample(nodes, 3)) for _ in range(4)]
    player = Followed(with_readers(cell(nodes, [partition(one) for one in replicas])), SETTINGS)
    player.settle()
    for _ in range(60):
        action = rng.random()
        if action < 0.1 and len(player.alive) > 3:
            player.kill(rng.choice(sorted(player.alive)))
        elif action < 0.25 and len(player.alive) < len(nodes):
            player.restart(rng.choice(sorted(set(nodes) - player.alive)), clean=rng.random() < 0.5)
        elif action < 0.4:
            index = rng.randrange(4)
            player.put(ORDERS, index, start(player.orders(index), rng.sample(nodes, 3)))
        elif action < 0.5:
            drained = {"broker.drain": rng.choice(["true", "false"])}
            resource = ConfigResource("default", ResourceType.BROKER, str(rng.choice(nodes)))
            configs = {**player.image.configs, resource: drained}
            player.image = replace(player.image, configs=configs, version=player.image.version + 1)
        player.catch_up(rng)
        player.pass_time(rng.choice([500, 3_000]))
    player.image = replace(player.image, configs={}, version=player.image.version + 1)
    for node_id in sorted(set(nodes) - player.alive):
        player.restart(node_id, clean=True)
    player.calm()
    player.check()
