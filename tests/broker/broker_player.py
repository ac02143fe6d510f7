"""A broker without server: requests in, decoded responses out, with a clock that stands still.

The handlers are the real ones over real logs on the simulated disk. File work queues up in
`executor` until `run_jobs`; time passes only in `pass_time`. Requests go through the dispatcher as
bytes, so codecs and response encoders are part of every test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.cell.metadata_writer import MetadataWriter
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.broker.fetch import (
    describe_delayed,
    fetch_handler,
    list_offsets,
    offset_for_leader_epoch,
)
from data_plane.broker.fetch.open_fetches import OpenFetches
from data_plane.broker.produce import init_producer_id, produce_handler
from data_plane.broker.produce.init_producer_id import ProducerIds
from data_plane.broker.replicas.fsync_batches import RETRY_MS, GroupCommit
from data_plane.broker.replicas.topic_partitions import TopicPartitions
from data_plane.broker.request import api_versions
from data_plane.broker.request.api import ConnectionInfo, Deferred, HandlerTable
from data_plane.broker.request.authorizer import ALLOW_EVERYONE
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.broker.request.metrics import BrokerCollector, BrokerCounters, make_registry
from data_plane.broker.request.wall_clock import WallClock
from data_plane.broker.services import Services
from data_plane.cell.changes import (
    AlterConfigs,
    Change,
    CreateTopic,
    DeleteTopic,
    UpdateFeature,
)
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.metadata_store import InMemoryMetadataStore
from data_plane.cell.tenants import DEFAULT_TENANT, PutTenant, TenantImage
from data_plane.log.fold import FoldFactory
from data_plane.log.manager import LogManager
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.partition import Partition
from data_plane.wire.compression import Compression
from data_plane.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from data_plane.wire.messages.fetch_request import FetchPartition as FetchPartitionRequest
from data_plane.wire.messages.fetch_request import FetchRequest, FetchTopic, ForgottenTopic
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.records import NewRecord, build_batch, decode_batch
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.doubles import NOW_MS as NOW_MS
from tests.broker.doubles import QueueExecutor as QueueExecutor
from tests.broker.doubles import RememberingLog

NODE_ID = 7
CORRELATION_ID = 4711
# Far more than any test has to do at a time.
JOBS_MAX = 20_000


class Pending:
    """A request that was sent: its answer, once there is one."""

    def __init__(self, api_key: ApiKey, version: int) -> None:
        self._api_key = api_key
        self._version = version
        self.frames: list[Any] | None = None

    @property
    def is_answered(self) -> bool:
        return self.frames is not None

    def take(self, frames: Any) -> None:
        assert self.frames is None
        self.frames = list(frames)

    @property
    def response(self) -> Any:
        assert self.frames is not None, "not answered yet"
        data = b"".join(bytes(buffer) for buffer in self.frames)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        reader = Reader(data, 4)
        assert decode_response_header(reader, self._api_key, self._version) == CORRELATION_ID
        spec = API_BY_KEY[self._api_key]
        message = spec.decode_response(reader, self._version)
        assert reader.pos == len(data), "bytes follow the response"
        return message


def _hot_handlers() -> HandlerTable:
    handlers = HandlerTable()
    for module in (
        api_versions,
        produce_handler,
        fetch_handler,
        list_offsets,
        offset_for_leader_epoch,
        describe_delayed,
        init_producer_id,
    ):
        module.register(handlers)
    return handlers


class BrokerPlayer:
    """One broker with the APIs of the hot path."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        seed: int = 1,
        disk: SimFileSystem | None = None,
        image: MetadataImage | None = None,
        node_id: int = NODE_ID,
        topics: TopicProperties = KAFKA_TOPIC_PROPERTIES,
        fold_factories: Sequence[FoldFactory] = (),
    ) -> None:
        self.fs = disk or SimFileSystem(maps_files=True)
        self.executor = QueueExecutor()
        self.log = RememberingLog()
        self.now_ms = NOW_MS
        image = image or MetadataImage("cluster")
        config = EffectiveConfig(properties or {}, node_id, topics)
        self.logs = LogManager(
            [Path("/data")],
            fs=self.fs,
            default_config=config.log_config({}),
            now_ms=NOW_MS,
            fold_factories=fold_factories,
        )
        assert self.logs.start(NOW_MS) == []
        group_commit = GroupCommit(
            self.executor, lambda _: Path("/data"), self._sync_failed, self._retry_sync
        )
        counters = BrokerCounters()
        wall_clock = WallClock()
        partitions = TopicPartitions(
            node_id,
            image,
            self.logs,
            config,
            group_commit.request_sync,
            wall_clock,
            self.executor,
        )
        partitions.configure_logs()
        self.services = Services(
            config=config,
            store=InMemoryMetadataStore(image),
            image=image,
            logs=self.logs,
            partitions=partitions,
            handlers=_hot_handlers(),
            executor=self.executor,
            counters=counters,
            metrics=make_registry(BrokerCollector(counters)),
            node_id=node_id,
            cluster_id="cluster",
            random=random.Random(seed),
            log=self.log,
            wall_clock=wall_clock,
        )
        self.services.metadata = MetadataWriter(self.services, lambda: self.now_ms)
        self.services.producer_ids = ProducerIds(self.services)
        self.sessions = OpenFetches(self.services)
        self.services.fetches = self.sessions
        self.dispatcher = Dispatcher(self.services)
        self.close_reasons: list[str] = []
        self.connection = self.connect()

    def connect(self, *, is_inter_broker: bool = False) -> ConnectionInfo:
        return ConnectionInfo(
            1,
            "peer:1",
            "tenants",
            "peer",
            1,
            close=self.close_reasons.append,
            is_inter_broker=is_inter_broker,
        )

    # Metadata

    def create_topic(
        self,
        name: str,
        partitions_count: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> UUID:
        topic_id = UUID(int=self.services.random.getrandbits(128))
        image = self.services.store.apply(
            (
                CreateTopic(
                    tenant,
                    name,
                    topic_id,
                    ((NODE_ID,),) * partitions_count,
                    tuple((configs or {}).items()),
                ),
            ),
            self.services.image.version,
            f"create {name} {topic_id}",
        )
        self.services.apply_image(image, self.now_ms)
        return topic_id

    def delete_topic(self, topic_id: UUID) -> None:
        image = self.services.store.apply(
            (DeleteTopic(topic_id),), self.services.image.version, f"delete {topic_id}"
        )
        self.services.apply_image(image, self.now_ms)

    def make_tenant(self, name: str) -> None:
        """A tenant, whose connections have its name as namespace."""
        self.services.handlers.guards.update(GUARDS)
        changes: list[Change] = []
        image = self.services.store.read()
        if image.metadata_level < TENANCY_LEVEL:
            changes.append(UpdateFeature(METADATA_VERSION, TENANCY_LEVEL))
        settings = {ALLOW_EVERYONE: "true"}
        changes.append(PutTenant(TenantImage(name, f"{name}-cluster", settings=settings)))
        image = self.services.store.apply(changes, image.version, f"make {name} {image.version}")
        self.services.apply_image(image, self.now_ms)

    def configure_topic(self, name: str, *, tenant: str = DEFAULT_TENANT, **configs: str) -> None:
        values = tuple((key.replace("_", "."), value) for key, value in configs.items())
        image = self.services.store.apply(
            (AlterConfigs(tenant, ResourceType.TOPIC, name, values),),
            self.services.image.version,
            f"configure {name} {self.services.image.version}",
        )
        self.services.apply_image(image, self.now_ms)

    def partition(self, topic: str, index: int = 0, *, tenant: str = DEFAULT_TENANT) -> Partition:
        partition = self.services.partitions.get_by_name(tenant, topic, index)
        assert partition is not None
        return partition

    # Requests

    def send(
        self,
        api_key: ApiKey,
        version: int,
        message: Any,
        *,
        connection: ConnectionInfo | None = None,
        client_id: str | None = "tester",
    ) -> Pending:
        """Dispatch one request and end the pass."""
        writer = Writer()
        encode_request_header(
            writer,
            RequestHeader(
                api_key=int(api_key),
                api_version=version,
                correlation_id=CORRELATION_ID,
                client_id=client_id,
            ),
        )
        API_BY_KEY[api_key].encode_request(writer, message, version)
        return self.send_bytes(api_key, version, writer.buf, connection=connection)

    def send_bytes(
        self,
        api_key: ApiKey,
        version: int,
        data: bytearray,
        *,
        connection: ConnectionInfo | None = None,
    ) -> Pending:
        pending = Pending(api_key, version)
        result = self.dispatcher.dispatch(
            connection or self.connection, data, 0, len(data), self.now_ms
        )
        if isinstance(result, Deferred):
            result.when_complete(pending.take)
        elif result is not None:
            pending.take(result)
        self.services.wakes.run(self.now_ms)
        return pending

    def ask(self, api_key: ApiKey, version: int, message: Any, **options: Any) -> Any:
        """Send, do the file work, follow the image that comes of it, and return the decoded
        response."""
        pending = self.send(api_key, version, message, **options)
        self.run_jobs()
        while not self.services.images.is_settled:
            self.pass_time(1)
            self.run_jobs()
        return pending.response

    def answered(self, pending: Pending) -> Pending:
        """With the answer, if it waits for worker threads only."""
        if not pending.is_answered:
            self.run_jobs()
        return pending

    def run_jobs(self) -> None:
        for _ in range(JOBS_MAX):
            if not self.executor.queue:
                return
            self.executor.run_one()
            self.services.wakes.run(self.now_ms)
        raise AssertionError("work for threads makes more of it without end")

    def _sync_failed(self, partition: Partition, error: BaseException) -> None:
        self.log.error("sync_failed", error=error)

    def _retry_sync(self, again: Callable[[], None]) -> None:
        self.services.timers.schedule(self.now_ms + RETRY_MS, lambda _: again())

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.services.tick(self.now_ms)

    def produce(
        self,
        topic: str,
        values: list[bytes],
        *,
        index: int = 0,
        version: int = 12,
        acks: int = -1,
        batch: bytes | bytearray | None = None,
        **options: Any,
    ) -> Pending:
        """One batch of records with `values`, or `batch` as it is."""
        data = batch if batch is not None else make_batch(values)
        topic_data = TopicProduceData(
            partition_data=[PartitionProduceData(index=index, records=bytes(data))]
        )
        if version >= 13:
            image = self.services.image.topics_of("default").get(topic)
            topic_data.topic_id = UUID(int=99) if image is None else image.topic_id
        else:
            topic_data.name = topic
        request = ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[topic_data]
        )
        return self.send(ApiKey.PRODUCE, version, request, **options)

    def fetch(
        self,
        wanted: Mapping[tuple[str, int], int] | None = None,
        *,
        version: int = 12,
        session_id: int = 0,
        session_epoch: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation_level: int = 0,
        replica_id: int = -1,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        rack_id: str = "",
        forgotten: list[tuple[str, int]] | None = None,
        connection: ConnectionInfo | None = None,
    ) -> Pending:
        """Fetch `wanted`: {(topic, index): offset}."""
        topics: dict[str, FetchTopic] = {}
        for (name, index), offset in (wanted or {}).items():
            topic = topics.get(name)
            if topic is None:
                topic = FetchTopic(partitions=[])
                self._name(topic, name, version)
                topics[name] = topic
            piece = FetchPartitionRequest(
                partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
            if version >= 9:
                piece.current_leader_epoch = current_leader_epoch
            if version >= 12:
                piece.last_fetched_epoch = last_fetched_epoch
            topic.partitions.append(piece)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=list(topics.values()),
        )
        if version >= 15:
            request.replica_state.replica_id = replica_id
        else:
            request.replica_id = replica_id
        if version >= 11:
            request.rack_id = rack_id
        if version >= 7:
            request.session_id = session_id
            request.session_epoch = session_epoch
        for name, index in forgotten or []:
            gone = ForgottenTopic(partitions=[index])
            self._name(gone, name, version)
            request.forgotten_topics_data.append(gone)
        return self.send(ApiKey.FETCH, version, request, connection=connection)

    def _name(self, topic: Any, name: str, version: int) -> None:
        if version >= 13:
            image = self.services.image.topics_of("default").get(name)
            topic.topic_id = UUID(int=99) if image is None else image.topic_id
        else:
            topic.topic = name


def make_batch(values: list[bytes], **options: Any) -> bytearray:
    """A batch as a client sends it."""
    timestamp = options.pop("timestamp", NOW_MS)
    records = [NewRecord(timestamp, None, value) for value in values]
    return build_batch(records, compression=options.pop("compression", Compression.NONE), **options)


def values_of(records: Any) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records in a fetch answer's records."""
    data = bytes(records or b"")
    found: list[tuple[int, bytes | None]] = []
    position = 0
    while position < len(data):
        found += [(record.offset, record.value) for record in decode_batch(data, position)]
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found
