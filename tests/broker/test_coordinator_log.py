"""A coordinator's log under another coordinator than that of groups: loading, failover, fencing,
transactions and restarts.

Broker 7 coordinates; the test plays brokers 8 and 9, which follow the topic."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.coordinators.coordinator_log import LOAD_RETRY_MS_MIN
from data_plane.broker.coordinators.internal_topic import Producer, read_log
from data_plane.cell.changes import ChangePartition, CreateTopic, DeleteTopic
from data_plane.cell.metadata import PartitionImage
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.partition import Partition
from data_plane.wire.control_batches import EndTransactionMarker
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import NODE_ID, BrokerPlayer
from tests.broker.ledger import LEDGER_TOPIC, Book, Ledger, fold
from tests.broker.replicated_player import OTHERS, ReplicatedPlayer

LEDGER_ID = UUID(int=88)
ONE, TWO = Producer(1000, 0), Producer(2000, 5)


class Outcomes:
    """What requests were answered, in the order of the answers."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def __call__(self, error: ErrorCode) -> None:
        self.codes.append(error)


class LedgerPlayer(ReplicatedPlayer):
    """One partition of the ledger, on 7, 8 and 9."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(properties)
        self.ledger = Ledger(self.services)
        self.services.components.append(self.ledger)
        self.ledger.start(self.now_ms)
        self.commit(CreateTopic("default", LEDGER_TOPIC.name, LEDGER_ID, ((NODE_ID, *OTHERS),)))

    @property
    def ledger_state(self) -> PartitionImage:
        return self.services.image.topics_of("default")[LEDGER_TOPIC.name].partitions[0]

    @property
    def ledger_replica(self) -> Partition:
        partition = self.services.partitions.get_by_name("default", LEDGER_TOPIC.name, 0)
        assert partition is not None
        return partition

    @property
    def _ledger_id(self) -> UUID:
        return self.services.image.topics_of("default")[LEDGER_TOPIC.name].topic_id

    def change_ledger(self, **fields: Any) -> None:
        self.change(topic_id=self._ledger_id, **fields)
        self.run_jobs()

    def follow_ledger(self, *node_ids: int, offset: int | None = None) -> None:
        """These brokers have the ledger up to `offset`, or all of it, and say so."""
        self.catch_up_on(self._ledger_id, node_ids or OTHERS, offset)

    def add(self, amount: int, outcome: Outcomes, producer: Producer | None = None) -> None:
        self.ledger.add("a", amount, self.now_ms, outcome, producer=producer)
        self.services.wakes.run(self.now_ms)

    def end(self, producer: Producer, outcome: Outcomes, *, is_commit: bool = True) -> None:
        self.ledger.end(producer, self.now_ms, outcome, is_commit=is_commit)
        self.services.wakes.run(self.now_ms)

    def told(self) -> int | None:
        sums: list[int | None] = []
        self.ledger.tell("a", self.now_ms, sums.append)
        self.services.wakes.run(self.now_ms)
        (found,) = sums
        return found

    def folded(self) -> Book:
        log = self.ledger_replica.log
        return fold(read_log(log, 0, log.log_end_offset))


@pytest.fixture
def player() -> LedgerPlayer:
    return LedgerPlayer()


@pytest.fixture
def outcome() -> Outcomes:
    return Outcomes()


NONE = ErrorCode.NONE


def test_what_is_acknowledged_is_replicated(player: LedgerPlayer, outcome: Outcomes) -> None:
    player.add(5, outcome)
    player.follow_ledger(8)
    assert not outcome.codes
    assert player.told() == 0, "nobody is told what may still be lost"
    player.follow_ledger(9)
    assert outcome.codes == [NONE]
    assert player.told() == 5
    assert player.folded() == player.ledger.books[0]


def test_appends_settle_in_their_order_and_not_within_the_call(
    player: LedgerPlayer, outcome: Outcomes
) -> None:
    player.change_ledger(isr=(NODE_ID,))
    player.ledger.add("a", 1, player.now_ms, outcome)
    assert not outcome.codes, "it was refused at once, and is told when the pass ends"
    player.services.wakes.run(player.now_ms)
    assert outcome.codes == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_a_leader_whose_disk_has_failed_refuses_with_the_reason(
    player: LedgerPlayer, outcome: Outcomes
) -> None:
    player.ledger_replica.close(ErrorCode.KAFKA_STORAGE_ERROR)
    player.add(1, outcome)
    assert outcome.codes == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_failover_there_and_back(player: LedgerPlayer, outcome: Outcomes) -> None:
    player.add(5, outcome)
    player.follow_ledger()
    player.add(7, outcome)
    epoch = player.ledger_state.leader_epoch
    player.change_ledger(leader=8)
    assert outcome.codes == [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert player.told() is None
    assert not player.ledger.log.led
    player.add(9, outcome)
    assert outcome.codes[-1] is ErrorCode.NOT_COORDINATOR
    player.change_ledger(leader=NODE_ID)
    assert player.told() is None, "what it has above the high watermark may still be lost"
    player.follow_ledger()
    # It was never acknowledged, and is there all the same.
    assert player.told() == 12
    assert player.ledger.log.led == {0: epoch + 2}
    names = [name for name, _ in player.ledger.calls]
    assert names == ["begin_anew", "start_loading", "load", "unload", "start_loading", "load"]


def test_what_one_epoch_has_decided_is_nothing_to_the_next(
    player: LedgerPlayer, outcome: Outcomes
) -> None:
    epoch = player.ledger_state.leader_epoch
    player.change_ledger(leader=8)
    player.change_ledger(leader=NODE_ID)
    player.follow_ledger()
    end = player.ledger_replica.log.log_end_offset
    topic = player.ledger.log.topic
    topic.append(0, epoch, [], player.now_ms, outcome)
    marker = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
    topic.append_marker(0, epoch, marker, ONE, player.now_ms, outcome)
    assert outcome.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert player.ledger_replica.log.log_end_offset == end


def test_a_partition_that_was_led_in_another_epoch_meanwhile_is_loaded_anew(
    player: LedgerPlayer, outcome: Outcomes
) -> None:
    """This broker hears of both changes at once."""
    old = player.ledger_state
    between = replace(old, leader=8, leader_epoch=1, partition_epoch=old.partition_epoch + 1)
    again = replace(old, leader_epoch=2, partition_epoch=old.partition_epoch + 2)
    player.commit(ChangePartition(LEDGER_ID, 0, between), ChangePartition(LEDGER_ID, 0, again))
    player.follow_ledger()
    assert player.ledger.log.led == {0: 2}
    assert [name for name, _ in player.ledger.calls][-3:] == ["unload", "start_loading", "load"]
    player.add(1, outcome)
    player.follow_ledger()
    assert outcome.codes == [NONE]


def test_a_confirmation_is_of_one_epoch(player: LedgerPlayer) -> None:
    found: list[frozenset[int]] = []
    waiting: list[Any] = []
    log = player.ledger.log
    log.topic.confirm_leading = (  # type: ignore[method-assign]
        lambda partition, epoch, now_ms, on_done: waiting.append(on_done)
    )
    log.confirm([0], player.now_ms, found.append)
    player.change_ledger(leader=8)
    player.change_ledger(leader=NODE_ID)
    player.follow_ledger()
    assert player.ledger.books
    waiting[0](True)
    assert found == [frozenset()]


# Transactions


def test_a_transaction_counts_when_its_end_is_in_the_log(
    player: LedgerPlayer, outcome: Outcomes
) -> None:
    player.add(5, outcome, ONE)
    player.add(100, outcome, TWO)
    player.follow_ledger()
    assert player.told() == 0
    assert player.ledger_replica.last_stable_offset == 0
    player.end(ONE, outcome)
    assert player.told() == 0
    player.follow_ledger()
    assert player.told() == 5
    player.end(TWO, outcome, is_commit=False)
    player.follow_ledger()
    assert player.told() == 5
    assert outcome.codes == [NONE] * 4
    log = player.ledger_replica.log
    assert player.ledger_replica.last_stable_offset == log.log_end_offset
    assert player.folded() == player.ledger.books[0] == Book({"a": 5})
    ends = [batch for batch in read_log(log, 0, log.log_end_offset) if batch.marker is not None]
    assert [(batch.producer, batch.marker) for batch in ends] == [
        (ONE, (True, 3)),
        (TWO, (False, 3)),
    ]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_was_open_is_ended_by_the_next_coordinator(
    player: LedgerPlayer, outcome: Outcomes, is_commit: bool
) -> None:
    player.add(5, outcome, ONE)
    player.follow_ledger()
    player.change_ledger(leader=8)
    player.change_ledger(leader=NODE_ID)
    player.follow_ledger()
    assert player.ledger.books[0] == Book(open={ONE.producer_id: [("a", 5)]})
    player.end(ONE, outcome, is_commit=is_commit)
    player.follow_ledger()
    assert player.told() == (5 if is_commit else 0)
    assert player.folded() == player.ledger.books[0]


def test_a_producer_epoch_that_is_over_is_refused(player: LedgerPlayer, outcome: Outcomes) -> None:
    player.add(5, outcome, TWO)
    player.end(TWO, outcome)
    player.follow_ledger()
    end = player.ledger_replica.log.log_end_offset
    former = Producer(TWO.producer_id, TWO.producer_epoch - 1)
    player.add(7, outcome, former)
    player.end(former, outcome)
    assert outcome.codes == [NONE, NONE, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 2]
    assert player.ledger_replica.log.log_end_offset == end
    assert player.told() == 5


# The topic


def test_a_topic_that_is_made_anew_is_another_one(player: LedgerPlayer, outcome: Outcomes) -> None:
    player.add(5, outcome)
    player.follow_ledger()
    player.add(6, outcome)
    player.commit(
        DeleteTopic(LEDGER_ID),
        CreateTopic("default", LEDGER_TOPIC.name, UUID(int=89), ((NODE_ID, *OTHERS),)),
    )
    player.run_jobs()
    assert player.told() == 0
    assert outcome.codes == [NONE], "what waited is nothing to the state that has begun anew"
    assert [name for name, _ in player.ledger.calls][-4:] == [
        "unload",
        "begin_anew",
        "start_loading",
        "load",
    ]


def test_the_fate_of_an_append_is_nothing_to_the_state_of_another_topic(
    player: LedgerPlayer, outcome: Outcomes
) -> None:
    waiting: list[Any] = []
    log = player.ledger.log
    append = log.topic.append
    log.topic.append = lambda *given: waiting.append(given[4])  # type: ignore[method-assign]
    player.add(5, outcome)
    log.topic.append = append  # type: ignore[method-assign]
    player.commit(
        DeleteTopic(LEDGER_ID),
        CreateTopic("default", LEDGER_TOPIC.name, UUID(int=89), ((NODE_ID, *OTHERS),)),
    )
    waiting[0](NONE)
    player.services.wakes.run(player.now_ms)
    assert not outcome.codes
    assert player.ledger.books[0] == Book()


class AloneLedger(BrokerPlayer):
    """A broker that is alone, whose disk goes through its deaths."""

    def __init__(self, **options: Any) -> None:
        super().__init__({"offsets.topic.num.partitions": "3"}, **options)
        self.ledger = Ledger(self.services)
        self.services.components.append(self.ledger)
        self.services.start(self.now_ms)
        self.run_jobs()

    def next_process(self) -> AloneLedger:
        self.fs.process_death()
        return AloneLedger(disk=self.fs, image=self.services.image, seed=2)

    def add(self, amount: int, partition: int, producer: Producer | None = None) -> ErrorCode:
        outcome = Outcomes()
        self.ledger.add("a", amount, self.now_ms, outcome, producer=producer, partition=partition)
        self.services.wakes.run(self.now_ms)
        self.run_jobs()
        (code,) = outcome.codes
        return code


def test_the_topic_is_made_when_it_is_first_asked_for() -> None:
    broker = AloneLedger()
    made: list[str] = []
    topic = broker.ledger.log.topic
    assert (topic.partition_count(), topic.topic_id()) == (None, None)
    topic.create(lambda: made.append("first"))
    topic.create(lambda: made.append("second"))
    broker.run_jobs()
    assert made == ["first", "second"]
    image = broker.services.image.topics_of("default")[LEDGER_TOPIC.name]
    assert len(image.partitions) == 3
    assert image.configs["cleanup.policy"] == "compact"
    assert image.internal
    assert sorted(broker.ledger.books) == [0, 1, 2]


def test_a_restart_loads_what_was_written() -> None:
    broker = AloneLedger()
    broker.ledger.log.topic.create()
    broker.run_jobs()
    assert [broker.add(n, n % 3, ONE if n == 4 else None) for n in range(9)] == [NONE] * 9
    before = broker.ledger.books
    after = broker.next_process()
    assert after.ledger.books == before
    assert before[1] == Book({"a": 1 + 7}, {ONE.producer_id: [("a", 4)]})


def test_what_cannot_be_read_is_read_again_and_the_others_are_not_kept() -> None:
    broker = AloneLedger()
    broker.ledger.log.topic.create()
    broker.run_jobs()
    for partition in range(3):
        assert broker.add(1 + partition, partition) is NONE
    log = broker.services.partitions.get_by_name("default", LEDGER_TOPIC.name, 0)
    assert log is not None
    broker.fs.process_death()
    after = AloneLedger.__new__(AloneLedger)
    BrokerPlayer.__init__(
        after,
        {"offsets.topic.num.partitions": "3"},
        disk=broker.fs,
        image=broker.services.image,
        seed=2,
    )
    after.ledger = Ledger(after.services)
    fails = {0}
    original = after.ledger.fold

    def fold_or_fail(batches: Any) -> Book:
        if fails:
            fails.clear()
            raise RuntimeError("no descriptors")
        return original(batches)

    after.ledger.fold = fold_or_fail  # type: ignore[method-assign]
    after.services.components.append(after.ledger)
    after.services.start(after.now_ms)
    after.run_jobs()
    assert ("load_failed", 0) in after.ledger.calls
    assert sorted(after.ledger.books) == [1, 2]
    assert "accounts_not_loaded" in [event for _, event, _ in after.log.events]
    after.pass_time(LOAD_RETRY_MS_MIN)
    after.run_jobs()
    assert after.ledger.books[0] == Book({"a": 1})


def test_who_stops_lets_go_of_everything(player: LedgerPlayer, outcome: Outcomes) -> None:
    player.ledger.stop(player.now_ms)
    assert not player.ledger.books
    assert not player.ledger.log.led
    player.add(1, outcome)
    assert outcome.codes == [ErrorCode.NOT_COORDINATOR]


# Histories


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_books_are_what_the_log_says(seed: int) -> None:
    """Sums are acknowledged, refused, or lost with their coordinator before anybody was told."""
    chance = random.Random(seed)
    player = LedgerPlayer()
    acknowledged: list[int] = []
    epochs = dict.fromkeys(range(3), 0)

    def add() -> None:
        amount = 1 << chance.randrange(40)
        producer = None
        if chance.random() < 0.5:
            producer_id = chance.randrange(3)
            producer = Producer(producer_id, epochs[producer_id])

        def done(error: ErrorCode) -> None:
            if error is NONE and producer is None:
                acknowledged.append(amount)

        player.ledger.add("a", amount, player.now_ms, done, producer=producer)

    def end() -> None:
        producer_id = chance.randrange(3)
        producer = Producer(producer_id, epochs[producer_id])
        player.ledger.end(producer, player.now_ms, lambda _: None, is_commit=chance.random() < 0.5)
        if chance.random() < 0.3:
            epochs[producer_id] += 1

    def follow() -> None:
        if player.ledger_state.leader == NODE_ID:
            player.follow_ledger(*chance.sample(OTHERS, chance.choice((1, 2))))

    def move() -> None:
        player.change_ledger(leader=chance.choice((NODE_ID, 8, 9)))

    for _ in range(150):
        chance.choice((add, add, add, end, follow, follow, move))()
        if chance.random() < 0.7:
            player.services.wakes.run(player.now_ms)
    if player.ledger_state.leader != NODE_ID:
        player.change_ledger(leader=NODE_ID)
    player.follow_ledger()
    player.follow_ledger()
    assert player.ledger.books[0] == player.folded()
    records = [
        int(bytes(record.value or b""))
        for batch in read_log(
            player.ledger_replica.log, 0, player.ledger_replica.log.log_end_offset
        )
        if batch.producer is None
        for record in batch.records
    ]
    for amount in set(acknowledged):
        assert records.count(amount) >= acknowledged.count(amount)


@pytest.mark.parametrize("seed", range(6))
def test_a_power_loss_keeps_what_was_acknowledged_durably(seed: int) -> None:
    disk = SimFileSystem(maps_files=True)
    broker = AloneLedger(disk=disk)
    broker.ledger.log.topic.create()
    broker.run_jobs()
    broker.configure_topic(LEDGER_TOPIC.name, durability="fsync")
    for number in range(12):
        assert broker.add(1, number % 3, ONE if number % 4 == 0 else None) is NONE
    before = broker.ledger.books
    broker.fs.power_loss(random.Random(seed))
    after = AloneLedger(disk=disk, image=broker.services.image, seed=2)
    assert after.ledger.books == before
