"""A cell of three brokers with a window for message ids, over random histories: leaders change,
some hear of it later, paths are cut, clocks are off, and work of threads takes its time.

What must hold, whatever happens:
- No two messages with the same id are stored within the window, by the times in the log.
- Of what was acknowledged each message is there, or another one with its id; the answer is true.
- Idempotent producers never get out of step.
- All replicas end with the same log, and know the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG
from data_plane.wire.records import Record
from features.dedup.fold import fold_of
from features.delayed.hidden import FILLER_HEADER
from tests.broker.broker_player import Pending
from tests.broker.cell_player import TOPIC
from tests.features.dedup_player import ID, Message, Sequence, batch_of, produced
from tests.features.faulty_cell import FaultyCell, OffClock, batches_of, play_to_its_end

WINDOW_MS = 150
SKEW_MS_MAX = 20
CONFIGS = {
    "tidewheel.headers": "true",
    "dedup.window.ms": str(WINDOW_MS),
    "file.delete.delay.ms": "0",
}
IDS = [b"id-%d" % number for number in range(25)]
PRODUCERS = (7, 8)
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


@dataclass
class Sent:
    """A batch that was produced, when, and what was answered."""

    messages: list[Message]
    sequence: Sequence | None
    sent_ms: int
    pending: Pending
    answered_ms: int = -1
    base_offset: int = -1
    error_code: int = 0
    # Of a producer that has sent it again.
    is_repeated: bool = False


class DedupCell(FaultyCell):
    """One history."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CONFIGS)
        for broker in self.cell.brokers.values():
            clock = OffClock()
            clock.off_ms = self.rng.choice([0, 0, -SKEW_MS_MAX, SKEW_MS_MAX])
            broker.services.wall_clock = clock  # type: ignore[assignment]
            broker.services.partitions.wall_ms = clock.wall_ms
        self.sent: list[Sent] = []
        self.values_count = 0
        self.next_sequences = dict.fromkeys(PRODUCERS, 0)
        # What idempotent producers wait for.
        self.open: dict[int, Sent] = {}

    def step(self) -> None:
        actions = [self.produce] * 6 + [self.produce_in_sequence] * 6 + [self.deliver] * 10
        actions += [self.work] * 14 + [self.pass_time] * 6
        actions += [self.elect, self.tell, self.cut, self.heal, self.roll, self.check_folds]
        self.rng.choice(actions)()
        self.take_answers()

    def messages(self) -> list[Message]:
        """New ones; some have the ids of messages that were sent a moment ago, as of a client that
        begins anew and sends all again."""
        if self.sent and self.rng.random() < 0.4:
            ids = [one for one, _ in self.rng.choice(self.sent[-8:]).messages]
        else:
            count = self.rng.randrange(1, 5)
            ids = [self.rng.choice([None, *IDS, *IDS]) for _ in range(count)]
        values = range(self.values_count, self.values_count + len(ids))
        self.values_count += len(ids)
        return [(one, b"%d" % value) for one, value in zip(ids, values, strict=True)]

    def produce(self) -> None:
        self._send(self.messages(), None)

    def produce_in_sequence(self) -> None:
        """One batch of a producer after the other; what was not taken is sent again."""
        producer_id = self.rng.choice(PRODUCERS)
        before = self.open.get(producer_id)
        if before is None:
            sequence = Sequence(producer_id, self.next_sequences[producer_id])
            sent = self._send(self.messages(), sequence)
        elif before.answered_ms >= 0 or self.rng.random() < 0.05:
            # The answer was an error, or is lost with the connection.
            sent = self._send(before.messages, before.sequence)
            if sent is not None:
                before.is_repeated = True
        else:
            return
        if sent is not None:
            self.open[producer_id] = sent

    def _send(self, messages: list[Message], sequence: Sequence | None) -> Sent | None:
        leaders = self.leaders()
        if not leaders:
            return None
        broker = self.cell.brokers[self.rng.choice(leaders)]
        compression = self.rng.choice([0, 4])
        batch = batch_of(*messages, now_ms=self.now_ms, sequence=sequence, compression=compression)
        # Each batch has a connection of its own, so that threads look at several at a time.
        pending = broker.produce(TOPIC, [], batch=batch, connection=broker.connect())
        sent = Sent(messages, sequence, self.now_ms, pending)
        self.sent.append(sent)
        return sent

    def take_answers(self) -> None:
        for sent in self.sent:
            if sent.answered_ms >= 0 or not sent.pending.is_answered:
                continue
            answer = produced(sent.pending)
            sent.answered_ms, sent.base_offset = self.now_ms, answer.base_offset
            sent.error_code = answer.error_code
            assert not answer.error_code or answer.error_code in RETRIABLE, answer
            if sent.sequence is not None and not answer.error_code:
                producer_id = sent.sequence.producer_id
                last = self.open.get(producer_id)
                if last is not None and last.sequence == sent.sequence:
                    del self.open[producer_id]
                    self.next_sequences[producer_id] += len(sent.messages)

    def is_woken(self) -> bool:
        return self.rng.random() < 0.7

    def roll(self) -> None:
        log = self.cell.replica(self.rng.choice(list(self.cell.brokers))).log
        log.roll()
        log.flush()

    # The end

    def settle(self) -> None:
        super().settle()
        self.take_answers()

    def check(self) -> None:
        (leader,) = self.leaders()
        logs = {node_id: self.records(node_id) for node_id in self.cell.brokers}
        assert all(log == logs[leader] for log in logs.values()), "replicas differ"
        self.check_window(logs[leader])
        self.check_answers({record.offset: record for record in logs[leader]})

    def check_window(self, records: list[Record]) -> None:
        last: dict[bytes, Record] = {}
        for record in records:
            message_id = id_of(record)
            if message_id is None:
                continue
            before = last.get(message_id)
            assert before is None or record.timestamp - before.timestamp >= WINDOW_MS, (
                f"{record} is a duplicate of {before}"
            )
            last[message_id] = record

    def check_answers(self, by_offset: dict[int, Record]) -> None:
        stored = {record.value: record for record in by_offset.values()}
        by_id: dict[bytes, list[Record]] = {}
        for record in by_offset.values():
            message_id = id_of(record)
            if message_id is not None:
                by_id.setdefault(message_id, []).append(record)
        for sent in self.sent:
            if sent.answered_ms < 0 or sent.error_code:
                continue
            for number, (message_id, value) in enumerate(sent.messages):
                if value not in stored:
                    assert message_id is not None, f"{value!r} is lost"
                    assert any(
                        sent.sent_ms - WINDOW_MS - 2 * SKEW_MS_MAX
                        <= one.timestamp
                        <= sent.answered_ms + 2 * SKEW_MS_MAX
                        for one in by_id.get(message_id, ())
                    ), f"{value!r} with {message_id!r} is lost"
                if sent.base_offset >= 0:
                    self.check_offset(by_offset.get(sent.base_offset + number), message_id, value)

    @staticmethod
    def check_offset(there: Record | None, message_id: bytes | None, value: bytes) -> None:
        """What is at the offset that was answered is the message or another one of its id, or a
        gap."""
        if there is None or there.headers == ((FILLER_HEADER, None),):
            assert message_id is not None
        elif message_id is None:
            assert there.value == value
        else:
            assert id_of(there) == message_id

    def check_folds(self) -> None:
        """Each replica knows the newest of each id that its log has, while the window of any leader
        may be open."""
        since_ms = self.now_ms - WINDOW_MS - SKEW_MS_MAX
        for node_id in self.cell.brokers:
            newest = {one: record for record in self.records(node_id) if (one := id_of(record))}
            expected = {
                one: (record.offset, record.timestamp)
                for one, record in newest.items()
                if record.timestamp >= since_ms
            }
            log = self.cell.replica(node_id).log
            fold = fold_of(log)
            assert fold is not None
            view = fold.ids.view()
            assert view.find(log.log_directory.fs, log.folder, IDS, since_ms) == expected

    def records(self, node_id: int) -> list[Record]:
        """All that is in the log; none is ever delivered by the broker."""
        log = self.cell.replica(node_id).log
        found = []
        for header, records in batches_of(log, log.log_start_offset):
            assert not header.attributes & FACTS_FLAG
            found += records
        return found


def id_of(record: Record) -> bytes | None:
    return next((value for key, value in record.headers if key == ID), None)


def play(seed: int, steps: int = 250) -> DedupCell:
    """A history, to its end. Raises AssertionError."""
    return play_to_its_end(DedupCell(seed), steps)
