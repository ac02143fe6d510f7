"""A cell of three brokers with a subscription whose readers nack, over random histories: the
source, the retry partition and the topic of dead letters change their leaders apart, some hear of
it later, paths are cut, brokers start again, clocks are off, answers are lost, the source forgets.

What must hold, whatever happens:
- What was delivered at a position comes back once, or is a dead letter once, however often and by
  whomever it is nacked. What was answered as taken is one of the two.
- An attempt is the one after that which failed, and the last one ends in a dead letter.
- A copy comes back once, with key and value of the original, when the policy or its nack says.
- A dead letter arrives once, in order, whoever sends it; it waits where its topic is not there.
- Each message ends as done, or dead; in the end nothing is pending, nothing waits.
- All replicas end with the same logs, and know the same of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from data_plane.cell.metadata import TopicImage
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, Record, build_batch, decode_batch, iter_batch_headers
from features.retry_dlq.commands import Position
from features.retry_dlq.delays import RetryDelays
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.positions import Positions, entries_in
from tests.broker.broker_player import Pending
from tests.broker.cell_player import TOPIC, TOPIC_ID
from tests.features.faulty_cell import FaultyCell, OffClock, batches_of, play_to_its_end
from tests.features.retry_story import Content, Story, content_of

PAY_ID = UUID(int=50)
GRAVEYARD_ID = UUID(int=51)
TOPICS = (TOPIC_ID, PAY_ID, GRAVEYARD_ID)
GRAVEYARD = "graveyard"
SKEW_MS_MAX = 50
# Answers are looked for among the last batches.
NOT_TOLD_MAX = 40
ATTEMPTS_MAX = 3
BACKOFF_MS = (30, 120)
CONFIGS = {"tidewheel.headers": "true", "file.delete.delay.ms": "0"}
POLICY = {
    "tidewheel.source": TOPIC,
    "tidewheel.retry.backoff": "list:30ms,120ms",
    "tidewheel.retry.attempts.max": str(ATTEMPTS_MAX),
    "tidewheel.dlq.topic": GRAVEYARD,
    "file.delete.delay.ms": "0",
}
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Delivered(NamedTuple):
    """What a consumer got, and when."""

    position: Position
    content: Content
    at_ms: int


@dataclass
class Said:
    """A batch of nacks. `are_delivered`: all these positions were delivered to somebody."""

    positions: list[Position]
    are_delivered: bool
    pending: Pending
    # Of the logs of these positions, when it was answered.
    log_starts: list[int] | None = None

    @property
    def error_code(self) -> int | None:
        """What was answered; None while nothing is."""
        if not self.pending.is_answered:
            return None
        ((part,),) = (topic.partition_responses for topic in self.pending.response.responses)
        return int(part.error_code)


class Consumer:
    """Reads both partitions of the subscription, wherever they are led."""

    def __init__(self) -> None:
        self.offsets = [0, 0]
        self.got: list[Delivered] = []


class RetryCell(FaultyCell):
    """One history."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CONFIGS)
        own = self.cell.image.topics_by_id[TOPIC_ID].partitions
        self.cell.add_topic(TopicImage("default", "pay", PAY_ID, own, POLICY, source_id=TOPIC_ID))
        self.clocks = {node_id: OffClock() for node_id in self.cell.brokers}
        for node_id in self.cell.brokers:
            self.use_clock(node_id)
        # A former owner of the partition is one of them.
        self.consumers = [Consumer(), Consumer()]
        self.said: list[Said] = []
        self.values_count = self.nacks_count = self.elections_count = self.restarts_count = 0
        # What was committed in the source, by offset; and the delays that nacks have asked for.
        self.values: dict[int, Content] = {}
        self.story: Story | None = None
        self.delays_ms: dict[bytes, int] = {}
        if self.rng.random() < 0.7:
            self.add_graveyard()

    def step(self) -> None:
        actions = [self.produce] * 4 + [self.nack] * 8 + [self.deliver] * 12 + [self.work] * 12
        actions += [self.pass_time] * 8 + [self.read] * 8
        actions += [self.elect] * 2 + [self.tell] * 2 + [self.heal] * 2
        actions += [self.cut, self.set_clock, self.restart, self.forget_old, self.make_graveyard]
        self.rng.choice(actions)()
        for said in self.said[-NOT_TOLD_MAX:]:
            if said.log_starts is None and said.pending.is_answered:
                said.log_starts = [self.start_of(one) for one in said.positions]

    def leading(self, topic_id: UUID) -> list[int]:
        """Those that take themselves for the leader of its partition."""
        return [one for one in self.cell.brokers if self.replica(one, topic_id).is_leader]

    def replica(self, node_id: int, topic_id: UUID) -> Partition:
        return self.cell.replica(node_id, topic_id=topic_id)

    # What clients do

    def produce(self) -> None:
        for node_id in self.leading(TOPIC_ID):
            records = []
            for _ in range(self.rng.randrange(1, 4)):
                value = b"%d" % self.values_count
                self.values_count += 1
                records.append(NewRecord(self.now_ms, b"k" + value, value, ((b"h", value),)))
            batch = build_batch(records, compression=self.rng.choice([0, 4]))
            self.cell.brokers[node_id].produce(TOPIC, [], batch=batch)

    def read(self) -> None:
        consumer, index = self.rng.choice(self.consumers), self.rng.randrange(2)
        for node_id in self.leading(PAY_ID if index else TOPIC_ID):
            self.fetch(consumer, index, node_id)

    def fetch(self, consumer: Consumer, index: int, node_id: int) -> bool:
        """Whether there was something."""
        broker = self.cell.brokers[node_id]
        offset = consumer.offsets[index]
        pending = broker.fetch({("pay", index): offset}, max_bytes=self.rng.choice([1, 1 << 20]))
        for _ in range(20):
            if pending.is_answered:
                break
            broker.run_jobs()
            broker.services.tick(broker.now_ms)
        if not pending.is_answered:
            return False
        ((part,),) = (topic.partitions for topic in pending.response.responses)
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            consumer.offsets[index] = max(offset, part.log_start_offset)
        data = part.records or b""
        for header in iter_batch_headers(data, 0, len(data)):
            consumer.offsets[index] = header.next_offset
            for record in [] if header.is_control else decode_batch(data, header.position):
                if record.offset >= offset:
                    self.take(consumer, Position(index, record.offset), record)
        return consumer.offsets[index] > offset

    def take(self, consumer: Consumer, position: Position, record: Record) -> None:
        content = content_of(record)
        consumer.got.append(Delivered(position, content, self.now_ms))
        if not position.is_own:
            assert self.values.setdefault(position.offset, content) == content

    def nack(self) -> None:
        """What was delivered lately, or said before and perhaps not heard; or what was not
        delivered, and may never be."""
        kind = self.rng.random()
        got = self.rng.choice(self.consumers).got
        if kind < 0.25 and self.said:
            before = self.rng.choice(self.said[-8:])
            self.say(before.positions, before.are_delivered)
        elif kind < 0.35:
            index = self.rng.randrange(2)
            for node_id in self.leading(PAY_ID if index else TOPIC_ID)[:1]:
                partition = self.replica(node_id, PAY_ID if index else TOPIC_ID)
                at = self.rng.randrange(partition.high_watermark, partition.log.log_end_offset + 2)
                self.say([Position(index, at)], False)
        elif got:
            if self.rng.random() < 0.4:
                got = [one for one in got if one.position.is_own] or got
            count = self.rng.randrange(1, 4)
            self.say([one.position for one in self.rng.choices(got[-10:], k=count)], True)

    def say(self, positions: list[Position], are_delivered: bool) -> None:
        leaders = self.leading(PAY_ID)
        if not leaders:
            return
        broker = self.cell.brokers[self.rng.choice(leaders)]
        records = [NewRecord(self.now_ms, None, None, self.headers(one)) for one in positions]
        # Each batch has a connection of its own, so that some wait for the turns of others.
        pending = broker.produce(
            "pay", [], index=1, batch=build_batch(records), connection=broker.connect()
        )
        self.said.append(Said(positions, are_delivered, pending))

    def headers(self, position: Position) -> tuple[tuple[bytes, bytes], ...]:
        self.nacks_count += 1
        reason = b"nack %d" % self.nacks_count
        if self.rng.random() < 0.2:
            return (b"tw-dead-letter", position.encoded()), (b"tw-reason", reason)
        named = (b"tw-nack", position.encoded()), (b"tw-reason", reason)
        if self.rng.random() < 0.6:
            return named
        self.delays_ms[reason] = self.rng.choice([1, 2, 50, 255, 256, 700])
        return *named, (b"tw-delay", b"%dms" % self.delays_ms[reason])

    # What goes wrong

    def elect(self) -> None:
        self.elections_count += 1
        topic_id = self.rng.choice([one for one in TOPICS if one in self.cell.image.topics_by_id])
        told = [one for one in self.cell.brokers if self.rng.random() < 0.6]
        leader = self.rng.choice(list(self.cell.brokers))
        self.cell.change(topic_id=topic_id, leader=leader, only=told)

    def set_clock(self) -> None:
        if self.rng.random() < 0.5:
            for one in self.clocks.values():
                one.off_ms = 0
            return
        clock = self.rng.choice(list(self.clocks.values()))
        clock.off_ms = self.rng.choice([0, 0, 0, -SKEW_MS_MAX, SKEW_MS_MAX, SKEW_MS_MAX, 51, -300])

    def use_clock(self, node_id: int) -> None:
        services = self.cell.brokers[node_id].services
        services.wall_clock = self.clocks[node_id]  # type: ignore[assignment]

    def restart(self) -> None:
        """Of one that is busy or not; what it led has another leader then, or itself anew."""
        if self.rng.random() < 0.6:
            return
        node_id = self.rng.choice(list(self.cell.brokers))
        topics = self.cell.image.topics_by_id
        led = [one for one, topic in topics.items() if topic.partitions[0].leader == node_id]
        self.cell.restart(node_id, is_clean=self.rng.random() < 0.3)
        self.use_clock(node_id)
        self.restarts_count += 1
        for topic_id in led:
            leader = self.rng.choice(list(self.cell.brokers))
            self.cell.change(topic_id=topic_id, leader=leader)

    def make_graveyard(self) -> None:
        """Until then dead letters wait."""
        if GRAVEYARD_ID not in self.cell.image.topics_by_id and self.rng.random() < 0.1:
            self.add_graveyard()

    def add_graveyard(self) -> None:
        own = self.cell.image.topics_by_id[TOPIC_ID].partitions
        self.cell.add_topic(TopicImage("default", GRAVEYARD, GRAVEYARD_ID, own, CONFIGS))

    def forget_old(self) -> None:
        """Of the source, what is committed, as DeleteRecords does."""
        for node_id in self.leading(TOPIC_ID):
            partition = self.replica(node_id, TOPIC_ID)
            log = partition.log
            log.roll()
            log.flush()
            if self.rng.random() < 0.3:
                self.learn_values(partition)
                start, end = log.log_start_offset, partition.high_watermark
                log.delete_records(max(start, end - self.rng.randrange(30)))

    def learn_values(self, partition: Partition) -> None:
        log = partition.log
        for _, records in batches_of(log, log.log_start_offset):
            for record in records:
                if record.offset < partition.high_watermark:
                    self.values[record.offset] = content_of(record)

    # The end

    def settle(self) -> None:
        """Faults end, all that waits becomes due, and all of it is read."""
        for clock in self.clocks.values():
            clock.off_ms = 0
        if GRAVEYARD_ID not in self.cell.image.topics_by_id:
            self.add_graveyard()
        super().settle()
        for index, topic_id in enumerate((TOPIC_ID, PAY_ID)):
            (leader,) = self.leading(topic_id)
            while self.fetch(self.consumers[0], index, leader):
                pass

    def check(self) -> None:
        for topic_id in TOPICS:
            for node_id in self.cell.brokers:
                self.replica(node_id, topic_id).log.load()
        (leader,) = self.leading(TOPIC_ID)
        self.learn_values(self.replica(leader, TOPIC_ID))
        story = Story(b"orders/0", self.values, BACKOFF_MS, ATTEMPTS_MAX, self.delays_ms)
        for topic_id in TOPICS:
            logs = [
                list(batches_of(log, log.log_start_offset))
                for log in (self.replica(one, topic_id).log for one in self.cell.brokers)
            ]
            if topic_id != TOPIC_ID:
                assert all(log == logs[0] for log in logs), "replicas differ"
            for header, records in logs[0]:
                for record in records:
                    if topic_id == PAY_ID:
                        story.take(header, record)
                    elif topic_id == GRAVEYARD_ID:
                        story.arrived(record)
        self.story = story
        assert not story.pending, f"these never came back: {story.pending}"
        assert not story.waiting(), f"these never arrived: {story.waiting()}"
        story.check_chains()
        self.check_answers(story)
        self.check_deliveries(story)
        for node_id in self.cell.brokers:
            self.check_folds(story, node_id)

    def check_answers(self, story: Story) -> None:
        for said in self.said:
            if said.error_code == ErrorCode.NONE:
                for position in said.positions:
                    assert position in story.said, f"{position} was taken, and nothing came of it"
            elif said.are_delivered and said.error_code is not None:
                starts = said.log_starts or [self.start_of(one) for one in said.positions]
                is_over = any(
                    one.offset < start for one, start in zip(said.positions, starts, strict=True)
                )
                assert said.error_code in RETRIABLE or is_over, said

    def start_of(self, position: Position) -> int:
        topic_id = PAY_ID if position.is_own else TOPIC_ID
        return max(self.replica(one, topic_id).log.log_start_offset for one in self.cell.brokers)

    def check_deliveries(self, story: Story) -> None:
        for consumer in self.consumers:
            for one in consumer.got:
                if one.position.is_own:
                    fired = story.fired[one.position.offset]
                    assert one.content == fired.content
                    assert one.at_ms >= fired.due_ms - 2 * SKEW_MS_MAX, f"{one} is early"

    def check_folds(self, story: Story, node_id: int) -> None:
        partition = self.replica(node_id, PAY_ID)
        nacks = partition.log.fold(Nacks)
        assert len(partition.log.fold(RetryDelays)) == 0, "something is pending"
        assert nacks.dead_letters.waiting_count == 0, "a dead letter waits"
        for positions, is_own in ((nacks.of_source, False), (nacks.own, True)):
            expected = {
                said.offset: stored_at
                for said, stored_at in story.said.items()
                if said.is_own is is_own and said.offset >= positions.floor
            }
            assert self.entries_of(partition, positions) == expected

    @staticmethod
    def entries_of(partition: Partition, positions: Positions) -> dict[int, int]:
        frozen = positions.freeze()
        log = partition.log
        try:
            return dict(entries_in(log.log_directory.fs, log.folder, frozen))
        finally:
            positions.thaw(frozen)


def play(seed: int, steps: int = 600) -> RetryCell:
    """A history, to its end. Raises AssertionError."""
    return play_to_its_end(RetryCell(seed), steps)
