"""One client connection: bytes to frames, frames to the dispatcher, answers back in order.

Requests are handled as soon as their frame is complete; several of one read are handled in one go.
An answer that is not ready keeps a slot, and later answers queue behind it (outgoing.py).

A request may be exclusive: who speaks may depend on it (`Deferred.is_exclusive`), or it needs its
bytes for longer than its handler runs (`ConnectionInfo.keep`). Until it is done the connection is
not read and handles nothing further, and if it fails nothing behind it ever is:
request_gate.py says in which state what is handled; here that is done.

Back-pressure: while too much is unsent or too many answers are open (outgoing.py) the connection is
not read, and a pass stops after PASS_BYTES_MAX or PASS_MS_MAX, or does not begin in an iteration of
the loop whose share for requests is used up (loop_share.py); complete frames that were already read
wait in the backlog (at most one shared buffer's size, and counted with the half frames of all
connections).

Invariants
- Reads for a half frame never go beyond its end.
- Nothing is handled while the gate is not open; an answer for a closed connection is dropped.
- No request is handled within the handling of another one, of whatever connection.

Deliberately absent: what requests mean (dispatch), when connections are too old (listener).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from data_plane.broker.request.api import (
    Buffer,
    CloseConnection,
    ConnectionInfo,
    Deferred,
    KeptRequest,
    keep_copy,
)
from data_plane.broker.request.budget import TooManyNamespaces
from data_plane.broker.request.namespaces import DEFAULT_NAMESPACE
from data_plane.broker.request.principal import ListenerSettings
from data_plane.broker.request.request_gate import GateState
from data_plane.broker.request.timers import Timer
from data_plane.server.outgoing import UNSENT_BYTES_MAX, Outgoing, Slot
from data_plane.server.receive_buffers import HalfFrame
from data_plane.server.received import Received
from data_plane.server.shares import Shares
from data_plane.wire.errors import WireError
from data_plane.wire.registry import API_BY_KEY

if TYPE_CHECKING:
    from data_plane.server.listener import Listener

_SIZE = struct.Struct(">i")
SIZE_BYTES = 4

# Requests that take long, one after the other, must not keep the others waiting for all of them.
PASS_MS_MAX = 50


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    __slots__ = (
        "_is_in_pass",
        "_is_reading",
        "_is_stopping",
        "_is_turn_due",
        "_listener",
        "_muted_until_ms",
        "_outgoing",
        "_received",
        "_shares",
        "_unmute_timer",
        "closing_since_ms",
        "info",
        "last_active_ms",
        "opened_ms",
        "settings",
        "transport",
    )

    def __init__(self, listener: Listener, settings: ListenerSettings) -> None:
        """`settings` are those of the address that it came through."""
        self._listener = listener
        self.settings = settings
        self.transport: asyncio.Transport | None = None
        self.info: ConnectionInfo | None = None
        self.opened_ms = 0
        self.last_active_ms = 0
        self.closing_since_ms: int | None = None
        self._muted_until_ms = 0
        self._unmute_timer: Timer | None = None
        self._shares = Shares.of(listener, DEFAULT_NAMESPACE)
        self._received = Received(listener.memory, self._shares.received)
        self._outgoing = Outgoing(listener, self._shares.unsent)
        self._is_in_pass = False
        self._is_reading = True
        self._is_turn_due = False
        self._is_stopping = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its class.
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        self.info = self._listener.connection_opened(self, transport)
        if self.info is not None:
            self.info.close = self.close
            self.info.fail = self._close_when_answered
            self.info.mute = self._mute
            self.info.move = self._move
            self.info.admitted = partial(self._listener.no_longer_strange, self)
            self.info.unsent = self._shares.unsent
            self.info.keep = self._keep_request
            transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=UNSENT_BYTES_MAX // 4)

    def get_buffer(self, sizehint: int) -> memoryview:
        half = self._received.half
        if half is not None:
            return half.free_view()
        memory = self._listener.memory
        # What will only wait need not be much.
        return memory.small_view if self._listener.share.is_over else memory.shared_view

    def buffer_updated(self, nbytes: int) -> None:
        info = self.info
        if info is None or info.gate.is_over:
            return
        listener = self._listener
        now_ms = listener.clock.now_ms()
        self.last_active_ms = now_ms
        listener.bytes_in += nbytes
        half = self._received.half
        share, turns = listener.share, listener.turns
        must_wait = turns.busy_ns >= share.look_at_ns and share.is_used_up()
        self._is_in_pass = True
        turns.begin(self)
        try:
            try:
                if half is not None:
                    self._continue_half(half, nbytes, now_ms, must_wait=must_wait)
                elif must_wait:
                    self._received.keep_backlog(listener.memory.shared_view[:nbytes])
                else:
                    memory = listener.memory
                    self._handle_frames(memory.shared, memory.shared_view, 0, nbytes, now_ms)
            except Exception as error:
                self._fail(error)
            finally:
                self._is_in_pass = False
            # Consumers that wait for what this read brought get it before the producer's answer:
            # the other way round the producer's thread takes the processor that they need.
            listener.end_pass(now_ms)
            outgoing = self._outgoing
            if outgoing.buffers:
                outgoing.flush(self.transport)
            self._adjust_reading()
        finally:
            turns.end()

    def turn_name(self) -> str:
        """What a turn of the loop is called that this connection's requests have filled."""
        listener = self._listener
        api_key = listener.dispatcher.last_api_key
        name = API_BY_KEY[api_key].name if api_key in API_BY_KEY else "unknown"
        peer = "" if self.info is None else self.info.peer
        return f"requests from {peer}, the last one: {name}"

    def _fail(self, error: Exception) -> None:
        """What was received cannot be handled, for the client's fault or for ours."""
        if isinstance(error, WireError | CloseConnection):
            self.close(str(error))
            return
        peer = "" if self.info is None else self.info.peer
        self._listener.log.error("connection_failed", peer=peer, error=repr(error))
        self.close(f"internal error: {error!r}")

    def eof_received(self) -> bool:
        # A client that has shut down its side gets no more answers, as with Kafka.
        return False

    def pause_writing(self) -> None:
        transport = self.transport
        self._outgoing.pause(0 if transport is None else transport.get_write_buffer_size())
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._outgoing.resume()
        if self._listener.share.is_over:
            self._adjust_reading()
        else:
            self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._received.drop_half()
        self._received.take_backlog()
        self._outgoing.drop_all()
        info = self.info
        if info is None:
            return
        info.gate.close()
        # It refers back to this connection, and a circle is not free before it is searched for.
        info.close = info.fail = _closed_already
        info.keep = keep_copy
        info.mute = _muted_already
        info.move = _closed_already
        info.admitted = _admitted_already
        self._shares.connections.give_back(1)
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        on_close, info.on_close = info.on_close, {}
        for callback in on_close:
            try:
                callback()
            except Exception as error:
                # The connection would count for ever, and the stop wait for it.
                self._listener.log.error("connection_failed", peer=info.peer, error=repr(error))
        self._listener.connection_closed(self)

    # Frames in.

    def _handle_frames(
        self, buf: bytearray, view: memoryview, position: int, end: int, now_ms: int
    ) -> None:
        """Handle the complete frames of `buf[position:end]` and keep the rest."""
        listener = self._listener
        dispatch = listener.dispatcher.dispatch
        info = self.info
        assert info is not None
        gate = info.gate
        frame_bytes_max = (
            listener.frame_bytes_max if gate.is_authenticated else listener.strange_frame_bytes_max
        )
        # Without open answers the first one may be handled: what is full then is not read.
        outgoing = self._outgoing
        has_handled = False
        while end - position >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(buf, position)
            if size < 0 or size > frame_bytes_max:
                raise CloseConnection(f"frame of {size} bytes, allowed are 0 to {frame_bytes_max}")
            frame_end = position + SIZE_BYTES + size
            if frame_end > end:
                self._received.start_half(view[position:end], SIZE_BYTES + size, now_ms)
                return
            if (
                not gate.is_open
                or ((has_handled or outgoing.slots) and outgoing.is_full())
                or (has_handled and listener.clock.now_ms() - now_ms > PASS_MS_MAX)
            ):
                self._received.keep_backlog(view[position:end])
                return
            has_handled = True
            self._take(dispatch(info, buf, position + SIZE_BYTES, frame_end, now_ms))
            position = frame_end
            if gate.is_over:
                return
        if position < end:
            self._received.start_half(view[position:end], SIZE_BYTES, now_ms)

    def _continue_half(
        self, half: HalfFrame, nbytes: int, now_ms: int, *, must_wait: bool = False
    ) -> None:
        info = self.info
        assert info is not None
        half.received += nbytes
        if half.total == SIZE_BYTES and half.received == SIZE_BYTES:
            (size,) = _SIZE.unpack_from(half.buffer, 0)
            listener = self._listener
            frame_bytes_max = (
                listener.frame_bytes_max
                if info.gate.is_authenticated
                else listener.strange_frame_bytes_max
            )
            if size < 0 or size > frame_bytes_max:
                raise CloseConnection(f"frame of {size} bytes, allowed are 0 to {frame_bytes_max}")
            half.total += size
        if half.received < half.total:
            if not half.grow():
                raise CloseConnection("no memory left for half frames")
            return
        if (must_wait or not info.gate.is_open) and half.is_whole:
            return
        received = self._received
        received.begin_handling(half)
        try:
            dispatch = self._listener.dispatcher.dispatch
            self._take(dispatch(info, half.buffer, SIZE_BYTES, half.total, now_ms))
        finally:
            received.end_handling(half)

    def _keep_request(self, buf: bytearray | memoryview, position: int, end: int) -> KeptRequest:
        """See `ConnectionInfo.keep`."""
        kept = self._received.keep_request(buf, position, end, self._end_exclusive)
        assert self.info is not None
        self.info.gate.begin_exclusive()
        if not self._is_in_pass:
            # Of a request that was handled earlier and turns out to be long.
            self._adjust_reading()
        return kept

    def _end_exclusive(self) -> None:
        info = self.info
        assert info is not None
        info.gate.end_exclusive()
        if not self._is_in_pass and not info.closed:
            self._adjust_reading()

    @property
    def half_frame(self) -> HalfFrame | None:
        """The frame in progress; reading is on while there is one, unless paused."""
        return self._received.half if self._is_reading else None

    # Answers out.

    def _take(self, answer: Sequence[Buffer] | Deferred[Sequence[Buffer]] | None) -> None:
        """Queue what the dispatcher returned."""
        if answer is None:
            return
        outgoing = self._outgoing
        if isinstance(answer, Deferred):
            slot = Slot()
            outgoing.slots.append(slot)
            info = self.info
            assert info is not None
            if answer.is_exclusive or not info.gate.is_authenticated:
                info.gate.begin_exclusive()
                answer.when_complete(partial(self._exclusive_answered, slot))
            else:
                answer.when_complete(partial(self._slot_done, slot))
        elif outgoing.slots:
            slot = Slot()
            outgoing.slots.append(slot)
            outgoing.hold(slot, answer)
        else:
            outgoing.send(answer)

    def _slot_done(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        if self._outgoing.fill(slot, buffers) and not self._is_in_pass:
            self._outgoing.flush(self.transport)
            if not self._is_reading:
                # What waits in the backlog has its turn later: this may be called from deep within
                # somebody else's request.
                self._adjust_reading()

    def _exclusive_answered(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        self._slot_done(slot, buffers)
        self._end_exclusive()

    # Whose it is.

    def join(self, namespace: str) -> str | None:
        """Count as a connection of this namespace, and with it all that it takes from now on. Why
        not, if that cannot be."""
        try:
            shares = Shares.of(self._listener, namespace)
        except TooManyNamespaces as error:
            return str(error)
        if not shares.connections.take(1):
            return "its namespace has as many connections as it may have"
        self._shares = shares
        self._received.count_with(shares.received)
        self._outgoing.count_with(shares.unsent)
        return None

    def _move(self, namespace: str) -> None:
        """See `ConnectionInfo.move`."""
        before = self._shares
        refused = self.join(namespace)
        if refused is not None:
            self.close(refused)
        else:
            before.connections.give_back(1)
            info = self.info
            assert info is not None
            info.unsent = self._shares.unsent

    # Back-pressure.

    def _mute(self, duration_ms: int) -> None:
        """See `ConnectionInfo.mute`. Several at a time last as long as the last one."""
        info = self.info
        assert info is not None
        until_ms = self._listener.clock.now_ms() + duration_ms
        if info.gate.is_over or self._is_stopping or until_ms <= self._muted_until_ms:
            return
        self._muted_until_ms = until_ms
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._unmute_timer = self._listener.timers.schedule(until_ms, self._unmute)
        info.gate.mute()
        if not self._is_in_pass:
            self._adjust_reading()

    def _unmute(self, now_ms: int) -> None:
        self._unmute_timer = None
        # It could not be heard before.
        self.last_active_ms = max(self.last_active_ms, now_ms)
        info = self.info
        if info is not None and not info.closed:
            info.gate.unmute()
            self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read exactly while the gate is open, there is room for answers and nothing waits in the
        backlog. Of a connection that has failed, see whether it can be closed."""
        info = self.info
        is_open = info is not None and info.gate.is_open
        must_pause = not is_open or self._outgoing.is_full()
        received = self._received
        # As `has_backlog`, which would cost a call or two for each pass.
        has_backlog = received.backlog is not None or (
            received.half is not None and received.half.is_whole
        )
        if has_backlog and not must_pause and not self._is_turn_due:
            self._is_turn_due = True
            self._listener.share.wait(self)
        should_read = not has_backlog and not must_pause and not self._is_stopping
        if should_read != self._is_reading and self.transport is not None:
            self._is_reading = should_read
            if self.transport.is_closing():
                return
            if should_read:
                half = received.half
                if half is not None:
                    # Its client could not send the rest.
                    half.started_ms = self._listener.clock.now_ms()
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
        if not is_open:
            self._close_if_answered()

    def take_turn(self) -> None:
        """What LoopShare calls."""
        self._is_turn_due = False
        self._resume()

    def _resume(self) -> None:
        """There is room again: first the frames that were read already, then the socket."""
        info = self.info
        if info is None or info.closed:
            return
        if self.has_backlog and info.gate.is_open and not self._outgoing.is_full():
            now_ms = self._listener.clock.now_ms()
            self._is_in_pass = True
            turns = self._listener.turns
            turns.begin(self)
            try:
                half = self._received.half
                if half is not None:
                    self._continue_half(half, 0, now_ms)
                else:
                    backlog = self._received.take_backlog()
                    self._handle_frames(backlog, memoryview(backlog), 0, len(backlog), now_ms)
                self._is_in_pass = False
                self._outgoing.flush(self.transport)
            except Exception as error:
                self._is_in_pass = False
                self._fail(error)
            finally:
                turns.end()
            self._listener.end_pass_soon()
        self._adjust_reading()

    # The end.

    @property
    def is_idle(self) -> bool:
        """Nothing half read, nothing to answer, and nothing that keeps it from being read."""
        info = self.info
        is_waiting = self._outgoing.slots or (info is not None and not info.gate.is_open)
        received = self._received
        return received.half is None and received.backlog is None and not is_waiting

    @property
    def is_answered(self) -> bool:
        """Nothing to answer and nothing unsent."""
        transport = self.transport
        if self._is_busy:
            # It may be one without an answer.
            return False
        if transport is None or transport.is_closing():
            return True
        return not self._outgoing.slots and not transport.get_write_buffer_size()

    @property
    def _is_busy(self) -> bool:
        return self.info is not None and self.info.gate.is_busy

    @property
    def has_unread_answers(self) -> bool:
        """Whether its client keeps it from sending."""
        return self._outgoing.is_paused

    def note_progress(self, now_ms: int) -> None:
        """Called now and then: to take some of what it has left unread makes a client active."""
        transport, outgoing = self.transport, self._outgoing
        if transport is None or not outgoing.is_paused:
            return
        if outgoing.note_progress(transport.get_write_buffer_size()):
            self.last_active_ms = now_ms

    def close(self, reason: str, *, is_expected: bool = False) -> None:
        """Send what is ready, then close. Logged with peer and reason."""
        info = self.info
        transport = self.transport
        if info is None or transport is None or info.closed:
            return
        self._outgoing.flush(transport)
        if self.closing_since_ms is None:
            self.closing_since_ms = self._listener.clock.now_ms()
            self._listener.log_close(info, reason, is_expected=is_expected)
        info.gate.close()
        self._outgoing.drop_slots()
        self._received.take_backlog()
        transport.close()

    def _close_when_answered(self, reason: str) -> None:
        """See `ConnectionInfo.fail`. Logged at once; whose answers take too long is aborted."""
        info = self.info
        if info is None or info.gate.is_over:
            return
        info.gate.fail()
        self.closing_since_ms = self._listener.clock.now_ms()
        self._listener.log_close(info, reason)
        self._received.take_backlog()
        self._received.drop_half()
        if not self._is_in_pass:
            self._adjust_reading()

    def _close_if_answered(self) -> None:
        info = self.info
        if info is not None and info.gate.state is GateState.FAILED and not self._outgoing.slots:
            self.close("its last request has failed")

    # For the shutdown.

    def stop_reading(self) -> None:
        """What has not been received yet is not taken any more; requests in the backlog are, also
        those of a client that would have to wait."""
        self._is_stopping = True
        timer = self._unmute_timer
        if timer is None:
            self._adjust_reading()
        else:
            timer.cancel()
            self._unmute(self._listener.clock.now_ms())

    @property
    def has_backlog(self) -> bool:
        """Whether requests that were received wait for their turn."""
        return self._received.has_waiting

    def drop_backlog(self) -> None:
        """Nothing is handled any more, nor read."""
        self._received.take_backlog()
        if self.has_backlog:
            self._received.drop_half()
        self.stop_reading()


def _closed_already(reason: str) -> None:
    """What is left of `ConnectionInfo.close` and its like when the connection is gone."""


def _admitted_already() -> None:
    """As `_closed_already`."""


def _muted_already(duration_ms: int) -> None:
    """As `_closed_already`."""
