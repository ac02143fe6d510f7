"""What a broker tells the clients that reach it while it starts."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

from data_plane.wire.errors import WireError
from data_plane.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker_process import BrokerProcess

VERSION = 9
RESTARTS = 5
ANSWERED_SECONDS_MAX = 30


def metadata_request() -> bytes:
    writer = Writer()
    header = RequestHeader(
        api_key=ApiKey.METADATA, api_version=VERSION, correlation_id=1, client_id="early"
    )
    encode_request_header(writer, header)
    API_BY_KEY[ApiKey.METADATA].encode_request(writer, MetadataRequest(topics=[]), VERSION)
    return struct.pack(">i", len(writer.buf)) + bytes(writer.buf)


def told_ports(port: int) -> list[int]:
    """The ports of the brokers that Metadata names; raises OSError when nobody listens."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(metadata_request())
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        reader = Reader(connection.recv(size, socket.MSG_WAITALL))
        decode_response_header(reader, ApiKey.METADATA, VERSION)
        response = API_BY_KEY[ApiKey.METADATA].decode_response(reader, VERSION)
        return [broker.port for broker in response.brokers]


def test_even_the_earliest_client_is_told_the_right_address(tmp_path: Path) -> None:
    """Clients that reconnect come within the first millisecond; a wrong address sends them away."""
    told: set[int] = set()
    finished, answered = threading.Event(), threading.Event()

    def ask_all_the_time(port: int) -> None:
        while not finished.is_set():
            # The broker is killed all the time, in the middle of an answer, too.
            with contextlib.suppress(OSError, struct.error, WireError):
                told.update(told_ports(port))
                answered.set()

    with BrokerProcess(tmp_path) as broker:
        askers = [threading.Thread(target=ask_all_the_time, args=(broker.port,)) for _ in range(2)]
        for asker in askers:
            asker.start()
        try:
            for _ in range(RESTARTS):
                broker.kill9()
                answered.clear()
                broker.start()
                # On a busy machine it could be killed again before it has told anybody anything.
                assert answered.wait(ANSWERED_SECONDS_MAX)
        finally:
            finished.set()
            for asker in askers:
                asker.join()
        assert told == {broker.port}
