"""Read-only mappings of files, and whether their pages are in memory.

What a mapping gives goes to sockets without a copy of our own: the system call that writes it reads
the page cache. A page that has left memory by then makes that call wait for the disk, and one that
the disk cannot read makes it fail with EFAULT; only touching the page from here would kill the
process. So whoever looks into bytes far from what was just written asks `is_in_memory` first.

Deliberately absent: when to map (segment.py). The simulator's mappings are in sim_file_system.py.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Protocol

PAGE_BYTES = mmap.PAGESIZE


class Mapping(Protocol):
    """The first `size` bytes of a file, shared with later writes."""

    size: int

    def view(self, start: int, end: int) -> memoryview:
        """The bytes [start, end) without a copy; they outlive the mapping object."""

    def is_in_memory(self, start: int, end: int) -> bool:
        """Whether all of [start, end) can be read without the disk; False where unknown."""


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, of which the address is wanted (stable ABI since Python 3.11)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _find_mincore() -> Any | None:
    """Linux's mincore(2), which the standard library does not have."""
    try:
        mincore = ctypes.CDLL(None).mincore
    except (AttributeError, OSError):
        return None
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    return mincore


_MINCORE = _find_mincore()


def _address_of(mapped: mmap.mmap) -> int:
    # ctypes' own from_buffer refuses what is read-only.
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0)
    address: int = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


class OsMapping:
    """A mapping of the real file system. Raises OSError or ValueError when there can be none."""

    __slots__ = ("_address", "_view", "size")

    def __init__(self, fd: int, size: int) -> None:
        mapped = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        self.size = size
        self._view = memoryview(mapped)
        self._address = _address_of(mapped)

    def view(self, start: int, end: int) -> memoryview:
        return self._view[start:end]

    def is_in_memory(self, start: int, end: int) -> bool:
        if _MINCORE is None or start >= end:
            return False
        first = start - start % PAGE_BYTES
        pages = -(-(end - first) // PAGE_BYTES)
        states = bytearray(pages)
        result = _MINCORE(
            self._address + first, end - first, (ctypes.c_char * pages).from_buffer(states)
        )
        # The kernel says 1 for a page that is there, and leaves the other bits to the future.
        return result == 0 and states.count(1) == pages
