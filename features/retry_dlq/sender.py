"""Dead letters on their way: from the log of a retry partition that this broker leads to the leader
of their topic's partition, and a *sent* record when they are safe there.

    waiting ─► below the high watermark? ─► a thread reads them and makes a batch
            ─► Produce, acks=all, to the target's leader, on the brokers' own listener
            ─► stored there, or there already (arrivals.py) ─► tw-sent in the retry log

One batch of a retry partition is on its way at a time. What comes of it is not remembered: a new
leader sends from where the log says, and what had arrived is known there.

Invariants
- Nothing is sent that could still be cut off, and nothing is called sent that its topic could lose.
- A dead letter leaves the fold by a stored *sent* record alone. Whatever keeps it from being sent
  is logged and counted by its reason, and tried again, for ever.

Deliberately absent: making the topic (dead_letter_topics.py).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from data_plane.broker.cell.cell_view import endpoint_of
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.cell.features import RETRIES, level_of
from data_plane.cell.metadata import NO_LEADER, MetadataImage
from data_plane.log.errors import LogError
from data_plane.log.log import FEATURE, Log
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import NewRecord, build_batch
from features.retry_dlq.dead_letter_topics import make_dead_letter_topic
from features.retry_dlq.dead_letters import RECORDS_MAX, DeadBatch, read_dead_letters
from features.retry_dlq.metrics import RetryMetrics
from features.retry_dlq.nacks import SENT_HEADER, Nacks
from features.retry_dlq.sending import TOO_LARGE, error_in, produce_to, request_for

SWEEP_INTERVAL_MS: Final = 1_000
RETRY_MS_MIN: Final = 100
RETRY_MS_MAX: Final = 10_000


def nacks_of(log: Log) -> Nacks | None:
    """The log's fold; None when it has none, or is not loaded."""
    for fold in log.folds_if_loaded or ():
        if isinstance(fold, Nacks):
            return fold
    return None


class DeadLetterSender:
    """One per broker, a component."""

    def __init__(self, services: Services, metrics: RetryMetrics) -> None:
        self.services = services
        self.metrics = metrics
        metrics.look = self._waiting_count
        metrics.remembered = self._remembered_count
        self._sending: dict[Partition, _PartitionSender] = {}
        self._woken: dict[Partition, None] = {}
        self._sweep_ms = 0
        # As of the last look.
        self.now_ms = 0
        self.is_stopped = False
        services.hidden_listeners.append(self.wake)
        services.image_listeners.append(self._image_changed)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        peers = self.services.feature_peers
        if old.brokers is not new.brokers and peers is not None:
            for node_id, broker in old.brokers.items():
                if endpoint_of(broker) != endpoint_of(new.brokers.get(node_id)):
                    peers.disconnect(node_id)

    def start(self, now_ms: int) -> None:
        self._sweep_ms = now_ms

    def wake(self, partition: Partition) -> None:
        """Look at it when this pass ends."""
        if not self.is_stopped:
            self._woken[partition] = None
            self.services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        self.now_ms = now_ms
        woken, self._woken = self._woken, {}
        for one in woken:
            self._look(one, now_ms)

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        if now_ms < self._sweep_ms:
            return
        self._sweep_ms = now_ms + SWEEP_INTERVAL_MS
        if level_of(self.services.image.features, RETRIES) >= 1:
            for one in list(self.services.partitions.leading()):
                self._look(one, now_ms)

    def next_deadline_ms(self) -> int | None:
        return self._sweep_ms

    def stop(self, now_ms: int) -> None:
        self.is_stopped = True
        for one in self._sending.values():
            one.stop()
        self._sending.clear()
        self._woken.clear()

    def _waiting_count(self) -> int:
        found = (nacks_of(one.log) for one in self.services.partitions.leading())
        return sum(fold.dead_letters.waiting_count for fold in found if fold is not None)

    def _remembered_count(self) -> int:
        found = (nacks_of(one.log) for one in self.services.partitions.opened())
        return sum(len(fold) for fold in found if fold is not None)

    def forget(self, partition: Partition) -> None:
        self._sending.pop(partition, None)

    def _look(self, partition: Partition, now_ms: int) -> None:
        fold = nacks_of(partition.log)
        one = self._sending.get(partition)
        if fold is None or fold.due_ms is None or not partition.is_leader:
            if one is not None and not one.is_waiting:
                del self._sending[partition]
            return
        if one is None:
            one = self._sending[partition] = _PartitionSender(self, partition)
        one.look(now_ms)


class _PartitionSender:
    """A led retry partition with dead letters that wait."""

    def __init__(self, sender: DeadLetterSender, partition: Partition) -> None:
        self._sender = sender
        self._services = sender.services
        self._partition = partition
        self._timer: Timer | None = None
        self._pause_ms = RETRY_MS_MIN
        self._is_busy = False
        # Before it nothing waits, though the fold may not know.
        self._cursor = 0
        # What a thread has read, with the fold and the leader epoch that it was read for.
        self._begun: tuple[Nacks, int] | None = None
        self._read: DeadBatch | str = ""
        # In one batch.
        self._count_max = RECORDS_MAX

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_waiting(self) -> bool:
        """Whether it will be called back."""
        return self._is_busy or self._timer is not None

    def look(self, now_ms: int) -> None:
        """Send what can be sent now."""
        if self.is_waiting:
            return
        partition = self._partition
        fold = nacks_of(partition.log)
        is_in_use = partition.is_leader and partition.is_writable and partition.tenant
        if fold is None or fold.due_ms is None or not is_in_use:
            self._sender.forget(partition)
            return
        begun = (fold, partition.leader_epoch)
        if self._begun != begun:
            self._begun, self._cursor = begun, 0
        first = max(fold.dead_letters.first_offset, self._cursor)
        end_offset = partition.high_watermark
        self._is_busy = True
        if first >= end_offset:
            partition.when_committed(first, self._committed)
            return
        log = partition.log
        work = partial(
            read_dead_letters, log, first, end_offset, log.topic_id.bytes, self._count_max
        )

        def done(read: DeadBatch | None, error: BaseException | None) -> None:
            self._read = str(error) if read is None else read
            self._services.wakes.wake(self)

        self._services.executor.submit(work, done)

    def _committed(self, error: ErrorCode) -> None:
        self._is_busy = False
        self._sender.wake(self._partition)

    def _is_as_it_was(self) -> bool:
        partition = self._partition
        now = (nacks_of(partition.log), partition.leader_epoch)
        return partition.is_leader and self._begun == now and not self._sender.is_stopped

    def run(self, now_ms: int) -> None:
        """Take up what a thread has read."""
        read = self._read
        self._is_busy = False
        if not self._is_as_it_was():
            self._sender.wake(self._partition)
        elif isinstance(read, str):
            self._hold("unreadable", now_ms, read)
        elif not read.letters_count:
            self._cursor = read.next_offset
            self._sender.wake(self._partition)
        else:
            self._send(read, now_ms)

    def _send(self, read: DeadBatch, now_ms: int) -> None:
        services, partition = self._services, self._partition
        name, index = read.target
        topic = services.image.topic(partition.tenant, name)
        if topic is not None and topic.deletion is not None:
            # Its name is taken until it has gone for good, or is back.
            self._hold("topic_deleted", now_ms, f"topic {name} is deleted")
            return
        if topic is not None and topic.is_virtual:
            self._hold("is_subscription", now_ms, f"{name} is a subscription")
            return
        if topic is None:
            self._is_busy = True
            made = partial(self._topic_made, name)
            make_dead_letter_topic(services, partition.log.topic_id, name, made)
            return
        if index >= len(topic.partitions):
            # It was made anew with fewer.
            index %= len(topic.partitions)
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            self._hold("no_leader", now_ms, f"{name}-{index} has no leader")
            return
        self._is_busy = True
        answered = partial(self._answered, read)
        produce_to(services, leader, request_for(topic, index, read.batch), answered, now_ms)

    def _topic_made(self, name: str, reason: str) -> None:
        self._is_busy = False
        if reason:
            self._hold(reason, self._sender.now_ms, f"topic {name} is not there")
        else:
            self._sender.wake(self._partition)

    def _answered(self, read: DeadBatch, body: memoryview | None, now_ms: int) -> None:
        self._is_busy = False
        error = error_in(body)
        if not self._is_as_it_was():
            self._sender.wake(self._partition)
        elif error in TOO_LARGE and read.letters_count > 1:
            self._count_max = read.letters_count // 2
            self._sender.wake(self._partition)
        elif error is not ErrorCode.NONE:
            target = f"{read.target[0]}-{read.target[1]}"
            self._hold(error.name.lower(), now_ms, f"{target} was not appended to")
        else:
            self._note_sent(read, now_ms)

    def _note_sent(self, read: DeadBatch, now_ms: int) -> None:
        assert self._begun is not None
        left = self._begun[0].dead_letters.waiting_count - read.letters_count
        value = b"%d:%d" % (read.last_offset, left)
        wall_ms = self._services.wall_clock.wall_ms(now_ms)
        record = NewRecord(wall_ms, None, None, ((SENT_HEADER, value),))
        batch = build_batch([record], attributes=HIDDEN_FLAG)
        try:
            self._partition.append_as_leader(batch, 0, len(batch), now_ms=now_ms, origin=FEATURE)
        except LogError as error:
            self._hold("not_noted", now_ms, str(error))
            return
        self._sender.metrics.sent_count += read.letters_count
        self._pause_ms = RETRY_MS_MIN
        self._sender.wake(self._partition)

    def _hold(self, reason: str, now_ms: int, message: str) -> None:
        """They stay where they are, and are tried again."""
        partition = self._partition
        self._sender.metrics.held_counts[reason] += 1
        self._services.log.warning(
            "dead_letters_not_sent",
            topic=partition.topic,
            partition=partition.index,
            reason=reason,
            message=message,
        )
        self._timer = self._services.timers.schedule(now_ms + self._pause_ms, self._try_again)
        self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def _try_again(self, now_ms: int) -> None:
        self._timer = None
        self._sender.wake(self._partition)
