"""Where `reassign` puts replicas: never fewer of them than before unless it was told so."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from data_plane.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from data_plane.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from data_plane.wire.registry import ApiKey
from stack import admin_connection, reassign
from stack.admin_connection import AdminConnection
from stack.errors import EXIT_USAGE, StackError
from stack.options import StackOptions
from stack.reassign import (
    Move,
    Moving,
    alter,
    parse_brokers,
    plan_spread,
    replication_factor,
    running_brokers,
    wait_until_done,
)
from stack.supervisor import Supervisor


def test_leaders_and_replicas_are_spread() -> None:
    moves = plan_spread("t", range(4), [1, 2, 3, 4], 3)
    assert [move.replicas for move in moves] == [(1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)]
    # A single partition goes where it would go with all others.
    assert plan_spread("t", [2], [1, 2, 3, 4], 3) == moves[2:3]


@pytest.mark.parametrize(
    ("brokers", "replicas", "says"),
    [
        ([1, 2], 3, "3 replicas need as many brokers; --to names 2"),
        ([1, 2], 0, "--replicas 0"),
        ([1, 2], -1, "--replicas -1"),
        ([1, 2, 1], 2, "names a broker twice"),
    ],
)
def test_what_cannot_be_is_refused(brokers: list[int], replicas: int, says: str) -> None:
    with pytest.raises(StackError, match=says) as refused:
        plan_spread("t", [0], brokers, replicas)
    assert refused.value.exit_status == EXIT_USAGE


def test_what_is_on_its_way_out_does_not_count() -> None:
    replicas = {0: (4, 5, 6, 1, 2, 3), 1: (1, 2, 3)}
    under_way = Moving("t", 0, replicas[0], adding=(4, 5, 6), removing=(1, 2, 3))
    assert replication_factor(replicas, [under_way], "t") == 3
    # The same numbers, of another topic.
    assert replication_factor(replicas, [under_way], "u") == 6


def test_the_partition_with_the_most_replicas_decides() -> None:
    assert replication_factor({0: (1,), 1: (1, 2, 3), 2: (2,)}, [], "t") == 3


@pytest.mark.parametrize("text", ["", "a", "1,", "1;2", "1.5"])
def test_brokers_that_are_none(text: str) -> None:
    with pytest.raises(StackError, match="write broker ids"):
        parse_brokers(text)


def test_a_broker_that_hangs_does_not_keep_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Supervisor(StackOptions(tmp_path, brokers=1, port=0)) as stack,
    ):
        port = silent.getsockname()[1]
        hanging = f"127.0.0.1:{port}"
        connect = AdminConnection._open

        def with_less_patience(connection: AdminConnection, address: str) -> None:
            with monkeypatch.context() as patch:
                # With the one that hangs alone: the other may be slow on a busy machine.
                if address == hanging:
                    patch.setattr(admin_connection, "CONNECT_TIMEOUT_S", 0.5)
                connect(connection, address)

        monkeypatch.setattr(AdminConnection, "_open", with_less_patience)
        with AdminConnection(f"127.0.0.1:1,{hanging},{stack.bootstrap}") as connection:
            assert running_brokers(connection) == {1}
        with pytest.raises(StackError, match=rf"127\.0\.0\.1:1: .*refused; {hanging}: .*timed out"):
            AdminConnection(f"127.0.0.1:1,{hanging}")


@pytest.mark.parametrize("address", ["here:", "here:x", "here:65536", ":1", "127.0.0.1:1,x:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(StackError, match=r"is not a list of addresses") as refused:
        AdminConnection(address)
    assert refused.value.exit_status == EXIT_USAGE


class Cell(AdminConnection):
    """A cell whose broker 4 gets a replica: it is there, or is not, once for each look; then the
    move is done. Partition 1 cannot be moved."""

    def __init__(self, *is_there: bool) -> None:
        self._looks = list(is_there)

    def request(self, api: ApiKey, message: Any) -> Any:
        match api:
            case ApiKey.LIST_PARTITION_REASSIGNMENTS:
                move = OngoingPartitionReassignment(
                    partition_index=0, replicas=[1, 4], adding_replicas=[4], removing_replicas=[]
                )
                topic = OngoingTopicReassignment(name="t", partitions=[move])
                topics = [topic] if self._looks else []
                return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
            case ApiKey.METADATA:
                ids = [1, 4] if self._looks.pop(0) else [1]
                brokers = [MetadataResponseBroker(node_id=i, host="", port=1) for i in ids]
                return MetadataResponse(brokers=brokers)
            case _:
                refused = ReassignablePartitionResponse(
                    partition_index=1, error_code=int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
                )
                refused.error_message = "no such broker"
                moved = ReassignablePartitionResponse(partition_index=0, error_message=None)
                answer = ReassignableTopicResponse(name="t", partitions=[moved, refused])
                return AlterPartitionReassignmentsResponse(error_message=None, responses=[answer])


def test_a_move_may_take_long_while_its_brokers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassign, "LOOK_UP_S", 0)
    wait_until_done(Cell(*[True] * 5), "t", 0)
    # Now and then one is away for a moment.
    wait_until_done(Cell(True, False, True, False, True), "t", 0)
    with pytest.raises(StackError, match="Broker 4 does not run"):
        wait_until_done(Cell(True, False, False, False), "t", 0)


def test_each_partition_that_is_refused_is_named() -> None:
    with pytest.raises(StackError, match=r"^Not reassigned:\nt-1: no such broker$"):
        alter(Cell(), [Move("t", 0, (1, 4)), Move("t", 1, (1, 9))])
