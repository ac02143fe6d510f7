"""The port through which a feature leaves out what was taken before: messages with the same id.

    loop      begin: what is known now, and for which window
    thread    judge: what of the batch is a duplicate, and the batch without it
    loop      holds: nothing has come meanwhile that changes that? Then it is appended, at once.
              Else a thread judges again.

Deliberately absent: sequences of idempotent producers, which the log looks at (producer_state.py);
they go before: what a producer sends again gets the answer that it got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from data_plane.log.log import AppendResult
from data_plane.replica.partition import Partition
from data_plane.wire.kernel_types import BatchHeader

if TYPE_CHECKING:
    from data_plane.broker.produce.produce_response import PartitionAnswer
    from data_plane.broker.services import Services

WritableBuffer = bytearray | memoryview


class Original(NamedTuple):
    """Where the records are of which those of a batch are duplicates. `base_offset` is that of the
    first where they follow each other as those of the batch do, all of which are duplicates; else
    -1. `last_offset` is the highest of them, `time_ms` the newest time."""

    base_offset: int
    last_offset: int
    time_ms: int


def look_for_duplicates(
    services: Services, partition: Partition, now_ms: int
) -> DuplicateLook | None:
    """For a batch that a thread is to look at; None where the topic does not ask for it."""
    rules = partition.log.config.record_rules
    if rules is None or not rules.dedup_window_ms:
        return None
    assert services.duplicates is not None
    return services.duplicates.begin(partition, rules.dedup_window_ms, now_ms)


def tell_duplicates(
    look: DuplicateLook, result: AppendResult | None, partition: Partition, answer: PartitionAnswer
) -> list[tuple[Partition, PartitionAnswer, int]]:
    """Fill in the answer of a batch that was appended or, without a `result`, is not stored.
    Returns what to wait for beside."""
    look.taken(result)
    original = look.original
    if original is None:
        return []
    if original.base_offset >= 0 or result is None:
        # Where they do not follow each other, what was stored in their place says where they would
        # be; without that nobody can say.
        answer.base_offset = original.base_offset
        answer.log_append_time_ms = original.time_ms
    if result is not None:
        return []
    answer.log_start_offset = partition.log.log_start_offset
    return [(partition, answer, original.last_offset)]


class DuplicateLook(Protocol):
    """A look at one batch."""

    def judge(self, buf: WritableBuffer, batch: BatchHeader) -> tuple[WritableBuffer, BatchHeader]:
        """The batch to store, at position 0 of another buffer unless it is `buf`. In a worker
        thread. Raises AppendError, LogDirFailure, InvalidRecords."""

    def judge_again(self, partition: Partition, now_ms: int) -> None:
        """Begin once more, when it does not hold; on the loop. `judge` is to follow."""

    def holds(self, partition: Partition) -> bool:
        """Whether the judgement is as it would be now; on the loop."""

    @property
    def stores_nothing(self) -> bool:
        """Whether all is a duplicate, and nothing has to be stored."""

    @property
    def original(self) -> Original | None:
        """Of a batch all of whose records are duplicates."""

    def taken(self, result: AppendResult | None) -> None:
        """The batch was appended, or is answered without."""


class DuplicateFinder(Protocol):
    """What a feature plugs in (`Services.duplicates`)."""

    def begin(self, partition: Partition, window_ms: int, now_ms: int) -> DuplicateLook:
        """For a batch that a thread is to look at; on the loop."""
