"""What is produced to a subscription's retry partitions, judged (the Judge port of Produce).

    on the loop    the policy, the clock, what was nacked, and both logs with what readers see
    in a thread    the commands, their originals, and the batch that is stored

Deliberately absent: turns, and what a judgement holds for (data_plane/broker/produce/takers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from data_plane.broker.produce.hiding import trusted_wall_ms
from data_plane.broker.produce.takers import Taking
from data_plane.broker.services import Services
from data_plane.cell.features import RETRIES, level_of
from data_plane.cell.metadata import TopicImage
from data_plane.cell.virtual_topics import HEADERS_PROPERTY, source_of
from data_plane.log.errors import AppendError, LogDirFailure
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import scan_headers
from data_plane.wire.records import BatchHeader, Buffer
from features.retry_dlq.arrivals import Arrivals, TakenDeadLetters
from features.retry_dlq.breakers import Breakers
from features.retry_dlq.commands import read_commands
from features.retry_dlq.judgement import Outcome, Outlook, judge, refusal_of
from features.retry_dlq.metrics import RetryMetrics
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.originals import ReadableLog, StoredDeliveries
from features.retry_dlq.settings import dead_letter_topic, policy_for
from features.retry_dlq.snapshot import FoldState
from features.retry_dlq.stored_form import stored_batch

_PREFIX: Final = b"tw-"
_CLOCK_IN_DOUBT: Final = (
    "the broker's clock is too far from the metadata store's, or not compared yet"
)


class RetryTaker:
    """One per broker."""

    def __init__(self, services: Services, metrics: RetryMetrics, breakers: Breakers) -> None:
        self._services = services
        self._metrics = metrics
        self._breakers = breakers

    def refusal(self, topic: TopicImage, *, is_broker: bool) -> str | None:
        """See Taker."""
        if is_broker and not topic.is_virtual:
            if topic.configs.get(HEADERS_PROPERTY, "").strip().lower() == "true":
                return ""
            return f"Topic '{topic.name}' takes no dead letters: {HEADERS_PROPERTY} is not true."
        if not topic.is_virtual:
            return None
        if level_of(self._services.image.features, RETRIES) < 1:
            return (
                f"Topic '{topic.name}' reads from another one, to which records are produced. What "
                f"its readers nack needs the feature {RETRIES} at level 1."
            )
        return ""

    def begin(
        self, topic: TopicImage, partition: Partition, now_ms: int, *, is_broker: bool
    ) -> Taking:
        """See Taker."""
        if is_broker:
            return TakenDeadLetters(partition.log.fold(Arrivals).last)
        services = self._services
        wall_ms = trusted_wall_ms(services, now_ms)
        if wall_ms is None:
            raise AppendError(ErrorCode.REQUEST_TIMED_OUT, _CLOCK_IN_DOUBT)
        image = services.image
        source = source_of(image, topic)
        if source is None:
            raise AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the subscription has no source")
        index = partition.index
        target = dead_letter_topic(topic)
        known = image.topic(topic.tenant, target)
        count = len(source.partitions if known is None else known.partitions)
        outlook = Outlook(
            index, policy_for(topic.configs), f"{target}/{index % count}".encode(), wall_ms
        )
        original = services.partitions.replica(source.topic_id, index)
        nacks = partition.log.fold(Nacks)
        state = nacks.state()
        deliveries = StoredDeliveries(
            partition.log.log_directory.fs,
            None if original is None else _readable(original),
            _readable(partition),
            state,
            f"{source.name}/{index}",
        )
        chance = Random(services.random.getrandbits(64))

        def judged(outcomes: Sequence[Outcome]) -> None:
            self._breakers.judged(partition, outcomes, now_ms)

        pair, metrics = (original, partition), self._metrics
        return TakenNacks(pair, nacks, state, deliveries, outlook, chance, metrics, judged)


def _readable(partition: Partition) -> ReadableLog:
    log = partition.log
    end_offset = log.log_end_offset if partition.is_leader else None
    return ReadableLog(log, log.log_start_offset, partition.high_watermark, end_offset)


class TakenNacks:
    """That of one batch of commands."""

    def __init__(
        self,
        pair: tuple[Partition | None, Partition],
        nacks: Nacks,
        state: FoldState,
        deliveries: StoredDeliveries,
        outlook: Outlook,
        chance: Random,
        metrics: RetryMetrics,
        on_judged: Callable[[Sequence[Outcome]], None],
    ) -> None:
        """`pair` are the source's partition, if there is a copy here, and the subscription's own.
        `state` is released when it is closed; `on_judged` hears on the loop then what became of
        the commands, if they were not refused."""
        self._pair = pair
        self._log = pair[1].log
        self._nacks = nacks
        self._state = state
        self._deliveries = deliveries
        self._outlook = outlook
        self._chance = chance
        self._metrics = metrics
        self._on_judged = on_judged
        self._outcomes: Sequence[Outcome] = ()

    @property
    def doubts(self) -> Sequence[Partition]:
        """See Taking."""
        beyond = (self._pair[is_own] for is_own in sorted(self._deliveries.beyond))
        return [one for one in beyond if one is not None]

    def batch_to_store(self, header: BatchHeader, buf: Buffer, start: int, end: int) -> bytearray:
        """See Taking."""
        count = header.record_count
        commands, problems = read_commands(scan_headers(buf, start, end, count, _PREFIX), count)
        if problems:
            raise refusal_of(problems)
        try:
            outcomes = judge(commands, self._deliveries, self._outlook, self._chance)
        except FileNotFoundError as error:
            # The log was cut meanwhile, or deleted, and the runs have gone with what they were of.
            raise AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
        except OSError as error:
            failure = self._log.log_directory.fail(error)
            raise AppendError(failure.error_code, str(failure)) from error
        except LogDirFailure as error:
            raise AppendError(error.error_code, str(error)) from error
        self._metrics.judged(outcomes)
        self._outcomes = outcomes
        # By the leader's clock, as retention goes by these times.
        timestamps = [self._outlook.wall_ms] * count
        return stored_batch(header, timestamps, outcomes, self._outlook)

    def close(self) -> None:
        """See Taking."""
        self._nacks.release(self._state)
        if self._outcomes:
            self._on_judged(self._outcomes)
