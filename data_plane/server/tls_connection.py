"""TLS between a client's socket and its Connection, which takes this for its transport.

    socket ─► received, sealed ─► TLS ─► Connection.get_buffer, buffer_updated
    socket ◄─ a few chunks ahead ◄─ TLS ◄─ backlog of plain buffers ◄─ write, writelines

The Connection is there from the moment the socket is accepted, so it counts, and is bounded and
closed like any other one, while its handshake has not even begun. It is given its first bytes when
the handshake is done.

    WAITING ─ first bytes ─► QUEUED ─ its turn ─► SHAKING ─► OPEN
                             (handshake_budget.py)

Plain buffers are sealed only as the socket takes them: what a client leaves unread stays what it
was, pages of a log for the most part, and is not kept a second time as ciphertext.

Invariants
- Bytes go to the Connection in their order, and never while it does not read.
- `get_write_buffer_size` counts what is not sealed and what the socket has not taken.
- At most TURN_BYTES_MAX are sealed before others have a turn of the loop.
- What OpenSSL keeps for a connection does not grow with what is sent and received: in, it holds
  FEED_BYTES_MAX and half a record, or what is left of one read when the Connection pauses in the
  middle of it; out, CHUNK_BYTES_MAX.
- Reading is in the loop's turns, and a client whose records bring nothing is closed
  (tls_records.py).

Deliberately absent: which certificates and authorities there are (client_tls.py), renegotiation,
and TLS 1.3's resumption of sessions, which nobody needs whose connections last.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

from data_plane.broker.authentication.handshake_budget import TLS_COST
from data_plane.broker.request.api import Buffer
from data_plane.server.receive_buffers import SMALL_READ_BYTES
from data_plane.server.tls_records import TlsRecords

if TYPE_CHECKING:
    from data_plane.server.connection import Connection
    from data_plane.server.listener import Listener

# What OpenSSL is given to open and to seal in one go: a record of TLS. It keeps as much memory as a
# connection ever needed at a time, and nobody counts it.
FEED_BYTES_MAX = 16 << 10
CHUNK_BYTES_MAX = 16 << 10
# Of those who are not authenticated. Most of their requests are smaller; forty changes of keys,
# which are all that fits, take a millisecond.
STRANGERS_READ_BYTES_MAX = 1 << 10
# Sealed, and not taken by the socket yet: beyond it nothing more is sealed before it is a quarter.
SEALED_BYTES_MAX = 64 << 10
# Half a millisecond of work.
TURN_BYTES_MAX = 1 << 20


class _State(Enum):
    WAITING = auto()
    QUEUED = auto()
    SHAKING = auto()
    OPEN = auto()
    CLOSING = auto()


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol object of one accepted socket, and the transport of its Connection."""

    def __init__(self, app: Connection, listener: Listener, context: ssl.SSLContext) -> None:
        self._app = app
        self._listener = listener
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._records = TlsRecords()
        # Of the read that is handled now: what OpenSSL has not been given.
        self._sealed = memoryview(b"")
        self._state = _State.WAITING
        self._raw: asyncio.Transport
        # Since when the handshake waits for the client; None while it does not.
        self.waiting_since_ms: int | None = None
        self._is_read = True
        self._has_ended = False
        self._is_shut_down = False
        self._is_delivery_due = False
        # Not sealed yet.
        self._backlog: deque[Buffer] = deque()
        self._backlog_bytes = 0
        self._is_socket_full = False
        self._is_sealing_due = False
        self._high = SEALED_BYTES_MAX
        self._is_app_paused = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its class.
        self._raw = raw = cast(asyncio.Transport, transport)
        raw.set_write_buffer_limits(high=SEALED_BYTES_MAX, low=SEALED_BYTES_MAX // 4)
        self.waiting_since_ms = self._listener.clock.now_ms()
        self._app.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        listener = self._listener
        memory = listener.memory
        info = self._app.info
        if info is None or not info.gate.is_authenticated:
            return memory.sealed_view[:STRANGERS_READ_BYTES_MAX]
        return (
            memory.sealed_view[:SMALL_READ_BYTES] if listener.share.is_over else memory.sealed_view
        )

    def buffer_updated(self, nbytes: int) -> None:
        state = self._state
        if state is _State.CLOSING:
            return
        self._sealed = self._listener.memory.sealed_view[:nbytes]
        if state is _State.OPEN:
            self._deliver()
            if self._state is not _State.OPEN:
                self._sealed = memoryview(b"")
                return
        # Others use the same memory: what is not taken waits with OpenSSL.
        while self._feed():
            pass
        if state is _State.WAITING:
            self._ask_for_a_turn()
        elif state is _State.SHAKING:
            self._shake_hands()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_socket_full = True

    def resume_writing(self) -> None:
        self._is_socket_full = False
        self._seal()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = _State.CLOSING
        self.waiting_since_ms = None
        self._drop_backlog()
        self._app.connection_lost(exc)

    # The handshake.

    def _ask_for_a_turn(self) -> None:
        self._state = _State.QUEUED
        self.waiting_since_ms = None
        self._raw.pause_reading()
        listener = self._listener
        if not listener.begin_handshake(
            self._app, self._is_queued, self._have_a_turn, cost=TLS_COST
        ):
            self._app.close("too many handshakes wait")

    def _is_queued(self) -> bool:
        return self._state is _State.QUEUED

    def _have_a_turn(self) -> None:
        self._state = _State.SHAKING
        self._raw.resume_reading()
        self._shake_hands()

    def _shake_hands(self) -> None:
        listener = self._listener
        self.waiting_since_ms = listener.clock.now_ms()
        turns = listener.turns
        turns.begin("a TLS handshake")
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_sealed()
            return
        except (ssl.SSLError, ValueError) as error:
            # An alert tells the client.
            self._send_sealed()
            listener.failed_handshakes_count += 1
            self._app.close(f"the TLS handshake failed: {_reason(error)}")
            return
        finally:
            turns.end()
        self._send_sealed()
        if not self._incoming.pending:
            self._records.handshake_done()
        self.waiting_since_ms = None
        listener.handshakes_count += 1
        # Who is refused here is closed without TLS saying so: OpenSSL forgets its session then.
        listener.secured(self._app, self._tls)
        if self._state is not _State.SHAKING:
            return
        self._state = _State.OPEN
        if not self._is_read:
            self._raw.pause_reading()
        self._seal()
        self._deliver()

    # In.

    def _deliver(self) -> None:
        """Give the Connection all that it will take of what has been received."""
        app = self._app
        try:
            while self._is_read and self._state is _State.OPEN:
                view = app.get_buffer(-1)
                count = self._read_into(view)
                if count:
                    app.buffer_updated(count)
                if count < len(view):
                    break
        except ssl.SSLError as error:
            app.close(f"TLS: {_reason(error)}")
            return
        if self._state is not _State.OPEN:
            return
        # What TLS itself has to say.
        self._send_sealed()
        if self._has_ended:
            self.close()
        elif self._records.is_over:
            app.close("TLS: too many records without data")

    def _read_into(self, view: memoryview) -> int:
        """How much of `view` could be filled; TLS gives a record at a time."""
        tls, incoming, turns = self._tls, self._incoming, self._listener.turns
        records = self._records
        count = 0
        turns.begin("reading TLS")
        try:
            while count < len(view):
                is_new_record = not tls.pending()
                is_drained = is_new_record and not incoming.pending
                if is_drained and not (records.all_read() and self._feed()):
                    break
                try:
                    taken = tls.read(len(view) - count, cast(Any, view[count:]))
                except ssl.SSLWantReadError:
                    continue
                if not taken:
                    self._has_ended = True
                    break
                count += cast(int, taken)
                if is_new_record:
                    records.gave_data()
        except ssl.SSLZeroReturnError:
            self._has_ended = True
        finally:
            turns.end()
        return count

    def _feed(self) -> bool:
        """Give OpenSSL the next bytes of what has been received. False when there is nothing."""
        sealed = self._sealed
        if not sealed:
            return False
        part, self._sealed = sealed[:FEED_BYTES_MAX], sealed[FEED_BYTES_MAX:]
        self._records.received(part)
        self._incoming.write(part)
        return True

    def pause_reading(self) -> None:
        self._is_read = False
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_read = True
        if self._state is _State.QUEUED:
            return
        self._raw.resume_reading()
        has_more = self._sealed or self._incoming.pending or self._tls.pending()
        if self._state is _State.OPEN and has_more and not self._is_delivery_due:
            # Not at once: this may be called from deep within somebody else's request.
            self._is_delivery_due = True
            self._listener.call_soon(self._deliver_later)

    def _deliver_later(self) -> None:
        self._is_delivery_due = False
        if self._state is _State.OPEN:
            self._deliver()

    def is_reading(self) -> bool:
        return self._is_read

    # Out.

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._state is _State.CLOSING:
            return
        for data in list_of_data:
            self._backlog.append(data)
            self._backlog_bytes += len(data)
        if not self._is_sealing_due:
            self._seal()

    def _seal(self) -> None:
        """Seal as much as the socket takes, within bounds."""
        if self._state not in (_State.OPEN, _State.CLOSING):
            return
        sealed = 0
        backlog, raw, tls, outgoing = self._backlog, self._raw, self._tls, self._outgoing
        try:
            while backlog and not self._is_socket_full:
                if sealed >= TURN_BYTES_MAX:
                    if not self._is_sealing_due:
                        self._is_sealing_due = True
                        self._listener.call_soon(self._seal_later)
                    break
                chunk = self._take_chunk()
                tls.write(chunk)
                sealed += len(chunk)
                raw.write(outgoing.read())
        except ssl.SSLError:
            # The client has broken the stream. It is told nothing that it could not read.
            self.abort()
            return
        if self._state is _State.CLOSING:
            if not backlog:
                self._shut_down()
            return
        self._tell_how_full()

    def _seal_later(self) -> None:
        self._is_sealing_due = False
        self._seal()

    def _take_chunk(self) -> Buffer:
        """The next bytes to seal: small buffers together, of a large one a part."""
        backlog = self._backlog
        first = backlog[0]
        if len(first) > CHUNK_BYTES_MAX:
            view = memoryview(first)
            backlog[0] = view[CHUNK_BYTES_MAX:]
            self._backlog_bytes -= CHUNK_BYTES_MAX
            return view[:CHUNK_BYTES_MAX]
        parts, size = [], 0
        while backlog and size + len(backlog[0]) <= CHUNK_BYTES_MAX:
            part = backlog.popleft()
            size += len(part)
            parts.append(part)
        self._backlog_bytes -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _send_sealed(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _tell_how_full(self) -> None:
        if not self._is_app_paused:
            if self.get_write_buffer_size() > self._high:
                self._is_app_paused = True
                self._app.pause_writing()
        elif not self._backlog and not self._is_socket_full:
            # As long as there is a backlog, or the socket is full, this is called again; then no
            # longer, and there is less than `_high`.
            self._is_app_paused = False
            self._app.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        # Else the Connection could wait for a socket that has nothing more to say.
        assert high is not None
        assert high >= SEALED_BYTES_MAX
        self._high = high

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + self._raw.get_write_buffer_size()

    def _drop_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0

    # The end.

    def is_closing(self) -> bool:
        return self._state is _State.CLOSING

    def close(self) -> None:
        """Send what was written, say that it was all, and close."""
        state = self._state
        if state is _State.CLOSING:
            return
        self._state = _State.CLOSING
        self.waiting_since_ms = None
        if state is not _State.OPEN:
            self._raw.close()
            return
        self._raw.pause_reading()
        if not self._is_sealing_due:
            self._seal()

    def _shut_down(self) -> None:
        if self._is_shut_down:
            return
        self._is_shut_down = True
        # Nobody waits for the client to say so, too, which raises.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send_sealed()
        self._raw.close()

    def abort(self) -> None:
        self._state = _State.CLOSING
        self._drop_backlog()
        self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)


def _reason(error: Exception) -> str:
    """What OpenSSL says, without the place in its sources."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return str(reason or error).replace("_", " ").lower()
