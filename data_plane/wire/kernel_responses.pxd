# The C types of kernel_responses.py, for the compiler only. What is not named here stays Python.

cimport cython

from data_plane.wire.kernel_leaves cimport (
    append_data, append_int8, append_int16, append_int32, append_int64, append_partition,
    append_uvarint, as_tuple, store_int32,
)


@cython.locals(flexible=bint, out=bytearray, name=object, topic_id=bytes, results=object)
cpdef bytearray encode_produce_response(bytes head, int version, object topics,
                                        object throttle_time_ms=*, object node_endpoints=*)

@cython.locals(flexible=bint, first=bytearray, out=bytearray, buffers=list, size=Py_ssize_t,
               name=object, topic_id=bytes, results=object, result=tuple,
               records_bytes=Py_ssize_t)
cpdef list encode_fetch_response(bytes head, int version, object topics, object error_code=*,
                                 object session_id=*, object throttle_time_ms=*,
                                 object node_endpoints=*)

@cython.locals(flexible=bint)
cdef object _append_produce_result(bytearray out, int version, tuple result)

@cython.locals(flexible=bint, size=Py_ssize_t)
cdef Py_ssize_t _append_fetch_result(bytearray out, int version, tuple result) except -1

@cython.locals(count=int)
cdef int _append_fetch_tags(bytearray out, tuple result) except -1

@cython.locals(inner=bytearray)
cdef object _append_node_endpoints(bytearray out, object node_endpoints)

cdef int _append_topic(bytearray out, object name, bytes topic_id, bint flexible,
                       bint has_id) except -1
cdef int _append_count(bytearray out, Py_ssize_t count, bint flexible) except -1

@cython.locals(data=bytes)
cdef object _append_nullable_text(bytearray out, str text, bint flexible)
