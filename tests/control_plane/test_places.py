"""Places for work that may hang: who finds none does not wait, and none is lost."""

from __future__ import annotations

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


def test_a_place_is_given_back_by_what_fails() -> None:
    places = Places()
    with pytest.raises(ValueError, match="fails"), places.take("reads", 1):
        raise ValueError("it fails")
    with places.take("reads", 1) as after:
        assert after is True
