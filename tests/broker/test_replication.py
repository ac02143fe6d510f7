"""Replication between brokers with real handlers, logs and fetch sessions: who copies from whom,
what becomes of logs when leaders change, and what a broker does that cannot."""

from __future__ import annotations

import errno
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.replicas.replication import PROBLEM_LOGS_PER_SECOND_MAX, REOPEN_MS
from data_plane.cell.metadata import ConfigResource, ResourceType
from data_plane.log.sim_file_system import Fault
from data_plane.replica.fetcher import BACKOFF_MS_MIN, INTERRUPT_AFTER_MS
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import decode_batch
from tests.broker.broker_player import Pending, make_batch
from tests.broker.cell_player import TOPIC, CellPlayer


def produce(cell: CellPlayer, leader: int = 1, *, index: int = 0, **options: Any) -> Pending:
    return cell.brokers[leader].produce(TOPIC, [b"value"], index=index, **options)


def outcome(pending: Pending) -> tuple[int, int]:
    """(error code, base offset) of a produce that must have been answered."""
    part = pending.response.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def test_followers_copy_what_the_leader_has() -> None:
    cell = CellPlayer(3, 2)
    cell.run()
    answers = [produce(cell, index=index) for index in (0, 0, 1)]
    assert not any(answer.is_answered for answer in answers)
    cell.run()
    assert [outcome(answer) for answer in answers] == [(0, 0), (0, 1), (0, 0)]
    for node_id in (1, 2, 3):
        assert cell.stored(node_id, 0) == [(0, 0), (1, 0)]
        assert cell.stored(node_id, 1) == [(0, 0)]
    assert cell.brokers[1].services.counters.fetched_bytes > 0
    # Followers learn what is committed with the next answer.
    cell.run(600)
    assert [cell.replica(node_id).high_watermark for node_id in (1, 2, 3)] == [2, 2, 2]


def test_requests_name_the_broker_and_its_registration() -> None:
    cell = CellPlayer(2)
    cell.run()
    first = cell.requests_of(2)[0]
    assert (first.replica_id, first.replica_epoch) == (2, 12)
    cell.change_broker(2, broker_epoch=99)
    cell.run(INTERRUPT_AFTER_MS)
    named = [view for view in cell.requests_of(2) if view.topics]
    assert [view.replica_epoch for view in named] == [12, 99]


def test_quiet_partitions_cost_nothing() -> None:
    cell = CellPlayer(2, 2000)
    cell.run(600)
    assert cell.managers[2]._links[1].fetcher.paused_count == 0
    count = len(cell.peers[2].requests)
    cell.run(5000)
    requests = cell.requests_of(2)[count:]
    # One empty long poll each 500 ms.
    assert 9 <= len(requests) <= 11
    assert not any(view.topics or view.forgotten_topics for view in requests)
    produce(cell, index=1234)
    cell.run()
    assert cell.stored(2, 1234) == [(0, 0)]
    named = [view for view in cell.requests_of(2)[count:] if view.topics]
    assert [len(view.topics[0].partitions) for view in named] == [1]


def test_a_leader_moves_and_nothing_of_the_old_one_is_taken() -> None:
    cell = CellPlayer(3)
    cell.run()
    produce(cell)
    cell.run()
    # Broker 1 is cut off; it still takes a record, which nobody else gets.
    cell.cuts |= {frozenset((1, 2)), frozenset((1, 3))}
    produce(cell, acks=1)
    cell.change(only=(2, 3), leader=2, isr=(2, 3))
    cell.run(50)
    answer = produce(cell, 2)
    cell.run()
    assert outcome(answer) == (0, 1)
    assert cell.stored(1) == [(0, 0), (1, 0)]
    assert cell.stored(2) == cell.stored(3) == [(0, 0), (1, 1)]
    # It comes back, drops what is not the leader's, and follows.
    cell.cuts.clear()
    cell.tell()
    cell.run(2000)
    assert cell.stored(1) == [(0, 0), (1, 1)]
    assert cell.replica(1).high_watermark == 2


def test_an_answer_of_the_old_leader_comes_too_late() -> None:
    cell = CellPlayer(3)
    cell.run()
    produce(cell, acks=1)
    # The answer with the record is under way when the follower hears of another leader.
    assert len(cell.events) == 2
    cell.change(only=(2, 3), leader=3)
    cell.deliver(2)
    assert cell.stored(2) == []
    cell.run(100)
    assert cell.stored(2) == cell.stored(3) == []
    cell.tell()
    cell.run(2000)
    assert cell.stored(1) == []


def test_a_follower_that_is_ahead_of_the_image_asks_again_soon() -> None:
    cell = CellPlayer(2)
    cell.run()
    cell.change(only=(2,), leader=1)
    cell.run(INTERRUPT_AFTER_MS)
    cell.run(BACKOFF_MS_MIN - 2)
    cell.tell()
    answer = produce(cell)
    cell.run(BACKOFF_MS_MIN + INTERRUPT_AFTER_MS + 2)
    assert answer.is_answered
    assert cell.warnings(2) == [], "it happens with every election"


def test_the_same_leader_is_elected_again() -> None:
    cell = CellPlayer(2)
    cell.run()
    cell.change(leader=1)
    answer = produce(cell)
    cell.run(INTERRUPT_AFTER_MS + 1)
    assert outcome(answer) == (0, 0), "nobody had to be told of a stale epoch first"


def test_the_old_leader_is_left_alone() -> None:
    cell = CellPlayer(3)
    cell.run()
    cell.change(leader=2)
    cell.run(100)
    count = len(cell.peers[3].requests)
    cell.run(3000)
    assert {node_id for node_id, _ in cell.peers[3].requests[count:]} == {2}


def test_a_high_watermark_that_was_told_in_vain_is_told_again() -> None:
    cell = CellPlayer(3)
    cell.run()
    answer = produce(cell)
    cell.run()
    assert answer.is_answered
    # The answers that tell it are under way when a new leader epoch makes them worthless.
    for broker in cell.brokers.values():
        broker.pass_time(500)
    assert len(cell.events) == 2
    cell.change(leader=1)
    cell.run(600)
    assert [cell.replica(node_id).high_watermark for node_id in (1, 2, 3)] == [1, 1, 1]


def test_a_follower_below_the_leader_s_log_begins_anew() -> None:
    cell = CellPlayer(2, configs={"min.insync.replicas": "1"})
    cell.run()
    cell.cuts.add(frozenset((1, 2)))
    cell.run(600)
    batch = make_batch([b"a", b"b", b"c"])
    for _ in range(3):
        produce(cell, batch=bytes(batch), acks=1)
    leader = cell.replica(1)
    cell.change(isr=(1,))
    cell.run(1)
    assert leader.high_watermark == 9
    # Within the second batch, which the follower must store as a whole.
    leader.log.delete_records(4)
    cell.cuts.clear()
    cell.run(3000)
    follower = cell.replica(2)
    assert cell.stored(2) == [(3, 0), (6, 0)]
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (4, 9)


def test_records_that_must_be_synced_are_acknowledged_afterwards() -> None:
    cell = CellPlayer(2, 2, configs={"durability": "fsync"})
    cell.run()
    answer = produce(cell)
    cell.run(5, syncs=False)
    cell.brokers[1].run_jobs()
    cell.run(600, syncs=False)
    assert cell.stored(2) == [(0, 0)]
    assert not answer.is_answered
    cell.run(INTERRUPT_AFTER_MS + 1)
    assert outcome(answer) == (0, 0)


def test_a_damaged_batch_pauses_its_partition_alone() -> None:
    cell = CellPlayer(2, 2)
    cell.run()
    for index in (0, 1):
        produce(cell, index=index, batch=make_batch([bytes([65 + index]) * 50]))
    cell.spoilers.append(lambda answer: answer.replace(b"A" * 50, b"A" * 49 + b"B"))
    cell.run()
    assert cell.stored(2, 0) == []
    assert cell.stored(2, 1) == [(0, 0)]
    [warning] = cell.warnings(2)
    assert (warning["topic"], warning["partition"], warning["leader"]) == (TOPIC, 0, 1)
    assert "crc" in warning["reason"]
    cell.spoilers.clear()
    cell.run(BACKOFF_MS_MIN + INTERRUPT_AFTER_MS + 2)
    assert cell.stored(2, 0) == [(0, 0)]


def test_what_is_on_a_failed_disk_is_not_fetched_any_more() -> None:
    """Where it stands it would seem to its leader to have caught up."""
    cell = CellPlayer(2)
    cell.run(600)
    directory = cell.replica(2).log.log_directory
    directory.fail(OSError(5, "Input/output error"))
    cell.managers[2].directory_failed()
    count = len(cell.requests_of(2))
    cell.run(60_000)
    assert not any(view.topics for view in cell.requests_of(2)[count:])
    assert [bool(view.forgotten_topics) for view in cell.requests_of(2)[count:]] == [True]


def test_a_damaged_frame_ends_the_connection() -> None:
    cell = CellPlayer(2)
    cell.run()
    produce(cell)
    cell.spoilers.append(lambda answer: answer[:-1])
    cell.run(1)
    assert cell.peers[2].disconnects == [1]
    [warning] = cell.warnings(2)
    assert warning["reason"].startswith("malformed Fetch response")
    cell.spoilers.clear()
    cell.run(100)
    assert cell.stored(2) == [(0, 0)]


def test_a_leader_that_cannot_be_reached_is_asked_less_and_less() -> None:
    cell = CellPlayer(2)
    cell.run()
    cell.cuts.add(frozenset((1, 2)))
    cell.run(600)
    count = len(cell.peers[2].requests)
    cell.run(10_000)
    assert len(cell.peers[2].requests) - count <= 20
    produce(cell)
    cell.cuts.clear()
    # What is new about it makes it worth a try at once.
    cell.change_broker(1, incarnation_id="another", inter_broker_port=10)
    cell.run()
    assert cell.peers[2].disconnects[-1] == 1
    assert cell.stored(2) == [(0, 0)]


def test_what_is_followed_no_more_is_not_asked_for() -> None:
    cell = CellPlayer(3, 2)
    cell.run()
    cell.change(0, replicas=(1, 2), isr=(1, 2))
    cell.run(10)
    produce(cell, index=0)
    produce(cell, index=1)
    cell.run(600)
    assert cell.stored(3, 1) == [(0, 0)]
    assert cell.brokers[3].services.partitions.replica(*_key(cell)) is None
    gone = [view.forgotten_topics for view in cell.requests_of(3) if view.forgotten_topics]
    assert [topic.partitions for [topic] in gone] == [[0]]
    cell.delete_topic()
    cell.run(100)
    count = len(cell.peers[3].requests)
    cell.run(5000)
    assert len(cell.peers[3].requests) == count
    assert cell.warnings(3) == []


def _key(cell: CellPlayer) -> tuple[bytes, int]:
    [topic_id] = cell.image.topics_by_id
    return topic_id.bytes, 0


def test_a_broker_that_leads_asks_nobody() -> None:
    cell = CellPlayer(2)
    cell.run()
    cell.change(leader=2)
    cell.run(100)
    answer = produce(cell, 2)
    cell.run()
    assert outcome(answer) == (0, 0)
    count = len(cell.peers[2].requests)
    cell.run(5000)
    assert len(cell.peers[2].requests) == count
    assert cell.stored(1) == [(0, 1)]


def test_no_leader_no_requests() -> None:
    cell = CellPlayer(2)
    cell.run()
    cell.change(leader=-1)
    cell.run(100)
    count = len(cell.peers[2].requests)
    cell.run(5000)
    assert len(cell.peers[2].requests) == count


def test_a_stopped_broker_asks_and_takes_nothing() -> None:
    cell = CellPlayer(2)
    cell.run()
    produce(cell)
    cell.managers[2].stop(cell.now_ms)
    assert cell.peers[2].disconnects == [1]
    count = len(cell.peers[2].requests)
    cell.run(2000)
    assert len(cell.peers[2].requests) == count
    assert cell.stored(2) == []


RATE = "follower.replication.throttled.rate"


def test_an_added_replica_is_throttled_until_it_is_in_sync() -> None:
    cell = CellPlayer(2, properties={RATE: "10000", "replica.fetch.max.bytes": "1000"})
    cell.change(isr=(1,), adding_replicas=(2,))
    for _ in range(400):
        produce(cell, batch=make_batch([bytes(32)]), acks=1)
    size_bytes = cell.replica(1).log.size_bytes
    assert size_bytes == 40_000
    cell.run(1000)
    copied_bytes = cell.replica(2).log.size_bytes
    # One second's worth ahead, one second's worth, one answer.
    assert 19_000 <= copied_bytes <= 21_500
    cell.run(1000)
    assert 9_500 <= cell.replica(2).log.size_bytes - copied_bytes <= 10_500
    cell.change(isr=(1, 2))
    cell.run(2 * 200)
    assert cell.replica(2).log.size_bytes == size_bytes


def test_the_rate_can_be_changed_at_any_time() -> None:
    cell = CellPlayer(2, properties={RATE: "0", "replica.fetch.max.bytes": "1000"})
    cell.change(isr=(1,), adding_replicas=(2,))
    for _ in range(10):
        produce(cell, acks=1)
    cell.run(3000)
    assert cell.stored(2) == []
    cell.change_configs({ConfigResource("default", ResourceType.BROKER, ""): {RATE: "1000000"}})
    cell.run(1100)
    assert cell.replica(2).log.log_end_offset == 10


def test_logs_of_problems_are_bounded() -> None:
    cell = CellPlayer(2, 40)
    cell.run()
    for index in range(40):
        produce(cell, index=index, batch=make_batch([b"A" * 50]))
    cell.spoilers.append(lambda answer: answer.replace(b"A" * 50, b"A" * 49 + b"B"))
    cell.run()
    assert len(cell.warnings(2)) == PROBLEM_LOGS_PER_SECOND_MAX
    cell.run(1400)
    suppressed = [fields["count"] for fields in cell.warnings(2) if "count" in fields]
    assert suppressed[0] >= 40 - PROBLEM_LOGS_PER_SECOND_MAX


class Histories:
    """Leaders come and go, brokers are cut off, and hear of elections late or never."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cell = CellPlayer(3, 2)
        self.sent: list[tuple[int, bytes, Pending]] = []

    def step(self) -> None:
        rng, cell = self.rng, self.cell
        match rng.randrange(8):
            case 0 | 1 | 2:
                self.produce()
            case 3:
                told = [node_id for node_id in cell.brokers if rng.random() < 0.6]
                cell.change(rng.randrange(2), only=told, leader=rng.randint(1, 3))
            case 4:
                cell.tell([rng.randint(1, 3)])
            case 5:
                pair = frozenset(rng.sample((1, 2, 3), 2))
                (cell.cuts.discard if pair in cell.cuts else cell.cuts.add)(pair)
            case 6:
                cell.deliver(min(len(cell.events), rng.randint(0, 5)))
            case 7:
                cell.run(rng.choice((0, 1, 5, 30, 700)))

    def produce(self) -> None:
        index, node_id = self.rng.randrange(2), self.rng.randint(1, 3)
        value = b"%d" % len(self.sent)
        answer = self.cell.brokers[node_id].produce(TOPIC, [value], index=index)
        self.sent.append((index, value, answer))

    def check(self) -> None:
        """Everybody hears of everything; then all logs are one, with all that was acknowledged."""
        cell = self.cell
        cell.cuts.clear()
        cell.tell()
        cell.run(3000)
        for index in (0, 1):
            leader = cell.image.topics_of("default")[TOPIC].partitions[index].leader
            expected = cell.stored(leader, index)
            assert expected == sorted(expected)
            for node_id in cell.brokers:
                assert cell.stored(node_id, index) == expected, (node_id, index)
                replica = cell.replica(node_id, index)
                assert replica.high_watermark == replica.log.log_end_offset
            assert [self.value(leader, index, offset) for offset, _ in expected] == [
                self.value(2, index, offset) for offset, _ in expected
            ]
        for index, value, answer in self.sent:
            if not answer.is_answered:
                continue
            code, offset = outcome(answer)
            assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if code == ErrorCode.NONE:
                leader = cell.image.topics_of("default")[TOPIC].partitions[index].leader
                assert self.value(leader, index, offset) == value

    def value(self, node_id: int, index: int, offset: int) -> bytes:
        log = self.cell.replica(node_id, index).log
        read = log.read_cold(offset, 1, max_offset=offset + 1, at_least_one_batch=True)
        [record] = decode_batch(b"".join(bytes(buffer) for buffer in read.buffers))
        assert record.value is not None
        return record.value


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60))
def test_logs_become_one_whatever_happened(seed: int, steps: int) -> None:
    histories = Histories(seed)
    for _ in range(steps):
        histories.step()
    histories.check()


def without_descriptors(cell: CellPlayer, node_id: int) -> Fault:
    """That broker can open nothing, until somebody takes the fault away."""
    fault = Fault("open", "", errno.EMFILE, is_lasting=True)
    cell.brokers[node_id].fs.faults.append(fault)
    return fault


def test_a_copy_that_could_not_be_opened_is_opened_when_there_are_descriptors_again() -> None:
    cell = CellPlayer(3)
    cell.change(replicas=(1, 2), isr=(1, 2))
    produce(cell, acks=1)
    fault = without_descriptors(cell, 3)
    cell.change(replicas=(1, 2, 3))
    cell.run(3 * REOPEN_MS)
    assert cell.stored(2) == [(0, 0)]
    assert cell.managers[3].next_deadline_ms() is not None
    cell.brokers[3].fs.faults.remove(fault)
    cell.run(REOPEN_MS)
    assert cell.stored(3) == [(0, 0)]
    assert cell.managers[3].next_deadline_ms() is None


def test_what_is_given_up_before_it_could_be_opened_is_forgotten() -> None:
    cell = CellPlayer(3)
    cell.change(replicas=(1, 2), isr=(1, 2))
    without_descriptors(cell, 3)
    cell.change(replicas=(1, 2, 3))
    cell.change(replicas=(1, 2))
    cell.run(2 * REOPEN_MS)
    assert cell.managers[3].next_deadline_ms() is None


def test_a_copy_on_a_disk_that_has_failed_waits_for_the_next_start() -> None:
    cell = CellPlayer(3)
    cell.change(replicas=(1, 2), isr=(1, 2))
    cell.brokers[3].fs.faults.append(Fault("create", "", errno.EIO))
    cell.change(replicas=(1, 2, 3))
    cell.run(2 * REOPEN_MS)
    assert cell.brokers[3].logs.offline_directories()
    assert cell.managers[3].next_deadline_ms() is None
