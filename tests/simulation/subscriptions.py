"""SUBSCRIPTIONS: consumers that read a topic's records by their tags, and their administrator.

    datatags     1 [a]   2 [b, k:0]   3 []   4 [a]        tabletags      a compacted one
    sub1         "a or b"  ─► "not a"  ─► "k:*" ─► …      for groups, too
    sub2         "a"       ─► deleted, made anew: "rare" ─► …

The brokers of such a cell have all features plugged in (python -m features). Filters are edited,
subscriptions are deleted and made anew under the same name, their source grows, is truncated,
compacted, and moves; and those who read them ask for their names only, since no list has them.

Every answer is judged by the image that its broker went by when it left. Between where a subscriber
was and where the answer takes it, it must have got exactly those records of the committed log that
the filter of that image lets pass (tagged.py has what they are, and what it means), byte for byte
what their producer has sent; of a compacted source no others, and the newest of each key if that
passes. Partitions with odd numbers are the subscription's own, and nobody writes to them.

A group goes on where it has committed, whatever the filter is by then (promises.py). In the end
every subscriber has all partitions of each subscription, and is at their ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.cell.metadata import MetadataImage
from data_plane.cell.virtual_topics import FILTER_PROPERTY, SOURCE_PROPERTY
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.messages.metadata_request import MetadataRequestTopic
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import NewRecord, Record, build_batch
from data_plane.wire.registry import ApiKey
from tests.simulation.admin import SET, TOPIC_RESOURCE, TopicPlan
from tests.simulation.administrator import Administrator
from tests.simulation.group_consumer import GroupConsumer
from tests.simulation.judged_client import JudgedClient
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.reader import Target
from tests.simulation.replicas import TopicPartition
from tests.simulation.session_reader import SessionReader
from tests.simulation.shown_reader import ShownReader
from tests.simulation.tagged import FILTERS, TAGGED, TAGGED_TABLE, Tags, tags_of_key, with_tags

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

# Each with its source.
SUBSCRIPTIONS = {"sub1": TAGGED, "sub2": TAGGED, "subtable": TAGGED_TABLE}
# This one is only edited.
STEADY = "sub1"
DELETE_CHANCE = 0.2
PROBE_CHANCE = 0.08
REFRESH_CHANCE = 0.1


def planned_names(plans: Sequence[TopicPlan]) -> list[str]:
    """Those whose source this cell has."""
    planned = {plan.name for plan in plans}
    return [name for name, source in SUBSCRIPTIONS.items() if source in planned]


class SubscriptionAdmin(Administrator):
    """See the module."""

    interval_ms = 60

    def __init__(self, cell: Cell, name: str, plans: Sequence[TopicPlan]) -> None:
        super().__init__(cell, name)
        self._names = planned_names(plans)
        self._seen: dict[str, UUID] = {}

    @property
    def is_settled(self) -> bool:
        topics = self.cell.store.image.topics_of("default")
        return all(name in topics for name in self._names)

    def _go_on(self) -> None:
        # Also when it has stopped: in the end all of them are there.
        self._wait()
        if not self._is_stopped:
            self.change()
        elif not self.is_settled:
            topics = self.cell.store.image.topics_of("default")
            for name in self._names:
                if name not in topics:
                    self._make(name)

    def change(self) -> None:
        rng = self.random
        name = rng.choice(self._names)
        topic = self.cell.store.image.topics_of("default").get(name)
        if topic is None:
            self._make(name)
            return
        known = self._seen.setdefault(name, topic.topic_id)
        if known != topic.topic_id:
            self._seen[name] = topic.topic_id
            self.world.count("subscriptions made anew")
        kind = rng.random()
        if kind < DELETE_CHANCE and name != STEADY:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
            self._send(ApiKey.DELETE_TOPICS, request)
            if rng.random() < 0.5:
                self._make(name)
        elif kind < DELETE_CHANCE + PROBE_CHANCE:
            self._probe(name)
        else:
            self._edit(name)

    def _make(self, name: str) -> None:
        configs = {
            SOURCE_PROPERTY: SUBSCRIPTIONS[name],
            FILTER_PROPERTY: self.random.choice(list(FILTERS)),
        }
        plan = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        self._send(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[plan]))

    def _edit(self, name: str) -> None:
        value = self.random.choice(list(FILTERS))
        config = AlterableConfig(name=FILTER_PROPERTY, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config]
        )

        def edited(response: Any) -> None:
            if response is not None and not response.responses[0].error_code:
                self.world.count("filters edited")

        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.ask(self.any_node(), ApiKey.INCREMENTAL_ALTER_CONFIGS, request, edited)

    def _probe(self, name: str) -> None:
        """Nothing is produced to a subscription."""
        record = with_tags(NewRecord(self.world.now_ms, None, b"probe/0/"), (b"a",))
        piece = PartitionProduceData(
            index=self.random.randrange(2), records=bytes(build_batch([record]))
        )
        request = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=name, partition_data=[piece])],
        )
        node_id = self.any_node()

        def refused(response: Any) -> None:
            if response is None:
                return
            error = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if error is ErrorCode.NONE:
                self.world.violate(f"b{node_id} takes records for the subscription {name}")

        self.ask(node_id, ApiKey.PRODUCE, request, refused)

    def _send(self, api_key: ApiKey, request: Any) -> None:
        self.ask(self.any_node(), api_key, request, lambda response: None)


class SubscriptionReader(JudgedClient, ShownReader):
    """Who reads subscriptions, in whatever way; `names` are theirs."""

    way = "subscription"
    names: Sequence[str] = ()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Of every subscription that some broker has told of: its source.
        self._sources: dict[UUID, UUID] = {}
        # By which the answer went that is looked at.
        self._image: MetadataImage | None = None

    def named_topics(self) -> list[MetadataRequestTopic]:
        """No list of all topics has them."""
        return [MetadataRequestTopic(name=name) for name in self.names]

    def judge(self, node_id: int, api_key: ApiKey, response: Any, image: MetadataImage) -> None:
        """Keeps the image, and what it says."""
        self._image = image
        for topic in image.topics_of("default").values():
            if topic.source_id is not None:
                self._sources[topic.topic_id] = topic.source_id

    # What it is shown

    def place(self, topic_id: UUID, index: int) -> TopicPartition:
        """2p is partition p of the source, 2p + 1 the subscription's own."""
        half, is_own = divmod(index, 2)
        return (topic_id if is_own else self._sources.get(topic_id, topic_id)), half

    def compare(
        self, target: Target, topic_id: UUID, begin: int, end: int, got: Sequence[Record]
    ) -> None:
        """What passes of the committed log, by the filter that the broker had."""
        if target[1] % 2:
            if got:
                self.world.violate(f"{self.name} got {got[0]} of {target}, where nobody writes")
            return
        assert self._image is not None
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            self.world.violate(f"{self.name} got records of {target}, which is deleted")
        text = topic.configs.get(FILTER_PROPERTY, "")
        partition = self.cell.history.partitions[self.place(topic_id, target[1])]
        if partition.compacted is not None:
            self._compare_compacted(target, partition, text, begin, end, got)
            return
        wanted = [
            record
            for record in self._said(partition, begin, end)
            if FILTERS[text](_tags_in(record))
        ]
        if list(got) != wanted:
            self.world.violate(
                f"{self.name} got {_shown(got)} of {target} between {begin} and {end} by "
                f"{text!r}, not {_shown(wanted)}"
            )

    def _said(self, partition: PartitionHistory, begin: int, end: int) -> Iterator[Record]:
        """All records, as they were sent."""
        batches = partition.batches
        first = bisect_left(batches, begin, key=attrgetter("last_offset"))
        for number in range(first, len(batches)):
            batch = batches[number]
            if batch.base_offset >= end:
                return
            records = self.cell.sent_batches.of(batch.crc)
            if records is None:
                self.world.violate(f"{partition} has {batch}, which nobody has sent")
            for delta, sent in enumerate(records):
                offset = batch.base_offset + delta
                if begin <= offset < end:
                    yield Record(offset, sent.timestamp, sent.key, sent.value, sent.headers)

    def _compare_compacted(
        self,
        target: Target,
        partition: PartitionHistory,
        text: str,
        begin: int,
        end: int,
        got: Sequence[Record],
    ) -> None:
        records = partition.compacted
        assert records is not None
        committed, newest = records.committed(partition), records.newest(partition)
        passes = FILTERS[text]
        for record in got:
            truth = committed.get(record.offset)
            is_true = truth is not None and truth.key == record.key
            # The last record of a producer may have lost its value.
            is_said = truth is not None and record.value in (truth.value, None)
            if not is_true or not is_said or not passes(_tags_in(record)):
                self.world.violate(
                    f"{self.name} got {record} of {target} by {text!r}, committed is {truth}"
                )
            if _tags_in(record) != frozenset(tags_of_key(record.key or b"")):
                self.world.violate(f"{self.name} got {record} of {target} with other tags")
        found = {record.offset for record in got}
        self.world.count("records found in a compacted source", len(found))
        for key, said in newest.items():
            if key is None or said.value is None or key in records.revived:
                continue
            # Where the log begins by now nobody knows what it had when it was read.
            is_there = begin <= said.offset < end and said.offset >= partition.start_offset
            if is_there and passes(frozenset(tags_of_key(key))) and said.offset not in found:
                self.world.violate(
                    f"{self.name} has passed {said} of {target} between {begin} and {end} by "
                    f"{text!r}, the newest of its key"
                )

    def _fetch_all(self) -> None:
        """Now and then it asks which partitions there are, as clients do every few minutes."""
        if self.random.random() < REFRESH_CHANCE:
            self.refresh_metadata()
        super()._fetch_all()


class Subscriber(SubscriptionReader, SessionReader):
    """Reads all of them, in sessions. See the module."""

    def __init__(
        self, cell: Cell, name: str, plans: Sequence[TopicPlan], *, rack: str = ""
    ) -> None:
        super().__init__(cell, name, rack=rack, wants=SUBSCRIPTIONS.__contains__)
        self.names = planned_names(plans)

    def metadata_changed(self) -> None:
        """Also counts growth, which nobody has to ask for."""
        counts = {name: self._count(name) for name in self.topics}
        super().metadata_changed()
        for name, before in counts.items():
            if 0 < before < self._count(name):
                self.world.count("subscriptions that have grown")

    def _count(self, name: str) -> int:
        return sum(1 for topic, _ in self.positions if topic == name)

    def open_ends(self) -> list[str]:
        """All partitions of all subscriptions are read, up to their ends."""
        found = super().open_ends()
        image = self.cell.store.image
        for name in self.names:
            topic = image.topics_of("default").get(name)
            if topic is None or self.topics.get(name) is None:
                found.append(f"{self.name} knows nothing of {name}")
            elif self.topics[name].topic_id != topic.topic_id:
                found.append(f"{self.name} knows another {name}")
            elif self._count(name) != 2 * len(topic.partitions):
                found.append(
                    f"{self.name} reads {self._count(name)} partitions of {name}, not "
                    f"{2 * len(topic.partitions)}"
                )
        return found


class SubscribedMember(SubscriptionReader, GroupConsumer):
    """A member of a group over one that is only edited: what it has committed holds over edits."""

    names = (STEADY,)
    # How many partitions the leader of the group has shared out.
    _shared_count = -1

    def _share(self, position: int, count: int) -> bytes:
        self._shared_count = len(self._known())
        return super()._share(position, count)

    def _known(self) -> Sequence[int]:
        topic = self.topics.get(STEADY)
        return () if topic is None else list(topic.partitions)

    def metadata_changed(self) -> None:
        """Who leads the group has it share anew when there are others, as clients do."""
        super().metadata_changed()
        if self._state == "stable" and 0 <= self._shared_count != len(self._known()):
            self._shared_count = -1
            self._lost()


def _tags_in(record: Record) -> Tags:
    return frozenset(value or b"" for _, value in record.headers)


def _shown(records: Sequence[Record]) -> list[str]:
    return [f"{record.offset} {sorted(_tags_in(record))}" for record in records]
