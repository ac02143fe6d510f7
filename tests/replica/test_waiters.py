"""Who waits for an offset, played against a plain list of them."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from data_plane.replica.waiters import QUEUE_ENTRIES_KEPT, OffsetWaiters, Waiter
from data_plane.wire.errors import ErrorCode

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "cancel", "release"]), st.integers(0, 60)),
    max_size=400,
)


@given(STEPS)
def test_each_waiter_is_called_once_or_cancelled(steps: list[tuple[str, int]]) -> None:
    waiters = OffsetWaiters()
    made: list[Waiter] = []
    called: list[int] = []
    open_offsets: dict[int, int] = {}
    for step, value in steps:
        if step == "add":
            number = len(made)
            made.append(waiters.add(value, lambda error, number=number: called.append(number)))  # type: ignore[misc]
            open_offsets[number] = value
        elif step == "cancel" and made:
            number = value % len(made)
            made[number].cancel()
            open_offsets.pop(number, None)
        elif step == "release":
            called.clear()
            waiters.release(value)
            due = sorted(
                (offset, number) for number, offset in open_offsets.items() if offset < value
            )
            assert called == [number for _, number in due]
            for _, number in due:
                del open_offsets[number]
        assert len(waiters.queue) <= max(QUEUE_ENTRIES_KEPT, 2 * len(open_offsets))
    called.clear()
    waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sorted(called) == sorted(open_offsets)


def test_a_callback_that_cancels_others_while_they_are_released() -> None:
    """One answer may end what waits for other partitions, and so make the queue anew."""
    waiters = OffsetWaiters()
    called: list[int] = []
    made: list[Waiter] = []

    def call(number: int, error: ErrorCode) -> None:
        called.append(number)
        for waiter in made[1 : 3 * QUEUE_ENTRIES_KEPT]:
            waiter.cancel()

    made.extend(
        waiters.add(number, partial(call, number)) for number in range(4 * QUEUE_ENTRIES_KEPT)
    )
    waiters.release(len(made))
    assert called == [0, *range(3 * QUEUE_ENTRIES_KEPT, len(made))]
    assert not waiters.queue
