"""Ports that are taken: what is suggested instead is really free."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stack import ports
from stack.errors import StackError
from stack.ports import BASE_STEP, PORT_MAX, broker_ports, free_base, is_free, stack_ports

BROKERS = 3


@pytest.fixture
def base() -> int:
    """The first of two neighbouring bases on which a whole stack has room."""
    for candidate in range(20_000, 30_000, BASE_STEP):
        both = (candidate, candidate + BASE_STEP)
        if all(is_free(port) for each in both for port in stack_ports(each, BROKERS)):
            return candidate
    raise AssertionError("no two neighbouring bases from 20,000 to 30,000 are free")


@pytest.fixture
def listeners() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def take(listeners: ExitStack, port: int) -> None:
    listeners.enter_context(socket.create_server(("127.0.0.1", port)))


@pytest.mark.parametrize("which", range(BROKERS * 3 + 1))
def test_a_suggested_base_has_all_its_ports_free(
    base: int, listeners: ExitStack, which: int
) -> None:
    take(listeners, base)
    # Not only the brokers' ports matter: a stack has its metrics, listeners and Postgres as well.
    take(listeners, stack_ports(base + BASE_STEP, BROKERS)[which])
    suggested = free_base(base, BROKERS)
    assert suggested is not None
    assert suggested != base + BASE_STEP
    assert all(is_free(port) for port in stack_ports(suggested, BROKERS))
    with pytest.raises(StackError) as refused:
        broker_ports(base, BROKERS)
    assert f"Port {base} is in use by another program" in str(refused.value)
    named = re.search(r"--port (\d+), or --port 0", str(refused.value))
    assert named is not None
    assert broker_ports(int(named[1]), BROKERS)


def test_at_the_end_of_all_ports_it_goes_downwards() -> None:
    suggested = free_base(PORT_MAX - BROKERS + 1, BROKERS)
    assert suggested is not None
    assert max(stack_ports(suggested, BROKERS)) <= PORT_MAX


def test_where_nothing_is_free_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_bind", lambda _port: errno.EADDRINUSE)
    with pytest.raises(StackError, match=r"Ports 9092, 9093 are in use.*: --port 0, for any"):
        broker_ports(9092, 2)


def test_a_port_that_needs_privileges_is_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_bind", lambda port: errno.EACCES if port < 1024 else 0)
    with pytest.raises(StackError, match="Port 80 is for privileged users only") as refused:
        broker_ports(80, 1)
    assert "--port 1080" in str(refused.value)
