"""A broker's listeners in the simulation: frames to the dispatcher, answers back in order.

What data_plane/server/connection.py does with bytes, this does with whole frames: an answer that is
not ready keeps its slot and later ones queue behind it; answers leave at the end of the pass, so a
process that dies within a pass has said nothing of what it did there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from data_plane.broker.request.api import CloseConnection, ConnectionInfo, Deferred, KeptRequest
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.broker.request.request_gate import RequestGate
from data_plane.wire.errors import WireError
from tests.simulation.client import INTER_BROKER_PORT, SASL_PORT
from tests.simulation.network import End
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.node import Node


PRODUCE_KEY = bytes(2)


class _Slot:
    """The place of an answer."""

    __slots__ = ("frame",)

    def __init__(self) -> None:
        self.frame: bytes | None = None

    def fill(self, buffers: Iterable[Any]) -> None:
        # Buffers may be views of a log's memory: what is sent is what they hold now.
        self.frame = b"".join([bytes(buffer) for buffer in buffers])


class ServerConnection:
    """The server's end of one connection."""

    def __init__(
        self, node: Node, dispatcher: Dispatcher, end: End, number: int, port: int
    ) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._end = end
        self._slots: deque[_Slot] = deque()
        # Those behind an exclusive request (request_gate.py).
        self._frames: deque[bytes] = deque()
        peer = end.other.host
        is_inter_broker, has_sasl = port == INTER_BROKER_PORT, port == SASL_PORT
        self.info = ConnectionInfo(
            number,
            f"{peer}:1",
            "inter_broker" if is_inter_broker else "tenants",
            peer,
            1,
            close=self._close,
            keep=self._keep,
            fail=self._close,
            mute=self._mute,
            is_inter_broker=is_inter_broker,
            sasl_mechanisms=("PLAIN",) if has_sasl else (),
            gate=RequestGate(is_authenticated=not has_sasl),
        )
        self._muted_until_ms = 0
        # One of `_frames` is being handled: the next one waits until its answer has a place.
        self._is_handling_kept = False
        end.on_frame = self._frame_arrived
        end.on_close = self._close_arrived

    def _frame_arrived(self, frame: bytes) -> None:
        self._node.run(self._handle, frame)

    def _close_arrived(self) -> None:
        self._node.run(self._closed)

    def _handle(self, frame: bytes) -> None:
        info = self.info
        if info.gate.is_over:
            return
        if not info.gate.is_open:
            self._frames.append(frame)
            return
        now_ms = self._node.clock.now_ms()
        buf = bytearray(frame)
        # Whom nobody knows yet has one request handled before he has to wait with his tenant.
        is_counted = info.waits_with_tenant and not info.is_inter_broker
        if is_counted and buf[:2] == PRODUCE_KEY:
            self._node.cell.rates.produced(info.namespace, len(buf))
        try:
            answer = self._dispatcher.dispatch(info, buf, 0, len(buf), now_ms)
        except (WireError, CloseConnection) as error:
            self._close(str(error))
            return
        if answer is None:
            return
        slot = _Slot()
        self._slots.append(slot)
        self._node.unsent[self] = None
        if isinstance(answer, Deferred):
            is_exclusive = answer.is_exclusive or not info.gate.is_authenticated
            if is_exclusive:
                info.gate.begin_exclusive()
            answer.when_complete(lambda buffers: self._complete(slot, buffers, is_exclusive))
        else:
            slot.fill(answer)

    def _complete(self, slot: _Slot, buffers: Iterable[Any], was_exclusive: bool) -> None:
        slot.fill(buffers)
        self._node.unsent[self] = None
        if was_exclusive:
            self._release()

    def _keep(self, buf: bytearray | memoryview, position: int, end: int) -> KeptRequest:
        self.info.gate.begin_exclusive()
        return KeptRequest(bytearray(buf[position:end]), position, self._release)

    def _release(self) -> None:
        self.info.gate.end_exclusive()
        self._handle_kept()

    def _mute(self, duration_ms: int) -> None:
        until_ms = self._node.clock.now_ms() + duration_ms
        if until_ms > self._muted_until_ms:
            self._muted_until_ms = until_ms
            self._node.cell.rates.held_back(self.info.namespace, duration_ms)
            self.info.gate.mute()
            self._node.at(duration_ms * US_PER_MS, self._unmute)

    def _unmute(self) -> None:
        # Clocks drift, and the node's is the one that counts.
        left_ms = self._muted_until_ms - self._node.clock.now_ms()
        if left_ms > 0:
            self._node.at(left_ms * US_PER_MS, self._unmute)
        elif not self.info.gate.is_over:
            self.info.gate.unmute()
            self._handle_kept()

    def _handle_kept(self) -> None:
        if self._is_handling_kept:
            return
        gate = self.info.gate
        self._is_handling_kept = True
        try:
            while self._frames and gate.is_open:
                self._handle(self._frames.popleft())
        finally:
            self._is_handling_kept = False

    def flush(self) -> None:
        """Send what is ready and in turn."""
        slots = self._slots
        while slots and slots[0].frame is not None:
            frame = slots.popleft().frame
            assert frame is not None
            self._end.send(frame)
            sent_by, services = self._end.other.sent_by, self._node.services
            if sent_by is not None and services is not None:
                sent_by.append(services.image)

    def _close(self, reason: str) -> None:
        if self.info.closed:
            return
        self._node.note(f"closes the connection of {self.info.peer}: {reason}")
        self._node.closing[self] = None
        self._forget()

    def _closed(self) -> None:
        if not self.info.closed:
            self._forget()

    def _forget(self) -> None:
        info = self.info
        info.gate.close()
        self._slots.clear()
        self._frames.clear()
        on_close, info.on_close = info.on_close, {}
        for callback in on_close:
            callback()

    def finish_closing(self) -> None:
        """The end of a pass in which this end decided to close."""
        self._end.close()

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._slots) or self.info.gate.is_busy
