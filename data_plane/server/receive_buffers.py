"""Where received bytes go: one buffer for all connections, and one for each frame in progress.

A read of a connection without a half frame goes into the shared buffer, and the complete frames in
it are handled there and then, in place. Only the half frame at its end, if there is one, is copied
into a buffer of its own, and later reads of that connection go straight there until the frame is
complete. So an idle connection holds no buffer at all.

A frame's buffer grows with the bytes that really arrived, up to four times as many (or up to what
this connection has proven to send before, at most a megabyte); a size prefix alone reserves next to
nothing.

Bounds: `SHARED_BYTES` and `SEALED_BYTES` once, and `half_frames_bytes_max` for all half frames
together with the whole ones that a connection keeps until it has room for their answers.
"""

from __future__ import annotations

from data_plane.broker.request.budget import Budget, Share

SHARED_BYTES = 1 << 20
SEALED_BYTES = 64 << 10
# Of a connection whose requests have to wait for others.
SMALL_READ_BYTES = 4096
FRAME_BUFFER_BYTES_MIN = 4096
GROWTH_FACTOR = 4
SIZE_PREFIX_BYTES = 4
# All half frames of all connections together, and what waits for its turn. A connection that asks
# for more is closed.
HALF_FRAMES_BYTES_MAX = 512 << 20
# Released buffers of this size class are kept for the next big frame: a new megabyte costs 256
# page faults.
POOLED_BUFFER_BYTES = (1 << 20) + (64 << 10)
POOLED_BUFFERS_MAX = 8


class ReceiveMemory:
    """The shared buffer, the account of all half frames, and the pool. Who takes some says whose
    share it is of."""

    def __init__(self, half_frames_bytes_max: int = HALF_FRAMES_BYTES_MAX) -> None:
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self.small_view = self.shared_view[:SMALL_READ_BYTES]
        # Where TLS is received that belongs into one of the others.
        self.sealed_view = memoryview(bytearray(SEALED_BYTES))
        self.half_frames_bytes = 0
        # Of whole frames that wait for their turn; their connections keep them.
        self.waiting_bytes = 0
        # Both together.
        self.budget = Budget(half_frames_bytes_max)
        self._pool: list[bytearray] = []

    def reserve(self, size: int, share: Share) -> bytearray | None:
        """A buffer of at least `size` bytes, or None when that would exceed the bound."""
        if size > POOLED_BUFFER_BYTES // 4 and size <= POOLED_BUFFER_BYTES:
            size = POOLED_BUFFER_BYTES
        if not share.take(size):
            return None
        self.half_frames_bytes += size
        if size == POOLED_BUFFER_BYTES and self._pool:
            return self._pool.pop()
        return bytearray(size)

    def keep_waiting(self, size: int, share: Share) -> bool:
        """Count `size` bytes that wait for their turn; False when that would exceed the bound."""
        if not share.take(size):
            return False
        self.waiting_bytes += size
        return True

    def stop_waiting(self, size: int, share: Share) -> None:
        share.give_back(size)
        self.waiting_bytes -= size

    def release(self, buffer: bytearray, share: Share) -> None:
        share.give_back(len(buffer))
        self.half_frames_bytes -= len(buffer)
        if len(buffer) == POOLED_BUFFER_BYTES and len(self._pool) < POOLED_BUFFERS_MAX:
            self._pool.append(buffer)


class HalfFrame:
    """A frame (size prefix included) that has not arrived completely."""

    __slots__ = ("_memory", "_share", "buffer", "received", "started_ms", "total", "view")

    def __init__(
        self,
        memory: ReceiveMemory,
        share: Share,
        buffer: bytearray,
        total: int,
        started_ms: int,
    ) -> None:
        self._memory = memory
        self._share = share
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.received = 0
        # 4 while the size prefix itself is incomplete.
        self.total = total
        self.started_ms = started_ms

    @classmethod
    def start(
        cls,
        memory: ReceiveMemory,
        share: Share,
        data: memoryview,
        total: int,
        proven_bytes: int,
        now_ms: int,
    ) -> HalfFrame | None:
        """A half frame beginning with `data`; None when there is no memory for it."""
        size = max(
            FRAME_BUFFER_BYTES_MIN,
            GROWTH_FACTOR * len(data),
            min(proven_bytes, POOLED_BUFFER_BYTES),
        )
        buffer = memory.reserve(min(total, size), share)
        if buffer is None:
            return None
        half = cls(memory, share, buffer, total, now_ms)
        half.view[: len(data)] = data
        half.received = len(data)
        return half

    def free_view(self) -> memoryview:
        """Where the next bytes go: never beyond this frame's end."""
        return self.view[self.received : min(self.total, len(self.buffer))]

    @property
    def is_whole(self) -> bool:
        """Whether all of it has arrived: it waits for its turn."""
        return self.received >= self.total and self.total > SIZE_PREFIX_BYTES

    def grow(self) -> bool:
        """Make room for more of the frame, if there is none. False when there is no memory."""
        if self.received < len(self.buffer) or self.received >= self.total:
            return True
        size = min(self.total, GROWTH_FACTOR * self.received)
        buffer = self._memory.reserve(size, self._share)
        if buffer is None:
            return False
        view = memoryview(buffer)
        view[: self.received] = self.view[: self.received]
        self.release()
        self.buffer, self.view = buffer, view
        return True

    def release(self) -> None:
        self.view.release()
        self._memory.release(self.buffer, self._share)
