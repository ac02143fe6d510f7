# The C types of kernel_batches.py, for the compiler only. What is not named here stays Python.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from data_plane.wire.kernel_leaves cimport (
    acquire, length, load_int8, load_int16, load_int32, load_int64, load_uint32, overflows, pointer,
    release, yield_gil,
)


@cython.locals(view=Py_buffer, p="const uint8_t *", pos=Py_ssize_t, index=Py_ssize_t,
               batch_end=Py_ssize_t)
cdef list _check_batches(object buf, Py_ssize_t start, Py_ssize_t end, int64_t batch_bytes_max,
                         bint one_batch, bint zstd_allowed, bint walk, int64_t parts_max)

@cython.locals(view=Py_buffer, p="const uint8_t *", pos=Py_ssize_t, batch_length=int64_t,
               base_offset=int64_t, next_offset=int64_t, last_offset_delta=int64_t,
               batch_end=Py_ssize_t, rested=Py_ssize_t)
cdef tuple _scan_batches(object buf, Py_ssize_t start, Py_ssize_t end, bint check_crc)

cdef int64_t _crc(object whole, Py_ssize_t start, Py_ssize_t end) except -1
cdef object _load_header(const uint8_t *p, Py_ssize_t pos)
cdef int _check_range(Py_ssize_t pos, Py_ssize_t end, Py_ssize_t size) except -1

@cython.locals(remaining=Py_ssize_t, batch_length=Py_ssize_t, magic=int)
cdef Py_ssize_t _check_frame(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end,
                             Py_ssize_t index) except -1

@cython.locals(attributes=int, codec=int, last_offset_delta=int64_t, record_count=int64_t)
cdef int _check_fields(const uint8_t *p, Py_ssize_t pos, Py_ssize_t index,
                       bint zstd_allowed) except -1
