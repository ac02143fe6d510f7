"""A broker that leads or follows partitions of several replicas; the test plays the others.

Broker 7 is the one that answers. The image has brokers 7, 8 and 9 in racks a, b and c, each
registered with its broker epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from data_plane.broker.replicas.isr_changes import IsrManager
from data_plane.cell.changes import Change, ChangePartition, CreateTopic, RegisterBroker
from data_plane.cell.metadata import BrokerImage, PartitionImage
from data_plane.replica.partition import Partition
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, BrokerPlayer, Pending, values_of

TOPIC_ID = UUID(int=5)
OTHERS = (8, 9)
RACKS = {NODE_ID: "a", 8: "b", 9: "c"}


class ReplicatedPlayer(BrokerPlayer):
    """See the module. The topic `orders` has one partition with replicas 7, 8, 9."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        replicas: tuple[int, ...] = (NODE_ID, *OTHERS),
        partitions_count: int = 1,
    ) -> None:
        super().__init__({"min.insync.replicas": "2", **(properties or {})})
        self.isr = IsrManager(self.services)
        self.isr.start(self.now_ms)
        self.services.components.append(self.isr)
        for node_id, rack in RACKS.items():
            self.commit(
                RegisterBroker(
                    BrokerImage(node_id, f"host-{node_id}", 9000 + node_id, rack, is_fenced=False)
                )
            )
        self.commit(
            CreateTopic(
                "default",
                "orders",
                TOPIC_ID,
                (replicas,) * partitions_count,
                tuple((configs or {}).items()),
            )
        )
        self.door = self.connect(is_inter_broker=True)

    def commit(self, *changes: Change) -> None:
        """Another broker's commit, which this one sees at once."""
        store = self.services.store
        image = store.apply(changes, self.services.image.version, f"r{store.read().version}")
        self.services.apply_image(image, self.now_ms)
        self.services.wakes.run(self.now_ms)

    @property
    def state(self) -> PartitionImage:
        return self.services.image.topics_by_id[TOPIC_ID].partitions[0]

    def change(self, *, topic_id: UUID = TOPIC_ID, index: int = 0, **fields: Any) -> None:
        """Change the partition's state; a leader epoch follows from a new leader."""
        old = self.services.image.topics_by_id[topic_id].partitions[index]
        new = replace(old, **fields)
        new = replace(
            new,
            leader_epoch=old.leader_epoch + (new.leader != old.leader),
            partition_epoch=old.partition_epoch + 1,
        )
        self.commit(ChangePartition(topic_id, index, new))

    @property
    def replica(self) -> Partition:
        return self.replica_at(0)

    def replica_at(self, index: int) -> Partition:
        partition = self.services.partitions.replica(TOPIC_ID, index)
        assert partition is not None
        return partition

    def broker_epoch(self, node_id: int) -> int:
        return self.services.image.brokers[node_id].broker_epoch

    def catch_up_on(self, topic_id: UUID, node_ids: Iterable[int], offset: int | None) -> None:
        """These brokers have partition 0 of a topic up to `offset`, or all of it, and say so."""
        replica = self.services.partitions.replica(topic_id, 0)
        assert replica is not None
        state = self.services.image.topics_by_id[topic_id].partitions[0]
        for node_id in node_ids:
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[])
            request.replica_state.replica_id = node_id
            request.replica_state.replica_epoch = self.broker_epoch(node_id)
            request.session_epoch = -1
            piece = FetchPartition(
                partition=0,
                fetch_offset=replica.log.log_end_offset if offset is None else offset,
                partition_max_bytes=1 << 20,
                current_leader_epoch=state.leader_epoch,
                log_start_offset=0,
            )
            request.topics.append(FetchTopic(topic_id=topic_id, partitions=[piece]))
            self.send(ApiKey.FETCH, 18, request, connection=self.door)
        self.run_jobs()

    def follow(
        self,
        node_id: int,
        offset: int | None,
        *,
        index: int = 0,
        session: tuple[int, int] = (0, -1),
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        last_epoch: int = -1,
        max_wait_ms: int = 0,
        version: int = 18,
        bytes_max: int = 1 << 20,
        log_start_offset: int = 0,
    ) -> Pending:
        """A fetch of another broker; `offset` None names no partition (in a session)."""
        if broker_epoch is None:
            broker_epoch = self.broker_epoch(node_id)
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[])
        request.replica_state.replica_id = node_id
        request.replica_state.replica_epoch = broker_epoch
        request.session_id, request.session_epoch = session
        if offset is not None:
            piece = FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=bytes_max,
                current_leader_epoch=(
                    self.state.leader_epoch if leader_epoch is None else leader_epoch
                ),
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start_offset,
            )
            request.topics.append(FetchTopic(topic_id=TOPIC_ID, partitions=[piece]))
        return self.send(ApiKey.FETCH, version, request, connection=self.door)

    def catch_up(self, *node_ids: int) -> None:
        """These brokers have all there is, and say so."""
        for node_id in node_ids or OTHERS:
            self.follow(node_id, self.replica.log.log_end_offset)


def part(pending: Pending) -> Any:
    """The only partition of a Fetch answer; None when there is none."""
    responses = pending.response.responses
    return responses[0].partitions[0] if responses else None


def records(pending: Pending) -> list[tuple[int, bytes | None]]:
    """(offset, value) of what a Fetch of one partition brought."""
    return values_of(part(pending).records)


def produced(pending: Pending) -> Any:
    """The only partition of a Produce answer."""
    return pending.response.responses[0].partition_responses[0]
