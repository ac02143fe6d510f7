"""Requests about the offsets and records of partitions, which their leaders answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka.admin import OffsetSpec

from tidewheel.errors import BrokerUnreachable, TidewheelError
from tidewheel.message import TopicPartition
from tidewheel.transport.librdkafka.admin_requests import AdminRequests
from tidewheel.transport.librdkafka.connection import answered
from tidewheel.transport.librdkafka.consumer import NO_GROUP_ID


def _offset_spec(at: str | int) -> Any:
    specs: Any = OffsetSpec  # Its methods are not typed.
    if isinstance(at, int):
        return specs.for_timestamp(at)
    return specs.earliest() if at == "earliest" else specs.latest()


NONE: Final = ck.OFFSET_END
"""The answer when there is no record at or after the given time."""

COUNT_FROM: Final = 1 << 62
"""And an offset: how many records a subscription shows from there on. No record is so young."""

ASKS_PAUSE: Final = 1 << 61
"""Whether the retries of a subscription's own partition pause, and why."""


class OffsetRequests(AdminRequests):
    """The part of an `AdminTransport` that is about partitions."""

    async def offsets(
        self, partitions: Iterable[TopicPartition], at: str | int
    ) -> dict[TopicPartition, int]:
        """Offsets by name or time."""
        answers = await self._listed(dict.fromkeys(partitions, at))
        found = {partition: int(answer.offset) for partition, answer in answers.items()}
        missing = [partition for partition, offset in found.items() if offset == NONE]
        if missing:
            found.update(await self.offsets(missing, "latest"))
        return found

    async def shown_counts(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """How much subscriptions show: a time that no record has asks for it."""
        answers = await self._listed(
            {partition: COUNT_FROM + offset for partition, offset in positions.items()},
            isolation_level=ck.IsolationLevel.READ_COMMITTED,
        )
        return {
            partition: (answer.offset, answer.timestamp)
            for partition, answer in answers.items()
            if answer.offset != NONE
        }

    async def retry_pauses(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int, int]]:
        """As the leaders of retry partitions say: another time that no record has."""
        answers = await self._listed(dict.fromkeys(partitions, ASKS_PAUSE))
        return {
            partition: (answer.timestamp, answer.offset, answer.leader_epoch)
            for partition, answer in answers.items()
            if answer.offset != NONE
        }

    async def _listed(
        self, wanted: Mapping[TopicPartition, str | int], **options: Any
    ) -> dict[TopicPartition, Any]:
        """The leaders' answers, by name or time."""
        found: dict[TopicPartition, Any] = {}
        if not wanted:
            return found

        async def attempt(timeout_s: float, _is_unsure: bool) -> None:
            futures = self._client.list_offsets(
                {
                    ck.TopicPartition(*partition): _offset_spec(at)
                    for partition, at in wanted.items()
                    if partition not in found
                },
                request_timeout=timeout_s,
                **options,
            )
            refused: TidewheelError | None = None
            for p, future in futures.items():
                partition = TopicPartition(p.topic, p.partition)
                try:
                    answer = await answered(f"reading offsets of {partition}", future)
                except TidewheelError as error:
                    # A new partition has no leader for some milliseconds.
                    if refused is None or refused.retriable:
                        refused = error
                else:
                    is_by_time = isinstance(wanted[partition], int)
                    if answer.offset >= 0 or (is_by_time and answer.offset == NONE):
                        found[partition] = answer
                    elif refused is None:
                        # librdkafka calls it an answer when a leader that has gone gave none.
                        refused = BrokerUnreachable(f"The leader of {partition} does not answer")
            if refused is not None:
                raise refused

        await self._until_answered(attempt)
        return found

    async def record_timestamps(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Read one record of each partition with a consumer of its own."""
        if not positions:
            return {}
        return await asyncio.to_thread(self._read_timestamps, positions, timeout_s)

    def _read_timestamps(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, int]:
        properties = self._connection.properties(
            {
                "group.id": NO_GROUP_ID,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.partition.fetch.bytes": 16_384,
                "queued.min.messages": 1,
                "fetch.wait.max.ms": 100,
            }
        )
        found: dict[TopicPartition, int] = {}
        consumer = ck.Consumer(properties)
        try:
            wanted = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in positions.items()]
            consumer.assign(wanted)
            deadline = time.monotonic() + timeout_s
            while len(found) < len(positions) and time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is None or message.error() is not None:
                    continue
                topic, number = message.topic(), message.partition()
                assert topic is not None, "every record has a place"
                assert number is not None, "every record has a place"
                if (partition := TopicPartition(topic, number)) not in found:
                    found[partition] = message.timestamp()[1]
                    consumer.pause([ck.TopicPartition(*partition)])
        finally:
            consumer.close()
        return found

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Move the first offset of partitions up."""
        wanted = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in before.items()]
        result: dict[TopicPartition, int] = {}

        async def attempt(timeout_s: float, _is_unsure: bool) -> None:
            # Those that are done stay done: asking again for the same offset is no change.
            futures = self._client.delete_records(
                wanted, operation_timeout=timeout_s, request_timeout=timeout_s
            )
            for p, future in futures.items():
                partition = TopicPartition(p.topic, p.partition)
                answer = await answered(f"deleting records of {partition}", future)
                result[partition] = answer.low_watermark

        await self._until_answered(attempt)
        return result
