"""The taken batches of one Produce request (takers.py): one after the other, each in its turn.

    begin ─► not its turn ─► (called back) ─► begin ─► made anew by a thread ─► stored ─► leave

Deliberately absent: appending, and answers (produce_handler.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from typing import Final

from data_plane.broker.produce.produce_checks import (
    SPECIAL_BATCH_BITS,
    Checked,
    ProduceChecks,
    Refusal,
)
from data_plane.broker.produce.produce_response import ZSTD_VERSION, PartitionAnswer
from data_plane.broker.produce.produce_waits import Waiting
from data_plane.broker.produce.takers import TakenPartition, Turn, read_header
from data_plane.broker.request.api import RequestContext
from data_plane.broker.services import Services
from data_plane.log.errors import AppendError
from data_plane.log.log import AppendResult
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import BatchHeader

Work = Callable[[], Checked | Refusal]


class Wait(Enum):
    """It goes on when it is called back."""

    FOR_TURN = "another batch of the partition is being taken"


# What becomes of a batch: work for a thread, what was answered before, why it is refused, or the
# header of one that clients may not write.
Begun = Wait | Work | AppendResult | Refusal | BatchHeader

_LED_ELSEWHERE: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "The partition was led anew while the batch was looked at."
)
_TOO_FEW: Final = Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "Too few replicas are in sync.")


class TakenBatches:
    """See the module. `on_come` is called when a turn has come that was waited for."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        checks: ProduceChecks,
        on_come: Callable[[], None],
    ) -> None:
        self._services = services
        self._checks = checks
        self._on_come = on_come
        self._is_broker = context.connection.is_inter_broker
        self._zstd_allowed = context.api_version >= ZSTD_VERSION
        self._turn: Turn | None = None

    def begin(
        self,
        taken: TakenPartition,
        partition: Partition,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        now_ms: int,
    ) -> Begun:
        """Have it made anew, if it is its turn. `leave` when it is over."""
        services, turn = self._services, self._turn
        if turn is None or turn.partition is not partition:
            self.leave()
            turn = self._turn = services.taken_turns.take(partition, self._on_come)
        if not services.taken_turns.has_come(turn):
            return Wait.FOR_TURN
        log = partition.log
        try:
            header = read_header(
                log,
                buf,
                start,
                end,
                is_broker=self._is_broker,
                zstd_allowed=self._zstd_allowed,
            )
            if header.attributes & SPECIAL_BATCH_BITS:
                return header
            duplicate = log.find_duplicate(header)
            if duplicate is not None:
                return duplicate
            taker = services.taker
            assert taker is not None, "who says that it is taken is there"
            taking = taker.begin(taken.topic, partition, now_ms, is_broker=self._is_broker)
        except (AppendError, InvalidRecords) as error:
            return self._checks.refusal(error)
        turn.begin(taking)
        return functools.partial(
            self._checks.take_in_thread,
            buf,
            start,
            end,
            log.config,
            services.thread_unpackers,
            zstd_allowed=self._zstd_allowed,
            taking=taking,
        )

    @property
    def partition(self) -> Partition | None:
        """Whose turn it is; None without one."""
        return None if self._turn is None else self._turn.partition

    def settled(self, found: Checked | Refusal, *, needs_all: bool) -> Checked | Refusal:
        """What a thread has found, if that may still be stored, or said; else why not."""
        turn = self._turn
        assert turn is not None
        if not turn.holds:
            return _LED_ELSEWHERE
        is_lacking = needs_all and turn.partition.is_under_min_isr
        return _TOO_FEW if is_lacking and isinstance(found, Checked) else found

    def verdict_waits(self, answer: PartitionAnswer) -> list[Waiting]:
        """What a refusal that is filled in waits for."""
        taking = None if self._turn is None else self._turn.taking
        if taking is None or answer.error_code != ErrorCode.INVALID_RECORD:
            return []
        return [(one, answer, one.log.log_end_offset - 1) for one in taking.doubts]

    def leave(self) -> None:
        """It is over, or nobody waits for it any more."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._services.taken_turns.leave(turn)


def nothing_stored(partition: Partition) -> AppendResult:
    """What is answered where nothing is to be stored: as for a duplicate of the last record."""
    log = partition.log
    last_offset = log.log_end_offset - 1
    return AppendResult(last_offset, last_offset, -1, True, log.log_start_offset)
