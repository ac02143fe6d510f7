# The C types of kernel_requests.py, for the compiler only. What is not named here stays Python.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from data_plane.wire.kernel_leaves cimport (
    Varint, acquire, length, load_int8, load_int16, load_int32, load_int64, pointer, read_uvarint,
    release, take_bytes, take_text,
)

ctypedef (int64_t, int64_t, Py_ssize_t) Tag
ctypedef (Py_ssize_t, int64_t, Py_ssize_t) Span


@cython.locals(view=Py_buffer, p="const uint8_t *", pos=Py_ssize_t, size=int64_t)
cpdef object split_frames(object buf, Py_ssize_t start, Py_ssize_t end, int64_t frame_bytes_max)

@cython.locals(view=Py_buffer)
cpdef object parse_produce(object buf, Py_ssize_t pos, Py_ssize_t end, int version)

@cython.locals(view=Py_buffer)
cpdef object parse_fetch(object buf, Py_ssize_t pos, Py_ssize_t end, int version)

@cython.locals(flexible=bint, acks=int, timeout_ms=int64_t, topic_count=int64_t, room=int64_t,
               count=int64_t, index=int64_t, start=Py_ssize_t, size=int64_t)
cdef object _parse_produce(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, int version)

@cython.locals(flexible=bint, replica_id=int64_t, replica_epoch=int64_t, max_wait_ms=int64_t,
               min_bytes=int64_t, max_bytes=int64_t, isolation_level=int64_t, session_id=int64_t,
               session_epoch=int64_t, topic_count=int64_t, room=int64_t, count=int64_t,
               tag_count=int64_t, tag=int64_t, size=int64_t, tag_end=Py_ssize_t)
cdef object _parse_fetch(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, int version)

@cython.locals(index=int64_t, current_leader_epoch=int64_t, fetch_offset=int64_t,
               last_fetched_epoch=int64_t, log_start_offset=int64_t, partition_max_bytes=int64_t,
               tag_count=int64_t, tag=int64_t, size=int64_t)
cdef Py_ssize_t _parse_fetch_partition(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end,
                                       int version, list partitions) except -1

cdef int _fetch_partition_bytes(int version) noexcept
cdef int _check_range(Py_ssize_t pos, Py_ssize_t end, Py_ssize_t size) except -1
cdef int _need(Py_ssize_t pos, int64_t count, Py_ssize_t end) except -1
cdef int _check_tag_end(int64_t found, int64_t stated) except -1

@cython.locals(value=int64_t, after=Py_ssize_t)
cdef Varint _read_uvarint(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) except *

@cython.locals(tag=int64_t, size=int64_t)
cdef Tag _read_tag(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) except *

@cython.locals(count=int64_t, size=int64_t, _=int64_t)
cdef Py_ssize_t _skip_tags(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) except -1

@cython.locals(count=int64_t)
cdef Varint _read_count(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bint flexible,
                        int64_t min_item_bytes, int64_t room) except *

@cython.locals(size=int64_t)
cdef Span _read_bytes(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bint flexible) except *

@cython.locals(size=int64_t)
cdef Span _read_string(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bint flexible) except *

@cython.locals(start=Py_ssize_t, size=int64_t, after=Py_ssize_t)
cdef tuple _take_nullable_text(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bint flexible)

@cython.locals(start=Py_ssize_t, size=int64_t, after=Py_ssize_t)
cdef tuple _take_text(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bint flexible)

cdef tuple _take_topic(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bint flexible,
                       bint has_id)
