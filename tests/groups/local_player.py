"""Plays scripts against this project's handlers: in memory, with a virtual clock.

Everything but the log and the network is the real thing: request handlers, group service,
coordinator, metadata store. Requests and answers pass through the wire codecs.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry

from data_plane.broker.cell.metadata_writer import MetadataWriter
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.coordinators.group_handlers import register
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.coordinators.internal_topic import (
    BrokerInternalTopic,
    LoggedBatch,
    PartitionReader,
    Producer,
)
from data_plane.broker.coordinators.offsets_topic import OFFSETS_TOPIC
from data_plane.broker.request.api import ConnectionInfo, Deferred, HandlerTable, RequestContext
from data_plane.broker.request.metrics import BrokerCounters
from data_plane.broker.services import Services
from data_plane.cell.changes import ChangePartition, CreateTopic, DeleteTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import InMemoryMetadataStore
from data_plane.cell.partition_state import next_epochs
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME
from data_plane.log.errors import CorruptSegment
from data_plane.wire.errors import ErrorCode
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.records import NewRecord, Record
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.groups.player import Player
from tests.groups.scripts import BROKER_PROPERTIES

T = TypeVar("T")
NODE_ID = 1
START_MS = 1_700_000_000_000


class InlineExecutor:
    """Runs work at once."""

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        try:
            result = work()
        except Exception as error:
            on_done(None, error)
        else:
            on_done(result, None)


class RecordedLog:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = warning = error = debug


class NoPartitions:
    """Stands where the broker's partitions are; groups reach theirs through the topic port."""

    is_image_old = False
    has_work_left = False

    def apply_image(self, image: MetadataImage, now_ms: int) -> None:
        pass

    apply_step = apply_image


class MemoryOffsetsTopic(BrokerInternalTopic):
    """`__consumer_offsets` with its records in lists; creation goes through the real metadata.

    `hold` keeps appends from settling; `settle` lets the oldest ones go, with an error or without.
    Partitions in `unreadable` fail while they are read.
    """

    def __init__(self, services: Services) -> None:
        super().__init__(services, OFFSETS_TOPIC)
        self.records: dict[int, list[Record]] = {}
        self.hold = False
        self.fail_with = ErrorCode.NONE
        self.unreadable: frozenset[int] = frozenset()
        self.waiting: deque[tuple[int, Sequence[NewRecord], Callable[[ErrorCode], None]]] = deque()

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[NewRecord],
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
        producer: Producer | None = None,
    ) -> None:
        self.waiting.append((partition, records, on_done))
        if not self.hold:
            self.settle(self.fail_with)

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        while self.waiting:
            partition, records, on_done = self.waiting.popleft()
            if error is ErrorCode.NONE:
                log = self.records.setdefault(partition, [])
                for each in records:
                    log.append(Record(len(log), each.timestamp, each.key, each.value, ()))
            on_done(error)

    def when_committed(self, partition: int, on_done: Callable[[ErrorCode], None]) -> None:
        on_done(ErrorCode.NONE)

    def confirm_leading(
        self, partition: int, epoch: int, now_ms: int, on_done: Callable[[bool], None]
    ) -> None:
        on_done(True)

    def reader(self, partition: int) -> PartitionReader | None:
        return partial(self._read, partition)

    def _read(self, partition: int) -> Iterator[LoggedBatch]:
        if partition in self.unreadable:
            raise CorruptSegment(f"/data/{partition}", 0, "wrong checksum")
        return iter([LoggedBatch(list(self.records.get(partition, [])))])


class LocalBroker:
    """Services with nothing but groups in them, and a clock that tests move."""

    def __init__(
        self,
        properties: Mapping[str, str] = BROKER_PROPERTIES,
        *,
        store: InMemoryMetadataStore | None = None,
        records: dict[int, list[Record]] | None = None,
        unreadable: Iterable[int] = (),
        seed: int = 0,
        now_ms: int = START_MS,
    ) -> None:
        self.now_ms = now_ms
        self.store = store or InMemoryMetadataStore(MetadataImage(cluster_id="test"))
        self.log = RecordedLog()
        self._topic_count = 0
        self.services = Services(
            config=EffectiveConfig(properties, NODE_ID),
            store=self.store,
            image=self.store.read(),
            logs=cast(Any, None),
            partitions=cast(Any, NoPartitions()),
            handlers=HandlerTable(),
            executor=InlineExecutor(),
            counters=BrokerCounters(),
            metrics=CollectorRegistry(),
            node_id=NODE_ID,
            cluster_id="test",
            random=random.Random(seed),
            log=self.log,
        )
        self.services.metadata = MetadataWriter(self.services, lambda: self.now_ms)
        self.topic = MemoryOffsetsTopic(self.services)
        if records is not None:
            self.topic.records = records
        self.topic.unreadable = frozenset(unreadable)
        self.groups = GroupService(self.services, self.topic)
        self.services.groups = self.groups
        self.services.components.append(self.groups)
        register(self.services.handlers)
        self.services.start(self.now_ms)
        self.services.wakes.run(self.now_ms)

    def handle(self, api_key: ApiKey, version: int, request: Any, client_id: str = "c") -> Any:
        """The response or a Deferred of it; the request is decoded as from the wire."""
        spec = API_BY_KEY[api_key]
        writer = Writer()
        spec.encode_request(writer, request, version)
        entry = self.services.handlers.get(int(api_key))
        assert entry is not None
        assert entry.handler is not None
        assert entry.min_version <= version <= entry.max_version
        connection = ConnectionInfo(1, "127.0.0.1:50000", "PLAINTEXT", "127.0.0.1", 50000)
        names = self.services.namespaces.names[connection.namespace]
        context = RequestContext(int(api_key), version, 0, client_id, connection, names)
        decoded = spec.decode_request(Reader(writer.buf), version)
        result = entry.handler(self.services, context, decoded, self.now_ms)
        self.services.wakes.run(self.now_ms)
        return result

    def advance(self, duration_ms: int) -> None:
        """Let time pass; timers run when they are due."""
        end_ms = self.now_ms + duration_ms
        while True:
            deadline_ms = self.services.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.services.tick(self.now_ms)
        self.now_ms = end_ms

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let all held appends succeed or fail."""
        self.topic.settle(error)
        self.services.wakes.run(self.now_ms)

    def create_topic(self, name: str, partition_count: int) -> uuid.UUID:
        topic = self.services.image.topics_of("default").get(name)
        if topic is not None:
            return topic.topic_id
        change = self._new_topic(name, partition_count)
        self.services.metadata.write(lambda image: (change,), _no_error)
        return change.topic_id

    def delete_topic(self, name: str) -> None:
        topic_id = self.services.image.topics_of("default")[name].topic_id
        self.services.metadata.write(lambda image: (DeleteTopic(topic_id),), _no_error)
        self.services.wakes.run(self.now_ms)

    def make_topic_anew(self, name: str, partition_count: int) -> None:
        """Delete it and create another of its name, with no image between."""
        topic_id = self.services.image.topics_of("default")[name].topic_id
        changes = (DeleteTopic(topic_id), self._new_topic(name, partition_count))
        self.services.metadata.write(lambda image: changes, _no_error)
        self.services.wakes.run(self.now_ms)

    def load_again(self, index: int) -> None:
        """Have this broker lead a partition of `__consumer_offsets` in another epoch."""
        topic = self.services.image.topics_of("default")[GROUP_METADATA_TOPIC_NAME]
        old = topic.partitions[index]
        change = ChangePartition(topic.topic_id, index, next_epochs(old, old, is_fencing=True))
        self.services.metadata.write(lambda image: (change,), _no_error)
        self.services.wakes.run(self.now_ms)

    def _new_topic(self, name: str, partition_count: int) -> CreateTopic:
        self._topic_count += 1
        topic_id = uuid.UUID(int=random.Random(f"{name} {self._topic_count}").getrandbits(128))
        return CreateTopic("default", name, topic_id, ((NODE_ID,),) * partition_count)

    def restart(self, seed: int = 1) -> LocalBroker:
        """Another process over the same metadata and the same log; this one just stops."""
        return LocalBroker(
            store=self.store, records=self.topic.records, seed=seed, now_ms=self.now_ms
        )


def _no_error(error: BaseException | None) -> None:
    assert error is None, error


class LocalPlayer(Player):
    """Plays a script against a LocalBroker."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = LocalBroker()
        self._results: dict[str, deque[Any]] = {}

    def send_request(self, connection: str, api_key: ApiKey, version: int, request: Any) -> None:
        result = self.broker.handle(api_key, version, request, client_id=connection)
        self._results.setdefault(connection, deque()).append(result)

    def receive_response(self, connection: str, api_key: ApiKey, version: int) -> Any:
        result = self._results[connection].popleft()
        if isinstance(result, Deferred):
            answers: list[Any] = []
            result.when_complete(answers.append)
            while not answers:
                deadline_ms = self.broker.services.next_deadline_ms()
                assert deadline_ms is not None, f"{connection} waits for ever"
                self.broker.advance(max(deadline_ms - self.broker.now_ms, 1))
            result = answers[0]
        spec = API_BY_KEY[api_key]
        writer = Writer()
        spec.encode_response(writer, result, version)
        return spec.decode_response(Reader(writer.buf), version)

    def sleep(self, duration_ms: int) -> None:
        self.broker.advance(duration_ms)

    def create_topic(self, name: str, partition_count: int) -> None:
        self.topic_ids[name] = self.broker.create_topic(name, partition_count)
