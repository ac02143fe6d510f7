"""What a tenant may have of groups, offsets and their bytes: who would go beyond is told so in the
way that clients understand, who is there goes on; and nobody has all that a broker keeps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.request.quotas import NoQuotas
from data_plane.cell.changes import UpdateFeature
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.groups.effects import AppendRecords, ClientContext, Respond
from data_plane.groups.group_state import GroupState
from data_plane.groups.member import MEMBER_OVERHEAD_BYTES
from data_plane.groups.totals import (
    BROKER,
    COMMITTED_OFFSETS,
    GROUP_METADATA_BYTES,
    GROUP_QUOTAS,
    GROUPS,
    TELL_AGAIN_MS,
    GroupTotals,
    TenantLimit,
)
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.members import (
    Member,
    answer,
    committed,
    is_waiting,
    joined_group,
    new_broker,
    stable_group,
    state_of_group,
)
from tests.groups.requests import commit, join, subscription

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
TOO_MUCH = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
CLIENT = ClientContext("c", "/127.0.0.1", 9)


class SetLimits(NoQuotas):
    """The QuotaManager port's double: what groups may come to is set from outside."""

    def __init__(self, limits: Mapping[str, TenantLimit]) -> None:
        self.limits = limits

    def limit_of_groups(self, tenant_id: str, quota: str) -> TenantLimit | None:
        return self.limits.get(quota) if tenant_id == "default" else None


def limit(broker: LocalBroker, quota: str, most: int, elsewhere: int = 0) -> None:
    broker.services.quotas = SetLimits({quota: TenantLimit(most, elsewhere)})


def join_error(broker: LocalBroker, group_id: str, **joining: Any) -> ErrorCode:
    request = join(group_id, **joining)
    return ErrorCode(answer(broker, broker.handle(Api.JOIN_GROUP, 9, request)).error_code)


def commit_errors(
    broker: LocalBroker, group_id: str, *partitions: int, **more: Any
) -> list[ErrorCode]:
    """What is said of each."""
    request = commit(group_id, dict.fromkeys([("orders", each) for each in partitions], 1), **more)
    return errors_of(answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request)))


def errors_of(response: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions]


def commit_error(broker: LocalBroker, group_id: str, *partitions: int, **more: Any) -> ErrorCode:
    """What is said of all of them."""
    (error,) = set(commit_errors(broker, group_id, *partitions, **more))
    return error


def told(broker: LocalBroker) -> list[str]:
    return [fields["detail"] for event, fields in broker.log.lines if event == "group_refused"]


def refused(broker: LocalBroker) -> dict[str, int]:
    counts = broker.groups.coordinator.counters.refused
    return {quota: count for quota, count in counts.items() if count}


def test_a_group_too_many_is_refused_and_the_others_go_on() -> None:
    broker = new_broker()
    limit(broker, GROUPS, 3, elsewhere=1)
    member = Member(broker, "a")
    stable_group(broker, member)
    assert commit_error(broker, "offsets only", 0) is ErrorCode.NONE
    assert join_error(broker, "one more") is FULL
    assert commit_error(broker, "one more", 0) is TOO_MUCH
    assert commit_error(broker, "offsets only", 1) is ErrorCode.NONE
    assert member.beat() is ErrorCode.NONE
    assert refused(broker) == {GROUPS: 2}
    words = "The tenant has 3 groups, and may have 3: 1 more is too much."
    assert told(broker) == [words]
    request = DeleteGroupsRequest(groups_names=["offsets only"])
    answer(broker, broker.handle(Api.DELETE_GROUPS, 2, request))
    assert commit_error(broker, "one more", 0) is ErrorCode.NONE


def test_who_is_wrong_anyway_is_told_that_and_not_that_there_is_no_room() -> None:
    broker = new_broker()
    member = Member(broker, "a")
    stable_group(broker, member)
    broker.services.quotas = SetLimits({quota: TenantLimit(0) for quota in GROUP_QUOTAS})
    assert join_error(broker, "other", member_id="gone") is ErrorCode.UNKNOWN_MEMBER_ID
    assert join_error(broker, "g", member_id="gone") is ErrorCode.UNKNOWN_MEMBER_ID
    nothing_in_common = [("sticky", b"")]
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join_error(broker, "g", protocols=nothing_in_common) is inconsistent
    assert join_error(broker, "other", protocols=[]) is inconsistent
    of_another_life = {"member_id": "gone", "generation_id": 1}
    assert commit_error(broker, "other", 0, **of_another_life) is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit_error(broker, "g", 0, **of_another_life) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(broker) == {}
    assert member.beat() is ErrorCode.NONE


def test_an_id_that_was_handed_out_does_not_count_beside_its_member() -> None:
    broker = new_broker()
    limit(broker, GROUP_METADATA_BYTES, MEMBER_OVERHEAD_BYTES + len("range") + 100)
    member = Member(broker, "a", protocols=[("range", b"m" * 100)])
    assert member.joined(member.send_join(), 100).error_code == ErrorCode.NONE


def test_that_a_tenant_is_at_a_limit_is_told_now_and_then() -> None:
    broker = new_broker()
    limit(broker, GROUPS, 0)
    for _ in range(50):
        assert join_error(broker, "g") is FULL
    broker.advance(TELL_AGAIN_MS - 1)
    join_error(broker, "g")
    assert len(told(broker)) == 1
    broker.advance(1)
    join_error(broker, "g")
    assert len(told(broker)) == 2


def test_offsets_are_counted_with_those_in_flight() -> None:
    broker = new_broker()
    limit(broker, COMMITTED_OFFSETS, 4, elsewhere=1)
    assert commit_error(broker, "g", 0) is ErrorCode.NONE
    broker.topic.hold = True
    first = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 1): 1}))
    assert is_waiting(first)
    broker.topic.hold = False
    assert commit_error(broker, "h", 0, 1) is TOO_MUCH
    assert told(broker) == [
        "The tenant has 3 committed offsets, and may have 4: 2 more is too much."
    ]
    broker.settle()
    assert commit_error(broker, "g", 0, 1) is ErrorCode.NONE, "what is there is committed anew"
    assert commit_error(broker, "g", 2) is ErrorCode.NONE
    assert commit_error(broker, "g", 0, 1, 2) is ErrorCode.NONE
    assert commit_error(broker, "h", 0) is TOO_MUCH
    assert refused(broker) == {COMMITTED_OFFSETS: 2}


@pytest.mark.parametrize("quota", [COMMITTED_OFFSETS, GROUP_METADATA_BYTES])
def test_what_is_there_is_committed_beside_a_new_offset_that_is_refused(quota: str) -> None:
    broker = new_broker()
    assert commit_error(broker, "g", 0, 1) is ErrorCode.NONE
    limit(broker, quota, 2)
    request = commit("g", {("orders", 0): 7, ("orders", 2): 7, ("orders", 1): 8})
    response = answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    assert errors_of(response) == [ErrorCode.NONE, TOO_MUCH, ErrorCode.NONE]
    assert [committed(broker, partition) for partition in range(3)] == [7, 8, -1]
    assert refused(broker) == {quota: 1}
    totals = broker.groups.coordinator.totals
    assert (totals.offset_count, totals.pending_offset_count) == (2, 0)
    assert totals.pending_offset_bytes == 0


def test_what_is_there_is_committed_anew_with_longer_metadata() -> None:
    broker = new_broker()
    assert commit_error(broker, "g", 0) is ErrorCode.NONE
    limit(broker, GROUP_METADATA_BYTES, 1)
    for metadata in ("m" * 16, "m" * 4_000, "", "m" * 4_000):
        assert commit_error(broker, "g", 0, metadata=metadata) is ErrorCode.NONE
    assert refused(broker) == {}


def test_at_the_brokers_bound_only_what_grows_is_refused() -> None:
    broker = new_broker()
    assert commit_error(broker, "g", 0, 1) is ErrorCode.NONE
    coordinator = broker.groups.coordinator
    used = coordinator.totals.offset_bytes
    object.__setattr__(coordinator.config, "offsets_max_bytes", used)
    request = commit("g", {("orders", 0): 7, ("orders", 1): 7, ("orders", 2): 7})
    request.topics[0].partitions[1].committed_metadata = "m" * 4_000
    response = answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    assert errors_of(response) == [ErrorCode.NONE, TOO_MUCH, TOO_MUCH]
    assert [committed(broker, partition) for partition in range(3)] == [7, 1, -1]
    assert coordinator.totals.offset_bytes == used
    # As it is written by Kafka Streams, and by clients that say when it expires.
    assert commit_error(broker, "g", 0, metadata="m" * 16) is ErrorCode.NONE


def test_a_commit_that_is_tried_again_while_it_is_in_flight_counts_once() -> None:
    broker = new_broker()
    limit(broker, COMMITTED_OFFSETS, 3)
    broker.topic.hold = True
    request = commit("g", {("orders", 0): 1, ("orders", 1): 1})
    tries = [broker.handle(Api.OFFSET_COMMIT, 9, request) for _ in range(3)]
    assert all(is_waiting(each) for each in tries)
    totals = broker.groups.coordinator.totals
    assert (totals.pending_offset_count, totals.offset_count) == (2, 0)
    other = broker.handle(Api.OFFSET_COMMIT, 9, commit("h", {("orders", 0): 1}))
    assert is_waiting(other), "there is room for one more"
    broker.settle()
    broker.topic.hold = False
    for each in (*tries, other):
        assert set(errors_of(answer(broker, each))) == {ErrorCode.NONE}
    assert (totals.pending_offset_count, totals.offset_count) == (0, 3)
    assert totals.pending_offset_bytes == 0
    assert refused(broker) == {}


def test_what_a_refused_commit_was_to_add_does_not_count() -> None:
    broker = new_broker()
    limit(broker, COMMITTED_OFFSETS, 2)
    broker.topic.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert commit_error(broker, "g", 0, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.topic.fail_with = ErrorCode.NONE
    assert commit_error(broker, "g", 0, 1) is ErrorCode.NONE


def test_what_is_asked_for_new_offsets_is_what_they_take() -> None:
    broker = new_broker()
    topic_ids = [broker.create_topic(f"topic-{number}", 2) for number in range(20)]
    broker.topic.hold = True
    totals = broker.groups.coordinator.totals
    asked: dict[tuple[str | UUID, int], int] = dict.fromkeys(product(topic_ids, range(2)), 1)
    result = broker.handle(Api.OFFSET_COMMIT, 10, commit("g", asked))
    pending_bytes = totals.pending_offset_bytes
    broker.settle()
    assert set(errors_of(answer(broker, result))) == {ErrorCode.NONE}
    assert (totals.offset_count, totals.pending_offset_bytes) == (40, 0)
    assert totals.offset_bytes == pending_bytes
    # Another partition of a topic that the group knows.
    more = broker.create_topic("one-more", 2)
    for partition in range(2):
        before = totals.offset_bytes
        result = broker.handle(Api.OFFSET_COMMIT, 10, commit("g", {(more, partition): 1}))
        pending_bytes = totals.pending_offset_bytes
        broker.settle()
        assert totals.offset_bytes == before + pending_bytes


def test_a_group_is_none_whose_first_commit_the_log_has_refused() -> None:
    broker = new_broker()
    limit(broker, GROUPS, 1)
    coordinator = broker.groups.coordinator
    broker.topic.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    for name in "abc":
        assert commit_error(broker, name, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert list(coordinator.groups()) == []
    assert coordinator.totals.group_count == 0
    broker.topic.fail_with = ErrorCode.NONE
    assert commit_error(broker, "d", 0) is ErrorCode.NONE
    assert commit_error(broker, "e", 0) is TOO_MUCH
    # One that has offsets stays.
    broker.topic.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert commit_error(broker, "d", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [group.group_id for group in coordinator.groups()] == ["d"]


def test_a_group_is_made_by_the_last_of_its_first_commits_that_the_log_takes() -> None:
    broker = new_broker()
    broker.topic.hold = True
    tries = [
        broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", partition): 7}))
        for partition in range(2)
    ]
    coordinator = broker.groups.coordinator
    _, _, on_done = broker.topic.waiting.popleft()
    on_done(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [group.group_id for group in coordinator.groups()] == ["g"]
    broker.settle()
    assert [errors_of(answer(broker, each)) for each in tries] == [
        [ErrorCode.COORDINATOR_NOT_AVAILABLE],
        [ErrorCode.NONE],
    ]
    assert [committed(broker, partition) for partition in range(2)] == [-1, 7]


def test_somebody_who_was_given_an_id_keeps_a_group_that_a_commit_has_not_made() -> None:
    broker = new_broker()
    broker.topic.hold = True
    refused_commit = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    member = Member(broker, "a")
    broker.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.topic.hold = False
    assert errors_of(answer(broker, refused_commit)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    stable_group(broker, member)


def test_bytes_of_members_and_of_offsets_count_together() -> None:
    broker = new_broker()
    large = [("range", subscription("orders") + b"m" * 10_000)]
    limit(broker, GROUP_METADATA_BYTES, 11_000 + 2 * MEMBER_OVERHEAD_BYTES)
    member = Member(broker, "a", protocols=large)
    stable_group(broker, member)
    assert join_error(broker, "g", protocols=large) is FULL
    of_member = {"member_id": member.member_id, "generation_id": member.generation_id}
    assert commit_error(broker, "g", 0, metadata="m" * 4_000, **of_member) is TOO_MUCH
    assert commit_error(broker, "g", 0, **of_member) is ErrorCode.NONE
    assert member.joined(member.send_join(), 10_000).error_code == ErrorCode.NONE
    assigned(broker, member, assignment=b"x" * 4_000)
    assert refused(broker) == {GROUP_METADATA_BYTES: 2}
    totals = broker.groups.coordinator.totals
    assert totals.tenants["default"].use_of(GROUP_METADATA_BYTES) == (
        totals.member_bytes + totals.offset_bytes
    )


def assigned(broker: LocalBroker, *members: Member, assignment: bytes) -> None:
    """They have joined; the first one leads, and gives each of them this."""
    assignments = {each.member_id: assignment for each in members}
    results = [each.send_sync(assignments if each is members[0] else None) for each in members]
    broker.settle()
    assert [answer(broker, result).assignment for result in results] == [assignment] * len(members)
    assert state_of_group(broker) == "Stable"


@pytest.mark.parametrize("change", ["leaves", "crashes", "interrupts a rebalance", "owns more"])
def test_a_group_goes_on_though_its_tenant_is_above_the_limit(change: str) -> None:
    broker = new_broker()
    members = [Member(broker, name) for name in "abc"]
    stable_group(broker, *members)
    limit(broker, GROUP_METADATA_BYTES, 1)
    last = members[-1]
    if change == "owns more":
        owned = [("range", subscription("orders") + b"o" * 1_000)]
        for member in members:
            member.joining = {"protocols": owned}
    else:
        members.remove(last)
    if change == "interrupts a rebalance":
        joined_group(broker, *members, last)
    if change == "crashes":
        broker.advance(6_000)
        assert [member.beat() for member in members] == [ErrorCode.NONE] * 2
        broker.advance(6_000)
    elif last not in members:
        assert answer(broker, last.send_leave()).members[0].error_code == ErrorCode.NONE
    joined_group(broker, *members)
    assigned(broker, *members, assignment=b"x" * 5_000)
    assert refused(broker) == {}
    assert join_error(broker, "g") is FULL, "that would be one more"
    assert refused(broker) == {GROUP_METADATA_BYTES: 1}


def test_a_member_that_was_loaded_comes_back_with_all_of_its_protocols() -> None:
    broker = new_broker()
    names = ("range", "cooperative-sticky")
    member = Member(
        broker, "a", protocols=[(name, subscription("orders") + b"m" * 3_000) for name in names]
    )
    stable_group(broker, member)
    broker = member.broker = broker.restart()
    totals = broker.groups.coordinator.totals.tenants["default"]
    limit(broker, GROUP_METADATA_BYTES, totals.use_of(GROUP_METADATA_BYTES))
    joined_group(broker, member)
    assigned(broker, member, assignment=b"x" * 5_000)
    assert refused(broker) == {}


def test_other_tenants_have_limits_of_their_own() -> None:
    broker = new_broker()
    limit(broker, GROUPS, 0)
    assert join_error(broker, "g") is FULL
    coordinator = broker.groups.coordinator
    request = commit("g", {("orders", 0): 1})
    effects = coordinator.commit_offsets("acme", request, CLIENT, "token", broker.now_ms)
    assert not any(isinstance(effect, Respond) for effect in effects), "it is being written"


@pytest.mark.parametrize("way", ["restart", "another epoch"])
def test_after_a_restart_and_a_failover_the_limits_are_what_they_were(way: str) -> None:
    broker = new_broker()
    stable_group(broker, Member(broker, "a"))
    assert commit_error(broker, "offsets only", 0, 1, 2) is ErrorCode.NONE
    before = broker.groups.coordinator.totals.tenants["default"]
    use = {quota: before.use_of(quota) for quota in GROUP_QUOTAS}
    assert (use[GROUPS], use[COMMITTED_OFFSETS]) == (2, 3)
    if way == "restart":
        broker = broker.restart()
    else:
        for index in range(3):
            broker.load_again(index)
    after = broker.groups.coordinator.totals.tenants["default"]
    assert {quota: after.use_of(quota) for quota in GROUP_QUOTAS} == use
    limit(broker, GROUPS, 2)
    assert join_error(broker, "one more") is FULL
    limit(broker, COMMITTED_OFFSETS, 4)
    assert commit_error(broker, "new", 0, 1) is TOO_MUCH
    assert commit_error(broker, "new", 0) is ErrorCode.NONE
    broker.groups.stop(broker.now_ms)
    totals = broker.groups.coordinator.totals
    assert totals.tenants == {}
    assert (totals.group_count, totals.member_bytes, totals.offset_count) == (0, 0, 0)


def test_a_shard_that_is_given_up_counts_for_its_tenant_no_more() -> None:
    whole = GroupTotals()
    shard, other = whole.of_shard("acme"), whole.of_shard("acme")
    for one in (shard, other):
        one.add_group(GroupState.EMPTY)
        one.add_member_bytes(100)
        one.add_offsets(2, 50)
        one.add_pending_offsets(1, 25)
    acme = whole.tenants["acme"]
    assert [acme.use_of(quota) for quota in GROUP_QUOTAS] == [2, 6, 350]
    shard.close()
    shard.close()
    assert [acme.use_of(quota) for quota in GROUP_QUOTAS] == [1, 3, 175]
    assert (whole.group_count, whole.member_bytes) == (2, 200)
    shard.forget_group(GroupState.EMPTY)
    shard.add_member_bytes(-100)
    assert [acme.use_of(quota) for quota in GROUP_QUOTAS] == [1, 3, 175]
    assert (whole.group_count, whole.member_bytes) == (1, 100)
    other.close()
    assert whole.tenants == {}


# What all have together


def with_tenants(broker: LocalBroker) -> None:
    changes = (
        UpdateFeature(METADATA_VERSION, TENANCY_LEVEL),
        PutTenant(TenantImage("acme", "acme-cluster")),
    )
    errors: list[BaseException | None] = []
    broker.services.metadata.write(lambda image: changes, errors.append)
    assert errors == [None]


def fill(broker: LocalBroker, tenant: str, most: int, name: str = "g") -> int:
    """How many groups with an offset it gets, of so many."""
    coordinator = broker.groups.coordinator
    count = 0
    for number in range(most):
        request = commit(f"{name}-{number}", {("orders", 0): 1})
        effects = coordinator.commit_offsets(tenant, request, CLIENT, "token", broker.now_ms)
        appends = [effect for effect in effects if isinstance(effect, AppendRecords)]
        for append in appends:
            coordinator.append_done(append.append_id, ErrorCode.NONE, broker.now_ms)
        count += bool(appends)
    return count


@pytest.mark.parametrize(
    "bound",
    [
        {"group_coordinator_groups_max": "30"},
        {"group_coordinator_offsets_max_bytes": str(30 * 640)},
    ],
)
def test_no_tenant_has_more_of_a_broker_than_it_leaves_the_others(bound: dict[str, str]) -> None:
    broker = new_broker(**bound)
    with_tenants(broker)
    first = fill(broker, "default", 100)
    assert 14 <= first <= 16
    second = fill(broker, "acme", 100)
    assert 6 <= second <= 8
    assert fill(broker, "globex", 100) >= 2
    assert fill(broker, "default", 100, "more") == 0


def test_a_tenant_that_is_alone_may_have_all() -> None:
    broker = new_broker(group_coordinator_groups_max="30")
    assert fill(broker, "default", 100) == 30


@pytest.mark.parametrize(
    ("bound", "what"),
    [
        ({"group_coordinator_groups_max": "2"}, "groups"),
        ({"group_coordinator_offsets_max_bytes": "1500"}, "bytes of offsets"),
        ({"group_coordinator_members_max_bytes": "5000"}, "bytes of members"),
    ],
)
def test_what_a_brokers_bounds_refuse_is_told_and_counted(bound: dict[str, str], what: str) -> None:
    broker = new_broker(**bound)
    for number in range(5):
        if "members" in what:
            join_error(broker, f"g-{number}", protocols=[("range", b"m" * 2_000)])
        else:
            commit_error(broker, f"g-{number}", 0)
    assert refused(broker)[BROKER] >= 2
    assert set(refused(broker)) == {BROKER}
    (words,) = told(broker)
    assert f" {what}, " in words
    assert words.endswith("more is too much for one tenant.")


def test_members_of_one_tenant_leave_room_for_those_of_others() -> None:
    broker = new_broker(group_coordinator_members_max_bytes=str(10 * MEMBER_OVERHEAD_BYTES))
    with_tenants(broker)
    errors = [join_error(broker, f"g-{number}") for number in range(20)]
    assert FULL in errors
    totals = broker.groups.coordinator.totals
    assert totals.member_bytes <= 5 * MEMBER_OVERHEAD_BYTES
