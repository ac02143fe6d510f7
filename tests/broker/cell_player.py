"""Several brokers without servers: real handlers, logs and replication, and a network in between
that delivers when the test says so.

One image for all of them; there is no controller, the test decides who leads. The network carries
requests and answers as bytes, in order for each pair of brokers.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from data_plane.broker.replicas.replication import ReplicationManager
from data_plane.broker.request.api import Buffer, ConnectionInfo, Deferred
from data_plane.broker.request.peers import OnResponse
from data_plane.cell.features import newest_levels
from data_plane.cell.metadata import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from data_plane.cell.topics_draft import by_tenant
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.fetch_session import API_KEY, API_VERSION
from data_plane.replica.partition import Partition
from data_plane.server.features import Feature, supported_features, topic_properties
from data_plane.wire.kernel import parse_fetch
from data_plane.wire.kernel_types import FetchRequestView
from tests.broker.broker_player import BrokerPlayer

TOPIC = "orders"
TOPIC_ID = UUID(int=5)
ANSWER_HEADER_BYTES = 9


def _request_header(api_key: int, api_version: int) -> bytes:
    """Correlation id 9, no client id, no tags; the answer's header has ANSWER_HEADER_BYTES."""
    return struct.pack(">hhihb", api_key, api_version, 9, -1, 0)


class _Slot:
    """The place of an answer on a connection."""

    def __init__(self, on_response: OnResponse) -> None:
        self.on_response = on_response
        self.answer: bytes | None = None


class PlayedPeers:
    """The Peers port of one broker."""

    def __init__(self, cell: CellPlayer, node_id: int) -> None:
        self._cell = cell
        self._node_id = node_id
        self._connections: dict[int, ConnectionInfo] = {}
        # Requests without an answer, by peer.
        self._open: dict[int, list[OnResponse]] = {}
        # Of each connection, the requests that have arrived, in order.
        self._slots: dict[int, deque[_Slot]] = {}
        self.requests: list[tuple[int, FetchRequestView]] = []
        self.disconnects: list[int] = []
        self._is_dead = False

    def send(
        self,
        node_id: int,
        api_key: int,
        api_version: int,
        body: Sequence[Buffer],
        on_response: OnResponse,
    ) -> None:
        data = b"".join(bytes(buffer) for buffer in body)
        if (api_key, api_version) == (API_KEY, API_VERSION):
            self.requests.append((node_id, parse_fetch(data, 0, len(data), api_version)))
        self._open.setdefault(node_id, []).append(on_response)
        frame = _request_header(api_key, api_version) + data
        self._cell.events.append(lambda: self._arrive(node_id, frame, on_response))

    def _arrive(self, node_id: int, data: bytes, on_response: OnResponse) -> None:
        cell = self._cell
        if on_response not in self._open[node_id]:
            return
        if frozenset((self._node_id, node_id)) in cell.cuts:
            self._lose(node_id)
            return
        target = cell.brokers[node_id]
        connection = self._connections.get(node_id)
        if connection is None:
            connection = target.connect(is_inter_broker=True)
            self._connections[node_id] = connection
        frame = bytearray(data)
        result = target.dispatcher.dispatch(connection, frame, 0, len(frame), cell.now_ms)

        slots = self._slots.setdefault(node_id, deque())
        slot = _Slot(on_response)
        slots.append(slot)

        def answered(frames: Any) -> None:
            slot.answer = b"".join(bytes(buffer) for buffer in frames)
            # What is not ready holds up what is behind it.
            while slots and slots[0].answer is not None:
                self._answer_later(node_id, slots.popleft())

        if isinstance(result, Deferred):
            result.when_complete(answered)
        else:
            answered(result)
        target.services.wakes.run(cell.now_ms)

    def _answer_later(self, node_id: int, slot: _Slot) -> None:
        answer = slot.answer
        assert answer is not None
        self._cell.events.append(lambda: self._answer(node_id, slot.on_response, answer))

    def _answer(self, node_id: int, on_response: OnResponse, answer: bytes) -> None:
        cell = self._cell
        if on_response not in self._open[node_id]:
            return
        if frozenset((self._node_id, node_id)) in cell.cuts:
            self._lose(node_id)
            return
        self._open[node_id].remove(on_response)
        for spoil in cell.spoilers:
            answer = spoil(answer)
        # What was not copied or written away within the call is lost.
        buffer = bytearray(answer[ANSWER_HEADER_BYTES:])
        on_response(memoryview(buffer), cell.now_ms)
        buffer[:] = b"\xee" * len(buffer)
        cell.brokers[self._node_id].services.wakes.run(cell.now_ms)

    def _lose(self, node_id: int) -> None:
        """The connection and all that was asked over it."""
        self._connections.pop(node_id, None)
        self._slots.pop(node_id, None)
        lost, self._open[node_id] = self._open[node_id], []
        self._fail(lost)

    def _fail(self, lost: Sequence[OnResponse]) -> None:
        if self._is_dead:
            return
        for on_response in lost:
            on_response(None, self._cell.now_ms)
        self._cell.brokers[self._node_id].services.wakes.run(self._cell.now_ms)

    def disconnect(self, node_id: int) -> None:
        self.disconnects.append(node_id)
        self._connections.pop(node_id, None)
        self._slots.pop(node_id, None)
        lost, self._open[node_id] = self._open.get(node_id, []), []
        self._cell.events.append(lambda: self._fail(lost))

    def die(self) -> None:
        """This broker's process has ended: nobody waits for answers."""
        self._is_dead = True
        for waiting in self._open.values():
            waiting.clear()


class CellPlayer:
    """Brokers 1 … n and one topic, whose partitions broker 1 leads at first."""

    def __init__(
        self,
        brokers_count: int = 2,
        partitions_count: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        features: Sequence[Feature] = (),
    ) -> None:
        """Brokers have `features`, at their newest levels."""
        ids = tuple(range(1, brokers_count + 1))
        partition = PartitionImage(ids, ids, 1)
        topic = TopicImage(
            "default", TOPIC, TOPIC_ID, (partition,) * partitions_count, dict(configs or {})
        )
        image = MetadataImage(
            "cluster",
            version=1,
            brokers={
                i: BrokerImage(i, "h", 1, None, f"host-{i}", 9, broker_epoch=10 + i) for i in ids
            },
            topics_by_tenant=by_tenant([topic]),
            topics_by_id={TOPIC_ID: topic},
            features=newest_levels(supported_features(features)) if features else {},
        )
        self.events: deque[Callable[[], None]] = deque()
        self.cuts: set[frozenset[int]] = set()
        self.spoilers: list[Callable[[bytes], bytes]] = []
        self.brokers: dict[int, BrokerPlayer] = {}
        self.peers: dict[int, PlayedPeers] = {}
        # Those of features, which have connections of their own.
        self.feature_peers: dict[int, PlayedPeers] = {}
        self.managers: dict[int, ReplicationManager] = {}
        self.image = image
        self._properties = properties
        self._features = features
        for node_id in ids:
            self._make_broker(node_id, None)
        for broker in self.brokers.values():
            broker.services.start(self.now_ms)
            broker.services.wakes.run(self.now_ms)

    def _make_broker(self, node_id: int, disk: SimFileSystem | None) -> BrokerPlayer:
        broker = BrokerPlayer(
            self._properties,
            image=self.image,
            node_id=node_id,
            seed=node_id,
            disk=disk,
            topics=topic_properties(self._features),
            fold_factories=[make for one in self._features for make in one.fold_factories],
        )
        services = broker.services
        self.brokers[node_id] = broker
        self.peers[node_id] = services.peers = PlayedPeers(self, node_id)
        self.feature_peers[node_id] = services.feature_peers = PlayedPeers(self, node_id)
        manager = self.managers[node_id] = ReplicationManager(services)
        services.components.append(manager)
        for feature in self._features:
            if feature.plug_in is not None:
                feature.plug_in(services)
        return broker

    def restart(self, node_id: int, *, is_clean: bool) -> BrokerPlayer:
        """The next life of a broker, with its disk as it is, at the same time and with the image of
        the cell. What it did not write is lost, and so is what was under way to it and from it."""
        before = self.brokers[node_id]
        if is_clean:
            before.services.stop(self.now_ms)
            before.logs.close(self.now_ms)
        before.fs.process_death()
        for peers in (self.peers, self.feature_peers):
            peers[node_id].die()
            for other_id, one in peers.items():
                if other_id != node_id:
                    one.disconnect(node_id)
        broker = self._make_broker(node_id, before.fs)
        broker.now_ms = before.now_ms
        broker.services.start(broker.now_ms)
        broker.services.wakes.run(broker.now_ms)
        return broker

    @property
    def now_ms(self) -> int:
        return self.brokers[1].now_ms

    # The image.

    def change(
        self,
        index: int = 0,
        *,
        only: Sequence[int] | None = None,
        topic_id: UUID = TOPIC_ID,
        **fields: Any,
    ) -> None:
        """Change a partition of the image. `only`: the brokers that hear of it now."""
        partition = self.image.topics_by_id[topic_id].partitions[index]
        if "leader" in fields:
            fields.setdefault("leader_epoch", partition.leader_epoch + 1)
        fields["partition_epoch"] = partition.partition_epoch + 1
        self._change_topic(topic_id, index, replace(partition, **fields))
        self.tell(only)

    def _change_topic(self, topic_id: UUID, index: int, partition: PartitionImage) -> None:
        topic = self.image.topics_by_id[topic_id]
        partitions = (*topic.partitions[:index], partition, *topic.partitions[index + 1 :])
        self._put_topic(replace(topic, partitions=partitions))

    def add_topic(self, topic: TopicImage) -> None:
        """One more, beside the first."""
        self._put_topic(topic)
        self.tell()

    def _put_topic(self, topic: TopicImage) -> None:
        topics = {**self.image.topics_by_id, topic.topic_id: topic}
        self.image = replace(
            self.image,
            version=self.image.version + 1,
            topics_by_tenant=by_tenant(topics.values()),
            topics_by_id=topics,
        )

    def change_broker(self, node_id: int, **fields: Any) -> None:
        brokers = dict(self.image.brokers)
        brokers[node_id] = replace(brokers[node_id], **fields)
        self.image = replace(self.image, version=self.image.version + 1, brokers=brokers)
        self.tell()

    def change_configs(self, configs: Mapping[Any, Mapping[str, str]]) -> None:
        self.image = replace(self.image, version=self.image.version + 1, configs=dict(configs))
        self.tell()

    def delete_topic(self) -> None:
        self.image = replace(
            self.image, version=self.image.version + 1, topics_by_tenant={}, topics_by_id={}
        )
        self.tell()

    def tell(self, only: Sequence[int] | None = None) -> None:
        for node_id, broker in self.brokers.items():
            if only is None or node_id in only:
                broker.services.apply_image(self.image, self.now_ms)
                broker.services.wakes.run(self.now_ms)

    # Time and the network.

    def deliver(self, count: int = 1) -> None:
        """Let so many requests or answers arrive."""
        for _ in range(count):
            self.events.popleft()()

    def run(self, duration_ms: int = 0, *, syncs: bool = True) -> None:
        """Let everything arrive that is under way, and file work be done, for so long."""
        while True:
            for _ in range(10_000):
                if syncs:
                    for broker in self.brokers.values():
                        broker.run_jobs()
                if not self.events:
                    break
                self.deliver()
            else:
                raise AssertionError("requests go to and fro without an end")
            if duration_ms <= 0:
                return
            duration_ms -= 1
            for broker in self.brokers.values():
                broker.pass_time(1)

    # What there is.

    def replica(self, node_id: int, index: int = 0, *, topic_id: UUID = TOPIC_ID) -> Partition:
        replica = self.brokers[node_id].services.partitions.replica(topic_id, index)
        assert replica is not None
        return replica

    def stored(self, node_id: int, index: int = 0) -> list[tuple[int, int]]:
        """(offset, leader epoch) of each batch, as on disk."""
        log = self.replica(node_id, index).log
        found = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read_cold(
                offset, 1 << 20, max_offset=log.log_end_offset, at_least_one_batch=True
            )
            data = b"".join(bytes(buffer) for buffer in read.buffers)
            position = 0
            while position < len(data):
                base, length, epoch = struct.unpack_from(">qii", data, position)
                found.append((base, epoch))
                position += 12 + length
            offset = read.next_offset
        return found

    def requests_of(self, node_id: int) -> list[FetchRequestView]:
        return [view for _, view in self.peers[node_id].requests]

    def warnings(self, node_id: int) -> list[dict[str, Any]]:
        log = self.brokers[node_id].log
        return [fields for level, _, fields in log.events if level in ("warning", "error")]
