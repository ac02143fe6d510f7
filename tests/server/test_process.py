"""The broker as a process: start, stop, signals, limits, HTTP pages, wrong configurations."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from data_plane.wire.headers import RequestHeader, decode_response_header, encode_request_header
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import make_batch, values_of
from tests.broker_process import ROOT, BrokerProcess

VERSIONS = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 11, ApiKey.METADATA: 9}
POLLS_MAX = 20


class RawClient:
    """One connection that speaks frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api_key: ApiKey, message: object) -> None:
        version = VERSIONS[api_key]
        writer = Writer()
        encode_request_header(
            writer,
            RequestHeader(api_key=int(api_key), api_version=version, correlation_id=1),
        )
        API_BY_KEY[api_key].encode_request(writer, message, version)
        self.socket.sendall(struct.pack(">i", len(writer.buf)) + writer.buf)

    def receive(self, api_key: ApiKey) -> object:
        (size,) = struct.unpack(">i", self._exactly(4))
        reader = Reader(self._exactly(size))
        decode_response_header(reader, api_key, VERSIONS[api_key])
        return API_BY_KEY[api_key].decode_response(reader, VERSIONS[api_key])

    def ask(self, api_key: ApiKey, message: object) -> object:
        self.send(api_key, message)
        return self.receive(api_key)

    def is_closed_within(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data


def create_topic(client: RawClient, name: str) -> None:
    """By auto-creation, which is on by default."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    for _ in range(100):
        response = client.ask(ApiKey.METADATA, request)
        if response.topics[0].error_code == 0:  # type: ignore[attr-defined]
            return
        time.sleep(0.02)
    raise AssertionError("the topic was not created")


def produce(client: RawClient, topic: str, value: bytes) -> None:
    data = PartitionProduceData(index=0, records=bytes(make_batch([value])))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    client.send(ApiKey.PRODUCE, request)


def fetch(client: RawClient, topic: str, offset: int, max_wait_ms: int) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
        session_epoch=-1,
    )
    client.send(ApiKey.FETCH, request)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_http_pages(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with RawClient(broker.port) as client:
            create_topic(client, "orders")
            produce(client, "orders", b"a")
            client.receive(ApiKey.PRODUCE)
            status, text = get(broker.metrics_port, "/metrics")
        assert status == 200
        assert "tidewheel_produced_records_total 1.0" in text
        assert "tidewheel_connections 1.0" in text
        assert 'tidewheel_requests_total{api="produce"} 1.0' in text
        assert "tidewheel_deletion_suspended 0.0" in text
        assert "tidewheel_deletion_by_date_suspended 1.0" in text
        assert "tidewheel_clock_ahead_of_store_ms NaN" in text
        status, text = get(broker.metrics_port, "/healthz")
        health = json.loads(text)
        assert (status, health["status"]) == (200, "ok")
        assert "since the start" in health["deletion_suspended"]
        assert get(broker.metrics_port, "/else")[0] == 404
        with socket.create_connection(("127.0.0.1", broker.metrics_port), timeout=20) as raw:
            raw.sendall(b"GET /" + b"x" * 20_000)
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(1) == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_is_in_flight_and_keeps_the_data(
    tmp_path: Path, number: signal.Signals
) -> None:
    with BrokerProcess(tmp_path) as broker:
        with RawClient(broker.port) as client, RawClient(broker.port) as reader:
            create_topic(client, "orders")
            produce(client, "orders", b"kept")
            client.receive(ApiKey.PRODUCE)
            fetch(reader, "orders", 1, max_wait_ms=60_000)
            # A request whose answer we have proves that the one before it was taken, too.
            client.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
            stopper = threading.Timer(0.05, broker._process.send_signal, [number])  # type: ignore[union-attr]
            stopper.start()
            response = reader.receive(ApiKey.FETCH)
            assert response.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
            assert client.is_closed_within(20)
            stopper.join()
        broker.stop()
        assert (broker.data_dir / "clean-shutdown").exists()
        broker.start()
        with RawClient(broker.port) as client:
            fetch(client, "orders", 0, max_wait_ms=1000)
            response = client.receive(ApiKey.FETCH)
            records = response.responses[0].partitions[0].records  # type: ignore[attr-defined]
            assert values_of(records) == [(0, b"kept")]


def test_a_poll_ends_when_its_time_is_over_and_not_with_some_later_tick(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client, "orders")
        took_s: list[float] = []
        # Ticks that nobody has asked for come once a second. They could not end three polls, one
        # after the other, in less than the two seconds from the first such tick to the third; on a
        # busy machine it may take some polls until three in a row are that quick.
        while len(took_s) < 3 or sum(took_s[-3:]) >= 1.9:
            assert len(took_s) < POLLS_MAX, took_s
            began_s = time.monotonic()
            fetch(client, "orders", 0, max_wait_ms=100)
            client.receive(ApiKey.FETCH)
            took_s.append(time.monotonic() - began_s)
        assert min(took_s) >= 0.09


def test_requests_are_pipelined_and_answered_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client, "orders")
        fetch(client, "orders", 0, max_wait_ms=60_000)
        for number in range(300):
            produce(client, "orders", b"%d" % number)
        response = client.receive(ApiKey.FETCH)
        assert response.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
        for number in range(300):
            response = client.receive(ApiKey.PRODUCE)
            part = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
            assert (part.error_code, part.base_offset) == (0, number)


def test_connection_limits(tmp_path: Path) -> None:
    settings = {
        "max.connections": "3",
        "max.connections.per.ip": "2",
        "connections.max.idle.ms": "500",
        "socket.request.max.bytes": "1000000",
    }
    with BrokerProcess(tmp_path, set=settings) as broker:
        with (
            RawClient(broker.port) as first,
            RawClient(broker.port) as second,
            RawClient(broker.port) as third,
        ):
            first.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
            second.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
            assert third.is_closed_within(10)
            # The sweep runs every few seconds.
            assert first.is_closed_within(15)
            assert second.is_closed_within(15)
        with RawClient(broker.port) as client:
            client.socket.sendall(struct.pack(">i", 1_000_001))
            assert client.is_closed_within(10)
            peer = "{}:{}".format(*client.socket.getsockname())
        with RawClient(broker.port) as client:
            client.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
        text = broker.log_text()
        assert "max.connections.per.ip is reached" in text
        assert peer in text
        assert "frame of 1000001 bytes" in text


def run_server(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "data_plane.server", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )


def test_a_wrong_configuration_is_told_at_once(tmp_path: Path) -> None:
    done = run_server("--data-dir", str(tmp_path), "--set", "num.partitons=3", "--node-id", "1")
    assert done.returncode == 2
    assert "num.partitions" in done.stderr
    done = run_server("--data-dir", str(tmp_path), "--metrics-listen", "nonsense")
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr


def test_a_directory_in_use_or_of_another_broker_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, node_id=1) as broker:
        arguments = ["--data-dir", str(broker.data_dir), "--listen", "127.0.0.1:0"]
        done = run_server(*arguments, "--node-id", "1")
        assert done.returncode == 2
        assert "in use" in done.stderr
        broker.stop()
        done = run_server(*arguments, "--node-id", "2")
        assert done.returncode == 2
        assert "node 1" in done.stderr


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_server("--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert "cannot start" in done.stderr
