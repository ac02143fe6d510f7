"""The receive buffer of one connection to a peer: whole response frames, handled where they are.

    buffer   [ handled | frame | frame | half a frame ........ | free ]
                       start                                  end

Reads go behind `end`. A frame that is complete is handed out as a view of the buffer; when nothing
is left, both positions return to the front. So an answer is copied only when it begins behind
another one and does not fit where it stands.

The buffer grows with what has really arrived, never with a size that a frame merely claims, and
gives memory back once answers have been smaller for a while: an idle peer costs BUFFER_BYTES_MIN.

Deliberately absent: sockets, and what is in a frame.
"""

from __future__ import annotations

import struct

from data_plane.wire.errors import MalformedFrame

SIZE_BYTES = 4
BUFFER_BYTES_MIN = 64 << 10
GROWTH_FACTOR = 4
# With each frame a sixteenth of what larger ones before it needed is forgotten.
MEMORY_FRAMES = 16

_SIZE = struct.Struct(">i")


class FrameBuffer:
    """See the module. Frames may have 0 to `frame_bytes_max` bytes behind their size."""

    __slots__ = (
        "_buffer",
        "_end",
        "_frame_bytes_max",
        "_missing_bytes",
        "_recent_bytes",
        "_start",
        "_view",
    )

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        # What has to come before there can be another whole frame, as far as is known.
        self._missing_bytes = SIZE_BYTES
        self._recent_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What it takes of memory."""
        return len(self._buffer)

    @property
    def has_half_frame(self) -> bool:
        return self._end > self._start

    def free_view(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._end == len(self._buffer):
            self._make_room()
        return self._view[self._end :]

    def received(self, size: int) -> bool:
        """`size` bytes were written to the front of what `free_view` returned last. Whether there
        may be a whole frame now."""
        self._end += size
        self._missing_bytes -= size
        return self._missing_bytes <= 0

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None. Valid until the next call of anything
        here. Raises MalformedFrame for a size that is not allowed."""
        start = self._start
        have = self._end - start
        if have < SIZE_BYTES:
            self._missing_bytes = SIZE_BYTES - have
            if not have:
                self._begin_anew()
            return None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        if size < 0 or size > self._frame_bytes_max:
            raise MalformedFrame(
                f"a frame of {size} bytes, allowed are 0 to {self._frame_bytes_max}"
            )
        if have < SIZE_BYTES + size:
            self._missing_bytes = SIZE_BYTES + size - have
            if start + SIZE_BYTES + size > len(self._buffer):
                self._make_room()
            return None
        frame_end = start + SIZE_BYTES + size
        self._start = frame_end
        recent_bytes = self._recent_bytes - self._recent_bytes // MEMORY_FRAMES
        self._recent_bytes = max(recent_bytes, SIZE_BYTES + size)
        return self._view[start + SIZE_BYTES : frame_end]

    def _begin_anew(self) -> None:
        """Everything is handled."""
        self._start = self._end = 0
        wanted = max(BUFFER_BYTES_MIN, self._recent_bytes)
        if len(self._buffer) > GROWTH_FACTOR * wanted:
            self._replace(wanted)

    def _make_room(self) -> None:
        """Move the half frame to the front, into a larger buffer where this one is full of it."""
        have = self._end - self._start
        total = len(self._buffer)
        if have * 2 > total:
            total = GROWTH_FACTOR * have
            if have >= SIZE_BYTES:
                (size,) = _SIZE.unpack_from(self._buffer, self._start)
                total = max(BUFFER_BYTES_MIN, min(total, SIZE_BYTES + size))
        if total > len(self._buffer):
            self._replace(total)
        elif self._start:
            self._view[:have] = self._view[self._start : self._end]
            self._start, self._end = 0, have

    def _replace(self, size: int) -> None:
        have = self._end - self._start
        buffer = bytearray(size)
        view = memoryview(buffer)
        view[:have] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, have
