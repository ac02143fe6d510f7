"""The port through which a feature turns what is produced into what is stored: takers.

    plain partition     the client's batch is stored
    taken partition     a thread makes another batch of it, by what is in logs: that is stored

Taken is what is produced to a virtual topic's own partitions, which are all commands, and what
other brokers of the cell produce where a feature says so. Commands among a plain topic's records
are another matter (judging.py).

Invariants
- The batches of a partition are taken one at a time, in the order in which they came, from the
  first look at logs to the append (`PartitionTurns`).
- What was made holds in the leader epoch and for the log for which it began. Otherwise its client
  is told to ask who leads, and whoever leads begins anew.
- A batch that repeats a sequence is answered as a duplicate, and not taken.

Deliberately absent: what becomes of a batch, and how it is stored (a feature knows).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from data_plane.broker.request.api import RequestContext
from data_plane.cell.metadata import TopicImage
from data_plane.cell.virtual_topics import shown_count
from data_plane.log.errors import AppendError
from data_plane.log.log import Log
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import check_batches
from data_plane.wire.kernel_types import BatchHeader
from data_plane.wire.records import Buffer

if TYPE_CHECKING:
    from data_plane.broker.services import Services

# Of a batch as it is sent, whatever max.message.bytes says: its checksum is made on the loop.
BATCH_BYTES_MAX = 4 << 20


class Taking(Protocol):
    """One batch's."""

    @property
    def doubts(self) -> Sequence[Partition]:
        """By whose ends the batch was refused. Another leader may know better, so that is told when
        this broker is shown to lead them still."""

    def batch_to_store(self, header: BatchHeader, buf: Buffer, start: int, end: int) -> bytearray:
        """The batch to store instead of the one with this header, whose plain, sound records are
        at buf[start:end]; an empty one when nothing is to be stored. In a worker thread. Raises
        AppendError."""

    def close(self) -> None:
        """It is over: what has to be appended is. On the loop, once."""


class Taker(Protocol):
    """Whatever is plugged in."""

    def refusal(self, topic: TopicImage, *, is_broker: bool) -> str | None:
        """Why nothing is taken of what a client, or another broker, sends to the topic; "" where
        it is, None for a topic that is none of its own."""

    def begin(
        self, topic: TopicImage, partition: Partition, now_ms: int, *, is_broker: bool
    ) -> Taking:
        """For the next batch of one of the topic's own partitions. On the loop. Raises
        AppendError."""


class TakenPartition(NamedTuple):
    """Where a taken batch goes: the topic's own partition of this number; or why not."""

    topic: TopicImage
    own_index: int
    refusal: str


def taken_partition(
    services: Services, context: RequestContext, topic_id: bytes, index: int
) -> TakenPartition | None:
    """For what is produced to the topic's partition, as clients number them; None for a plain one,
    and where there is none. On the path of every request."""
    is_broker = context.connection.is_inter_broker
    known = services.partitions.leading_ones.by_id.get((topic_id, index))
    if known is not None and not is_broker:
        rules = known.log.config.record_rules
        if rules is None or not rules.takes_commands:
            return None
    image = services.image
    topic = image.topics_by_id.get(UUID(bytes=topic_id))
    if topic is None or topic.deletion is not None:
        return None
    # Other brokers speak for no tenant.
    if not is_broker and topic.tenant != context.names.tenant:
        return None
    taker = services.taker
    if not topic.is_virtual:
        refusal = None if taker is None else taker.refusal(topic, is_broker=is_broker)
        return None if refusal is None else TakenPartition(topic, index, refusal)
    if not 0 <= index < shown_count(topic):
        return None
    half, is_own = divmod(index, 2)
    refusal = taker.refusal(topic, is_broker=is_broker) if taker is not None and is_own else None
    if refusal is None:
        refusal = f"Topic '{topic.name}' reads from another one: produce to its source."
    return TakenPartition(topic, half, refusal)


def read_header(
    log: Log,
    buf: bytearray | memoryview,
    start: int,
    end: int,
    *,
    is_broker: bool,
    zstd_allowed: bool,
) -> BatchHeader:
    """Of the one batch there; what a broker sends has no bounds for clients. Raises InvalidRecords,
    AppendError."""
    if end - start > BATCH_BYTES_MAX and not is_broker:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {end - start} bytes: one of commands has {BATCH_BYTES_MAX} at most",
        )
    size_max = end - start if is_broker else log.config.max_message_bytes
    (header,) = check_batches(buf, start, end, batch_bytes_max=size_max, zstd_allowed=zstd_allowed)
    return header


class Turn:
    """A batch that waits for its partition's turn, or has it."""

    __slots__ = ("leader_epoch", "log", "on_come", "partition", "taking")

    def __init__(self, partition: Partition, on_come: Callable[[], None]) -> None:
        self.partition = partition
        self.on_come = on_come
        self.taking: Taking | None = None
        self.leader_epoch = -1
        self.log: Log | None = None

    def begin(self, taking: Taking) -> None:
        """By what is known now."""
        self.taking = taking
        self.leader_epoch, self.log = self.partition.leader_epoch, self.partition.log

    @property
    def holds(self) -> bool:
        """Whether what was made may be appended to what the partition is now."""
        partition = self.partition
        return (
            partition.leader_error is ErrorCode.NONE
            and partition.leader_epoch == self.leader_epoch
            and partition.log is self.log
        )


class PartitionTurns:
    """Whose batch is taken, and who waits: one queue for each partition, no longer than there are
    connections."""

    def __init__(self) -> None:
        self._queues: dict[Partition, deque[Turn]] = {}

    def take(self, partition: Partition, on_come: Callable[[], None]) -> Turn:
        """`on_come` is called when it has come, unless it has already (`has_come`)."""
        turn = Turn(partition, on_come)
        self._queues.setdefault(partition, deque()).append(turn)
        return turn

    def has_come(self, turn: Turn) -> bool:
        return self._queues[turn.partition][0] is turn

    def leave(self, turn: Turn) -> None:
        """It is over, or nobody waits for it any more."""
        if turn.taking is not None:
            turn.taking.close()
        queue = self._queues[turn.partition]
        had_come = queue[0] is turn
        queue.remove(turn)
        if not queue:
            del self._queues[turn.partition]
        elif had_come:
            queue[0].on_come()
