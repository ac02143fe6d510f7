# The kernel's smallest steps on bytes, in C; kernel_leaves.py says the same in Python and explains.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_Check
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memchr, memcmp, memcpy

ctypedef (int64_t, Py_ssize_t) Varint


cdef inline Py_buffer acquire(object buf) except *:
    cdef Py_buffer view
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    return view


cdef inline void release(Py_buffer view) noexcept:
    PyBuffer_Release(&view)


cdef inline void yield_gil() noexcept:
    with nogil:
        pass


cdef inline const uint8_t *pointer(Py_buffer view) noexcept nogil:
    return <const uint8_t *>view.buf


cdef inline Py_ssize_t length(Py_buffer view) noexcept nogil:
    return view.len


# Bytes are put together one by one, which the C compiler turns into one load and one swap on any
# machine, aligned or not.

cdef inline int8_t load_int8(const uint8_t *p, Py_ssize_t pos) noexcept nogil:
    return <int8_t>p[pos]


cdef inline int16_t load_int16(const uint8_t *p, Py_ssize_t pos) noexcept nogil:
    return <int16_t>((<uint16_t>p[pos] << 8) | <uint16_t>p[pos + 1])


cdef inline uint32_t load_uint32(const uint8_t *p, Py_ssize_t pos) noexcept nogil:
    return (
        (<uint32_t>p[pos] << 24)
        | (<uint32_t>p[pos + 1] << 16)
        | (<uint32_t>p[pos + 2] << 8)
        | <uint32_t>p[pos + 3]
    )


cdef inline int32_t load_int32(const uint8_t *p, Py_ssize_t pos) noexcept nogil:
    return <int32_t>load_uint32(p, pos)


cdef inline int64_t load_int64(const uint8_t *p, Py_ssize_t pos) noexcept nogil:
    return <int64_t>((<uint64_t>load_uint32(p, pos) << 32) | <uint64_t>load_uint32(p, pos + 4))


cdef inline bint overflows(int64_t base, int64_t delta) noexcept nogil:
    if delta > 0:
        return base > INT64_MAX - delta
    return base < INT64_MIN - delta


cdef inline bytes take_bytes(const uint8_t *p, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char *>p + start, end - start)


cdef inline str take_text(const uint8_t *p, Py_ssize_t start, Py_ssize_t end):
    return PyUnicode_DecodeUTF8(<const char *>p + start, end - start, NULL)


cdef inline int append_bytes(
    bytearray out, const uint8_t *p, Py_ssize_t start, Py_ssize_t end
) except -1:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(out)
    PyByteArray_Resize(out, size + end - start)
    memcpy(PyByteArray_AS_STRING(out) + size, p + start, end - start)
    return 0


cdef inline tuple as_tuple(object fields):
    if not PyTuple_Check(fields):
        raise TypeError(f"expected a tuple, not {type(fields).__name__}")
    return <tuple>fields


cdef inline int append_data(bytearray out, bytes data) except -1:
    return append_bytes(out, <const uint8_t *>PyBytes_AS_STRING(data), 0, PyBytes_GET_SIZE(data))


cdef inline uint8_t *room_for(bytearray out, Py_ssize_t count) except NULL:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(out)
    PyByteArray_Resize(out, size + count)
    return <uint8_t *>PyByteArray_AS_STRING(out) + size


cdef inline void store16(uint8_t *at, uint16_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value


cdef inline void store32(uint8_t *at, uint32_t value) noexcept nogil:
    store16(at, <uint16_t>(value >> 16))
    store16(at + 2, <uint16_t>value)


cdef inline void store64(uint8_t *at, uint64_t value) noexcept nogil:
    store32(at, <uint32_t>(value >> 32))
    store32(at + 4, <uint32_t>value)


cdef inline int append_int8(bytearray out, int value) except -1:
    room_for(out, 1)[0] = <uint8_t>value
    return 0


cdef inline int append_int16(bytearray out, int16_t value) except -1:
    store16(room_for(out, 2), <uint16_t>value)
    return 0


cdef inline int append_int32(bytearray out, int32_t value) except -1:
    store32(room_for(out, 4), <uint32_t>value)
    return 0


cdef inline int append_int64(bytearray out, int64_t value) except -1:
    store64(room_for(out, 8), <uint64_t>value)
    return 0


cdef inline int append_partition(
    bytearray out, int32_t index, int16_t error_code, int64_t first, int64_t second, int64_t third,
    bint has_third,
) except -1:
    cdef uint8_t *at = room_for(out, 30 if has_third else 22)
    store32(at, <uint32_t>index)
    store16(at + 4, <uint16_t>error_code)
    store64(at + 6, <uint64_t>first)
    store64(at + 14, <uint64_t>second)
    if has_third:
        store64(at + 22, <uint64_t>third)
    return 0


cdef inline int append_uvarint(bytearray out, uint32_t value) except -1:
    cdef uint8_t scratch[5]
    cdef Py_ssize_t count = 0
    while value > 0x7F:
        scratch[count] = <uint8_t>((value & 0x7F) | 0x80)
        value >>= 7
        count += 1
    scratch[count] = <uint8_t>value
    append_bytes(out, scratch, 0, count + 1)
    return 0


cdef inline int store_int32(bytearray out, Py_ssize_t pos, int32_t value) except -1:
    if pos < 0 or pos + 4 > PyByteArray_GET_SIZE(out):
        raise ValueError(f"no four bytes at {pos}")
    store32(<uint8_t *>PyByteArray_AS_STRING(out) + pos, <uint32_t>value)
    return 0


cdef inline int append_varlong(bytearray out, object value) except -1:
    cdef int64_t number
    cdef uint64_t zigzag
    cdef uint8_t scratch[10]
    cdef Py_ssize_t count = 0
    if not -9223372036854775808 <= value <= 9223372036854775807:
        raise ValueError(f"{value} does not fit 64 bits")
    number = value
    zigzag = (<uint64_t>number << 1) ^ (0 if number >= 0 else ~<uint64_t>0)
    while zigzag > 0x7F:
        scratch[count] = <uint8_t>((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
        count += 1
    scratch[count] = <uint8_t>zigzag
    append_bytes(out, scratch, 0, count + 1)
    return 0


cdef inline bint starts_with(
    const uint8_t *p, Py_ssize_t start, Py_ssize_t end, bytes prefix
) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    return size <= end - start and memcmp(p + start, PyBytes_AS_STRING(prefix), size) == 0


cdef inline bint equals(
    const uint8_t *p, Py_ssize_t first, Py_ssize_t second, Py_ssize_t size
) noexcept nogil:
    return memcmp(p + first, p + second, size) == 0


cdef inline bint contains(const uint8_t *p, Py_ssize_t start, Py_ssize_t end, bytes needle) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(needle)
    cdef const char *wanted = PyBytes_AS_STRING(needle)
    cdef const uint8_t *at
    if size == 0:
        return True
    while size <= end - start:
        at = <const uint8_t *>memchr(p + start, wanted[0], end - start - size + 1)
        if at == NULL:
            return False
        if memcmp(at, wanted, size) == 0:
            return True
        start = (at - p) + 1
    return False


cdef inline Varint _read_long(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        if pos >= end:
            return (0, -1)
        byte = p[pos]
        pos += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return (<int64_t>value, pos)
        shift += 7
    return (0, -1)


cdef inline Varint read_uvarint(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef Varint result
    if pos < end and p[pos] < 0x80:
        return (p[pos], pos + 1)
    result = _read_long(p, pos, end)
    if result[0] > 0xFFFFFFFFLL:
        return (0, -1)
    return result


cdef inline Varint read_varint(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef uint32_t value
    cdef Varint long_one
    if pos < end and p[pos] < 0x80:
        value = p[pos]
        return (<int32_t>((value >> 1) ^ (~(value & 1) + 1)), pos + 1)
    long_one = _read_long(p, pos, end)
    value = <uint32_t>long_one[0]
    return (<int32_t>((value >> 1) ^ (~(value & 1) + 1)), long_one[1])


cdef inline Varint read_varlong(const uint8_t *p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift <= 63:
        if pos >= end:
            return (0, -1)
        byte = p[pos]
        pos += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return (<int64_t>((value >> 1) ^ (~(value & 1) + 1)), pos)
        shift += 7
    return (0, -1)
