"""What a directed history is played on: see scenes.py for the plays.

Faults that are drawn reach most of what may go wrong, but not what takes five things in a row
within a second. A play says these five things, and leaves the rest to the seed: which partition and
which brokers, how long each step takes, and all that clients and brokers do meanwhile.

    script = directed(play)         for cell.Options.script
    def play(stage):                a generator; each value is for how many ms the cell runs on
        stage.part(1, 2)
        yield 200
        yield from stage.until(lambda: ..., 500)

A play begins when all is well, and what it has broken is healed behind it; then comes the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from data_plane.cell.changes import AlterConfigs, ChangePartition
from data_plane.cell.metadata import ResourceType
from data_plane.cell.partition_state import next_epochs, with_leader
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME
from data_plane.groups.partitioning import partition_for_group
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.client import Client
from tests.simulation.producer import ACKS_ALL, Producer
from tests.simulation.store import HOST
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from data_plane.cell.metadata import PartitionImage
    from data_plane.replica.leadership import Leadership
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node
    from tests.simulation.replicas import TopicPartition

# For how many milliseconds the cell runs on.
Steps = Iterator[int]
Play = Callable[["Stage"], Steps]

PAUSE_MS_MIN = 100
PAUSE_MS_MAX = 500
LOOK_MS = 4
PRODUCE_INTERVAL_MS = 10
# Whatever is on the way when a play ends has come to rest by then.
EPILOGUE_MS = 100


def directed(*plays: Play) -> Callable[[Cell], None]:
    """A script that plays one of `plays` after the other, by chance, until faults end."""

    def script(cell: Cell) -> None:
        _Director(cell, plays).pause()

    return script


class _Director:
    """Raises the curtain, and clears up behind the play."""

    def __init__(self, cell: Cell, plays: tuple[Play, ...]) -> None:
        self._cell = cell
        self._plays = plays
        self._random = cell.world.stream("plays")
        self._steps: Steps = iter(())

    def pause(self) -> None:
        delay_ms = self._random.randint(PAUSE_MS_MIN, PAUSE_MS_MAX)
        self._cell.world.at(delay_ms * US_PER_MS, self._begin)

    def _begin(self) -> None:
        cell = self._cell
        if not cell.faults.is_on:
            return
        stage = Stage(cell, self._random.randrange(1 << 30))
        if not stage.is_set():
            self.pause()
            return
        play = self._random.choice(self._plays)
        cell.world.note("play", f"{play.__name__} on {stage}")
        self._steps = play(stage)
        self._go_on()

    def _go_on(self) -> None:
        if not self._cell.faults.is_on:
            return
        wait_ms = next(self._steps, None)
        if wait_ms is None:
            self._clear()
        else:
            self._cell.world.at(wait_ms * US_PER_MS, self._go_on)

    def _clear(self) -> None:
        cell = self._cell
        cell.world.note("play", "ends")
        cell.network.heal()
        cell.network.delay_factor = 1.0
        cell.store.short_feeds.clear()
        for node in cell.nodes.values():
            if not node.is_on:
                node.start()
        self.pause()


class Stage:
    """One partition with three replicas, all of them in sync, and what a play may do."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self.cell = cell
        self.world = cell.world
        self.random = cell.world.stream(f"play {seed}")
        self.key: TopicPartition | None = None
        self.leader = -1
        self.followers: list[int] = []

    def is_set(self) -> bool:
        """Whether all is well; then the partition is chosen."""
        cell = self.cell
        if not cell.is_fully_replicated() or cell.network.has_cuts:
            return False
        brokers = cell.store.image.brokers
        if any(not node.is_up for node in cell.nodes.values()):
            return False
        if any(broker.is_fenced for broker in brokers.values()):
            return False
        choices = [
            ((topic.topic_id, index), state)
            for topic in cell.store.image.topics_by_id.values()
            for index, state in enumerate(topic.partitions)
            if topic.name.startswith("data") and len(state.replicas) == 3 and state.leader >= 0
        ]
        if not choices:
            return False
        self.key, state = self.random.choice(choices)
        self.leader = state.leader
        self.followers = [one for one in state.replicas if one != self.leader]
        return True

    def __str__(self) -> str:
        assert self.key is not None
        topic = self.cell.store.image.topics_by_id[self.key[0]]
        return f"{topic.name}-{self.key[1]} led by b{self.leader}, followed by {self.followers}"

    # What is

    @property
    def state(self) -> PartitionImage:
        """The partition as the store has it."""
        assert self.key is not None
        return self.cell.store.image.topics_by_id[self.key[0]].partitions[self.key[1]]

    def node(self, node_id: int) -> Node:
        return self.cell.nodes[node_id]

    def end(self, node_id: int) -> int:
        """Where that broker's log ends; -1 while it has none."""
        assert self.key is not None
        view = self.cell.history.disks.get(f"b{node_id}", {}).get(self.key)
        log = None if view is None else view.log
        return -1 if log is None else log.log_end_offset

    def high_watermark(self, node_id: int) -> int:
        """Up to where that broker takes its log for committed; -1 while it has none."""
        assert self.key is not None
        view = self.cell.history.disks.get(f"b{node_id}", {}).get(self.key)
        log = None if view is None else view.log
        return -1 if log is None else log.high_watermark

    def known_epoch(self, node_id: int) -> int:
        """The partition's leader epoch in that broker's image; -1 while it is down."""
        assert self.key is not None
        services = self.node(node_id).services
        topic = None if services is None else services.image.topics_by_id.get(self.key[0])
        return -1 if topic is None else topic.partitions[self.key[1]].leader_epoch

    def leadership(self, node_id: int) -> Leadership | None:
        """What that broker knows as the leader of the partition."""
        assert self.key is not None
        services = self.node(node_id).services
        replica = None if services is None else services.partitions.replica(*self.key)
        return None if replica is None else replica.leadership

    def proposed(self, node_id: int) -> tuple[int, ...]:
        """The ISR that this leader has asked for and not heard of yet."""
        leadership = self.leadership(node_id)
        return () if leadership is None else (leadership.proposed_isr or ())

    def confirmed(self, node_id: int) -> tuple[int, ...]:
        """The ISR that this leader knows the store to have."""
        leadership = self.leadership(node_id)
        return () if leadership is None else tuple(leadership.committed_isr)

    def broker_epoch(self, node_id: int) -> int:
        return self.cell.store.image.brokers[node_id].broker_epoch

    def is_back(self, node_id: int, old_broker_epoch: int) -> bool:
        """Whether another life of that broker has registered, and may lead."""
        broker = self.cell.store.image.brokers[node_id]
        return broker.broker_epoch != old_broker_epoch and not broker.is_fenced

    def coordinator(self, group: str) -> int:
        """Who coordinates a group by the store's image; -1 for nobody."""
        topic = self.cell.store.image.topics_of("default").get(GROUP_METADATA_TOPIC_NAME)
        if topic is None:
            return -1
        return topic.partitions[partition_for_group("default", group, len(topic.partitions))].leader

    def until(self, condition: Callable[[], bool], limit_ms: int) -> Iterator[int]:
        """Let the cell run on until `condition` holds; at the limit the play goes on without, and
        looks for itself."""
        for _ in range(limit_ms // LOOK_MS):
            if condition():
                return
            yield LOOK_MS

    # What may be done

    def reached(self, what: str) -> None:
        """A play has got to where it matters."""
        self.world.count(f"play: {what}")

    @staticmethod
    def _name(host: int | str) -> str:
        return host if isinstance(host, str) else f"b{host}"

    def part_way(self, source: int | str, target: int | str) -> None:
        """Nothing gets from `source` to `target`."""
        self.world.note("play", f"cuts {source} → {target}")
        self.cell.network.cut(self._name(source), self._name(target))

    def part(self, one: int | str, other: int | str) -> None:
        self.part_way(one, other)
        self.part_way(other, one)

    def join(self, one: int | str, other: int | str) -> None:
        """What was under way between them arrives, and all is well there."""
        self.world.note("play", f"joins {one} and {other}")
        self.cell.network.join(self._name(one), self._name(other))

    def part_clients(self, node_id: int) -> None:
        """No client reaches that broker."""
        for name in self.cell.workload.client_names():
            self.cell.network.cut(name, f"b{node_id}")

    def join_clients(self, node_id: int) -> None:
        """What clients have sent to that broker arrives."""
        for name in self.cell.workload.client_names():
            self.cell.network.join(name, f"b{node_id}")

    def set_topic_configs(self, values: dict[str, str]) -> None:
        """Somebody changes the topic's settings, whoever of the brokers is told."""
        assert self.key is not None
        store = self.cell.store
        image = store.image
        name = image.topics_by_id[self.key[0]].name
        change = AlterConfigs("default", int(ResourceType.TOPIC), name, tuple(values.items()))
        store.apply(f"b{self.leader}", [change], image.version, f"play {image.version}", None)

    def elect(self, node_id: int) -> bool:
        """The controller elects this one, as it does when it is the preferred leader: of the ISR,
        and alive. False when that cannot be."""
        assert self.key is not None
        store = self.cell.store
        lease = store.inner._controller
        old, image = self.state, store.image
        if lease is None or node_id not in old.isr or old.leader == node_id:
            return False
        new = next_epochs(old, with_leader(old, node_id))
        request_id = f"play {image.version}"
        change = ChangePartition(self.key[0], self.key[1], new)
        store.apply(f"b{lease.node_id}", [change], image.version, request_id, lease.epoch)
        return True

    def kill(self, node_id: int, *, takes_disk: bool = False) -> None:
        """The process ends, and perhaps its disk."""
        node = self.node(node_id)
        if node.is_on:
            node.die(keeps_page_cache=True)
        if takes_disk:
            self.world.note("play", f"b{node_id} has an empty disk")
            node.wipe()

    def sync(self, node_id: int) -> None:
        """What that broker has of the partition lasts through a power loss."""
        assert self.key is not None
        services = self.node(node_id).services
        if services is not None:
            self.world.note("play", f"b{node_id} syncs")
            services.logs.get(*self.key).flush()

    def checkpoint(self, node_id: int) -> None:
        """That broker syncs all it has, and its directory's checkpoint says so."""
        services = self.node(node_id).services
        if services is None:
            return
        self.world.note("play", f"b{node_id} syncs, and stores a checkpoint")
        for log in services.logs.logs():
            log.flush()
        for directory in services.logs.directories:
            job = services.logs.checkpoint_job(directory)
            job.run()
            job.finish()

    def ask_offset(self, node_id: int, group: str, topic: str, index: int) -> list[Any]:
        """Somebody asks that broker what the group has committed; holds the answer once it is
        there, which was held against what it may be."""
        answers: list[Any] = []
        asked_us = self.world.now_us

        def answered(response: Any) -> None:
            answers.append(response)
            for piece in () if response is None else response.groups[0].topics:
                offset = piece.partitions[0].committed_offset
                self.cell.promises.offset_fetched(group, topic, index, offset, asked_us)

        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
        asked = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
        client = Client(self.cell, f"asker {asked_us}")
        client.ask(node_id, ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[asked]), answered)
        return answers

    def producer(self) -> Producer:
        """One more, with acks=all, which begins now."""
        assert self.key is not None
        name = self.cell.store.image.topics_by_id[self.key[0]].name
        producer = Producer(
            self.cell,
            f"late {self.world.now_us}",
            acks=ACKS_ALL,
            interval_ms=PRODUCE_INTERVAL_MS,
            wants=lambda topic: topic == name,
        )
        self.cell.workload.producers.append(producer)
        producer.start()
        return producer

    def part_store(self, node_id: int) -> None:
        self.part(node_id, HOST)

    def join_store(self, node_id: int) -> None:
        self.join(node_id, HOST)
