"""Scripts of raw requests whose answers were recorded from Apache Kafka 4.3.1.

Each script uses groups and topics of its own. Where several requests wait at once, answers are
received in an order that does not depend on who is served first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.registry import ApiKey as Api
from tests.groups.player import Player
from tests.groups.requests import (
    commit,
    delete_offsets,
    fetch,
    fetch_group,
    heartbeat,
    join,
    leave,
    old_fetch,
    old_sync,
    subscription,
    sync,
)

BROKER_PROPERTIES = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "3",
    "offset.metadata.max.bytes": "32",
    "auto.create.topics.enable": "false",
}

UNKNOWN_TOPIC_ID = UUID("00000000-0000-4000-8000-00000000abcd")

Script = Callable[[Player], None]
SCRIPTS: dict[str, Script] = {}


def script(function: Script) -> Script:
    SCRIPTS[function.__name__] = function
    return function


def find_coordinator_request(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=[key])


def describe(*group_ids: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=operations)


class Client:
    """A group member over its own connection; remembers what it has been told."""

    def __init__(self, player: Player, name: str, group_id: str, **joining: Any) -> None:
        self.player = player
        self.name = name
        self.group_id = group_id
        self.joining = joining
        self.member_id = ""
        self.generation_id = -1

    def send_join(self, version: int = 9, **changes: Any) -> None:
        request = join(self.group_id, self.member_id, **{**self.joining, **changes})
        self.player.send(self.name, Api.JOIN_GROUP, version, request)

    def joined(self) -> None:
        response = self.player.receive(self.name)
        self.member_id = response.member_id
        self.generation_id = response.generation_id

    def get_id(self, **changes: Any) -> None:
        """The first join of a dynamic member: MEMBER_ID_REQUIRED."""
        self.send_join(**changes)
        self.joined()

    def join(self, version: int = 9, **changes: Any) -> None:
        self.send_join(version, **changes)
        self.joined()

    def send_sync(
        self, assignments: dict[str, bytes] | None = None, version: int = 5, **kwargs: Any
    ) -> None:
        request = sync(self.group_id, self.member_id, self.generation_id, assignments, **kwargs)
        self.player.send(self.name, Api.SYNC_GROUP, version, request)

    def synced(self) -> None:
        self.player.receive(self.name)

    def sync(self, assignments: dict[str, bytes] | None = None, **kwargs: Any) -> None:
        self.send_sync(assignments, **kwargs)
        self.synced()

    def heartbeat(self, instance_id: str | None = None) -> None:
        request = heartbeat(self.group_id, self.member_id, self.generation_id, instance_id)
        self.player.call(self.name, Api.HEARTBEAT, 4, request)

    def commit(self, offsets: dict[tuple[str | UUID, int], int], version: int = 9) -> None:
        request = commit(
            self.group_id,
            offsets,
            member_id=self.member_id,
            generation_id=self.generation_id,
        )
        self.player.call(self.name, Api.OFFSET_COMMIT, version, request)

    def leave(self, version: int = 5) -> None:
        request = leave(self.group_id, (self.member_id, None), reason="done")
        self.player.call(self.name, Api.LEAVE_GROUP, version, request)


def stable_pair(player: Player, group_id: str, **joining: Any) -> tuple[Client, Client]:
    """Two dynamic members in generation 1; the first leads."""
    a = Client(player, "a", group_id, **joining)
    b = Client(player, "b", group_id, **joining)
    a.get_id()
    b.get_id()
    a.send_join()
    player.sleep(20)
    b.send_join()
    b.joined()
    a.joined()
    b.send_sync()
    player.sleep(20)
    a.sync({a.member_id: b"A", b.member_id: b"B"})
    b.synced()
    return a, b


@script
def list_groups(player: Player) -> None:
    """Only on a broker that has no other groups; the first script in order sees to that."""
    player.create_topic("orders", 2)
    player.call("c", Api.OFFSET_COMMIT, 9, commit("ls-simple", {("orders", 0): 1}))
    a = Client(player, "a", "ls-live")
    a.get_id()
    a.join()
    for version in range(6):
        player.call("c", Api.LIST_GROUPS, version, ListGroupsRequest())
    for states in (["Stable"], ["empty"], ["COMPLETINGREBALANCE", "Dead"], ["nonsense"], [""]):
        player.call("c", Api.LIST_GROUPS, 4, ListGroupsRequest(states_filter=states))
    for types in (["Classic"], ["classic", "consumer"], ["consumer"], ["nonsense"]):
        player.call("c", Api.LIST_GROUPS, 5, ListGroupsRequest(types_filter=types))


@script
def find_coordinator(player: Player) -> None:
    request: Any
    for version in range(4):
        request = FindCoordinatorRequest(key="g1")
        player.call("c", Api.FIND_COORDINATOR, version, request)
    for version in (4, 5, 6):
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g1", "g2", ""])
        player.call("c", Api.FIND_COORDINATOR, version, request)
    player.note("no keys; share keys before version 6")
    player.call("c", Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0))
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
    player.call("c", Api.FIND_COORDINATOR, 5, request)


@script
def life_of_a_group(player: Player) -> None:
    player.create_topic("orders", 2)
    a = Client(player, "a", "life")
    a.get_id()
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("life"))
    a.join()
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("life"))
    a.sync({a.member_id: b"everything"})
    a.heartbeat()
    a.commit({("orders", 0): 42, ("orders", 1): 43})
    player.call("c", Api.OFFSET_FETCH, 8, fetch("life", {"orders": [0, 1, 2]}))
    for version in range(7):
        operations = version >= 3
        player.call("c", Api.DESCRIBE_GROUPS, version, describe("life", operations=operations))
    player.note("rejoining alone is a new generation")
    a.join()
    a.heartbeat()
    a.sync({a.member_id: b"again"})
    a.leave()
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("life"))
    a.heartbeat()
    a.sync()
    a.commit({("orders", 0): 44})
    player.call("c", Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["life"]))
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("life"))
    player.call("c", Api.OFFSET_FETCH, 8, fetch("life", {"orders": [0, 1]}))


@script
def unknown_groups(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    for group_id in ("nobody", ""):
        player.note(f"group {group_id!r}")
        player.call("c", Api.HEARTBEAT, 4, heartbeat(group_id, "m", 1))
        player.call("c", Api.SYNC_GROUP, 5, sync(group_id, "m", 1))
        player.call("c", Api.LEAVE_GROUP, 5, leave(group_id, ("m", None), ("n", "static")))
        player.call("c", Api.LEAVE_GROUP, 1, LeaveGroupRequest(group_id=group_id, member_id="m"))
        player.call("c", Api.JOIN_GROUP, 9, join(group_id, "m"))
        for version in (8, 9):
            request = commit(group_id, {("orders", 0): 1}, member_id="m", generation_id=3)
            player.call("c", Api.OFFSET_COMMIT, version, request)
        player.call("c", Api.OFFSET_FETCH, 8, fetch(group_id, {"orders": [0]}))
        player.call("c", Api.OFFSET_FETCH, 8, fetch(group_id))
        player.call("c", Api.OFFSET_FETCH, 7, old_fetch(group_id, {"orders": [0]}))
        player.call("c", Api.OFFSET_DELETE, 0, delete_offsets(group_id, {"orders": [0]}))
        player.call("c", Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group_id]))
        for version in (0, 5, 6):
            player.call("c", Api.DESCRIBE_GROUPS, version, describe(group_id))


@script
def refused_joins(player: Player) -> None:
    request: Any
    for session_timeout_ms in (999, 60_001):
        request = join("refused", session_timeout_ms=session_timeout_ms)
        player.call("c", Api.JOIN_GROUP, 9, request)
    player.note("no protocols, no protocol type")
    player.call("c", Api.JOIN_GROUP, 9, join("refused", protocols=[]))
    player.call("c", Api.JOIN_GROUP, 9, join("refused", protocol_type=""))
    player.call("c", Api.JOIN_GROUP, 6, join("refused", protocol_type=""))
    a = Client(player, "a", "refused")
    a.get_id()
    a.join()
    a.sync({a.member_id: b"x"})
    player.note("other protocol type, other protocols")
    player.call("c", Api.JOIN_GROUP, 9, join("refused", protocol_type="connect"))
    player.call("c", Api.JOIN_GROUP, 9, join("refused", protocols=[("sticky", b"")]))
    request = join("refused", a.member_id, protocol_type="connect")
    player.call("c", Api.JOIN_GROUP, 9, request)
    player.note("unknown member, in both forms")
    player.call("c", Api.JOIN_GROUP, 9, join("refused", "stranger"))
    player.call("c", Api.JOIN_GROUP, 5, join("refused", "stranger"))
    player.note("a pending id with an instance id")
    b = Client(player, "b", "refused")
    b.get_id()
    player.call("b", Api.JOIN_GROUP, 9, join("refused", b.member_id, instance_id="i"))


@script
def rebalance_of_two(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    a = Client(player, "a", "two")
    a.get_id()
    a.join()
    a.sync({a.member_id: b"all"})
    b = Client(player, "b", "two")
    b.get_id()
    a.heartbeat()
    b.send_join()
    player.sleep(50)
    player.note("while it prepares")
    a.heartbeat()
    a.commit({("orders", 0): 5})
    a.sync()
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("two"))
    a.send_join()
    b.joined()
    a.joined()
    player.note("while it completes")
    a.heartbeat()
    b.heartbeat()
    a.commit({("orders", 0): 6})
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("two"))
    player.call("b", Api.SYNC_GROUP, 5, sync("two", b.member_id, 1))
    player.call("b", Api.HEARTBEAT, 4, heartbeat("two", b.member_id, 1))
    for name, kind in (("sticky", "consumer"), ("range", "connect"), (None, None)):
        request = sync("two", b.member_id, 2, protocol_name=name, protocol_type=kind)
        player.call("b", Api.SYNC_GROUP, 5, request)
    player.call("b", Api.SYNC_GROUP, 5, sync("two", "stranger", 2))
    player.note("joining again unchanged while it completes")
    b.join()
    a.join()
    b.send_sync()
    player.sleep(50)
    a.sync({a.member_id: b"A", b.member_id: b"B"})
    b.synced()
    player.note("stable")
    b.sync()
    a.sync({a.member_id: b"ignored"})
    a.sync()
    a.commit({("orders", 0): 7})
    player.call("c", Api.OFFSET_FETCH, 8, fetch("two", {"orders": [0, 1]}))
    request = commit("two", {("orders", 0): 8}, member_id=a.member_id, generation_id=1)
    player.call("a", Api.OFFSET_COMMIT, 9, request)
    request = commit("two", {("orders", 0): 8}, member_id="stranger", generation_id=2)
    player.call("a", Api.OFFSET_COMMIT, 9, request)
    player.note("a follower joins again unchanged, then changed; the leader joins again")
    b.join()
    b.send_join(protocols=[("range", subscription("payments"))])
    player.sleep(50)
    a.heartbeat()
    a.send_join()
    b.joined()
    a.joined()
    b.send_sync()
    player.sleep(50)
    a.sync({a.member_id: b"A2"})
    b.synced()
    a.send_join()
    player.sleep(50)
    b.heartbeat()
    b.send_join()
    b.joined()
    a.joined()


@script
def sync_ends_with_rebalance(player: Player) -> None:
    """Who waits for an assignment is told when the leader leaves instead."""
    a = Client(player, "a", "sync-ends")
    b = Client(player, "b", "sync-ends")
    a.get_id()
    b.get_id()
    a.send_join()
    player.sleep(20)
    b.send_join()
    b.joined()
    a.joined()
    b.send_sync()
    player.sleep(50)
    a.leave()
    b.synced()
    b.join()
    b.sync({b.member_id: b"all"})


@script
def group_max_size(player: Player) -> None:
    clients = [Client(player, name, "full") for name in ("a", "b", "d")]
    for client in clients:
        client.get_id()
    for client in clients:
        client.send_join()
        player.sleep(20)
    for client in reversed(clients):
        client.joined()
    player.note("one more: by id, by instance id, in an old version")
    late = Client(player, "late", "full")
    late.get_id()
    player.call("c", Api.JOIN_GROUP, 9, join("full", instance_id="i"))
    player.call("c", Api.JOIN_GROUP, 3, join("full"))
    player.note("a member that is in may join again")
    clients[2].join()


@script
def static_members(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    a = Client(player, "a", "static", instance_id="i-a")
    b = Client(player, "b", "static", instance_id="i-b")
    a.send_join()
    player.sleep(20)
    b.send_join()
    b.joined()
    a.joined()
    b.send_sync(instance_id="i-b")
    player.sleep(20)
    a.sync({a.member_id: b"A", b.member_id: b"B"}, instance_id="i-a")
    b.synced()
    player.note("the follower restarts: same generation, nobody notices")
    old_b = b.member_id
    b.member_id = ""
    b.join()
    a.heartbeat("i-a")
    b.sync(instance_id="i-b")
    b.heartbeat("i-b")
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("static"))
    player.note("its old id is fenced")
    player.call("z", Api.HEARTBEAT, 4, heartbeat("static", old_b, 1, "i-b"))
    player.call("z", Api.HEARTBEAT, 4, heartbeat("static", old_b, 1))
    player.call("z", Api.SYNC_GROUP, 5, sync("static", old_b, 1, instance_id="i-b"))
    player.call("z", Api.JOIN_GROUP, 9, join("static", old_b, instance_id="i-b"))
    player.call("z", Api.JOIN_GROUP, 6, join("static", old_b, instance_id="i-b"))
    request = commit(
        "static", {("orders", 0): 1}, member_id=old_b, generation_id=1, instance_id="i-b"
    )
    player.call("z", Api.OFFSET_COMMIT, 9, request)
    player.call("z", Api.LEAVE_GROUP, 5, leave("static", (old_b, "i-b")))
    player.call("z", Api.HEARTBEAT, 4, heartbeat("static", b.member_id, 1, "i-unknown"))
    player.note("the leader restarts: version 9 skips the assignment, version 8 hides the lead")
    a.member_id = ""
    a.join()
    a.sync(instance_id="i-a")
    a.member_id = ""
    a.join(8)
    a.sync(instance_id="i-a")
    player.note("changed metadata of the same protocol, by a new process: no rebalance")
    b.member_id = ""
    b.join(protocols=[("range", subscription("other"))])
    a.heartbeat("i-a")
    player.note("the leader joins again with its id: a rebalance")
    a.send_join()
    player.sleep(50)
    b.heartbeat("i-b")
    b.send_join()
    b.joined()
    a.joined()
    player.note("a restart while it completes: a rebalance")
    b.member_id = ""
    b.send_join()
    player.sleep(50)
    a.heartbeat("i-a")
    a.send_join()
    b.joined()
    a.joined()
    player.note("an administrator removes by instance id")
    request = leave("static", ("", "i-b"), ("", "i-c"), ("", None), reason="gone")
    player.call("c", Api.LEAVE_GROUP, 5, request)
    a.heartbeat("i-a")


@script
def fenced_while_waiting(player: Player) -> None:
    """A second process with the same instance id takes over while the first waits in join."""
    a = Client(player, "a", "takeover", instance_id="i-a")
    twin = Client(player, "twin", "takeover", instance_id="i-a")
    a.send_join()
    player.sleep(20)
    twin.send_join()
    a.joined()
    twin.joined()


@script
def old_versions(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    for version in range(4):
        group_id = f"old-{version}"
        player.note(f"join {version}")
        a = Client(player, f"a{version}", group_id)
        a.join(version)
        request = old_sync(group_id, a.member_id, 1, assignments={a.member_id: b"x"})
        player.call(a.name, Api.SYNC_GROUP, version, request)
        player.call(a.name, Api.HEARTBEAT, version, heartbeat(group_id, a.member_id, 1))
        if version < 3:
            request = LeaveGroupRequest(group_id=group_id, member_id=a.member_id)
            player.call(a.name, Api.LEAVE_GROUP, version, request)
            player.call(a.name, Api.LEAVE_GROUP, version, request)
    player.note("join 4 to 8")
    for version in range(4, 9):
        a = Client(player, f"a{version}", f"old-{version}")
        a.join(version)
        a.join(version)
        build: Callable[..., Any] = sync if version >= 7 else old_sync
        player.call(
            a.name,
            Api.SYNC_GROUP,
            5 if version >= 7 else 4,
            build(f"old-{version}", a.member_id, 1, assignments={a.member_id: b"x"}),
        )
    player.note("commit and fetch")
    for version in range(2, 10):
        request = commit("old-simple", {("orders", 0): version}, leader_epoch=-1)
        player.call("c", Api.OFFSET_COMMIT, version, request)
        topics = {"orders": [0, 1]}
        if version < 8:
            player.call("c", Api.OFFSET_FETCH, version, old_fetch("old-simple", topics))
            player.call("c", Api.OFFSET_FETCH, version, old_fetch("old-simple", None))
    player.call("c", Api.OFFSET_FETCH, 1, old_fetch("old-simple", {"orders": [0, 1]}))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("old-simple", {"orders": [0, 1]}))


@script
def simple_consumers(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    request = commit("simple", {("orders", 0): 10}, metadata="note", leader_epoch=3)
    player.call("c", Api.OFFSET_COMMIT, 9, request)
    player.call("c", Api.OFFSET_FETCH, 9, fetch("simple", {"orders": [0, 1], "nothing": [0]}))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("simple"))
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("simple"))
    player.note("with a member id, with a generation")
    request = commit("simple", {("orders", 0): 11}, member_id="m")
    player.call("c", Api.OFFSET_COMMIT, 9, request)
    request = commit("simple", {("orders", 0): 12}, member_id="m", generation_id=0)
    player.call("c", Api.OFFSET_COMMIT, 9, request)
    request = commit("simple", {("orders", 0): 12}, generation_id=0)
    player.call("c", Api.OFFSET_COMMIT, 9, request)
    player.note("a group with members takes no such commits")
    a = Client(player, "a", "simple")
    a.get_id()
    player.call("c", Api.OFFSET_COMMIT, 9, commit("simple", {("orders", 0): 13}))
    a.join()
    player.call("c", Api.OFFSET_COMMIT, 9, commit("simple", {("orders", 0): 14}))
    request = commit("simple", {("orders", 0): 14}, member_id=a.member_id)
    player.call("c", Api.OFFSET_COMMIT, 9, request)
    a.sync({a.member_id: b""})
    player.call("c", Api.OFFSET_COMMIT, 9, commit("simple", {("orders", 0): 15}))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("simple"))
    player.note("the empty group id")
    player.call("c", Api.OFFSET_COMMIT, 9, commit("", {("orders", 0): 16}))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("", {"orders": [0]}))


@script
def offsets_of_odd_topics(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    orders = player.topic_ids["orders"]
    offsets: dict[tuple[str | UUID, int], int] = {
        ("orders", 5): 1,
        ("orders", 0): 2,
        ("nothing", 0): 3,
    }
    player.call("c", Api.OFFSET_COMMIT, 9, commit("odd", offsets))
    player.call("c", Api.OFFSET_COMMIT, 9, commit("odd", {("nothing", 0): 3}))
    player.note("no such group either: the topic is looked at first")
    request = commit("odd-2", {("nothing", 0): 3}, member_id="m", generation_id=4)
    player.call("c", Api.OFFSET_COMMIT, 9, request)
    player.note("nothing at all")
    player.call("c", Api.OFFSET_COMMIT, 9, commit("odd", {}))
    player.note("topic ids")
    by_id: dict[tuple[str | UUID, int], int] = {
        (UNKNOWN_TOPIC_ID, 0): 1,
        (orders, 0): 20,
        (orders, 7): 20,
    }
    player.call("c", Api.OFFSET_COMMIT, 10, commit("odd", by_id))
    player.call("c", Api.OFFSET_COMMIT, 10, commit("odd", {(UNKNOWN_TOPIC_ID, 0): 1}))
    wanted: dict[str | UUID, list[int]] = {UNKNOWN_TOPIC_ID: [0, 1], orders: [0, 1]}
    player.call("c", Api.OFFSET_FETCH, 10, fetch("odd", wanted))
    player.call("c", Api.OFFSET_FETCH, 10, fetch("odd"))
    request = fetch("odd", wanted)
    request.groups.append(fetch_group("odd-2", {orders: [0]}))
    request.groups.append(fetch_group("odd-2"))
    player.call("c", Api.OFFSET_FETCH, 10, request)
    player.note("metadata: long enough, too long, none; negative offset")
    for metadata in ("x" * 32, "x" * 33, "é" * 32, None):
        request = commit("odd", {("orders", 0): 30, ("orders", 1): 31}, metadata=metadata)
        player.call("c", Api.OFFSET_COMMIT, 9, request)
        player.call("c", Api.OFFSET_FETCH, 9, fetch("odd", {"orders": [0]}))
    player.call("c", Api.OFFSET_COMMIT, 9, commit("odd", {("orders", 0): -1}))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("odd", {"orders": [0]}, require_stable=True))
    player.note("several groups in one request")
    request = fetch("odd", {"orders": [1]})
    request.groups.append(fetch_group("odd-2", {"orders": [1]}))
    request.groups.append(fetch_group("odd"))
    player.call("c", Api.OFFSET_FETCH, 8, request)


@script
def offset_delete(player: Player) -> None:
    request: Any
    player.create_topic("orders", 2)
    player.create_topic("payments", 1)
    a = Client(player, "a", "del-offsets")
    a.get_id()
    a.join()
    player.note("not stable yet")
    request = delete_offsets("del-offsets", {"orders": [0], "payments": [0]})
    player.call("c", Api.OFFSET_DELETE, 0, request)
    a.sync({a.member_id: b""})
    a.commit({("orders", 0): 1, ("payments", 0): 2})
    player.note("subscribed to orders only")
    topics = {"orders": [0, 9], "payments": [0, 3], "nothing": [0]}
    player.call("c", Api.OFFSET_DELETE, 0, delete_offsets("del-offsets", topics))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("del-offsets"))
    a.leave()
    player.note("empty")
    player.call("c", Api.OFFSET_DELETE, 0, delete_offsets("del-offsets", {"orders": [0, 1]}))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("del-offsets"))
    player.note("members of another protocol type")
    b = Client(player, "b", "del-connect", protocol_type="connect")
    b.get_id()
    b.join()
    b.sync({b.member_id: b""}, protocol_type="connect")
    b.commit({("orders", 0): 1})
    player.call("c", Api.OFFSET_DELETE, 0, delete_offsets("del-connect", {"orders": [0]}))
    player.note("consumers whose subscription cannot be read may read anything")
    d = Client(player, "d", "del-opaque", protocols=[("range", b"?")])
    d.get_id()
    d.join()
    d.sync({d.member_id: b""})
    d.commit({("orders", 0): 1})
    player.call("c", Api.OFFSET_DELETE, 0, delete_offsets("del-opaque", {"orders": [0]}))


@script
def delete_groups(player: Player) -> None:
    player.create_topic("orders", 2)
    a = Client(player, "a", "dg-live")
    a.get_id()
    player.note("a pending member only")
    player.call("c", Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["dg-live"]))
    a.join()
    a.member_id = ""
    a.get_id()
    a.join()
    player.call("c", Api.OFFSET_COMMIT, 9, commit("dg-simple", {("orders", 0): 1}))
    names = ["dg-live", "dg-simple", "dg-unknown", "dg-simple"]
    for version in (0, 1, 2):
        player.call("c", Api.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=names))
    player.call("c", Api.OFFSET_FETCH, 9, fetch("dg-simple", {"orders": [0]}))


@script
def leaving(player: Player) -> None:
    request: Any
    a, b = stable_pair(player, "leaving")
    pending = Client(player, "p", "leaving")
    pending.get_id()
    request = leave(
        "leaving", ("stranger", None), (pending.member_id, None), (b.member_id, None), reason="x"
    )
    player.call("c", Api.LEAVE_GROUP, 5, request)
    b.heartbeat()
    pending.join()
    a.heartbeat()
    a.join()
    player.note("nobody leaves")
    player.call("c", Api.LEAVE_GROUP, 5, leave("leaving"))
    a.sync({a.member_id: b"all"})


@script
def leaving_while_waiting(player: Player) -> None:
    """A member leaves while its JoinGroup waits on another connection."""
    request: Any
    a, b = stable_pair(player, "leaving-join")
    b.send_join(protocols=[("range", b"changed")])
    player.sleep(50)
    request = leave("leaving-join", (b.member_id, None))
    player.call("c", Api.LEAVE_GROUP, 5, request)
    b.joined()
    a.join()


@script
def protocol_votes(player: Player) -> None:
    """The protocol that all support and most prefer."""
    meta = subscription("orders")
    a = Client(player, "a", "votes", protocols=[("range", meta), ("sticky", meta)])
    b = Client(player, "b", "votes", protocols=[("sticky", meta), ("range", meta)])
    d = Client(player, "d", "votes", protocols=[("extra", meta), ("sticky", meta), ("range", meta)])
    for client in (a, b, d):
        client.get_id()
    for client in (a, b, d):
        client.send_join()
        player.sleep(20)
    for client in (d, b, a):
        client.joined()
    player.note("none in common")
    player.call("c", Api.JOIN_GROUP, 9, join("votes", protocols=[("extra", meta)]))


@script
def sessions_end(player: Player) -> None:
    """A silent member is removed, the rest rebalances; a silent pending member is forgotten."""
    a, b = stable_pair(player, "silent", session_timeout_ms=1_000)
    for _ in range(6):
        player.sleep(400)
        b.player.send_request("quiet", Api.HEARTBEAT, 4, heartbeat("silent", b.member_id, 1))
        b.player.receive_response("quiet", Api.HEARTBEAT, 4)
    a.heartbeat()
    b.heartbeat()
    b.join()
    b.sync({b.member_id: b"all"})
    player.sleep(3_000)
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("silent"))
    pending = Client(player, "p", "silent", session_timeout_ms=1_000)
    pending.get_id()
    player.sleep(1_500)
    pending.join()


@script
def rebalances_time_out(player: Player) -> None:
    """Who does not join again in time is out; who does not ask for its assignment, too."""
    a, b = stable_pair(player, "tardy", rebalance_timeout_ms=1_000, session_timeout_ms=30_000)
    b.send_join(protocols=[("range", subscription("payments"))])
    b.joined()
    a.heartbeat()
    player.note("no sync")
    b.heartbeat()
    player.sleep(1_500)
    b.heartbeat()
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("tardy"))


@script
def static_members_outlive_rebalances(player: Player) -> None:
    """A static member that does not join again stays until its session ends."""
    a = Client(player, "a", "outlive", instance_id="i-a", rebalance_timeout_ms=1_000)
    b = Client(player, "b", "outlive", instance_id="i-b", rebalance_timeout_ms=1_000)
    a.send_join()
    player.sleep(20)
    b.send_join()
    b.joined()
    a.joined()
    b.send_sync(instance_id="i-b")
    player.sleep(20)
    a.sync({a.member_id: b"A", b.member_id: b"B"}, instance_id="i-a")
    b.synced()
    player.note("the leader rebalances, b does not come; b is still a member")
    a.send_join()
    a.joined()
    a.sync({a.member_id: b"A2", b.member_id: b"B2"}, instance_id="i-a")
    player.call("c", Api.DESCRIBE_GROUPS, 6, describe("outlive"))
