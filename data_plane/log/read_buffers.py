"""Buffers for large reads, used again as soon as nobody looks at them any more.

A new megabyte costs 256 page faults and is zeroed before the read overwrites it: twice what the
read itself costs. So large reads go into buffers that stay. A reader gets a memoryview; when the
last view of a buffer is gone (the answer has left the process), its reference count says so.

Invariants
- A buffer is handed out only while this pool holds the one reference to it.
- At most BUFFERS_MAX buffers of BUFFER_BYTES are kept; further ones are made and forgotten.

For one thread, the loop's. Deliberately absent: a way to give a buffer back by hand.
"""

from __future__ import annotations

import sys

BUFFER_BYTES = (1 << 20) + (64 << 10)
BUFFERS_MAX = 16
# Below this a fresh buffer comes from the allocator's free lists and is cheap.
POOLED_READ_BYTES_MIN = 64 << 10

# The list's own reference and the argument of getrefcount.
_UNUSED_REFERENCES = 2


class ReadBuffers:
    """The pool. `take` gives a writable view of exactly `size` bytes, of undefined content."""

    __slots__ = ("_buffers", "_next")

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._next = 0

    def take(self, size: int) -> memoryview:
        if size > BUFFER_BYTES:
            return memoryview(bytearray(size))
        buffers = self._buffers
        count = len(buffers)
        for _ in range(count):
            # The one used last is the likeliest to be free and in the processor's cache.
            index = self._next
            if sys.getrefcount(buffers[index]) <= _UNUSED_REFERENCES:
                return memoryview(buffers[index])[:size]
            self._next = index + 1 if index + 1 < count else 0
        buffer = bytearray(BUFFER_BYTES)
        if count < BUFFERS_MAX:
            self._next = count
            buffers.append(buffer)
        return memoryview(buffer)[:size]
