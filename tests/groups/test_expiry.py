"""When offsets and groups go: by age, with their topic, on request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.groups.partitioning import partition_for_group
from data_plane.log.permit import PERMITTED, DeletionPermit
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.members import (
    DAY_MS,
    MINUTE_MS,
    Member,
    answer,
    commit_as_nobody,
    committed,
    error_of_commit,
    is_waiting,
    new_broker,
    stable_group,
    state_of_group,
)
from tests.groups.requests import (
    commit,
    delete_offsets,
    fetch,
    subscription,
    sync,
)

# ---- expiry and deletion


def test_offsets_of_a_simple_group_expire_one_by_one_after_their_commit() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0)
    broker.advance(4 * DAY_MS)
    commit_as_nobody(broker, 1)
    broker.advance(3 * DAY_MS + 20 * MINUTE_MS)
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 1)
    assert state_of_group(broker) == "Empty"
    broker.advance(4 * DAY_MS)
    assert committed(broker, 1) == -1
    assert state_of_group(broker) == "Dead", "the group goes with its last offset"
    after = broker.restart()
    assert (committed(after, 0), committed(after, 1)) == (-1, -1)
    assert state_of_group(after) == "Dead"


def test_nothing_expires_while_the_date_is_in_doubt() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    services = broker.services
    services.deletion_permit = DeletionPermit(why_not_by_date="the clock has jumped")
    broker.advance(30 * DAY_MS)
    assert committed(broker) == 1
    services.deletion_permit = PERMITTED
    broker.advance(20 * MINUTE_MS)
    assert committed(broker) == -1


def test_a_clock_that_is_set_forward_ends_no_session() -> None:
    broker = new_broker()
    members = [Member(broker, name, session_timeout_ms=45_000) for name in "abc"]
    stable_group(broker, *members)
    broker.services.wall_clock.observe(broker.now_ms, broker.now_ms + 30 * DAY_MS)
    for _ in range(10):
        broker.advance(30_000)
        assert [each.beat() for each in members] == [ErrorCode.NONE] * 3


def test_offsets_expire_by_the_date() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    broker.services.wall_clock.observe(broker.now_ms, broker.now_ms + 30 * DAY_MS)
    broker.advance(20 * MINUTE_MS)
    assert committed(broker) == -1
    # What is written now has the new date.
    commit_as_nobody(broker, 1)
    broker.advance(6 * DAY_MS)
    assert committed(broker, 1) == 1
    broker.advance(2 * DAY_MS)
    assert committed(broker, 1) == -1


def with_group_left_after_eight_days() -> LocalBroker:
    """Its only member has committed 5 at the beginning, and has just left."""
    broker = new_broker()
    a = Member(broker, "a", session_timeout_ms=1_800_000)
    stable_group(broker, a)
    answer(broker, a.send_commit(5))
    for _ in range(8 * 24 * 3):
        broker.advance(20 * MINUTE_MS)
        assert a.beat() is ErrorCode.NONE
    answer(broker, a.send_leave())
    return broker


def test_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    broker = with_group_left_after_eight_days()
    broker.advance(6 * DAY_MS)
    assert committed(broker) == 5, "in use until a day ago"
    after = broker.restart()
    after.advance(DAY_MS + 20 * MINUTE_MS)
    assert committed(after) == -1
    assert state_of_group(after) == "Dead"


def test_since_when_a_group_is_empty_is_known_after_a_restart() -> None:
    broker = with_group_left_after_eight_days()
    after = broker.restart()
    after.advance(6 * DAY_MS)
    assert committed(after) == 5
    after.advance(DAY_MS + 20 * MINUTE_MS)
    assert committed(after) == -1


def test_a_first_commit_in_flight_is_not_stable() -> None:
    broker = new_broker()
    broker.topic.hold = True
    waiting = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    assert committed(broker, stable=True) == "UNSTABLE_OFFSET_COMMIT"
    assert committed(broker) == -1
    broker.settle()
    assert error_of_commit(answer(broker, waiting)) is ErrorCode.NONE
    assert committed(broker, stable=True) == 1


def test_a_commit_outlives_the_group_that_could_not_be_written_down() -> None:
    """Else nothing would ever look for its age."""
    broker = new_broker()
    broker.topic.hold = True
    Member(broker, "a")
    waiting = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    _, _, on_done = broker.topic.waiting.popleft()
    on_done(ErrorCode.KAFKA_STORAGE_ERROR)
    broker.settle()
    assert error_of_commit(answer(broker, waiting)) is ErrorCode.NONE
    assert (state_of_group(broker), committed(broker)) == ("Empty", 1)


def test_deleting_a_group_deletes_the_second_commit_in_flight_too() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 2)
    broker.topic.hold = True
    for partition in (0, 1):
        broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", partition): 1}))
    _, _, on_done = broker.topic.waiting.popleft()
    on_done(ErrorCode.KAFKA_STORAGE_ERROR)
    broker.services.wakes.run(broker.now_ms)
    deleting = broker.handle(Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    broker.settle()
    assert answer(broker, deleting).results[0].error_code == ErrorCode.NONE
    assert [committed(broker, partition) for partition in range(3)] == [-1, -1, -1]
    assert state_of_group(broker) == "Dead"


def test_deleting_an_offset_deletes_the_one_that_is_in_flight() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 1)
    broker.topic.hold = True
    waiting = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    request = delete_offsets("g", {"orders": [0]})
    deleting = broker.handle(Api.OFFSET_DELETE, 0, request)
    broker.settle()
    assert error_of_commit(answer(broker, waiting)) is ErrorCode.NONE
    assert answer(broker, deleting).error_code == ErrorCode.NONE
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 1)


def test_nothing_expires_in_a_rebalance() -> None:
    """What its members will read is not known yet."""
    broker = new_broker()
    broker.create_topic("payments", 1)
    a = Member(broker, "a", session_timeout_ms=1_800_000, rebalance_timeout_ms=3_600_000)
    b = Member(broker, "b", session_timeout_ms=1_800_000, rebalance_timeout_ms=3_600_000)
    stable_group(broker, a, b)
    request = commit(
        "g", {("payments", 0): 3}, member_id=a.member_id, generation_id=a.generation_id
    )
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    for _ in range(7 * 24 * 3 - 1):
        broker.advance(20 * MINUTE_MS)
        assert a.beat() is b.beat() is ErrorCode.NONE
    b.send_join(protocols=[("range", subscription("payments"))])
    for _ in range(2):
        broker.advance(20 * MINUTE_MS)
        assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.joined(a.send_join())
    fetched = broker.handle(Api.OFFSET_FETCH, 9, fetch("g", {"payments": [0]})).groups[0]
    assert fetched.topics[0].partitions[0].committed_offset == 3


def test_what_is_committed_for_an_empty_group_counts_from_its_commit() -> None:
    """An administrator sets the offsets of a group that has been away for six days; its members
    come back two days later."""
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    answer(broker, a.send_commit(5, partition=0))
    answer(broker, a.send_commit(5, partition=1))
    answer(broker, a.send_leave())
    broker.advance(6 * DAY_MS)
    commit_as_nobody(broker, 0)
    broker.advance(2 * DAY_MS)
    for each in (broker, broker.restart()):
        assert (committed(each, 0), committed(each, 1)) == (1, -1)
        assert state_of_group(each) == "Empty"
    broker.advance(5 * DAY_MS + 20 * MINUTE_MS)
    assert committed(broker, 0) == -1
    assert state_of_group(broker) == "Dead"


def test_a_live_group_keeps_what_it_reads_and_loses_what_it_no_longer_reads() -> None:
    broker = new_broker()
    broker.create_topic("payments", 1)
    a = Member(
        broker,
        "a",
        session_timeout_ms=1_800_000,
        protocols=[("range", subscription("orders"))],
    )
    stable_group(broker, a)
    request = commit(
        "g",
        {("orders", 0): 5, ("payments", 0): 6},
        member_id=a.member_id,
        generation_id=a.generation_id,
    )
    answer(broker, a.call(Api.OFFSET_COMMIT, 9, request))
    for _ in range(7 * 24 * 3 + 2):
        broker.advance(20 * MINUTE_MS)
        a.beat()
    group = broker.handle(Api.OFFSET_FETCH, 9, fetch("g")).groups[0]
    assert [topic.name for topic in group.topics] == ["orders"]


@pytest.mark.parametrize("protocols", [[("range", b"?")], [("connect", b"")]])
def test_a_live_group_of_unknown_subscription_keeps_everything(
    protocols: list[tuple[str, bytes]],
) -> None:
    broker = new_broker()
    kind = "connect" if protocols[0][0] == "connect" else "consumer"
    a = Member(broker, "a", session_timeout_ms=1_800_000, protocols=protocols, protocol_type=kind)
    a.joined(a.send_join(), 100)
    request = sync(
        "g",
        a.member_id,
        a.generation_id,
        {},
        protocol_type=kind,
        protocol_name=protocols[0][0],
    )
    answer(broker, a.call(Api.SYNC_GROUP, 5, request))
    answer(broker, a.send_commit(5))
    for _ in range(8 * 24 * 3):
        broker.advance(20 * MINUTE_MS)
        a.beat()
    assert committed(broker) == 5


def test_an_old_client_decides_when_its_offsets_expire() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0, retention_time_ms=30 * MINUTE_MS)
    commit_as_nobody(broker, 1, retention_time_ms=30 * DAY_MS)
    broker = broker.restart()
    broker.advance(50 * MINUTE_MS)
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 1)
    broker.advance(20 * DAY_MS)
    assert committed(broker, 1) == 1


def test_an_old_client_may_keep_its_offsets_for_ever() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0, retention_time_ms=2**63 - 1)
    broker = broker.restart()
    broker.advance(40 * DAY_MS)
    assert committed(broker, 0) == 1


def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    answer(broker, a.send_leave())
    broker.advance(11 * MINUTE_MS)
    assert state_of_group(broker) == "Dead"


def test_a_commit_in_flight_keeps_a_group_from_expiring() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    broker.advance(7 * DAY_MS - 9 * MINUTE_MS)
    broker.topic.hold = True
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 2}))
    broker.advance(10 * MINUTE_MS)
    assert not is_waiting(result)
    broker.settle()
    assert committed(broker) == 2


def test_a_group_does_not_go_with_its_last_offset_while_the_next_is_in_flight() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0)
    broker.advance(7 * DAY_MS - 5 * MINUTE_MS)
    broker.topic.hold = True
    broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 1): 2}))
    broker.advance(10 * MINUTE_MS)
    assert state_of_group(broker) == "Empty"
    broker.settle()
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 2)


def test_a_group_does_not_go_while_somebody_has_an_id_for_it() -> None:
    broker = new_broker()
    a = Member(broker, "a", session_timeout_ms=1_800_000)
    broker.advance(25 * MINUTE_MS)
    stable_group(broker, a)
    b = Member(broker, "b", session_timeout_ms=1_800_000)
    answer(broker, a.send_leave())
    broker.advance(25 * MINUTE_MS)
    assert state_of_group(broker) == "Empty"
    stable_group(broker, b)


def test_deleting_a_group_deletes_what_was_in_flight_before() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    broker.topic.hold = True
    earlier = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 1): 2}))
    request = DeleteGroupsRequest(groups_names=["g"])
    result = broker.handle(Api.DELETE_GROUPS, 2, request)
    broker.settle()
    assert error_of_commit(answer(broker, earlier)) is ErrorCode.NONE
    assert answer(broker, result).results[0].error_code == ErrorCode.NONE
    assert broker.groups.coordinator.offset_count() == 0


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_deleting_a_topic_deletes_its_offsets(is_made_anew: bool) -> None:
    """Also when it is there again at once: a broker that reads several changes in one step never
    sees an image without the name."""
    broker = new_broker()
    broker.create_topic("payments", 1)
    request = commit("g", {("orders", 0): 5, ("payments", 0): 6})
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    broker.topic.hold = True
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 1): 7}))
    if is_made_anew:
        broker.make_topic_anew("orders", 3)
    else:
        broker.delete_topic("orders")
    # The commit, and then the tombstone that had to wait for it.
    broker.settle()
    broker.settle()
    assert error_of_commit(answer(broker, result)) is ErrorCode.NONE
    assert broker.groups.coordinator.offset_count() == 1
    for each in (broker, broker.restart()):
        group = each.handle(Api.OFFSET_FETCH, 9, fetch("g")).groups[0]
        assert [topic.name for topic in group.topics] == ["payments"]


def test_a_topic_made_anew_does_not_inherit_offsets() -> None:
    """The broker died after the topic's deletion and before the offsets' tombstones."""
    broker = new_broker()
    commit_as_nobody(broker, 0)
    commit_as_nobody(broker, 1)
    records = {index: list(each) for index, each in broker.topic.records.items()}
    broker.delete_topic("orders")
    broker.create_topic("orders", 3)
    # What a broker that came back has seen since: a commit for the new topic.
    commit_as_nobody(broker, 1)
    index = partition_for_group("default", "g", 3)
    records[index].append(broker.topic.records[index][-1])
    crashed = LocalBroker(store=broker.store, records=records)
    assert (committed(crashed, 0), committed(crashed, 1)) == (-1, 1)
    assert crashed.groups.coordinator.offset_count() == 1


def test_offsets_of_topics_that_an_old_image_does_not_name_stay() -> None:
    """The image of this broker's disk may be older than the topic."""
    broker = new_broker()
    commit_as_nobody(broker)
    services = broker.services
    services.deletion_permit = DeletionPermit.refused("nobody has vouched for the image")
    broker.load_again(partition_for_group("default", "g", 3))
    services.image = replace(services.image, topics_by_tenant={}, topics_by_id={})
    services.images.newest = services.image
    services.tick(broker.now_ms)
    assert committed(broker) == 1
    services.deletion_permit = PERMITTED
    services.tick(broker.now_ms)
    assert committed(broker) == -1, "it was so"


def test_a_commit_for_a_topic_made_anew_outlives_what_else_is_loaded_meanwhile() -> None:
    """What another partition's loading finds of the old topic is about to be replaced: a tombstone
    behind the commit would take away what its client is told to be committed."""
    broker = new_broker()
    commit_as_nobody(broker)
    broker.topic.hold = True
    broker.make_topic_anew("orders", 3)
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 7}))
    assert is_waiting(result)
    broker.load_again((partition_for_group("default", "g", 3) + 1) % 3)
    broker.settle()
    assert error_of_commit(answer(broker, result)) is ErrorCode.NONE
    assert (committed(broker), committed(broker.restart())) == (7, 7)


def test_deleting_a_group_can_fail_and_be_repeated() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    request = DeleteGroupsRequest(groups_names=["g"])
    broker.topic.hold = True
    result = broker.handle(Api.DELETE_GROUPS, 2, request)
    assert state_of_group(broker) == "Dead"
    refused = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 2}))
    assert error_of_commit(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    response = answer(broker, result)
    assert response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (state_of_group(broker), committed(broker)) == ("Empty", 1)
    broker.topic.hold = False
    response = answer(broker, broker.handle(Api.DELETE_GROUPS, 2, request))
    assert response.results[0].error_code == ErrorCode.NONE
    assert state_of_group(broker.restart()) == "Dead"


def test_many_offsets_are_deleted_in_several_batches() -> None:
    broker = new_broker()
    broker.create_topic("wide", 2_500)
    request = commit("g", {("wide", index): index for index in range(2_500)})
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    broker.topic.hold = True
    result = broker.handle(Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert len(broker.topic.waiting) == 1, "as much as one turn has time for"
    broker.advance(100)
    sizes = [len(records) for _, records, _ in broker.topic.waiting]
    assert sizes == [1_000, 1_000, 500]
    broker.settle()
    (tombstone,) = [records for _, records, _ in broker.topic.waiting]
    assert len(tombstone) == 1, "the group goes when its offsets have gone"
    broker.settle()
    assert answer(broker, result).results[0].error_code == ErrorCode.NONE
    assert broker.groups.coordinator.offset_count() == 0
