"""Places for work that may hang: who finds none does not wait, and none is lost."""

from __future__ import annotations

import threading

import pytest

from control_plane.places import Places


def test_so_many_of_a_kind_have_a_place_and_others_do_not_wait() -> None:
    places = Places()
    with places.take("reads", 2) as first, places.take("reads", 2) as second:
        assert (first, second) == (True, True)
        with places.take("reads", 2) as third, places.take("writes", 2) as of_another_kind:
            assert (third, of_another_kind) == (False, True)
        # Who had none gives none back.
        with places.take("reads", 2) as fourth:
            assert fourth is False
    with places.take("reads", 1) as after:
        assert after is True


def test_who_waits_has_the_next_place() -> None:
    places = Places()
    taken, waits = threading.Event(), threading.Event()
    had: list[bool] = []

    def hold() -> None:
        with places.take("reads", 1):
            taken.set()
            waits.wait()

    def wait() -> None:
        waits.set()
        with places.take("reads", 1, 60.0) as has_place:
            had.append(has_place)

    threads = [threading.Thread(target=hold), threading.Thread(target=wait)]
    threads[0].start()
    taken.wait()
    with places.take("reads", 1, 0.01) as has_place:
        assert has_place is False
    threads[1].start()
    for thread in threads:
        thread.join()
    assert had == [True]


def test_a_place_is_given_back_by_what_fails() -> None:
    places = Places()
    with pytest.raises(ValueError, match="fails"), places.take("reads", 1):
        raise ValueError("it fails")
    with places.take("reads", 1) as after:
        assert after is True
