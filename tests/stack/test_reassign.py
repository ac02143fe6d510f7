"""Where `reassign` puts replicas: never fewer of them than before unless it was told so."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stack import admin_connection
from stack.admin_connection import AdminConnection
from stack.errors import EXIT_USAGE, StackError
from stack.options import StackOptions
from stack.reassign import (
    Moving,
    parse_brokers,
    plan_spread,
    replication_factor,
    running_brokers,
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

        def with_less_patience(connection: AdminConnection, place: tuple[str, int]) -> None:
            with monkeypatch.context() as patch:
                # With the one that hangs alone: the other may be slow on a busy machine.
                if place[1] == port:
                    patch.setattr(admin_connection, "CONNECT_TIMEOUT_S", 0.5)
                connect(connection, place)

        monkeypatch.setattr(AdminConnection, "_open", with_less_patience)
        with AdminConnection(f"127.0.0.1:1,{hanging},{stack.bootstrap}") as connection:
            assert running_brokers(connection) == {1}
        with pytest.raises(StackError, match=rf"127\.0\.0\.1:1: .*refused; {hanging}: .*timed out"):
            AdminConnection(f"127.0.0.1:1,{hanging}")


@pytest.mark.parametrize("address", ["here", "here:", "here:x", "here:65536", "127.0.0.1:1,x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(StackError, match=r"is not HOST:PORT") as refused:
        AdminConnection(address)
    assert refused.value.exit_status == EXIT_USAGE
