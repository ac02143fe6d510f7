# The C types of kernel_fetched.py, for the compiler only. What is not named here stays Python.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from data_plane.wire.kernel_leaves cimport (
    Varint, acquire, length, load_int16, load_int32, load_int64, pointer, read_uvarint, release,
    take_bytes,
)


@cython.locals(view=Py_buffer)
cpdef object parse_fetch_response(object buf, Py_ssize_t pos, Py_ssize_t end, int version)

@cython.locals(throttle_time_ms=int64_t, error_code=int64_t, session_id=int64_t,
               topic_count=int64_t, topic_id=bytes, count=int64_t, partitions=list)
cdef object _parse(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end)

@cython.locals(index=int64_t, error_code=int64_t, high_watermark=int64_t, log_start_offset=int64_t,
               count=int64_t, size=int64_t, records_start=Py_ssize_t, records_end=Py_ssize_t,
               tag=int64_t, tag_end=Py_ssize_t, diverging_epoch=object, current_leader=object)
cdef Py_ssize_t _parse_partition(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, bytes topic_id,
                                 list partitions) except -1

cdef int _need(Py_ssize_t pos, int64_t count, Py_ssize_t end) except -1
cdef int _check_tag_end(int64_t found, int64_t stated) except -1

@cython.locals(value=int64_t, after=Py_ssize_t)
cdef Varint _read_uvarint(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) except *

@cython.locals(count=int64_t, size=int64_t, _=int64_t)
cdef Py_ssize_t _skip_tags(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) except -1

@cython.locals(count=int64_t)
cdef Varint _read_count(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end,
                        int64_t min_item_bytes) except *
