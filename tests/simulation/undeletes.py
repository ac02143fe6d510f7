"""UNDELETES: topics are deleted, come back, and go when their time is over or somebody says so.

    kept1   made   deleted ── undelete ──► as it was: its id, its records, what groups committed
                      │  └─── purge ─────► gone, and its name is free
                      └ undelete.ms ─────► gone; not sooner, whatever a clock shows for a moment

An operator's orders go to a broker as CellAdmin gives them to it: decided on the image that they
are committed to, and nobody hears of the outcome when the broker dies. Producers, readers and
groups use these topics like all others. While one is deleted nothing is read from it nor written to
it at a broker that knows (`_probe`), no record goes because of its age or size (retention.py knows
that), and all that was committed stays on its replicas (history.py). In the end all are back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.kept_topics import UNDELETE_MS, KeptTopics
from data_plane.cell.changes import Change, DeleteTopic
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.metadata_store import Commit
from data_plane.cell.topic_deletions import UNDATED, ChangeDeletion
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.simulation.administrator import Administrator
from tests.simulation.keeper import Keeper
from tests.simulation.world import CLOCK_ERROR_MS_MAX, EPOCH_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

KEPT_TOPICS = ("kept1", "kept2")
PARTITIONS = 2
REPLICAS = 3
UNDELETE_MS_CHOICES = ("400", "1500", "3600000", "3600000")
FORGETFUL: tuple[dict[str, str], ...] = (
    {},
    {"retention.ms": "400", "segment.ms": "200", "file.delete.delay.ms": "0"},
)
PRODUCE_VERSION_WITH_IDS = 13
FETCH_VERSION_WITH_IDS = 13
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Undeleter(Administrator):
    """See the module."""

    interval_ms = 120

    @property
    def is_settled(self) -> bool:
        topics = self.cell.store.image.topics_of("default")
        return not any(topics[name].deletion for name in KEPT_TOPICS if name in topics)

    def _go_on(self) -> None:
        # Also when it has stopped: what was sent before may come late.
        self._wait()
        if not self._is_stopped:
            self.change()
        elif not self.is_settled:
            for name in KEPT_TOPICS:
                self._order("undeletion", name)

    def change(self) -> None:
        name = self.random.choice(KEPT_TOPICS)
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is None:
            self._make(name)
        elif topic.deletion is None:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
            self.ask(self.any_node(), ApiKey.DELETE_TOPICS, request, lambda response: None)
        else:
            action = self.random.choice(("undeletion", "undeletion", "purge", "probe", "make"))
            if action == "probe":
                self._probe(topic)
            elif action == "make":
                self._make(name)
            else:
                self._order(action, name)

    def _make(self, name: str) -> None:
        configs = {
            UNDELETE_MS: self.random.choice(UNDELETE_MS_CHOICES),
            **self.random.choice(FORGETFUL),
        }
        plan = CreatableTopic(
            name=name,
            num_partitions=PARTITIONS,
            replication_factor=REPLICAS,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[plan])
        self.ask(self.any_node(), ApiKey.CREATE_TOPICS, request, lambda response: None)

    def _order(self, kind: str, name: str) -> None:
        node = self.cell.nodes[self.any_node()]
        if node.is_up:
            node.at(0, self._give, node, kind, name)

    def _give(self, node: Node, kind: str, name: str) -> None:
        services = node.services
        if services is None or node.is_stopping:
            return
        kept = KeptTopics(services)

        def decide(image: MetadataImage) -> list[Change]:
            try:
                if kind == "purge":
                    change = kept.purge(image, "default", name)
                    assert isinstance(change, DeleteTopic)
                    self.cell.undeletes.ordered[change.topic_id] = None
                else:
                    change = kept.undeletion(image, "default", name)
            except Refusal:
                return []
            return [change]

        services.metadata.write(decide, lambda error: None)

    # Brokers that know that a topic is deleted

    def _probe(self, topic: TopicImage) -> None:
        knowing = [node for node in self.cell.nodes.values() if self._knows(node, topic.topic_id)]
        if not knowing:
            return
        node = self.random.choice(knowing)
        index = self.random.randrange(len(topic.partitions))
        if self.random.random() < 0.5:
            batch = bytes(build_batch([NewRecord(EPOCH_MS, None, b"probe/0/0")]))
            data = PartitionProduceData(index=index, records=batch)
            produce = ProduceRequest(
                transactional_id=None,
                acks=1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(topic_id=topic.topic_id, partition_data=[data])],
            )
            self._ask_knowing(node, topic, ApiKey.PRODUCE, produce, PRODUCE_VERSION_WITH_IDS)
        else:
            wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            fetch = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                topics=[FetchTopic(topic_id=topic.topic_id, partitions=[wanted])],
            )
            fetch.session_epoch = -1
            self._ask_knowing(node, topic, ApiKey.FETCH, fetch, FETCH_VERSION_WITH_IDS)

    def _knows(self, node: Node, topic_id: UUID) -> bool:
        services = node.services
        known = None if services is None else services.image.topics_by_id.get(topic_id)
        return known is not None and known.deletion is not None

    def _ask_knowing(
        self, node: Node, topic: TopicImage, api_key: ApiKey, request: Any, version: int
    ) -> None:
        life = node.life

        def answered(response: Any) -> None:
            image = self.cell.store.image
            now = image.topics_by_id.get(topic.topic_id)
            # What was asked when it was back already may be answered.
            if response is None or life != node.life or now is None or now != topic:
                return
            self.world.count("deleted topics asked for")
            (answer,) = response.responses
            pieces = answer.partition_responses if api_key is ApiKey.PRODUCE else answer.partitions
            if ErrorCode(pieces[0].error_code) not in UNKNOWN:
                self.world.violate(
                    f"{node.name} answers {api_key.name} of {topic}, which is deleted, with "
                    f"{ErrorCode(pieces[0].error_code).name}"
                )

        self.ask(node.node_id, api_key, request, answered, version=version)


class KeptKeeper(Keeper):
    """What it commits of them is there again when they are."""

    shelves = KEPT_TOPICS


class UndeleteWatch:
    """What commits may do to topics that can come back."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        # Since when they are deleted, by the time of the world.
        self._deleted_ms: dict[UUID, int] = {}
        # Those that somebody has ordered to be purged.
        self.ordered: dict[UUID, None] = {}

    def committed(self, before: MetadataImage, after: MetadataImage, commit: Commit) -> None:
        """Check and count one commit."""
        topics = dict(before.topics_by_id)
        for change in commit.changes:
            if not isinstance(change, ChangeDeletion | DeleteTopic):
                continue
            topic = topics.get(change.topic_id)
            if topic is None or topic.name not in KEPT_TOPICS:
                continue
            if isinstance(change, ChangeDeletion):
                # Its purge may be ordered in the same commit.
                topics[topic.topic_id] = replace(topic, deletion=change.deletion)
                if topic.deletion is None:
                    self._deleted_ms[topic.topic_id] = self._world.now_ms
            else:
                self._check_purge(topic)
        for name in KEPT_TOPICS:
            old, new = before.topic("default", name), after.topic("default", name)
            if old is None or new is None or old.topic_id != new.topic_id:
                continue
            if old.deletion is None and new.deletion is not None:
                self._world.count("topics deleted that can come back")
            elif old.deletion is not None and new.deletion is None:
                self._world.count("topics undeleted")
                # What was ordered before that has not come to pass.
                self.ordered.pop(new.topic_id, None)
                # ISRs and leaders may change in the same commit.
                shapes = [(len(one.partitions), one.configs) for one in (old, new)]
                if shapes[0] != shapes[1]:
                    self._world.violate(f"{new} comes back as another one")

    def _check_purge(self, topic: TopicImage) -> None:
        if topic.deletion is None:
            self._world.violate(f"{topic} is gone, and could have come back")
            return
        if topic.topic_id in self.ordered:
            self._world.count("topics purged by order")
            return
        lasted_ms = self._world.now_ms - self._deleted_ms[topic.topic_id]
        undelete_ms = int(topic.configs[UNDELETE_MS])
        # Clocks are off by so much at both ends, at most.
        if lasted_ms < undelete_ms - 2 * CLOCK_ERROR_MS_MAX:
            self._world.violate(f"{topic} is purged after {lasted_ms} of {undelete_ms} ms")
        self._world.count("topics purged in time")


def settings_of(topic: TopicImage) -> dict[str, str]:
    """A topic's settings, as far as they say what may be deleted of it."""
    configs = dict(topic.configs)
    # In words of its own: the broker's are what is checked.
    is_paused = topic.pause is not None and topic.pause.ended_ms == UNDATED
    if topic.deletion is not None or is_paused:
        configs |= {"retention.ms": "-1", "retention.bytes": "-1"}
    elif topic.pause is not None:
        pause = topic.pause
        is_known = pause.begun_ms != UNDATED
        length = str(pause.earlier_ms + max(0, pause.ended_ms - pause.begun_ms))
        configs[PAUSE] = f"{pause.ended_ms} {length if is_known else UNKNOWN_LENGTH}"
    return configs


# Beside a topic's settings.
PAUSE = "pause"
# Of a pause of which nobody knows when it began: what is older counts as of its end.
UNKNOWN_LENGTH = "unknown"


def without_pause(configs: dict[str, str], newest_ms: int, age_ms: int) -> int:
    """How old records are whose newest is of that date, without the pause of their topic."""
    ended, length = configs.get(PAUSE, "0 0").split()
    ended_ms = int(ended)
    if newest_ms >= ended_ms:
        return age_ms
    return age_ms - (ended_ms - newest_ms if length == UNKNOWN_LENGTH else int(length))
