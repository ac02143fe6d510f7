"""A producer as clients are by default: one request for all that a broker leads.

Each request has a batch for every partition that has something to send to that broker, of several
topics, promised ones and such as are deleted meanwhile. Some of them it leads no more, or never
did; now and then a partition is sent to a broker by mistake. Every partition has to be answered,
once, and what each is told is held to the same promises as if it had been asked alone:

    produce data3-0, data3-2, scratch1-0  ─►  acknowledged, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC…
"""

from __future__ import annotations

from typing import Any

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.producer import PRODUCE_TIMEOUT_MS, Lane, Outgoing, Producer
from tests.simulation.reader import Target

BUNDLE_INTERVAL_MS = 100
BATCHES_AT_ONCE_MAX = 8
# How often a partition is sent to a broker that does not lead it, as far as the producer knows.
STRAY_CHANCE = 0.04

Piece = tuple[Lane, Outgoing]


class Bundler(Producer):
    """See the module."""

    def _make_batch(self) -> None:
        for _ in range(self.random.randint(1, BATCHES_AT_ONCE_MAX)):
            super()._make_batch()

    def metadata_changed(self) -> None:
        self._forget_deleted()
        super().metadata_changed()

    def _forget_deleted(self) -> None:
        """Topics never come back under the same name here: nobody will take these batches."""
        for lane in self._lanes.values():
            if lane.queue and not lane.sent and self.cell.is_topic_gone(lane.topic):
                self.world.count("batches of deleted topics")
                for batch in lane.queue:
                    self.cell.promises.given_up(self, batch)
                lane.queue.clear()

    def _send_from(self, lanes: list[Lane]) -> None:
        while True:
            bundles: dict[int, list[Piece]] = {}
            for lane in lanes:
                node_id = self._target(lane) if lane.may_send() else -1
                if node_id >= 0:
                    bundles.setdefault(node_id, []).append((lane, self._take(lane)))
            if not bundles:
                return
            for node_id, pieces in bundles.items():
                self._send_bundle(node_id, pieces)

    def _target(self, lane: Lane) -> int:
        info = self.leader(lane.topic, lane.index)
        if info is None or info.leader < 0:
            self.refresh_metadata()
            return -1
        return self.any_node() if self.random.random() < STRAY_CHANCE else info.leader

    def _send_bundle(self, node_id: int, pieces: list[Piece]) -> None:
        topics: dict[str, TopicProduceData] = {}
        for lane, batch in pieces:
            lane.sent.append(batch)
            topic = topics.setdefault(
                lane.topic, TopicProduceData(name=lane.topic, partition_data=[])
            )
            topic.partition_data.append(
                PartitionProduceData(index=lane.index, records=self._encode(batch))
            )
        request = ProduceRequest(
            transactional_id=None,
            acks=self.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=list(topics.values()),
        )
        self.ask(
            node_id,
            ApiKey.PRODUCE,
            request,
            lambda response: self._bundle_answered(node_id, pieces, response),
        )

    def _bundle_answered(self, node_id: int, pieces: list[Piece], response: Any) -> None:
        answers: dict[Target, Any] = {}
        if response is not None:
            answers = self._by_partition(node_id, pieces, response)
        for lane, batch in pieces:
            answer = answers.get((lane.topic, lane.index))
            self._settle(lane, batch, answer)

    def _by_partition(self, node_id: int, pieces: list[Piece], response: Any) -> dict[Target, Any]:
        """The answer of each partition: of those that were asked for, and of each once."""
        found = [
            ((topic.name, piece.index), piece)
            for topic in response.responses
            for piece in topic.partition_responses
        ]
        asked = sorted((lane.topic, lane.index) for lane, _ in pieces)
        if sorted(target for target, _ in found) != asked:
            self.world.violate(
                f"{self.name} asks b{node_id} to take {asked} and is answered about "
                f"{[target for target, _ in found]}"
            )
        self._count(asked, [ErrorCode(piece.error_code) for _, piece in found])
        return dict(found)

    def _count(self, asked: list[Target], errors: list[ErrorCode]) -> None:
        if len(asked) < 2:
            return
        count = self.world.count
        count("produces of several partitions")
        if len({topic for topic, _ in asked}) > 1:
            count("produces of several topics")
        if ErrorCode.NONE in errors and any(errors):
            count("produces answered in part")
            if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in errors:
                count("produces of a topic deleted and of others")
            if ErrorCode.REQUEST_TIMED_OUT in errors:
                count("produces in time in part")
