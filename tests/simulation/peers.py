"""The Peers port over the simulated network: see broker/request/peers.py for the contract."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from data_plane.broker.request.api import Buffer
from data_plane.broker.request.peers import OnResponse
from data_plane.broker.services import Services
from data_plane.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from data_plane.wire.primitives import Reader, Writer
from tests.simulation.client import INTER_BROKER_PORT
from tests.simulation.network import End
from tests.simulation.world import US_PER_MS, Event

if TYPE_CHECKING:
    from tests.simulation.node import Node

# Longer than any long poll of a follower.
RESPONSE_TIMEOUT_MS = 1500


class _PeerLink:
    """One connection to a peer."""

    def __init__(self, node: Node, host: str) -> None:
        self._node = node
        # (api key, version, correlation id, callback, deadline)
        self.pending: deque[tuple[int, int, int, OnResponse, int]] = deque()
        self.is_open = True
        self._timer: Event | None = None
        self.end: End = node.cell.network.connect(node.name, host, INTER_BROKER_PORT)
        self.end.on_frame = lambda frame: node.run(self._answered, frame)
        self.end.on_close = lambda: node.run(self.closed)

    def send(
        self,
        api_key: int,
        api_version: int,
        body: Sequence[Buffer],
        on_response: OnResponse,
        correlation_id: int,
    ) -> None:
        writer = Writer()
        header = RequestHeader(
            api_key=api_key,
            api_version=api_version,
            correlation_id=correlation_id,
            client_id=self._node.name,
        )
        encode_request_header(writer, header)
        frame = b"".join([bytes(writer.buf), *(bytes(buffer) for buffer in body)])
        deadline_us = self._node.world.now_us + RESPONSE_TIMEOUT_MS * US_PER_MS
        self.pending.append((api_key, api_version, correlation_id, on_response, deadline_us))
        self.end.send(frame)
        if self._timer is None:
            self._timer = self._node.at(RESPONSE_TIMEOUT_MS * US_PER_MS, self._check_timeout)

    def _answered(self, frame: bytes) -> None:
        if not self.is_open:
            return
        api_key, version, correlation_id, on_response, _ = self.pending.popleft()
        reader = Reader(frame, 4)
        assert decode_response_header(reader, api_key, version) == correlation_id
        # A receive buffer is written to again: what the callee keeps it must have copied.
        buffer = bytearray(frame)
        on_response(memoryview(buffer)[reader.pos :], self._node.clock.now_ms())
        buffer[:] = b"\xee" * len(buffer)

    def _check_timeout(self) -> None:
        self._timer = None
        if self.is_open and self.pending:
            left_us = self.pending[0][4] - self._node.world.now_us
            if left_us > 0:
                self._timer = self._node.at(left_us, self._check_timeout)
            else:
                self._node.world.count("peer timeouts")
                self.end.close()
                self.closed()

    def closed(self) -> None:
        self.is_open = False
        pending, self.pending = self.pending, deque()
        for _, _, _, on_response, _ in pending:
            on_response(None, self._node.clock.now_ms())


class SimPeers:
    """One `Peers` object of a broker."""

    def __init__(self, node: Node, services: Services) -> None:
        self._node = node
        self._services = services
        self._links: dict[int, _PeerLink] = {}
        self._correlation_id = 0

    def send(
        self,
        node_id: int,
        api_key: int,
        api_version: int,
        body: Sequence[Buffer],
        on_response: OnResponse,
    ) -> None:
        node = self._node
        link = self._links.get(node_id)
        if link is None or not link.is_open:
            broker = self._services.image.brokers.get(node_id)
            if broker is None:
                node.at(0, self._nobody, on_response)
                return
            link = self._links[node_id] = _PeerLink(node, broker.inter_broker_host or broker.host)
        self._correlation_id += 1
        link.send(api_key, api_version, body, on_response, self._correlation_id)

    def _nobody(self, on_response: OnResponse) -> None:
        on_response(None, self._node.clock.now_ms())

    def disconnect(self, node_id: int) -> None:
        link = self._links.pop(node_id, None)
        if link is not None and link.is_open:
            link.is_open = False
            link.end.close()
            self._node.at(0, link.closed)
