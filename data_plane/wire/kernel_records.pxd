# The C types of kernel_records.py, for the compiler only. What is not named here stays Python.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from data_plane.wire.kernel_leaves cimport (
    Varint, acquire, append_bytes, append_varlong, contains, equals, length, overflows,
    pointer, read_varint, read_varlong, release, starts_with, store_int32, take_bytes, yield_gil,
)

ctypedef (
    Py_ssize_t, int64_t, int64_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t, int64_t, Py_ssize_t
) RecordParts
ctypedef (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) HeaderParts
ctypedef (Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, Py_ssize_t, Py_ssize_t) WalkResult
ctypedef (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) SetParts
ctypedef (Py_ssize_t, int64_t, int64_t, Py_ssize_t) Found
ctypedef (Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, Py_ssize_t) Ordinary


@cython.locals(view=Py_buffer)
cdef object _walk_records(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                          object base_timestamp, bint consecutive, Py_ssize_t batch_index,
                          int64_t parts_max)

@cython.locals(view=Py_buffer, p="const uint8_t *", index=Py_ssize_t, record=RecordParts,
               header=HeaderParts, at=Py_ssize_t, _=Py_ssize_t, but_size=Py_ssize_t, found=list)
cpdef list scan_headers(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                        bytes prefix=*, bytes but=*, int64_t found_max=*)

@cython.locals(view=Py_buffer, p="const uint8_t *", index=Py_ssize_t, record=RecordParts,
               values=SetParts, is_found=Py_ssize_t, last_start=Py_ssize_t, last_end=Py_ssize_t,
               last_number=int64_t, number=int64_t, count=Py_ssize_t, size=Py_ssize_t,
               joined=bytes, out=bytearray)
cpdef object map_header_sets(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                             bytes key, dict known, object missing, Py_ssize_t values_max=*,
                             Py_ssize_t bytes_max=*)

@cython.locals(header=HeaderParts, key_size=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t,
               start=Py_ssize_t, stop=Py_ssize_t, number=int64_t)
cdef SetParts _find_values(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int64_t header_count,
                           bytes key) noexcept

@cython.locals(header=HeaderParts, key_size=Py_ssize_t, joined=bytearray, _=int64_t)
cdef bytes _join_values(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int64_t header_count,
                        bytes key)

@cython.locals(number=object)
cdef int64_t _set_number(bytes values, dict known, object missing) except? -2

@cython.locals(view=Py_buffer, found=Found)
cpdef object find_timestamp(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                            object base_timestamp, object timestamp,
                            int64_t offset_delta_min=*)

@cython.locals(view=Py_buffer, found=Found)
cpdef object find_max_timestamp(object buf, Py_ssize_t pos, Py_ssize_t end,
                                Py_ssize_t record_count, object base_timestamp,
                                int64_t offset_delta_min=*, int64_t offset_delta_end=*)

@cython.locals(timestamp=object)
cdef object _found(Py_ssize_t outcome, int64_t offset_delta, int64_t timestamp_delta,
                   Py_ssize_t index, object base_timestamp)

@cython.locals(view=Py_buffer, p="const uint8_t *", index=Py_ssize_t, record=RecordParts)
cpdef list list_keys(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count)

@cython.locals(view=Py_buffer, p="const uint8_t *", index=Py_ssize_t, record=RecordParts)
cpdef list outline_records(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                           object base_timestamp)

@cython.locals(view=Py_buffer, p="const uint8_t *", index=Py_ssize_t, record=RecordParts,
               kept=Py_ssize_t, last_offset_delta=int64_t, max_delta=int64_t, run_start=Py_ssize_t)
cpdef object filter_records(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                            int64_t base_timestamp, bytes keep)

@cython.locals(view=Py_buffer, p="const uint8_t *", index=Py_ssize_t, record=RecordParts,
               header=HeaderParts, at=Py_ssize_t, _=Py_ssize_t, offset=int64_t, timestamp=int64_t)
cpdef list decode_records(object buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                          int64_t base_offset, int64_t base_timestamp, object append_timestamp=*)

cdef bytearray _encode_record(object record, object timestamp_delta, object offset_delta)
cdef int _append_nullable(bytearray out, object data) except -1

cdef int _check_range(Py_ssize_t pos, Py_ssize_t end, Py_ssize_t size) except -1

@cython.locals(result=WalkResult, absent_delta=int64_t)
cdef object _summarize(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                       object base_timestamp, bint consecutive, Py_ssize_t batch_index,
                       int64_t parts_max)

@cython.locals(index=Py_ssize_t, previous=int64_t, parts=int64_t, min_delta=int64_t,
               max_delta=int64_t, max_at=int64_t, null_keys=Py_ssize_t, record=RecordParts, at=Py_ssize_t,
               ordinary=Ordinary)
cdef WalkResult _walk(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                      bint consecutive, int64_t absent_delta, int64_t parts_max) noexcept nogil

@cython.locals(min_delta=int64_t, max_at=int64_t, null_keys=Py_ssize_t, at=Py_ssize_t,
               record_end=Py_ssize_t, size=uint32_t, delta=uint32_t, offset=uint32_t,
               key=uint32_t, value=uint32_t, high=uint32_t)
cdef Ordinary _walk_ordinary(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t index,
                             Py_ssize_t record_count, int64_t max_delta,
                             int64_t absent_delta) noexcept nogil

@cython.locals(found=Found)
cdef Found _search(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                   int64_t target, int64_t offset_delta_min) noexcept

@cython.locals(found=Found)
cdef Found _search_max(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t record_count,
                       int64_t offset_delta_min, int64_t offset_delta_end) noexcept

@cython.locals(index=Py_ssize_t, record=RecordParts)
cdef Found _find_timestamp(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end,
                           Py_ssize_t record_count, int64_t target,
                           int64_t offset_delta_min) noexcept nogil

@cython.locals(index=Py_ssize_t, record=RecordParts, is_found=Py_ssize_t, max_at=int64_t,
               max_delta=int64_t)
cdef Found _find_max_timestamp(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end,
                               Py_ssize_t record_count, int64_t offset_delta_min,
                               int64_t offset_delta_end) noexcept nogil

@cython.locals(size=int64_t, record_end=Py_ssize_t, timestamp_delta=int64_t, offset_delta=int64_t,
               key_size=int64_t, key_start=Py_ssize_t, value_size=int64_t, value_start=Py_ssize_t,
               header_count=int64_t)
cdef RecordParts _parse_record(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

@cython.locals(header=HeaderParts)
cdef Py_ssize_t _skip_headers(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end,
                              int64_t header_count) noexcept nogil

@cython.locals(key_size=int64_t, key_start=Py_ssize_t, key_end=Py_ssize_t, value_size=int64_t)
cdef HeaderParts _parse_header(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil
