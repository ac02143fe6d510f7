"""Answers of very many items to small requests: made in pieces, encoded in a thread."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.coordinators import group_handlers
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.request.large_requests import LARGE_BYTES, SLICE_ITEMS_MAX
from data_plane.groups import coordinator, offset_lookups
from data_plane.groups.record_formats import CommittedOffset, OffsetKey, encode_committed_offset
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import BrokerPlayer
from tests.broker.counted_turns import BrokerTurns

TOPICS = [f"topic-{number}" for number in range(40)]
PARTITIONS_COUNT = 50
GROUP = "readers"
# Of functions, in one turn; an answer as a whole takes 50,000.
CALLS_MAX = 3_000


class Groups(BrokerPlayer):
    """A coordinator of groups with very many offsets."""

    def __init__(self) -> None:
        super().__init__({"offsets.topic.num.partitions": "2"})
        self.groups = GroupService(self.services)
        self.services.groups = self.groups
        self.services.components.append(self.groups)
        group_handlers.register(self.services.handlers)
        self.groups.start(self.now_ms)
        self.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[GROUP]))
        for name in TOPICS:
            self.create_topic(name, 1)

    def commit(
        self, group_id: str, topics: list[str], partitions_count: int, tenant: str = "default"
    ) -> None:
        """As if the log had said so."""
        loaded, _ = self.groups.coordinator._shard_of(tenant, group_id)
        assert loaded is not None
        loaded.shard.new_group(group_id, self.now_ms)
        for topic in topics:
            for index in range(partitions_count):
                value = encode_committed_offset(CommittedOffset(index, -1, "m", self.now_ms))
                loaded.shard._apply_offset(OffsetKey(group_id, topic, index), value)

    def unload(self) -> None:
        log = self.groups.log
        for partition in list(log.led):
            log._unload(partition)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(offset_lookups, "OFFSETS_PER_PIECE", 50)
    # A piece is all that a turn has time for.
    monkeypatch.setattr(offset_lookups, "OFFSET_WORK", 40)
    monkeypatch.setattr(coordinator, "LISTED_GROUPS_PER_PIECE", 50)
    return Groups()


@pytest.fixture
def turns(broker: Groups) -> BrokerTurns:
    return BrokerTurns(broker)


def all_offsets(version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=GROUP, topics=None)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


def answer(broker: Groups, turns: BrokerTurns, api_key: ApiKey, version: int, message: Any) -> Any:
    pending = turns.sent(lambda: broker.send(api_key, version, message))
    assert not pending.is_answered
    turns.ticked(200)
    return turns.answered(pending).response


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9, 10])
def test_all_offsets_of_a_group(
    broker: Groups, turns: BrokerTurns, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.commit(GROUP, [*TOPICS, "gone"], PARTITIONS_COUNT)
    response = answer(broker, turns, ApiKey.OFFSET_FETCH, version, all_offsets(version))
    assert max(turns.calls_counts) <= CALLS_MAX
    monkeypatch.setattr(offset_lookups, "OFFSETS_PER_PIECE", 1 << 30)
    assert response == broker.ask(ApiKey.OFFSET_FETCH, version, all_offsets(version))
    topics = response.topics if version < 8 else response.groups[0].topics
    assert len(topics) == len(TOPICS) + (version < 10)
    assert {len(topic.partitions) for topic in topics} == {PARTITIONS_COUNT}


def test_few_offsets_are_told_at_once(broker: Groups) -> None:
    broker.commit(GROUP, ["gone"], 10)
    pending = broker.send(ApiKey.OFFSET_FETCH, 9, all_offsets(9))
    (topic,) = pending.response.groups[0].topics
    assert [each.committed_offset for each in topic.partitions] == list(range(10))


@pytest.mark.parametrize("version", [7, 9])
def test_a_group_that_goes_elsewhere_meanwhile_is_not_told_by_half(
    broker: Groups, turns: BrokerTurns, version: int
) -> None:
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT)
    pending = turns.sent(lambda: broker.send(ApiKey.OFFSET_FETCH, version, all_offsets(version)))
    turns.ticked(3)
    broker.unload()
    turns.ticked(200)
    response = turns.answered(pending).response
    error_code = response.error_code if version < 8 else response.groups[0].error_code
    assert error_code == ErrorCode.NOT_COORDINATOR
    assert not (response.topics if version < 8 else response.groups[0].topics)


def test_what_is_deleted_meanwhile_is_not_listed(broker: Groups, turns: BrokerTurns) -> None:
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT)
    pending = turns.sent(lambda: broker.send(ApiKey.OFFSET_FETCH, 9, all_offsets(9)))
    turns.ticked(3)
    loaded, _ = broker.groups.coordinator._shard_of("default", GROUP)
    assert loaded is not None
    for index in range(PARTITIONS_COUNT):
        loaded.shard._apply_offset(OffsetKey(GROUP, TOPICS[-1], index), None)
    turns.ticked(200)
    (group,) = turns.answered(pending).response.groups
    assert [topic.name for topic in group.topics] == TOPICS[:-1]


@pytest.mark.parametrize("version", [7, 8])
def test_a_request_that_names_very_many_partitions(
    broker: Groups, turns: BrokerTurns, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same answer as to small requests; groups and topics are whole in it."""
    monkeypatch.setattr(offset_lookups, "OFFSETS_PER_PIECE", 2 * SLICE_ITEMS_MAX)
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT)
    broker.commit("others", TOPICS[:1], 1)
    indexes = list(range(LARGE_BYTES // 4))
    if version < 8:
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name=TOPICS[3], partition_indexes=indexes)],
        )
    else:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=[
                        OffsetFetchRequestTopics(name=name, partition_indexes=wanted)
                        for name, wanted in ((TOPICS[3], indexes), (TOPICS[0], [0, 0]), ("no", []))
                    ],
                )
                for group_id in (GROUP, "others")
            ]
        )
    pending = turns.sent(lambda: broker.send(ApiKey.OFFSET_FETCH, version, request))
    response = turns.answered(pending).response
    assert max(turns.calls_counts) <= CALLS_MAX
    if version < 8:
        (topic,) = response.topics
        assert [each.partition_index for each in topic.partitions] == indexes
        assert [each.committed_offset for each in topic.partitions[:60]] == [*range(50), *[-1] * 10]
        return
    assert [group.group_id for group in response.groups] == [GROUP, "others"]
    for group, offset in zip(response.groups, (0, 0), strict=True):
        assert [(topic.name, len(topic.partitions)) for topic in group.topics] == [
            (TOPICS[3], len(indexes)),
            (TOPICS[0], 1),
            ("no", 0),
        ]
        assert group.topics[1].partitions[0].committed_offset == offset


def test_all_groups(broker: Groups, turns: BrokerTurns) -> None:
    names = [f"group-{number:04}" for number in range(3000)]
    for name in names:
        broker.commit(name, [], 0)
    response = answer(broker, turns, ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    assert sorted(group.group_id for group in response.groups) == names
    # 2,000 units of work a turn, one for each group.
    assert max(turns.calls_counts) <= 10 * 2_000
    assert len(turns.calls_counts) > 2


@pytest.mark.parametrize("version", [7, 9])
def test_another_tenant_is_told_its_own(broker: Groups, turns: BrokerTurns, version: int) -> None:
    broker.make_tenant("acme")
    broker.connection.namespace = "acme"
    acme = broker.services.image.tenants["acme"].tenant_id
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT, acme)
    broker.commit(GROUP, TOPICS[:1], 1)
    for number in range(6000):
        broker.commit(str(number), [], 0, acme if number % 2 else "default")
    response = answer(broker, turns, ApiKey.OFFSET_FETCH, version, all_offsets(version))
    topics = response.topics if version < 8 else response.groups[0].topics
    assert [topic.name for topic in topics] == TOPICS
    assert version < 8 or response.groups[0].group_id == GROUP
    listed = answer(broker, turns, ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups
    expected = {GROUP, *(str(number) for number in range(1, 6000, 2))}
    assert {group.group_id for group in listed} == expected


@pytest.mark.parametrize("api_key", [ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS])
def test_the_connection_handles_nothing_else_until_it_is_encoded(
    broker: Groups, turns: BrokerTurns, api_key: ApiKey
) -> None:
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT)
    for number in range(3000):
        broker.commit(f"group-{number:04}", [], 0)
    held: list[str] = []
    keep = broker.connection.keep

    def keep_and_note(buf: Any, position: int, end: int) -> Any:
        kept = keep(buf, position, end)
        held.append("held")
        kept._on_release = lambda: held.append("released")
        return kept

    broker.connection.keep = keep_and_note
    message: Any = ListGroupsRequest() if api_key is ApiKey.LIST_GROUPS else all_offsets(8)
    pending = broker.send(api_key, 4 if api_key is ApiKey.LIST_GROUPS else 8, message)
    assert held == ["held"]
    turns.ticked(200)
    assert not pending.is_answered
    assert held == ["held"]
    turns.answered(pending)
    assert pending.is_answered
    assert held == ["held", "released"]


def test_heartbeats_of_the_connection_go_on_while_it_is_confirmed(broker: Groups) -> None:
    """Only an answer that is being made holds it: to be confirmed may take as long as a session."""
    confirmations: list[Any] = []
    broker.groups.topic.confirm_leading = (  # type: ignore[method-assign]
        lambda partition, epoch, now_ms, on_done: confirmations.append(on_done)
    )
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT)
    held: list[Any] = []
    broker.connection.keep = lambda *given: held.append(given)  # type: ignore[assignment]
    broker.send(ApiKey.OFFSET_FETCH, 9, all_offsets(9))
    assert len(confirmations) == 1
    assert not held
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    assert broker.send(ApiKey.HEARTBEAT, 4, beat).is_answered


def test_nobody_waits_for_it_any_more(broker: Groups, turns: BrokerTurns) -> None:
    broker.commit(GROUP, TOPICS, PARTITIONS_COUNT)
    gone = broker.connect()
    pending = broker.send(ApiKey.OFFSET_FETCH, 9, all_offsets(9), connection=gone)
    turns.ticked(200)
    gone.gate.close()
    turns.answered(pending)
    assert not pending.is_answered
    assert len(broker.services.request_work) == 0


def test_what_was_confirmed_of_one_epoch_is_nothing_to_the_next(broker: Groups) -> None:
    """While the question was open the partition was given up, and led and loaded again."""
    confirmations: list[Any] = []
    broker.groups.topic.confirm_leading = (  # type: ignore[method-assign]
        lambda partition, epoch, now_ms, on_done: confirmations.append(on_done)
    )
    broker.commit(GROUP, TOPICS[:1], 1)
    pending = broker.send(ApiKey.OFFSET_FETCH, 9, all_offsets(9))
    partition = broker.groups.coordinator.partition_of("default", GROUP)
    broker.groups.log._led[partition] += 1
    confirmations[0](True)
    assert pending.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
