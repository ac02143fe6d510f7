"""What all simulated clients have in common: connections, timeouts, metadata.

As librdkafka and the Java client do it: requests of one connection are pipelined and answered in
order; a request without an answer in time closes the connection, so that everything else on it is
lost, too; metadata with an older leader epoch than one already seen is not believed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.registry import ApiKey
from tests.simulation.network import End
from tests.simulation.requests import decode_response, encode_request
from tests.simulation.world import US_PER_MS, Event, World

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

CLIENT_PORT = 9092
INTER_BROKER_PORT = 9093
SASL_PORT = 9094
REQUEST_TIMEOUT_MS = 1500
# Longer than anybody is muted.
MUTED_TIMEOUT_MS = 40_000
METADATA_RETRY_MS = 60

# Gets the response, or None when there was none.
OnResponse = Callable[[Any], None]


@dataclass(slots=True)
class LeaderInfo:
    """Who leads a partition, as far as a client has heard."""

    leader: int
    epoch: int


@dataclass(slots=True)
class TopicInfo:
    """A topic as a client knows it."""

    topic_id: UUID
    partitions: dict[int, LeaderInfo] = field(default_factory=dict)


class Link:
    """One connection of a client to a broker, with the requests that wait for their answers."""

    def __init__(self, client: Client, host: str, timeout_ms: int) -> None:
        self._client = client
        self._world = client.world
        self._timeout_ms = timeout_ms
        self._pending: deque[tuple[ApiKey, int, int, OnResponse, int]] = deque()
        self._timer: Event | None = None
        self.end: End = client.cell.network.connect(client.name, host, client.port)
        self.end.on_frame = self._answered
        self.end.on_close = self._closed
        self.is_open = True
        # Of this client's connections.
        self.number = client.links_count = client.links_count + 1

    def send(
        self,
        api_key: ApiKey,
        message: Any,
        on_response: OnResponse,
        version: int | None = None,
    ) -> None:
        client = self._client
        client.correlation_id += 1
        frame, version = encode_request(
            api_key, message, client.correlation_id, client.name, version
        )
        deadline_us = self._world.now_us + self._timeout_ms * US_PER_MS
        self._pending.append((api_key, version, client.correlation_id, on_response, deadline_us))
        self.end.send(frame)
        if self._timer is None:
            self._timer = self._world.at(self._timeout_ms * US_PER_MS, self._check_timeout)

    def send_unanswered(self, api_key: ApiKey, message: Any) -> None:
        """A request that has no response (acks=0)."""
        client = self._client
        client.correlation_id += 1
        self.end.send(encode_request(api_key, message, client.correlation_id, client.name)[0])

    def close(self) -> None:
        """Give everything up."""
        self.end.close()
        self._closed()

    def _answered(self, frame: bytes) -> None:
        api_key, version, correlation_id, on_response, _ = self._pending.popleft()
        on_response(decode_response(api_key, version, frame, correlation_id))

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._pending:
            return
        left_us = self._pending[0][4] - self._world.now_us
        if left_us > 0:
            self._timer = self._world.at(left_us, self._check_timeout)
        else:
            self._world.count("client timeouts")
            self.close()

    def _closed(self) -> None:
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, deque()
        for _, _, _, on_response, _ in pending:
            on_response(None)


class Client:
    """A client with a name, connections and metadata. Subclasses do something with it."""

    request_timeout_ms = REQUEST_TIMEOUT_MS
    port = CLIENT_PORT

    def __init__(self, cell: Cell, name: str) -> None:
        self.cell = cell
        self.world: World = cell.world
        self.name = name
        self.random = cell.world.stream(name)
        if "quotas" in cell.extras and cell.is_peaceful:
            # Who has to wait for a quota, and makes a new connection instead, need not.
            self.request_timeout_ms = MUTED_TIMEOUT_MS
        self.correlation_id = 0
        self.links_count = 0
        self.topics: dict[str, TopicInfo] = {}
        self._links: dict[tuple[int, str], Link] = {}
        self._is_refreshing = False
        self._refresh_node = 0

    def link(self, node_id: int, purpose: str = "") -> Link:
        """The connection to a broker, made anew when it is gone. A long poll has its own
        purpose, so that it holds up nothing else."""
        link = self._links.get((node_id, purpose))
        if link is None or not link.is_open:
            link = Link(self, f"b{node_id}", self.request_timeout_ms)
            self._links[(node_id, purpose)] = link
        return link

    def ask(
        self,
        node_id: int,
        api_key: ApiKey,
        message: Any,
        on_response: OnResponse,
        purpose: str = "",
        version: int | None = None,
    ) -> None:
        """Send a request; `on_response(None)` when no answer came."""
        self.link(node_id, purpose).send(api_key, message, on_response, version)

    def any_node(self) -> int:
        """Some broker, perhaps one that is down."""
        return self.random.choice(self.cell.node_ids)

    def leader(self, topic: str, index: int) -> LeaderInfo | None:
        info = self.topics.get(topic)
        return None if info is None else info.partitions.get(index)

    # Metadata

    def named_topics(self) -> list[MetadataRequestTopic] | None:
        """Those that metadata is asked for by name; None: all that brokers tell of."""
        return None

    def refresh_metadata(self) -> None:
        """Ask some broker for the topics, unless that is being done."""
        if not self._is_refreshing:
            self._is_refreshing = True
            request = MetadataRequest(topics=self.named_topics(), allow_auto_topic_creation=False)
            self._refresh_node = self.any_node()
            self.ask(self._refresh_node, ApiKey.METADATA, request, self._took_metadata)

    def _took_metadata(self, response: Any) -> None:
        if response is None:
            self.world.at(METADATA_RETRY_MS * US_PER_MS, self._retry_metadata)
            return
        self._is_refreshing = False
        names: dict[str, None] = {}
        for topic in response.topics:
            if topic.error_code:
                continue
            names[topic.name] = None
            known = self.topics.get(topic.name)
            if known is None or known.topic_id != topic.topic_id:
                known = self.topics[topic.name] = TopicInfo(topic.topic_id)
            for partition in topic.partitions:
                before = known.partitions.get(partition.partition_index)
                if before is None or before.epoch <= partition.leader_epoch:
                    known.partitions[partition.partition_index] = LeaderInfo(
                        partition.leader_id, partition.leader_epoch
                    )
        for name in [name for name in self.topics if name not in names]:
            del self.topics[name]
        self.metadata_changed()

    def _retry_metadata(self) -> None:
        self._is_refreshing = False
        self.refresh_metadata()

    def metadata_changed(self) -> None:
        """For subclasses."""
