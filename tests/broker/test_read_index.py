"""Committed offsets are told while it is certain who coordinates: the others of the ISR are asked.

Broker 7 coordinates; the test plays brokers 8 and 9, and answers as they would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.replicas.leader_probe import EpochAnswer, probe_epoch, read_epoch_answer
from data_plane.broker.replicas.read_index import RETRY_MS_MIN, ReadIndex
from data_plane.broker.request.api import Buffer
from data_plane.broker.request.peers import OnResponse
from data_plane.cell.changes import ChangeBroker
from data_plane.replica.leadership import ReplicationSettings
from data_plane.wire.errors import ErrorCode
from data_plane.wire.headers import RequestHeader, encode_request_header
from data_plane.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import CORRELATION_ID, NODE_ID, Pending
from tests.broker.replicated_player import OTHERS, TOPIC_ID, ReplicatedPlayer
from tests.broker.test_group_replication import GROUP, OFFSETS_ID, CoordinatorPlayer

FETCH = API_BY_KEY[ApiKey.FETCH]
VERSION = 18


class Asked:
    """The Peers port's double: what each broker was asked, and has not answered."""

    def __init__(self) -> None:
        self.open: list[tuple[int, Any, OnResponse]] = []
        self.disconnected: list[int] = []

    def send(
        self, node_id: int, key: int, version: int, body: Sequence[Buffer], on_response: OnResponse
    ) -> None:
        assert (key, version) == (ApiKey.FETCH, VERSION)
        request = FETCH.decode_request(Reader(b"".join(bytes(part) for part in body)), VERSION)
        self.open.append((node_id, request, on_response))

    def disconnect(self, node_id: int) -> None:
        self.disconnected.append(node_id)


class ReadingPlayer(CoordinatorPlayer):
    """A coordinator whose group has committed 42."""

    def __init__(self) -> None:
        super().__init__()
        self.peers = Asked()
        self.is_image_current = False
        self.index = ReadIndex(self.services, self.peers, lambda now_ms: self.is_image_current)
        self.services.read_index = self.index
        self.services.components.append(self.index)
        self.send_commit(42)
        self.follow_offsets()

    def read(self, version: int = 9) -> Pending:
        if version < 8:
            old = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
            return self.send(
                ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(group_id=GROUP, topics=[old])
            )
        topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        return self.send(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=[group]))

    def asked(self) -> list[int]:
        return [node_id for node_id, _, _ in self.peers.open]

    def answer(self, node_id: int, error: ErrorCode | None = ErrorCode.NONE) -> None:
        """The oldest question to that broker; None is no answer."""
        place = self.asked().index(node_id)
        _, _, on_response = self.peers.open.pop(place)
        on_response(None if error is None else response_body(error), self.now_ms)
        self.services.wakes.run(self.now_ms)


def response_body(error: ErrorCode) -> memoryview:
    part = PartitionData(partition_index=0, error_code=int(error), records=b"")
    topic = FetchableTopicResponse(topic_id=OFFSETS_ID, partitions=[part])
    writer = Writer()
    FETCH.encode_response(writer, FetchResponse(responses=[topic]), VERSION)
    return memoryview(bytes(writer.buf))


def outcome(pending: Pending) -> int | ErrorCode:
    group = pending.response.groups[0]
    if group.error_code:
        return ErrorCode(group.error_code)
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset


@pytest.fixture
def one() -> ReadingPlayer:
    return ReadingPlayer()


def test_offsets_are_told_when_all_in_sync_have_shown_that_they_know_no_other_leader(
    one: ReadingPlayer,
) -> None:
    pending = one.read()
    assert one.asked() == [8, 9]
    for _, request, _ in one.peers.open:
        (asked,) = request.topics[0].partitions
        assert request.topics[0].topic_id == OFFSETS_ID
        assert asked.current_leader_epoch == one.offsets_state.leader_epoch
        assert asked.fetch_offset == one.offsets_replica.log.log_end_offset
        assert request.replica_state.replica_id == -1, "a follower's fetch would acknowledge"
    one.answer(8)
    assert not pending.is_answered
    one.answer(9, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert outcome(pending) == 42


@pytest.mark.parametrize("version", [1, 5, 7])
def test_versions_of_one_group(one: ReadingPlayer, version: int) -> None:
    told, refused = one.read(version), one.read(version)
    for error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
        one.answer(8, error)
        if error is ErrorCode.NONE:
            one.answer(9)
    assert told.response.topics[0].partitions[0].committed_offset == 42
    if version >= 2:
        assert refused.response.error_code == ErrorCode.NOT_COORDINATOR
    else:
        part = refused.response.topics[0].partitions[0]
        assert part.error_code == ErrorCode.NOT_COORDINATOR


def test_who_hears_of_a_newer_leader_tells_nothing(one: ReadingPlayer) -> None:
    pending = one.read()
    one.answer(8)
    one.answer(9, ErrorCode.FENCED_LEADER_EPOCH)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR


def test_answers_to_earlier_questions_do_not_count(one: ReadingPlayer) -> None:
    early, late = one.read(), one.read()
    assert one.asked() == [8, 9, 8, 9]
    one.answer(8)
    one.answer(9)
    assert outcome(early) == 42
    assert not late.is_answered
    one.answer(8)
    one.answer(9, ErrorCode.FENCED_LEADER_EPOCH)
    assert outcome(late) is ErrorCode.NOT_COORDINATOR


def test_several_in_one_pass_share_their_questions(one: ReadingPlayer) -> None:
    done: list[bool] = []
    for _ in range(3):
        one.index.confirm(one.offsets_replica, one.now_ms + 1000, done.append)
    one.services.wakes.run(one.now_ms)
    assert one.asked() == [8, 9]
    one.answer(8)
    one.answer(9)
    assert done == [True] * 3


@pytest.mark.parametrize(
    "error",
    [
        None,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_who_cannot_say_is_asked_again(one: ReadingPlayer, error: ErrorCode | None) -> None:
    pending = one.read()
    one.answer(8)
    one.answer(9, error)
    assert one.asked() == []
    one.pass_time(RETRY_MS_MIN)
    assert one.asked() == [9]
    one.answer(9)
    assert outcome(pending) == 42


def test_without_an_answer_another_coordinator_is_to_be_looked_for(one: ReadingPlayer) -> None:
    pending = one.read()
    one.answer(8)
    one.pass_time(4_999)
    assert not pending.is_answered
    one.pass_time(1)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR
    one.answer(9)
    assert one.services.timers.next_deadline_ms() is None


def test_who_has_left_the_isr_is_not_waited_for(one: ReadingPlayer) -> None:
    pending = one.read()
    one.answer(8)
    one.change_offsets(isr=(NODE_ID, 8))
    assert outcome(pending) == 42


def test_who_has_joined_the_isr_meanwhile_is_asked_too(one: ReadingPlayer) -> None:
    one.change_offsets(isr=(NODE_ID, 8))
    pending = one.read()
    one.change_offsets(isr=(NODE_ID, 8, 9))
    one.answer(8)
    assert not pending.is_answered
    one.answer(9)
    assert outcome(pending) == 42


def test_who_may_have_joined_the_isr_is_asked_too(one: ReadingPlayer) -> None:
    """The store may have taken what was proposed, and elected the one that was to join."""
    one.change_offsets(isr=(NODE_ID, 8))
    one.services.metadata.write = lambda *arguments: None  # type: ignore[method-assign]
    one.follow_offsets()
    assert one.offsets_state.isr == (NODE_ID, 8)
    pending = one.read()
    assert one.asked() == [8, 9]
    one.answer(8)
    assert not pending.is_answered
    one.answer(9, ErrorCode.FENCED_LEADER_EPOCH)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR


def test_another_leader_by_the_image_ends_it(one: ReadingPlayer) -> None:
    pending = one.read()
    one.change_offsets(leader=8)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR


def test_a_newer_epoch_of_its_own_ends_it_too(one: ReadingPlayer) -> None:
    """What the questions were about is over; the coordinator loads anew in the new epoch."""
    pending = one.read()
    one.change_offsets(leader=8)
    one.change_offsets(leader=NODE_ID)
    one.answer(8)
    one.answer(9)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR


def test_a_newer_epoch_of_its_own_ends_it_also_when_nobody_was_seen_to_lead_between(
    one: ReadingPlayer,
) -> None:
    done: list[bool] = []
    one.index.confirm(one.offsets_replica, one.now_ms + 1000, done.append)
    one.services.wakes.run(one.now_ms)
    old = one.offsets_state
    new = replace(old, leader_epoch=old.leader_epoch + 2, partition_epoch=old.partition_epoch + 2)
    settings = ReplicationSettings(min_isr=2)
    one.offsets_replica.follow_image(new, settings, one.now_ms)
    one.answer(8)
    assert done == [False]


def test_below_min_isr_the_store_has_to_say_so(one: ReadingPlayer) -> None:
    """Another one may have been elected from the ELR (KIP-966), whom nobody here would ask."""
    one.change_offsets(isr=(NODE_ID,))
    pending = one.read()
    assert one.asked() == []
    one.pass_time(100)
    assert not pending.is_answered
    one.is_image_current = True
    one.pass_time(200)
    assert outcome(pending) == 42


def test_a_broker_that_stops_tells_nothing_more(one: ReadingPlayer) -> None:
    pending = one.read()
    one.services.stop(one.now_ms)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR


def test_a_partition_of_one_replica_needs_nobody() -> None:
    one = ReplicatedPlayer(replicas=(NODE_ID,))
    index = ReadIndex(one.services, Asked(), lambda now_ms: False)
    done: list[bool] = []
    index.confirm(one.replica, one.now_ms + 1000, done.append)
    assert done == [True]


def test_another_incarnation_is_connected_to_anew(one: ReadingPlayer) -> None:
    broker = one.services.image.brokers[8]
    fields = {name: getattr(broker, name) for name in broker.__dataclass_fields__}
    one.commit(ChangeBroker(broker.__class__(**{**fields, "is_fenced": True})))
    assert one.peers.disconnected == []
    one.commit(ChangeBroker(broker.__class__(**{**fields, "incarnation_id": "another"})))
    assert one.peers.disconnected == [8]


@pytest.mark.parametrize(
    ("asked_epoch", "answer"),
    [(0, EpochAnswer.NEWER), (1, EpochAnswer.SAME), (2, EpochAnswer.UNKNOWN)],
)
@pytest.mark.parametrize("end_offset", [0, 3])
@pytest.mark.parametrize("leader", [8, NODE_ID])
def test_what_a_replica_says(
    asked_epoch: int, answer: EpochAnswer, end_offset: int, leader: int
) -> None:
    """The other side, with the real handler: at a follower, and at a leader."""
    one = ReplicatedPlayer()
    one.change(leader=9, isr=OTHERS)
    if leader == NODE_ID:
        one.change(leader=NODE_ID, isr=(NODE_ID, *OTHERS))
        asked_epoch += 1
    header = RequestHeader(
        api_key=int(ApiKey.FETCH),
        api_version=VERSION,
        correlation_id=CORRELATION_ID,
        client_id="broker-9",
    )
    writer = Writer()
    encode_request_header(writer, header)
    body = probe_epoch((TOPIC_ID.bytes, 0), asked_epoch, end_offset)
    frame = bytearray(bytes(writer.buf) + bytes(body))
    pending = one.send_bytes(ApiKey.FETCH, VERSION, frame, connection=one.door)
    encoded = Writer()
    FETCH.encode_response(encoded, pending.response, VERSION)
    assert read_epoch_answer(memoryview(bytes(encoded.buf))) is answer


@pytest.mark.parametrize("body", [None, b"", b"\x00" * 5])
def test_no_answer_says_nothing(body: bytes | None) -> None:
    view = None if body is None else memoryview(body)
    assert read_epoch_answer(view) is EpochAnswer.UNKNOWN
