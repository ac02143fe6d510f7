"""A consumer without a group: reads everything, from the beginning, and remembers what it read.

It fetches from leaders, or from the replica that a leader prefers for its rack (KIP-392). What it
gets must be the committed log, batch by batch without a gap: `offset` only moves on over what was
checked. What is deleted before it was read is not passed over in silence: the consumer is told
OFFSET_OUT_OF_RANGE, asks for the earliest offset and goes on there. A consumer that is told so and
is not behind the log start, or finds a hole, has been lied to, unless loss was permitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from data_plane.cell.virtual_topics import shown_partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.records import is_crc_valid, iter_batch_headers
from data_plane.wire.registry import ApiKey
from tests.simulation.client import Client
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.partition_history import PartitionHistory
    from tests.simulation.replicas import TopicPartition

MAX_WAIT_MS = 150
INTERVAL_MS = 60
PARTITION_BYTES_MAX = 64 << 10
SLOW_INTERVAL_MS = 600
SLOW_PARTITION_BYTES_MAX = 2000
EARLIEST = -2
WRONG_EPOCH_CHANCE = 0.02
# With a preferred replica that fails, or for so long, the leader is asked again.
PREFERRED_FOR_US = 1_000_000

Target = tuple[str, int]


class Asked(NamedTuple):
    """What was asked for, in which epoch, and in which the broker was then."""

    target: Target
    offset: int
    epoch: int
    known: tuple[int, int]


class Position:
    """Where the reader is in one partition."""

    __slots__ = ("epoch", "offset", "preferred", "preferred_until_us")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.epoch = -1
        self.preferred = -1
        self.preferred_until_us = 0


class Reader(Client):
    """See the module. Group consumers are readers whose partitions come and go."""

    interval_ms = INTERVAL_MS
    partition_bytes_max = PARTITION_BYTES_MAX

    def __init__(
        self, cell: Cell, name: str, *, rack: str = "", wants: Callable[[str], bool] | None = None
    ) -> None:
        super().__init__(cell, name)
        self._rack = rack
        self._wants = wants
        self.positions: dict[Target, Position] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._busy_nodes: dict[int, None] = {}
        self.is_stopped = False

    def start(self) -> None:
        self.refresh_metadata()
        self.world.at(self.interval_ms * US_PER_MS, self._tick)

    def stop(self) -> None:
        self.is_stopped = True

    def _tick(self) -> None:
        if self.is_stopped:
            return
        self._fetch_all()
        self.world.at(self.interval_ms * US_PER_MS, self._tick)

    def metadata_changed(self) -> None:
        wants = self._wants
        if wants is not None:
            for topic, info in self.topics.items():
                if wants(topic):
                    if self._topic_ids.setdefault(topic, info.topic_id) != info.topic_id:
                        self._begin_anew(topic, info.topic_id)
                    for index in info.partitions:
                        self.positions.setdefault((topic, index), Position(0))
        for target in [one for one in self.positions if one[0] not in self.topics]:
            if self.cell.is_topic_gone(target[0]):
                del self.positions[target]

    def _begin_anew(self, topic: str, topic_id: UUID) -> None:
        """It is another topic under the same name."""
        self.world.count("readers that met a namesake")
        self._topic_ids[topic] = topic_id
        for target in [one for one in self.positions if one[0] == topic]:
            del self.positions[target]

    def _source(self, target: Target, position: Position) -> int:
        leader = self.leader(*target)
        if leader is None:
            return -1
        if position.preferred >= 0 and self.world.now_us < position.preferred_until_us:
            return position.preferred
        return leader.leader

    def _fetch_all(self) -> None:
        by_node: dict[int, list[Target]] = {}
        is_unknown = False
        for target, position in self.positions.items():
            source = self._source(target, position)
            if source < 0:
                is_unknown = True
            elif source not in self._busy_nodes:
                by_node.setdefault(source, []).append(target)
        if is_unknown or not self.positions:
            self.refresh_metadata()
        for node_id, targets in by_node.items():
            self._fetch(node_id, targets)

    def _fetch(self, node_id: int, targets: list[Target]) -> None:
        topics: dict[str, FetchTopic] = {}
        asked: dict[tuple[Any, int], Asked] = {}
        for target in targets:
            name, index = target
            topic_id = self.topics[name].topic_id
            leader = self.leader(name, index)
            position = self.positions[target]
            topic = topics.setdefault(name, FetchTopic(topic_id=topic_id, partitions=[]))
            epoch = -1 if leader is None else leader.epoch
            if epoch >= 0 and self.random.random() < WRONG_EPOCH_CHANCE:
                epoch = max(0, epoch + self.random.choice((-1, 1)))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    fetch_offset=position.offset,
                    current_leader_epoch=epoch,
                    partition_max_bytes=self.partition_bytes_max,
                )
            )
            known = self._epoch_at(node_id, topic_id, index)
            asked[(topic_id, index)] = Asked(target, position.offset, epoch, known)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=list(topics.values()),
            rack_id=self._rack,
        )
        self._busy_nodes[node_id] = None
        self.ask(
            node_id,
            ApiKey.FETCH,
            request,
            lambda response: self._took(node_id, asked, response),
            purpose="fetch",
        )

    def _took(self, node_id: int, asked: dict[tuple[Any, int], Asked], response: Any) -> None:
        self._busy_nodes.pop(node_id, None)
        if response is None or response.error_code:
            for one in asked.values():
                position = self.positions.get(one.target)
                if position is not None:
                    position.preferred = -1
            self.refresh_metadata()
            return
        self._check_whole(node_id, asked, response)
        is_stale = False
        for topic in response.responses:
            for piece in topic.partitions:
                found = asked.get((topic.topic_id, piece.partition_index))
                if found is None:
                    continue
                position = self.positions.get(found.target)
                if position is None or position.offset != found.offset:
                    continue
                known = self.topics.get(found.target[0])
                if known is not None and known.topic_id != topic.topic_id:
                    continue  # Of another topic that had this name.
                self._check_epoch(node_id, found, topic.topic_id, piece)
                is_stale |= not self._take(node_id, found, position, piece, topic.topic_id)
        if is_stale:
            self.refresh_metadata()

    def _check_whole(
        self, node_id: int, asked: dict[tuple[Any, int], Asked], response: Any
    ) -> None:
        """Without a session every partition is answered, and once."""
        answered = [
            (topic.topic_id, piece.partition_index)
            for topic in response.responses
            for piece in topic.partitions
        ]
        if len(answered) != len(asked) or set(answered) != asked.keys():
            self.world.violate(
                f"{self.name} asks b{node_id} for {[one.target for one in asked.values()]} and is "
                f"answered about {answered}"
            )
        errors = {piece.error_code for topic in response.responses for piece in topic.partitions}
        if len(errors) > 1 and int(ErrorCode.NONE) in errors:
            self.world.count("fetches answered in part")

    def _epoch_at(self, node_id: int, topic_id: Any, index: int) -> tuple[int, int]:
        """(life, leader epoch of the partition) of a broker as it is now; -1 for unknown."""
        node = self.cell.nodes[node_id]
        partition = None
        if node.services is not None:
            image = node.services.image
            topic = image.topics_by_id.get(topic_id)
            partition = None if topic is None else shown_partition(image, topic, index)
        return node.life, -1 if partition is None else partition.leader_epoch

    def _check_epoch(self, node_id: int, asked: Asked, topic_id: Any, piece: Any) -> None:
        """A broker that was in another leader epoch all the time has to say so (KIP-320)."""
        known = self._epoch_at(node_id, topic_id, piece.partition_index)
        is_sure = known == asked.known and known[1] >= 0 and asked.epoch >= 0
        if is_sure and asked.epoch != known[1] and not piece.error_code:
            self.world.violate(
                f"{self.name} names epoch {asked.epoch} of {asked.target} to b{node_id}, which is "
                f"in {known[1]} and answers all the same"
            )

    def _take(
        self, node_id: int, asked: Asked, position: Position, piece: Any, topic_id: Any
    ) -> bool:
        """Take one partition's answer; False when the metadata should be looked at again."""
        error = ErrorCode(piece.error_code)
        if error is ErrorCode.NONE:
            preferred = piece.preferred_read_replica
            if preferred is not None and preferred >= 0:
                self.world.count("reads sent to a follower")
                position.preferred = preferred
                position.preferred_until_us = self.world.now_us + PREFERRED_FOR_US
            if piece.records:
                self._check(node_id, asked.target, position, bytes(piece.records), topic_id)
            return True
        was_preferred = position.preferred == node_id
        position.preferred = -1
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and not was_preferred:
            self._out_of_range(node_id, asked, position, topic_id)
        self.world.count(f"fetch {error.name}")
        return False

    def _out_of_range(self, node_id: int, asked: Asked, position: Position, topic_id: Any) -> None:
        target = asked.target
        key = self.place(topic_id, target[1])
        partition = self.cell.history.partitions.get(key)
        is_lossy = partition is not None and partition.is_lossy
        if partition is not None and position.offset < partition.start_offset:
            view = self.cell.history.disks.get(f"b{node_id}", {}).get(partition.key)
            is_same_life = self.cell.nodes[node_id].life == asked.known[0]
            # One that is no leader may have lost its end with power, and with it that offset.
            if (
                is_same_life
                and view is not None
                and view.start_offset <= asked.offset <= view.end_offset
            ):
                self._lied_to(node_id, asked, f"whose log begins at {view.start_offset}")
            if position.offset < self.cell.history.retention.starts.get(partition.key, 0):
                self.world.count("readers passed by retention")
            self._ask_earliest(node_id, target, position, partition)
        elif partition is not None and is_lossy:
            position.offset = partition.end_offset
        elif (
            self.cell.is_current_leader(node_id, *key)
            # Whoever was elected although he was not in sync may never have had it.
            and not self.cell.commits.allows_unclean(key[0])
            and not (
                partition is not None
                and self.cell.history.committed.may_be_lost(partition, asked.offset - 1)
            )
        ):
            self._lied_to(node_id, asked, "which leads")

    def _lied_to(self, node_id: int, asked: Asked, why: str) -> None:
        topic, index = asked.target
        self.world.violate(
            f"{self.name} is told by b{node_id}, {why}, that offset {asked.offset} of "
            f"{topic}-{index} is out of range"
        )

    def _ask_earliest(
        self, node_id: int, target: Target, position: Position, partition: PartitionHistory
    ) -> None:
        """Where does the log begin? Until that is known the next fetch asks again."""
        piece = ListOffsetsPartition(partition_index=target[1], timestamp=EARLIEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=target[0], partitions=[piece])]
        )
        self.ask(
            node_id,
            ApiKey.LIST_OFFSETS,
            request,
            lambda response: self._told_earliest(target, position, partition, response),
        )

    def _told_earliest(
        self, target: Target, position: Position, partition: PartitionHistory, response: Any
    ) -> None:
        answer = None if response is None else response.topics[0].partitions[0]
        if answer is None or answer.error_code or self.positions.get(target) is not position:
            return
        if answer.offset > partition.start_offset and not partition.is_lossy:
            self.world.violate(
                f"{self.name} is told that {target[0]}-{target[1]} begins at {answer.offset}; no "
                f"replica begins behind {partition.start_offset}"
            )
        if answer.offset > position.offset:
            position.offset = answer.offset
            self.world.count("readers moved to the log start")

    def _check(
        self, node_id: int, target: Target, position: Position, data: bytes, topic_id: Any
    ) -> None:
        partition = self.cell.history.partitions.get((topic_id, target[1]))
        name = f"{target[0]}-{target[1]}"
        if partition is None:
            self.world.violate(f"{self.name} got records of {name}, of which nothing is committed")
            return
        for header in iter_batch_headers(data, 0, len(data), incomplete_tail=True):
            last_offset = header.base_offset + header.last_offset_delta
            if last_offset < position.offset:
                continue
            if partition.is_lossy:
                position.offset = last_offset + 1
                continue
            if header.base_offset > position.offset:
                self.world.violate(
                    f"{self.name} read a hole in {name}: {position.offset}..{header.base_offset}"
                )
            if f"b{node_id}" in partition.rotten and not is_crc_valid(data, header):
                self.world.count("rotten batches refused")
                return
            known = partition.by_offset.get(header.base_offset)
            if known is None or known.crc != header.crc or not is_crc_valid(data, header):
                self.world.violate(
                    f"{self.name} got from b{node_id} at {header.base_offset} of {name} a batch "
                    f"with CRC {header.crc}, committed is {known}"
                )
            position.offset = last_offset + 1
            self.world.count("batches read")
            self.consumed(target, position.offset)

    def consumed(self, target: Target, offset: int) -> None:
        """For group consumers."""

    # What a healthy cell looks at

    def place(self, topic_id: UUID, index: int) -> TopicPartition:
        """The partition whose records are read under this number."""
        return topic_id, index

    def open_ends(self) -> list[str]:
        """What there is to read, and was not read yet."""
        found = []
        for (topic, index), position in self.positions.items():
            info = self.cell.store.image.topics_of("default").get(topic)
            if info is None:
                continue
            partition = self.cell.history.partitions.get(self.place(info.topic_id, index))
            if partition is not None and position.offset < partition.end_offset:
                found.append(
                    f"{self.name} is at {position.offset} of {topic}-{index}, which ends at "
                    f"{partition.end_offset}"
                )
        return found


class SlowReader(Reader):
    """Takes little, and seldom: retention is faster."""

    interval_ms = SLOW_INTERVAL_MS
    partition_bytes_max = SLOW_PARTITION_BYTES_MAX

    def calm(self) -> None:
        """Where nothing goes any more, there may be much left to read before the end."""
        self.interval_ms = INTERVAL_MS
        self.partition_bytes_max = PARTITION_BYTES_MAX
