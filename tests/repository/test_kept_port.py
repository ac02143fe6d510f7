"""A port that is kept for a server that does not run: nobody else gets it, the server does."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.kept_port import KeptPort

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is held elsewhere")


def test_nobody_else_gets_it_and_its_server_does_again_and_again() -> None:
    kept = KeptPort()
    address = ("127.0.0.1", kept.port)
    for _ in range(2):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        # It sets SO_REUSEADDR, as asyncio and Postgres do.
        with socket.create_server(address), socket.create_connection(address) as client:
            assert client.getpeername() == address


def test_it_is_given_back() -> None:
    kept = KeptPort()
    address = ("127.0.0.1", kept.port)
    del kept
    with socket.socket() as other:
        other.bind(address)
