"""What one connection has received and not handled, or not done with.

- half: the frame in progress; when it is whole, it may still have to wait for its turn;
- backlog: complete frames that were read in one go and have to wait, and what follows them;
- kept: a request whose bytes are needed for longer than its handler runs.

Invariants
- There is a half frame or a backlog, never both, and each is the last thing that was read.
- All of it is counted with the share of the connection's namespace that it was taken from.

Deliberately absent: when something is handled (connection.py).
"""

from __future__ import annotations

from collections.abc import Callable

from data_plane.broker.request.api import CloseConnection, KeptRequest
from data_plane.broker.request.budget import Share
from data_plane.server.receive_buffers import HalfFrame, ReceiveMemory


class Received:
    """That of one connection."""

    __slots__ = ("_dispatched_half", "_memory", "_proven_bytes", "_share", "backlog", "half")

    def __init__(self, memory: ReceiveMemory, share: Share) -> None:
        self.half: HalfFrame | None = None
        self.backlog: bytearray | None = None
        self._memory = memory
        self._share = share
        self._proven_bytes = 0
        # What is being handled, if it is not in the shared buffer.
        self._dispatched_half: HalfFrame | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether there are complete requests that wait for their turn."""
        half = self.half
        return self.backlog is not None or (half is not None and half.is_whole)

    # The half frame

    def start_half(self, data: memoryview, total: int, now_ms: int) -> None:
        """Raises CloseConnection when there is no memory for it."""
        self.half = HalfFrame.start(
            self._memory, self._share, data, total, self._proven_bytes, now_ms
        )
        if self.half is None:
            raise CloseConnection("no memory left for half frames")

    def begin_handling(self, half: HalfFrame) -> None:
        """It is whole, and has its turn."""
        self.half = None
        self._dispatched_half = half
        self._proven_bytes = max(self._proven_bytes, half.total)

    def end_handling(self, half: HalfFrame) -> None:
        """Unless the request is kept, and the buffer with it, that is free now."""
        if self._dispatched_half is half:
            self._dispatched_half = None
            half.release()

    def drop_half(self) -> None:
        if self.half is not None:
            self.half.release()
            self.half = None

    # The backlog

    def keep_backlog(self, data: memoryview) -> None:
        """Raises CloseConnection when there is no memory for it."""
        assert self.backlog is None, "a connection is not read while requests of it wait"
        if not self._memory.keep_waiting(len(data), self._share):
            raise CloseConnection("no memory left for requests that wait")
        self.backlog = bytearray(data)

    def take_backlog(self) -> bytearray:
        """What waits, which is not kept any longer; nothing when there is none."""
        backlog, self.backlog = self.backlog or bytearray(), None
        self._memory.stop_waiting(len(backlog), self._share)
        return backlog

    # What is kept

    def keep_request(
        self,
        buf: bytearray | memoryview,
        position: int,
        end: int,
        on_release: Callable[[], None],
    ) -> KeptRequest:
        """The request that is being handled. Raises CloseConnection when there is no memory."""
        half = self._dispatched_half
        if half is not None and buf is half.buffer:
            self._dispatched_half = None

            def release_half() -> None:
                half.release()
                on_release()

            return KeptRequest(half.buffer, 0, release_half)
        memory, share, size = self._memory, self._share, end - position
        if not memory.keep_waiting(size, share):
            raise CloseConnection("no memory left for requests that wait")

        def release_copy() -> None:
            memory.stop_waiting(size, share)
            on_release()

        return KeptRequest(bytearray(memoryview(buf)[position:end]), position, release_copy)

    def count_with(self, share: Share) -> None:
        """The connection belongs to another namespace from now on. What is in use is given back
        where it was taken."""
        waiting_bytes = len(self.backlog or b"")
        self._share.give_back(waiting_bytes)
        share.add(waiting_bytes)
        self._share = share
