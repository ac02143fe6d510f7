"""Why commands are refused is told when it is true: what it goes by is committed, and this broker
is shown to lead still. A cell of three, with logs and replication as they are."""

from __future__ import annotations

from typing import Any

from data_plane.broker.replicas.read_index import ReadIndex
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch
from features.catalogue import FEATURES
from tests.broker.broker_player import Pending
from tests.broker.cell_player import TOPIC, CellPlayer, PlayedPeers

FAR = b"tw-delay", b"1h"
CANCEL = b"tw-cancel-offset", b"0"
MOVE = b"tw-reschedule-offset", b"0"
TIMEOUT_MS = 30_000
SETTLE_MS = 2_500


class VerdictCell(CellPlayer):
    """Broker 1 leads at first."""

    def __init__(self) -> None:
        super().__init__(3, configs={"tidewheel.headers": "true"}, features=FEATURES)
        for node_id, broker in self.brokers.items():
            services = broker.services
            services.read_index = ReadIndex(services, PlayedPeers(self, node_id), lambda _: True)
        self.run(SETTLE_MS)

    def say(self, *headers: tuple[bytes, bytes], node_id: int = 1, acks: int = -1) -> Pending:
        broker = self.brokers[node_id]
        batch = build_batch([NewRecord(broker.now_ms, None, b"", headers)])
        pending = broker.produce(TOPIC, [], batch=batch, acks=acks)
        broker.run_jobs()
        return pending

    def part_leader(self, *, is_parted: bool = True) -> None:
        for other in (2, 3):
            path = frozenset((1, other))
            if is_parted:
                self.cuts.add(path)
            else:
                self.cuts.discard(path)


def answer(pending: Pending) -> Any:
    ((part,),) = (topic.partition_responses for topic in pending.response.responses)
    return part


def test_a_refusal_by_what_is_not_committed_waits_for_it() -> None:
    cell = VerdictCell()
    message = cell.say(FAR)
    cell.run(SETTLE_MS)
    assert answer(message).error_code == ErrorCode.NONE
    cell.part_leader()
    cancel, move = cell.say(CANCEL), cell.say(MOVE, FAR, acks=1)
    cell.brokers[1].run_jobs()
    assert not cancel.is_answered
    assert not move.is_answered
    cell.part_leader(is_parted=False)
    cell.run(SETTLE_MS)
    assert answer(cancel).error_code == ErrorCode.NONE
    refused = answer(move)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "too late: the message is cancelled" in refused.error_message
    assert [one.batch_index for one in refused.record_errors] == [0]


def test_a_refusal_by_what_is_cut_off_is_never_told() -> None:
    cell = VerdictCell()
    cell.say(FAR)
    cell.run(SETTLE_MS)
    cell.part_leader()
    cancel, move = cell.say(CANCEL), cell.say(MOVE, FAR)
    cell.change(leader=2)
    cell.part_leader(is_parted=False)
    cell.run(SETTLE_MS)
    for pending in (cancel, move):
        assert answer(pending).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer(pending).error_message is None
        assert not answer(pending).record_errors
    # It is pending again.
    again = cell.say(MOVE, FAR, node_id=2)
    cell.run(SETTLE_MS)
    assert answer(again).error_code == ErrorCode.NONE


def test_who_leads_no_more_does_not_say_that_there_is_no_such_message() -> None:
    cell = VerdictCell()
    # It has not heard of its successor, who takes a message.
    cell.change(leader=2, isr=(2, 3), only=(2, 3))
    cell.part_leader()
    message = cell.say(FAR, node_id=2)
    cell.run(SETTLE_MS)
    assert answer(message).error_code == ErrorCode.NONE
    cancel = cell.say(CANCEL)
    cell.run(SETTLE_MS)
    assert not cancel.is_answered
    cell.part_leader(is_parted=False)
    cell.run(SETTLE_MS)
    assert answer(cancel).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_refusal_that_cannot_be_shown_in_time_is_none() -> None:
    cell = VerdictCell()
    cell.part_leader()
    cancel = cell.say(CANCEL)
    assert not cancel.is_answered
    cell.run(TIMEOUT_MS + SETTLE_MS)
    assert answer(cancel).error_code in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert answer(cancel).error_message is None
