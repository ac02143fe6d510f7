"""That a nack is refused for good, as of what was never delivered, is told by who is shown to lead:
what a deposed leader of the source, or of the retry partition, lacks may have been delivered."""

from __future__ import annotations

from data_plane.broker.replicas.read_index import OnConfirmed, ReadIndex
from data_plane.broker.services import Services
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch
from tests.broker.broker_player import Pending
from tests.broker.cell_player import PlayedPeers
from tests.features.retry_cell import PAY_ID, RetryCell
from tests.features.retry_player import RetryPlayer


class HeldIndex:
    """The read index's double: whether this broker leads is said by the test."""

    def __init__(self, services: Services) -> None:
        self.asked: list[tuple[Partition, OnConfirmed]] = []
        services.read_index = self  # type: ignore[assignment]

    def confirm(self, partition: Partition, deadline_ms: int, on_done: OnConfirmed) -> None:
        self.asked.append((partition, on_done))


def nacked(player: RetryPlayer, *positions: bytes) -> Pending:
    """Sent, and judged."""
    records = [NewRecord(player.now_ms, None, None, ((b"tw-nack", one),)) for one in positions]
    pending = player.produce("pay", [], index=1, batch=build_batch(records))
    player.run_jobs()
    return pending


def code_of(pending: Pending) -> int:
    ((part,),) = (topic.partition_responses for topic in pending.response.responses)
    return int(part.error_code)


def test_what_the_source_lacks_is_told_by_its_leader() -> None:
    player = RetryPlayer()
    player.store(b"a")
    index = HeldIndex(player.services)
    pending = nacked(player, b"0:1")
    assert not pending.is_answered
    ((asked, on_done),) = index.asked
    assert asked is player.orders
    on_done(True)
    assert code_of(pending) == ErrorCode.INVALID_RECORD


def test_who_does_not_lead_the_source_any_more_refuses_nothing_for_good() -> None:
    player = RetryPlayer()
    player.store(b"a")
    index = HeldIndex(player.services)
    pending = nacked(player, b"0:1")
    ((_, on_done),) = index.asked
    on_done(False)
    assert code_of(pending) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_the_retry_log_lacks_is_told_by_its_leader() -> None:
    player = RetryPlayer()
    player.store(b"a")
    index = HeldIndex(player.services)
    pending = nacked(player, b"0:1", b"1:0")
    assert [asked for asked, _ in index.asked] == [player.orders, player.retry]
    index.asked[0][1](True)
    assert not pending.is_answered
    index.asked[1][1](False)
    assert code_of(pending) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_holds_whoever_leads_is_told_at_once() -> None:
    player = RetryPlayer()
    player.store(b"a")
    index = HeldIndex(player.services)
    assert code_of(nacked(player, b"2:0")) == ErrorCode.INVALID_RECORD
    assert code_of(nacked(player, b"0:0")) == ErrorCode.NONE
    assert code_of(nacked(player, b"1:0")) == ErrorCode.INVALID_RECORD
    assert index.asked == []


def test_followers_say_who_leads_the_source_and_the_retry_partition() -> None:
    cell = RetryCell(seed=0).cell
    for node_id, broker in cell.brokers.items():
        index = ReadIndex(broker.services, PlayedPeers(cell, node_id), lambda now_ms: True)
        broker.services.read_index = index
        broker.services.components.append(index)
    # In a leader epoch that is not the source's.
    cell.change(topic_id=PAY_ID, leader=1)
    cell.run(50)
    for position in (b"0:7", b"1:7"):
        record = NewRecord(cell.now_ms, None, None, ((b"tw-nack", position),))
        pending = cell.brokers[1].produce("pay", [], index=1, batch=build_batch([record]))
        cell.run(100)
        assert code_of(pending) == ErrorCode.INVALID_RECORD, position
