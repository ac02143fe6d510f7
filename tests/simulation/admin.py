"""The administrator: makes the topics, and changes things while everything runs.

Asks any broker, again after a while when there is no good answer, as an operator would. Errors of
the kind "not now" or "it is so already" are part of life; answers that would mean a bug are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.client import Client
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

RETRY_MS = 100
INTERVAL_MS = 700
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
OFFSETS_TOPIC = "__consumer_offsets"
SET = 0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic of the workload."""

    name: str
    partitions: int
    replicas: int
    configs: dict[str, str] = field(default_factory=dict)


class Admin(Client):
    """See the module."""

    def __init__(self, cell: Cell, name: str, plans: list[TopicPlan], kinds: list[str]) -> None:
        super().__init__(cell, name)
        self._plans = {plan.name: plan for plan in plans}
        self._kinds = kinds
        self._scratch_count = 0
        self._is_stopped = False
        self.is_settled = True

    # The beginning

    def make_topics(self, on_done: Callable[[], None]) -> None:
        """Ask until all topics are there."""
        image = self.cell.store.image
        missing = [
            plan for plan in self._plans.values() if plan.name not in image.topics_of("default")
        ]
        ready = [broker for broker in image.brokers.values() if not broker.is_fenced]
        if not missing:
            on_done()
            return
        started = [node for node in self.cell.nodes.values() if node.is_on]
        if len(ready) == len(started):
            request = CreateTopicsRequest(topics=[self._new(plan) for plan in missing])
            self.ask(self.any_node(), ApiKey.CREATE_TOPICS, request, self._made)
        self.world.at(RETRY_MS * US_PER_MS, self.make_topics, on_done)

    @staticmethod
    def _new(plan: TopicPlan) -> CreatableTopic:
        return CreatableTopic(
            name=plan.name,
            num_partitions=plan.partitions,
            replication_factor=plan.replicas,
            configs=[
                CreatableTopicConfig(name=name, value=value) for name, value in plan.configs.items()
            ],
        )

    def _made(self, response: Any) -> None:
        for topic in [] if response is None else response.topics:
            if topic.error_code:
                self.world.note(self.name, f"{topic.name}: {ErrorCode(topic.error_code).name}")

    # Changes

    def start(self) -> None:
        """Change things from now on."""
        if self._kinds:
            self._next()

    def stop(self) -> None:
        self._is_stopped = True

    def _next(self) -> None:
        delay_ms = self.random.expovariate(1 / INTERVAL_MS) + 50
        self.world.at(int(delay_ms * US_PER_MS), self._change)

    def _change(self) -> None:
        if self._is_stopped:
            return
        kind = self.random.choice(self._kinds)
        self.world.count(f"admin {kind}")
        actions: dict[str, Callable[[], None]] = {
            "scratch topics": self._scratch,
            "partitions": self._add_partitions,
            "configs": self._alter_config,
            "reassignments": self._reassign,
            "elections": self._elect,
            "delete records": self._delete_records,
            "drains": self._drain,
        }
        actions[kind]()
        self._next()

    def _ignore(self, response: Any) -> None:
        """Whatever it says: the image is what counts."""

    def _send(self, api_key: ApiKey, request: Any) -> None:
        self.ask(self.any_node(), api_key, request, self._ignore)

    def _topic(self) -> str:
        return self.random.choice(sorted(self._plans))

    def _scratch(self) -> None:
        image = self.cell.store.image
        old = sorted(name for name in image.topics_of("default") if name.startswith("scratch"))
        if len(old) >= (1 if "bundles" in self.cell.extras else 2):
            self.world.count("scratch topics deleted")
            name = self.random.choice(old)
            self._send(
                ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
            )
            return
        self._scratch_count += 1
        replicas = self.random.randint(1, 3)
        plan = TopicPlan(f"scratch{self._scratch_count}", 1, replicas)
        self._send(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[self._new(plan)]))

    def _add_partitions(self) -> None:
        name = self._topic()
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is not None and len(topic.partitions) < 4:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=len(topic.partitions) + 1)]
            )
            self._send(ApiKey.CREATE_PARTITIONS, request)

    def _alter_config(self) -> None:
        name = self._topic()
        key, values = self.random.choice(
            (
                ("segment.ms", ("600", "60000")),
                ("flush.messages", ("1", "9223372036854775807")),
                ("max.message.bytes", ("1048588", "2097164")),
            )
        )
        value = self.random.choice(values)
        config = AlterableConfig(name=key, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config]
        )
        self._send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource])
        )

    def _drain(self) -> None:
        """Empty a broker, or take it back; only where there are others to take its replicas."""
        if len(self.cell.nodes) > 3:
            self.set_draining(self.random.choice(self.cell.node_ids), self.random.random() < 0.5)

    def set_draining(self, node_id: int, is_draining: bool) -> None:
        value = "true" if is_draining else "false"
        config = AlterableConfig(name="broker.drain", config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node_id), configs=[config]
        )
        self._send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource])
        )

    def _reassign(self) -> None:
        name = self._topic()
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is None:
            return
        index = self.random.randrange(len(topic.partitions))
        count = self._plans[name].replicas
        replicas: list[int] | None = self.random.sample(self.cell.node_ids, count)
        if self.random.random() < 0.1:
            replicas = None
        piece = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[piece])]
        )
        self._send(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)

    def _elect(self) -> None:
        name = self._topic()
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=name, partitions=[0, 1])]
        )
        self._send(ApiKey.ELECT_LEADERS, request)

    def _delete_records(self) -> None:
        name = self._topic()
        info = self.topics.get(name)
        leader = self.leader(name, 0)
        if info is None or leader is None or leader.leader < 0:
            self.refresh_metadata()
            return
        partition = self.cell.history.partitions.get((info.topic_id, 0))
        if partition is None or not partition.end_offset:
            return
        offset = self.random.randrange(partition.end_offset)
        self.cell.history.retention.deletion_asked(partition.key, offset)
        piece = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[piece])], timeout_ms=1000
        )
        self.ask(leader.leader, ApiKey.DELETE_RECORDS, request, self._ignore)
