"""Buffers that are used again when nobody looks at them any more."""

from __future__ import annotations

from data_plane.log.read_buffers import BUFFER_BYTES, BUFFERS_MAX, ReadBuffers


def test_a_buffer_is_used_again_only_when_all_its_views_are_gone() -> None:
    pool = ReadBuffers()
    first = pool.take(100_000)
    assert len(first) == 100_000
    part = first[10:20]
    owner = id(first.obj)
    del first
    second = pool.take(100_000)
    assert id(second.obj) != owner
    del part
    again = [pool.take(50), pool.take(50)]
    assert owner in {id(view.obj) for view in again}
    assert id(second.obj) not in {id(view.obj) for view in again}


def test_a_lone_reader_keeps_to_one_buffer() -> None:
    pool = ReadBuffers()
    owners = set()
    for _ in range(10):
        view = pool.take(BUFFER_BYTES)
        owners.add(id(view.obj))
        del view
    assert len(owners) == 1


def test_no_two_readers_share_a_buffer_beyond_the_maximum_either() -> None:
    pool = ReadBuffers()
    views = [pool.take(1) for _ in range(BUFFERS_MAX + 5)]
    assert len({id(view.obj) for view in views}) == BUFFERS_MAX + 5
    assert len(pool._buffers) == BUFFERS_MAX


def test_a_larger_read_gets_a_buffer_of_its_own() -> None:
    pool = ReadBuffers()
    assert len(pool.take(BUFFER_BYTES + 1)) == BUFFER_BYTES + 1
    assert not pool._buffers
