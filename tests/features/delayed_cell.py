"""A cell of three brokers with delayed messages, over random histories: leaders change, some hear
of it later, paths are cut, clocks are off, and work of threads takes its time.

What must hold, whatever happens:
- A message is delivered once, never before it is due by the clock of whoever delivered it, and no
  reader sees it before, give or take what clocks may be off.
- What was acknowledged is delivered, unless it is cancelled.
- What was cancelled is never delivered, if that was acknowledged. What is moved is delivered then.
- Facts are true: each speaks of a message that is pending by the log before it.
- All replicas end with the same log, and with nothing pending.
"""

from __future__ import annotations

from collections import Counter

from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    BatchHeader,
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    iter_batch_headers,
)
from features.delayed.commands import Fact, decode_fact
from features.delayed.firing import fold_of
from features.delayed.fold import FACT_HEADERS, source_offset
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms
from tests.broker.broker_player import Pending
from tests.broker.cell_player import TOPIC
from tests.features.faulty_cell import FaultyCell, OffClock, batches_of, play_to_its_end

SKEW_MS_MAX = 50
DELAY_MS_MAX = 2_000
CONFIGS = {"tidewheel.headers": "true", "file.delete.delay.ms": "0"}


class Sent:
    """A batch that was produced: its values, when each is due, and what was answered."""

    def __init__(self, due_ms: dict[bytes, int], pending: Pending) -> None:
        self.due_ms = due_ms
        self.pending = pending

    @property
    def is_acknowledged(self) -> bool:
        if not self.pending.is_answered:
            return False
        ((part,),) = (topic.partition_responses for topic in self.pending.response.responses)
        return bool(part.error_code == ErrorCode.NONE)


class Said:
    """A command that was produced about `value`: when it is due then, None for a cancel."""

    def __init__(self, value: bytes, due_ms: int | None, pending: Pending) -> None:
        self.value = value
        self.due_ms = due_ms
        self.pending = pending

    @property
    def error_code(self) -> int | None:
        """What was answered; None while nothing is."""
        if not self.pending.is_answered:
            return None
        ((part,),) = (topic.partition_responses for topic in self.pending.response.responses)
        return int(part.error_code)


class DelayedCell(FaultyCell):
    """One history."""

    configs = CONFIGS

    def __init__(self, seed: int) -> None:
        super().__init__(seed, self.configs)
        self.clocks = {node_id: OffClock() for node_id in self.cell.brokers}
        for node_id, broker in self.cell.brokers.items():
            broker.services.wall_clock = self.clocks[node_id]  # type: ignore[assignment]
        self.sent: list[Sent] = []
        self.said: list[Said] = []
        # By the time of the world, give or take SKEW_MS_MAX for delays.
        self.due_ms: dict[bytes, int] = {}
        # What readers were shown before it was deleted.
        self.delivered: set[bytes] = set()
        self.thinned_count = 0

    def step(self) -> None:
        actions = [self.produce] * 6 + [self.command] * 4 + [self.deliver] * 10 + [self.work] * 10
        actions += [self.pass_time] * 8 + [self.read] * 3
        actions += [self.thin] * 3
        actions += [self.elect, self.tell, self.cut, self.heal, self.set_clock, self.forget_old]
        self.rng.choice(actions)()

    def key_of(self, value: bytes) -> bytes | None:
        """Of a message, or of a command about it."""
        return None

    def produce(self) -> None:
        leaders = self.leaders()
        if not leaders:
            return
        node_id = self.rng.choice(leaders)
        records, due_ms = [], {}
        for _ in range(self.rng.randrange(1, 4)):
            value = b"%d" % len(self.due_ms)
            delay_ms = self.rng.choice([-50, 1, 1, 2, 2, 30, 30, 255, 256, 257, DELAY_MS_MAX])
            headers: tuple[tuple[bytes, bytes], ...] = ()
            if self.rng.random() < 0.5 and delay_ms > 0:
                headers = ((b"tw-delay", b"%dms" % delay_ms),)
            elif self.rng.random() < 0.8:
                headers = ((DELIVER_AT_HEADER, b"%d" % (self.now_ms + delay_ms)),)
            else:
                delay_ms = -DELAY_MS_MAX
            due_ms[value] = self.due_ms[value] = self.now_ms + delay_ms
            headers = (*headers, (b"tw-id", b"id-" + value))
            records.append(NewRecord(self.now_ms, self.key_of(value), value, headers))
        batch = build_batch(records, compression=self.rng.choice([0, 4]))
        pending = self.cell.brokers[node_id].produce(TOPIC, [], batch=batch)
        self.sent.append(Sent(due_ms, pending))

    def command(self) -> None:
        """Cancel or move a message that a leader knows of, pending or delivered, by its id or its
        offset."""
        leaders = self.leaders()
        if not leaders:
            return
        node_id = self.rng.choice(leaders)
        log = self.cell.replica(node_id).log
        known = [
            record
            for header, records in batches_of(log, log.log_start_offset)
            if header.attributes & HIDDEN_FLAG
            for record in records
            if DELIVER_AT_HEADER in dict(record.headers)
        ]
        if not known:
            return
        target = self.rng.choice(known[-12:])
        value = target.value or b""
        is_cancel = self.rng.random() < 0.5
        header = b"tw-cancel" if is_cancel else b"tw-reschedule"
        named = (header, b"id-" + value)
        if self.rng.random() < 0.5:
            named = (header + b"-offset", b"%d" % target.offset)
        due_ms = None if is_cancel else self.now_ms + self.rng.choice([-50, 1, 30, DELAY_MS_MAX])
        times = () if due_ms is None else ((DELIVER_AT_HEADER, b"%d" % due_ms),)
        record = NewRecord(self.now_ms, self.key_of(value), None, (named, *times))
        pending = self.cell.brokers[node_id].produce(TOPIC, [], batch=build_batch([record]))
        self.said.append(Said(value, due_ms, pending))
        if due_ms is not None:
            # Whether it is delivered before its time is the log's to say (Told).
            self.due_ms[value] = min(self.due_ms[value], due_ms)

    def set_clock(self) -> None:
        clock = self.rng.choice(list(self.clocks.values()))
        clock.off_ms = self.rng.choice([0, 0, 0, -SKEW_MS_MAX, SKEW_MS_MAX, 51, -300, 100_000])

    def forget_old(self) -> None:
        """Clear what is committed, as DeleteRecords does, and let retention look."""
        for node_id in self.leaders():
            log = self.cell.replica(node_id).log
            log.roll()
            log.flush()
            if self.rng.random() < 0.6:
                self.delivered.update(record.value or b"" for record in self.seen_at(node_id))
                log.delete_records(max(log.log_start_offset, log.high_watermark))
            log.apply_retention(self.now_ms)

    def thin(self) -> None:
        """What lies below the log start, where the cleaner gets to it."""
        for node_id, broker in self.cell.brokers.items():
            log = self.cell.replica(node_id).log
            # What is held is asked at some log end, and counts when that is committed and durable.
            log.flush()
            checkpoint = broker.logs.checkpoint_job(broker.logs.directories[0])
            checkpoint.run()
            checkpoint.finish()
            job = log.thinning_job()
            if job is not None:
                job.run()
                job.finish()
                self.thinned_count += 1

    # What readers see

    def read(self) -> None:
        for node_id in self.leaders():
            for record in self.seen_at(node_id):
                if record.value is None:
                    # Compaction has left it as a fact.
                    continue
                due_ms = self.due_ms[record.value]
                assert self.now_ms >= due_ms - 2 * SKEW_MS_MAX, f"{record} is early"

    def seen_at(self, node_id: int) -> list[Record]:
        """By a consumer that begins at the log start."""
        broker, partition = self.cell.brokers[node_id], self.cell.replica(node_id)
        offset, found = partition.log.log_start_offset, []
        while offset < partition.high_watermark:
            pending = broker.fetch({(TOPIC, 0): offset})
            for _ in range(20):
                if pending.is_answered:
                    break
                broker.run_jobs()
                broker.services.tick(broker.now_ms)
            before = offset
            for topic in pending.response.responses:
                for part in topic.partitions:
                    for header in iter_batch_headers(
                        part.records or b"", 0, len(part.records or b"")
                    ):
                        offset = header.next_offset
                        if not header.is_control:
                            found += decode_batch(part.records, header.position)
            if offset == before:
                break
        return found

    # The end

    def settle(self) -> None:
        """Faults end, and all that was given for later becomes due."""
        for clock in self.clocks.values():
            clock.off_ms = 0
        super().settle()

    def check(self) -> None:
        (leader,) = self.leaders()
        logs = {node_id: self.batches(node_id) for node_id in self.cell.brokers}
        assert all(log == logs[leader] for log in logs.values()), "replicas differ"
        told = Told(logs[leader])
        twice = [value for value, count in told.values.items() if count > 1]
        assert not twice, f"delivered twice: {twice}"
        assert not told.pending, f"not delivered: {sorted(told.pending)}"
        self.check_acknowledged(told)
        self.check_said(told)
        for node_id in self.cell.brokers:
            fold = fold_of(self.cell.replica(node_id).log)
            assert fold is not None
            assert len(fold) == 0

    def check_said(self, told: Told) -> None:
        for said in self.said:
            delivered = told.values[said.value] or said.value in self.delivered
            if said.due_ms is None and said.error_code == ErrorCode.NONE:
                assert not delivered, f"{said.value!r} was cancelled and is delivered"

    def check_acknowledged(self, told: Told) -> None:
        """What was acknowledged is there, or was before it was deleted, or is cancelled."""
        perhaps = {said.value for said in self.said if said.due_ms is None}
        lost = [
            value
            for sent in self.sent
            if sent.is_acknowledged
            for value in sent.due_ms
            if not told.values[value]
            and value not in self.delivered
            # What is cancelled may have been cleared, with the command.
            and not (value in perhaps and (value in told.cancelled or told.begins_at))
        ]
        assert not lost, f"acknowledged and not delivered: {lost}"

    def batches(self, node_id: int) -> list[tuple[BatchHeader, list[Record]]]:
        """All that is on the disk from where all have their log start."""
        starts = [self.cell.replica(one).log.log_start_offset for one in self.cell.brokers]
        return list(batches_of(self.cell.replica(node_id).log, max(starts)))


class Told:
    """What a log tells of delayed messages, by itself. Raises AssertionError for what cannot be:
    early, twice, or after it was cancelled."""

    def __init__(self, batches: list[tuple[BatchHeader, list[Record]]]) -> None:
        # When what is pending is due, by offset.
        self.pending: dict[int, int] = {}
        # The values that readers see.
        self.values: Counter[bytes] = Counter()
        self.cancelled: set[bytes] = set()
        self.begins_at = batches[0][0].base_offset if batches else 0
        self._values_at: dict[int, bytes] = {}
        self._over: set[int] = set()
        for header, records in batches:
            for record in records:
                self._take(header, record)

    def _take(self, header: BatchHeader, record: Record) -> None:
        headers = dict(record.headers)
        if header.attributes & HIDDEN_FLAG and DELIVER_AT_HEADER in headers:
            self.pending[record.offset] = deliver_at_ms(headers[DELIVER_AT_HEADER])
            self._values_at[record.offset] = record.value or b""
        elif b"tw-judged-at" in headers:
            for key, value in record.headers:
                if key in FACT_HEADERS:
                    self._take_fact(decode_fact(value))
        else:
            self.values[record.value or b""] += 1
            if header.attributes & FACTS_FLAG:
                source = source_offset(headers[b"tw-source"])
                assert source not in self._over, f"{source} was over"
                self._over.add(source)
                due_ms = self.pending.pop(source, 0)
                assert record.timestamp >= due_ms, f"{record} is early"

    def _take_fact(self, fact: Fact) -> None:
        assert fact.offset not in self._over, f"{fact} is about what was over"
        known = self.pending.pop(fact.offset, None)
        assert known in (None, fact.due_ms), f"{fact} is not true"
        if fact.new_due_ms is None:
            self._over.add(fact.offset)
            self.cancelled.add(self._values_at.get(fact.offset, b""))
        elif known is not None:
            self.pending[fact.offset] = fact.new_due_ms


def play(seed: int, steps: int = 250) -> DelayedCell:
    """A history, to its end. Raises AssertionError."""
    return play_to_its_end(DelayedCell(seed), steps)
