"""Requests to the other brokers of the cell: the port that the server and the simulator implement.

    broker room   peers.send(2, FETCH, 18, [body], on_response)
    adapter       header + body → connection to broker 2 → response → on_response(body, now_ms)

One `Peers` object holds at most one connection to each broker, made at the first request and again
after a failure, backing off as an implementation sees fit. The peer answers one connection's
requests in order, so a request that waits (a long poll) holds up those behind it: what must not
wait uses a `Peers` object of its own.

Contract
- `on_response` is called exactly once for each `send`, and never before `send` has returned.
- It gets the response's body, without size and header, and the time; the view is valid until the
  call returns, so what is kept must be copied or written away within it.
- None instead of a body: the peer is not in the image, there is no connection to it, it was lost,
  or no answer came in time. Whether the peer has acted on the request is then unknown.
- The address is taken from `services.image.brokers[node_id]` when a connection is made. A caller
  that learns of another address or incarnation calls `disconnect`.

Deliberately absent: retries and what requests mean (the caller's), sockets and clocks (the
implementation's).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from data_plane.broker.request.api import Buffer

# (body of the response or None, now_ms)
OnResponse = Callable[[memoryview | None, int], None]


class Peers(Protocol):
    """How this broker reaches the others."""

    def send(
        self,
        node_id: int,
        api_key: int,
        api_version: int,
        body: Sequence[Buffer],
        on_response: OnResponse,
    ) -> None:
        """Send a request; `body` is its body, without size and header, and is taken over."""

    def disconnect(self, node_id: int) -> None:
        """Let the connection to that broker go, if there is one. Requests without an answer get
        None; the next `send` connects anew."""
