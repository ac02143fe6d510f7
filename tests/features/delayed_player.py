"""A broker without server that has all features, and a topic for delayed messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.broker.replicas.due_openings import DueOpenings
from data_plane.cell.changes import Change, UpdateFeature
from data_plane.cell.features import (
    DELAYED_MESSAGES,
    METADATA_VERSION,
    TENANCY_LEVEL,
    VIRTUAL_TOPICS,
)
from data_plane.cell.metadata import MetadataImage
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import (
    Header,
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    iter_batch_headers,
)
from features.catalogue import FEATURES
from features.delayed.firing import Firing
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NOW_MS

ANSWERED_AFTER_MAX = 20
FOLD_FACTORIES = [factory for feature in FEATURES for factory in feature.fold_factories]


class Produced(NamedTuple):
    """The answer to a batch."""

    error_code: int
    base_offset: int
    message: str | None


def all_properties() -> TopicProperties:
    found = KAFKA_TOPIC_PROPERTIES
    for feature in FEATURES:
        found = feature.add_properties(found)
    return found


class DelayedPlayer(AdminPlayer):
    """With `orders`, of one partition unless it is told otherwise, that reads headers."""

    def __init__(
        self,
        *,
        level: int = 1,
        configs: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        disk: SimFileSystem | None = None,
        image: MetadataImage | None = None,
    ) -> None:
        super().__init__(
            properties,
            topics=all_properties(),
            fold_factories=FOLD_FACTORIES,
            disk=disk,
            image=image,
        )
        for feature in FEATURES:
            if feature.plug_in is not None:
                feature.plug_in(self.services)
        self.services.components.append(DueOpenings(self.services))
        if image is None:
            self.commit(UpdateFeature(METADATA_VERSION, TENANCY_LEVEL))
            self.commit(UpdateFeature(VIRTUAL_TOPICS, 1))
            if level:
                self.commit(UpdateFeature(DELAYED_MESSAGES, level))
            self.create_topic("orders", 1, {"tidewheel.headers": "true", **(configs or {})})
        self.services.start(self.now_ms)

    @property
    def firing(self) -> Firing:
        return next(one for one in self.services.components if isinstance(one, Firing))

    @property
    def orders(self) -> Partition:
        partition = self.services.partitions.get_by_name("default", "orders", 0)
        assert partition is not None
        return partition

    def commit(self, *changes: Change) -> None:
        services = self.services
        version = services.image.version
        services.apply_image(services.store.apply(changes, version, f"after {version}"), NOW_MS)
        self.run_jobs()

    def restarted(self, *, is_clean: bool = True) -> Self:
        """The next life of this broker, at the same time."""
        if is_clean:
            self.services.stop(self.now_ms)
            self.logs.close(self.now_ms)
        else:
            self.fs.process_death()
        other = type(self)(disk=self.fs, image=self.services.image)
        other.now_ms = self.now_ms
        other.services.tick(other.now_ms)
        other.run_jobs()
        return other

    def append(self, *records: tuple[bytes, *tuple[Header, ...]], **options: Any) -> Produced:
        """One batch of records, each a value and headers."""
        made = [NewRecord(self.now_ms, None, value, tuple(headers)) for value, *headers in records]
        pending = self.produce("orders", [], batch=build_batch(made, **options))
        self.run_jobs()
        ((part,),) = (topic.partition_responses for topic in pending.response.responses)
        return Produced(part.error_code, part.base_offset, part.error_message)

    def delayed(self, value: bytes, delay: bytes) -> int:
        """Its offset."""
        produced = self.append((value, (b"tw-delay", delay)))
        assert produced.error_code == ErrorCode.NONE, produced.message
        return produced.base_offset

    def keyed(self, key: bytes | None, value: bytes | None, *headers: Header) -> int:
        """A record that is taken; its offset."""
        batch = build_batch([NewRecord(self.now_ms, key, value, headers)])
        pending = self.produce("orders", [], batch=batch)
        self.run_jobs()
        ((part,),) = (topic.partition_responses for topic in pending.response.responses)
        assert part.error_code == ErrorCode.NONE, part.error_message
        offset: int = part.base_offset
        return offset

    def pass_ms(self, ms: int) -> None:
        self.pass_time(ms)
        self.run_jobs()

    def read(
        self,
        topic: str = "orders",
        index: int = 0,
        offset: int = 0,
        end_offset: int | None = None,
    ) -> list[Record]:
        """All that readers see from `offset` on, however often they have to ask; up to the end of
        `orders` unless they are told otherwise."""
        found: list[Record] = []
        end_offset = self.orders.high_watermark if end_offset is None else end_offset
        while offset < end_offset:
            pending = self.fetch({(topic, index): offset})
            for _ in range(ANSWERED_AFTER_MAX):
                self.run_jobs()
                if pending.is_answered:
                    break
                self.services.tick(self.now_ms)
            before = offset
            for data in _records_in(pending.response):
                for batch in iter_batch_headers(data, 0, len(data)):
                    offset = batch.next_offset
                    if not batch.is_control:
                        found += decode_batch(data, batch.position)
            if offset == before:
                return found
        return found

    def values(self, topic: str = "orders", index: int = 0) -> list[bytes]:
        return [record.value or b"" for record in self.read(topic, index)]


class SkewedClock:
    """A wall clock of which a test says how far it is off."""

    skew_ms: int | None = 0

    def wall_ms(self, now_ms: int) -> int:
        return now_ms


def _records_in(response: Any) -> list[bytes]:
    topics = response.responses
    return [part.records for topic in topics for part in topic.partitions if part.records]
