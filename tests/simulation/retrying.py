"""Consumers of a subscription that nack some of what they get, and what they are told of that.

    got 5 ─► nack ─► no answer ─► the same nack, to whoever leads ─► taken
                          …  and some seconds later once more, as by a former owner

Two of them read the same, so they nack some of the same messages, earlier or later. Whatever they
get is what was committed. What they are told is taken has been stored for good by then; what was
delivered is never refused for good, while it is in its log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import NewRecord, Record, build_batch
from data_plane.wire.registry import ApiKey
from features.retry_dlq.commands import Position
from tests.features.retry_story import content_of
from tests.simulation.producer import RETRIABLE
from tests.simulation.reader import Target
from tests.simulation.retries import WORK
from tests.simulation.subscriptions import SubscriptionReader
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

INTERVAL_MS = 30
TIMEOUT_MS = 1_000
BATCH_MAX = 8
# Of what comes for the first time, and of what comes back.
FAILURE_CHANCE = 0.08
NEXT_FAILURE_CHANCE = 0.6
DEAD_CHANCE = 0.12
DELAY_CHANCE = 0.4
DELAYS_MS = (1, 15, 255, 256, 700, 1_500)
LATE_CHANCE = 0.15
LATE_MS_MAX = 3_000
# Of positions that nobody has delivered, beyond the end of what is committed.
GUESS_CHANCE = 0.05
AHEAD_MAX = 3
RETRIABLE_HERE = RETRIABLE | {ErrorCode.CORRUPT_MESSAGE}

Headers = tuple[tuple[bytes, bytes], ...]


class Nack(NamedTuple):
    """A record that is sent, again and again if need be."""

    position: Position
    headers: Headers


class RetryingConsumer(SubscriptionReader):
    """See the module."""

    way = "subscription whose messages are nacked"
    names = (WORK,)

    def __init__(self, cell: Cell, name: str, *, rack: str = "") -> None:
        super().__init__(cell, name, rack=rack, wants=WORK.__eq__)
        # By the number of the source's partition.
        self._nacks: dict[int, deque[Nack]] = {}
        self._are_sent: set[int] = set()
        self._nacks_count = 0
        self._is_calm = False

    def start(self) -> None:
        super().start()
        self.world.at(INTERVAL_MS * US_PER_MS, self._send_all)

    def calm(self) -> None:
        """Nothing fails any more; what has is nacked."""
        self._is_calm = True

    # What it gets

    def compare(
        self, target: Target, topic_id: UUID, begin: int, end: int, got: Sequence[Record]
    ) -> None:
        key = self.place(topic_id, target[1])
        shown = self.cell.history.retries.shown(key)
        if shown is None:
            return
        wanted = [(one, shown[one]) for one in range(begin, end) if one in shown]
        found = [(record.offset, content_of(record)) for record in got]
        if found != wanted:
            self.world.violate(
                f"{self.name} got {[one for one, _ in found]} of {target} between {begin} and "
                f"{end}, not {[one for one, _ in wanted]}"
            )
        chance = NEXT_FAILURE_CHANCE if target[1] % 2 else FAILURE_CHANCE
        for record in got:
            if not self._is_calm and self.random.random() < chance:
                self._fail(Position(target[1], record.offset))

    def _fail(self, position: Position) -> None:
        nack = self._nack(position)
        self._put(nack)
        if self.random.random() < LATE_CHANCE:
            delay_ms = self.random.randrange(LATE_MS_MAX)
            self.world.at(delay_ms * US_PER_MS, self._put, self._nack(position))

    def _nack(self, position: Position) -> Nack:
        self._nacks_count += 1
        reason = f"{self.name}/{self._nacks_count}".encode()
        said = ((b"tw-reason", reason),)
        if self.random.random() < DEAD_CHANCE:
            return Nack(position, ((b"tw-dead-letter", position.encoded()), *said))
        named = ((b"tw-nack", position.encoded()), *said)
        if self.random.random() >= DELAY_CHANCE:
            return Nack(position, named)
        delay_ms = self.random.choice(DELAYS_MS)
        self.cell.history.retries.delays_ms[reason] = delay_ms
        return Nack(position, (*named, (b"tw-delay", b"%dms" % delay_ms)))

    def _put(self, nack: Nack) -> None:
        self._nacks.setdefault(nack.position.partition // 2, deque()).append(nack)

    # What it says

    def _send_all(self) -> None:
        for pair in [one for one, nacks in self._nacks.items() if nacks]:
            if pair not in self._are_sent:
                self._send(pair)
        if not self._is_calm and self.random.random() < GUESS_CHANCE:
            self._guess()
        if not self.is_stopped:
            self.world.at(INTERVAL_MS * US_PER_MS, self._send_all)

    def _send(self, pair: int) -> None:
        leader = self.leader(WORK, 2 * pair + 1)
        if leader is None or leader.leader < 0:
            self.refresh_metadata()
            return
        sent = list(self._nacks[pair])[:BATCH_MAX]
        self._are_sent.add(pair)
        self._produce(leader.leader, pair, sent, lambda error: self._told(pair, sent, error))

    def _produce(self, node_id: int, pair: int, nacks: Sequence[Nack], on_told: Any) -> None:
        records = [NewRecord(self.world.now_ms, None, None, one.headers) for one in nacks]
        piece = PartitionProduceData(index=2 * pair + 1, records=bytes(build_batch(records)))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=WORK, partition_data=[piece])],
        )

        def answered(response: Any) -> None:
            if response is None:
                on_told(None)
            else:
                (part,) = response.responses[0].partition_responses
                on_told(ErrorCode(part.error_code))

        self.ask(node_id, ApiKey.PRODUCE, request, answered, purpose="nack")

    def _told(self, pair: int, sent: Sequence[Nack], error: ErrorCode | None) -> None:
        """`error` is None when there was no answer: it is said again, by the same words."""
        self._are_sent.discard(pair)
        nacks = self._nacks[pair]
        key = self._key_of(pair)
        if error is None or error in RETRIABLE_HERE:
            self.world.count("nacks said again")
            self.refresh_metadata()
            return
        retries = self.cell.history.retries
        if error is ErrorCode.NONE:
            for one in sent:
                if key is not None and not retries.is_taken(key, one.position):
                    self.world.violate(
                        f"{self.name} is told that {one} is taken, and nothing is stored for it"
                    )
            self.world.count("nacks taken", len(sent))
            left = set(sent)
        else:
            left = {one for one in sent if key is None or retries.is_over(key, one.position)}
            if error is not ErrorCode.INVALID_RECORD or not left:
                self.world.violate(f"{self.name} is refused {sent} with {error.name}")
            self.world.count("nacks of what is over", len(left))
        self._nacks[pair] = deque(one for one in nacks if one not in left)

    def _key_of(self, pair: int) -> tuple[UUID, int] | None:
        info = self.topics.get(WORK)
        return None if info is None else (info.topic_id, pair)

    def _guess(self) -> None:
        """Nack what is not committed yet, or never will be, at some broker."""
        info = self.topics.get(WORK)
        if info is None:
            return
        index = self.random.randrange(len(info.partitions) or 1)
        partition = self.cell.history.partitions.get(self.place(info.topic_id, index))
        leader = self.leader(WORK, index | 1)
        if partition is None or leader is None or leader.leader < 0:
            return
        at = partition.end_offset + self.random.randrange(AHEAD_MAX)
        nack = self._nack(Position(index, at))
        # Whatever comes of it, the log tells.
        self._produce(leader.leader, index // 2, [nack], lambda error: self._guessed(error))

    def _guessed(self, error: ErrorCode | None) -> None:
        self.world.count(f"guesses answered with {'nothing' if error is None else error.name}")

    def open_ends(self) -> list[str]:
        found = super().open_ends()
        found += [
            f"{self.name} has {len(nacks)} nacks of {WORK}-{2 * pair + 1}: {nacks[0]}"
            for pair, nacks in self._nacks.items()
            if nacks
        ]
        return found
