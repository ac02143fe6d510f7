"""Plays scripts against a real broker and records the answers: how the golden files were made.

    python -m tests.groups.kafka_player 127.0.0.1:9092 [script…]

writes tests/groups/golden/<script>.txt. The broker must be fresh and run with the properties of
`scripts.BROKER_PROPERTIES`. This is done by hand when a script is added or Kafka's version changes;
the tests compare this project's answers with the files.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from data_plane.wire.headers import RequestHeader, decode_response_header, encode_request_header
from data_plane.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.groups import scripts
from tests.groups.player import Player

GOLDEN = Path(__file__).parent / "golden"


class KafkaPlayer(Player):
    """Talks to a broker; one socket per connection name."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._address = (host, port)
        self._sockets: dict[str, socket.socket] = {}
        self._correlation_id = 0

    def send_request(self, connection: str, api_key: ApiKey, version: int, request: Any) -> None:
        if connection not in self._sockets:
            self._sockets[connection] = socket.create_connection(self._address, timeout=40)
        self._correlation_id += 1
        writer = Writer()
        header = RequestHeader(
            api_key=int(api_key),
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=connection,
        )
        encode_request_header(writer, header)
        API_BY_KEY[api_key].encode_request(writer, request, version)
        frame = struct.pack(">i", len(writer.buf)) + writer.buf
        self._sockets[connection].sendall(frame)

    def receive_response(self, connection: str, api_key: ApiKey, version: int) -> Any:
        size = struct.unpack(">i", self._read(connection, 4))[0]
        reader = Reader(self._read(connection, size))
        decode_response_header(reader, int(api_key), version)
        return API_BY_KEY[api_key].decode_response(reader, version)

    def _read(self, connection: str, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._sockets[connection].recv(size - len(data))
            if not chunk:
                raise ConnectionError(f"{connection}: closed by the broker")
            data += chunk
        return data

    def sleep(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def create_topic(self, name: str, partition_count: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
        self._quietly(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        wanted = MetadataRequestTopic(name=name)
        for _ in range(50):
            answer = self._quietly(ApiKey.METADATA, 12, MetadataRequest(topics=[wanted]))
            if answer.topics[0].error_code == 0:
                self.topic_ids[name] = answer.topics[0].topic_id
                return
            time.sleep(0.1)
        raise TimeoutError(name)

    def _quietly(self, api_key: ApiKey, version: int, request: Any) -> Any:
        self.send_request("admin", api_key, version, request)
        return self.receive_response("admin", api_key, version)

    def wait_for_coordinator(self) -> None:
        """The first question creates __consumer_offsets; ask until it is there."""
        for _ in range(100):
            request = scripts.find_coordinator_request("warm-up")
            answer = self._quietly(ApiKey.FIND_COORDINATOR, 4, request)
            if answer.coordinators[0].error_code == 0:
                time.sleep(1)
                return
            time.sleep(0.2)
        raise TimeoutError("no coordinator")

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()


def main(address: str, names: list[str]) -> None:
    host, _, port = address.rpartition(":")
    GOLDEN.mkdir(exist_ok=True)
    for name, script in scripts.SCRIPTS.items():
        if names and name not in names:
            continue
        player = KafkaPlayer(host, int(port))
        player.wait_for_coordinator()
        try:
            script(player)
        finally:
            player.close()
            text = "\n".join(player.transcript) + "\n"
            (GOLDEN / f"{name}.txt").write_text(text)
        print(f"{name}: {len(player.transcript)} lines")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
