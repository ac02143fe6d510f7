"""Members that do what they are asked to, and questions to a `LocalBroker`."""

from __future__ import annotations

from typing import Any

from data_plane.broker.request.api import Deferred
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.requests import (
    commit,
    fetch,
    heartbeat,
    join,
    leave,
    sync,
)

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def new_broker(**properties: str) -> LocalBroker:
    broker = LocalBroker(
        {
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )
    broker.create_topic("orders", 3)
    broker.handle(Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"]))
    return broker


def answer(broker: LocalBroker, result: Any, within_ms: int = 0) -> Any:
    """The response, which must be there after `within_ms`."""
    if not isinstance(result, Deferred):
        return result
    answers: list[Any] = []
    result.when_complete(answers.append)
    if not answers:
        broker.advance(within_ms)
    assert answers, "still waiting"
    return answers[0]


def is_waiting(result: Any) -> bool:
    return isinstance(result, Deferred) and not result.done


class Member:
    """A client that does what it is asked to."""

    def __init__(self, broker: LocalBroker, name: str, **joining: Any) -> None:
        self.broker = broker
        self.name = name
        self.joining = joining
        self.instance_id = joining.get("instance_id")
        self.member_id = ""
        self.generation_id = -1
        if self.instance_id is None:
            response = self.send_join()
            assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = response.member_id

    def call(self, api_key: Api, version: int, request: Any) -> Any:
        return self.broker.handle(api_key, version, request, client_id=self.name)

    def send_join(self, **changes: Any) -> Any:
        request = join("g", self.member_id, **{**self.joining, **changes})
        return self.call(Api.JOIN_GROUP, 9, request)

    def joined(self, result: Any, within_ms: int = 0) -> Any:
        response = answer(self.broker, result, within_ms)
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.generation_id = response.member_id, response.generation_id
        return response

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        request = sync(
            "g", self.member_id, self.generation_id, assignments, instance_id=self.instance_id
        )
        return self.call(Api.SYNC_GROUP, 5, request)

    def beat(self) -> ErrorCode:
        request = heartbeat("g", self.member_id, self.generation_id, self.instance_id)
        return ErrorCode(self.call(Api.HEARTBEAT, 4, request).error_code)

    def send_commit(self, offset: int, partition: int = 0) -> Any:
        request = commit(
            "g",
            {("orders", partition): offset},
            member_id=self.member_id,
            generation_id=self.generation_id,
            instance_id=self.instance_id,
        )
        return self.call(Api.OFFSET_COMMIT, 9, request)

    def send_leave(self) -> Any:
        return self.call(Api.LEAVE_GROUP, 5, leave("g", (self.member_id, self.instance_id)))


def joined_group(broker: LocalBroker, *members: Member) -> None:
    """All join; the first one leads, and nobody has asked for his assignment."""
    results = [member.send_join() for member in members]
    broker.advance(100)
    for member, result in zip(members, results, strict=True):
        assert member.joined(result).error_code == ErrorCode.NONE


def stable_group(broker: LocalBroker, *members: Member) -> None:
    """All join and sync; the first one leads. Assignments are the members' names."""
    joined_group(broker, *members)
    assignments = {each.member_id: each.name.encode() for each in members}
    results = [each.send_sync(assignments if each is members[0] else None) for each in members]
    broker.settle()
    for member, result in zip(members, results, strict=True):
        assert answer(broker, result).assignment == member.name.encode()


def error_of_commit(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


def committed(broker: LocalBroker, partition: int = 0, *, stable: bool = False) -> Any:
    """The committed offset, or the error's name."""
    request = fetch("g", {"orders": [partition]}, require_stable=stable)
    group = broker.handle(Api.OFFSET_FETCH, 9, request).groups[0]
    if group.error_code:
        return ErrorCode(group.error_code).name
    each = group.topics[0].partitions[0]
    return ErrorCode(each.error_code).name if each.error_code else each.committed_offset


def state_of_group(broker: LocalBroker) -> str:
    request = DescribeGroupsRequest(groups=["g"])
    state: str = broker.handle(Api.DESCRIBE_GROUPS, 5, request).groups[0].group_state
    return state


def commit_as_nobody(broker: LocalBroker, partition: int = 0, **kwargs: Any) -> None:
    version = 4 if "retention_time_ms" in kwargs else 9
    request = commit("g", {("orders", partition): 1}, **kwargs)
    result = broker.handle(Api.OFFSET_COMMIT, version, request)
    assert error_of_commit(answer(broker, result)) is ErrorCode.NONE
