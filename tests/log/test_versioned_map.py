"""A frozen view shows what the map held, whatever is changed since, and nothing takes long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.versioned_map import LAYERS_MAX, MOVED_PER_CHANGE, FrozenView, VersionedMap


class Number:
    """A value that is changed in place; counts its copies."""

    copies_count = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def copy(self) -> Number:
        Number.copies_count += 1
        return Number(self.value)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 12), st.integers()),
        st.tuples(st.just("change"), st.integers(0, 12), st.integers()),
        st.tuples(st.just("delete"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("freeze"), st.just(0), st.just(0)),
        st.tuples(st.just("close"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=160,
)


def values_of(items: object) -> dict[int, int]:
    return {key: number.value for key, number in items}  # type: ignore[attr-defined]


@given(STEPS)
def test_views_never_change_and_the_map_is_a_dict(steps: list[tuple[str, int, int]]) -> None:
    numbers: VersionedMap[int, Number] = VersionedMap()
    model: dict[int, int] = {}
    views: list[tuple[FrozenView[int, Number], dict[int, int]]] = []
    for what, key, value in steps:
        if what == "set":
            numbers[key] = Number(value)
            model[key] = value
        elif what == "change":
            number = numbers.own(key)
            assert (number is None) == (key not in model)
            if number is not None:
                number.value = value
                model[key] = value
        elif what == "delete" and key in model:
            del numbers[key], model[key]
        elif what == "freeze":
            views.append((numbers.freeze(), dict(model)))
        elif what == "close" and key < len(views):
            view, _ = views.pop(key)
            view.close()
            view.close()
        elif what == "clear" and not views:
            numbers.clear()
            model.clear()
        for view, expected in views:
            assert values_of(view.items()) == expected
        assert values_of(numbers.items()) == model
        assert len(numbers) == len(model)
        for one in range(13):
            assert (one in numbers) == (one in model)
            assert (numbers.live.get(one) or numbers.get(one) is not None) or one not in model


def test_freezing_copies_nothing_and_a_change_copies_one_value() -> None:
    numbers: VersionedMap[int, Number] = VersionedMap()
    for key in range(50_000):
        numbers[key] = Number(key)
    Number.copies_count = 0
    before = numbers.live
    view = numbers.freeze()
    assert view._layers == (before,)
    for _ in range(3):
        number = numbers.own(7)
        assert number is not None
        number.value += 1
    assert Number.copies_count == 1
    assert len(numbers.live) == 1
    view.close()


def test_layers_become_one_again_a_few_entries_at_a_time() -> None:
    numbers: VersionedMap[int, Number] = VersionedMap()
    for key in range(1_000):
        numbers[key] = Number(key)
    views = []
    for round_number in range(3):
        views.append(numbers.freeze())
        for key in range(0, 1_000, 2):
            number = numbers.own(key)
            assert number is not None
            number.value = -round_number
    assert numbers.layers_count == 4
    for view in views:
        view.close()
    changes_count = 0
    while numbers.layers_count > 1:
        before = sum(map(len, numbers._older[1:])) + len(numbers.live)
        numbers.own(1)
        changes_count += 1
        left = sum(map(len, numbers._older[1:])) + len(numbers.live)
        assert numbers.layers_count == 1 or before - left <= MOVED_PER_CHANGE
    assert changes_count >= 3 * 500 // MOVED_PER_CHANGE
    assert numbers[2].value == -2
    assert numbers[3].value == 3
    assert len(numbers) == len(numbers.live) == 1_000


def test_where_a_view_is_always_open_there_are_few_layers_all_the_same() -> None:
    numbers: VersionedMap[int, Number] = VersionedMap()
    for key in range(2_000):
        numbers[key] = Number(key)
    oldest = numbers.live
    views = [(numbers.freeze(), {key: key for key in range(2_000)})]
    layers_counts = []
    for round_number in range(100):
        for key in range(0, 400, 2):
            number = numbers.own(key + round_number)
            assert number is not None
            number.value = -round_number
        del numbers[1_000 + round_number]
        view = numbers.freeze()
        views.append((view, values_of(numbers.items())))
        layers_counts.append(numbers.layers_count)
        if len(views) > 3:
            shown, expected = views.pop(0)
            assert values_of(shown.items()) == expected
            shown.close()
    assert max(layers_counts) <= 2 * LAYERS_MAX
    assert numbers._older[0] is oldest, "it is not copied"
    assert len(numbers) == len(values_of(numbers.items())) == 1_900
    for view, expected in views:
        assert values_of(view.items()) == expected
        view.close()
    while numbers.layers_count > 1:
        numbers.own(1)
    assert len(numbers.live) == 1_900
