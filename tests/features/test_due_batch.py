"""Which originals go into a batch, and in which order they are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.records import Record
from features.delayed.due_batch import read_first
from features.delayed.originals import size_of
from features.delayed.runs import Entry

BYTES_MAX = 100


class Stored:
    """Records by offset, and how they are read. Without a size there is none; with a negative one
    it cannot be read."""

    def __init__(self, sizes: dict[int, int | None]) -> None:
        self.sizes = sizes
        self.read: list[int] = []

    def find(self, offset: int) -> Record | None:
        self.read.append(offset)
        size = self.sizes[offset]
        if size is None:
            return None
        if size < 0:
            raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, "damaged")
        return Record(offset, 0, None, bytes(size), ())


def one_by_one(stored: Stored, entries: list[Entry]) -> tuple[list[Entry], set[int]]:
    """What is to come of it, as it is said: in the order in which they are due, until it is
    enough."""
    taken, wrong, size = [], set(), 0
    for entry in entries:
        found = stored.sizes[entry[1]]
        if found is None or found < 0:
            wrong.add(entry[1])
            continue
        taken.append(entry)
        size += found
        if size >= BYTES_MAX:
            break
    return taken, wrong


@given(
    st.permutations(range(30)),
    st.lists(st.sampled_from([None, -1, 0, 1, 9, 40, 99, 100, 250]), min_size=30, max_size=30),
)
def test_the_first_ones_are_taken_and_read_in_the_order_of_the_log(
    offsets: list[int], sizes: list[int | None]
) -> None:
    stored = Stored(dict(enumerate(sizes)))
    entries = list(enumerate(offsets))
    found, unreadable = read_first(stored.find, entries, BYTES_MAX)
    taken, wrong = one_by_one(stored, entries)
    assert [entry for entry, _ in found] == taken
    assert [original.offset for _, original in found] == [offset for _, offset in taken]
    # Others than these, which are still to be, may have been noticed, too.
    assert wrong <= unreadable.keys()
    assert all((stored.sizes[offset] or -1) < 0 for offset in unreadable)
    assert stored.read == sorted(set(stored.read))
    assert sum(size_of(original) for _, original in found[:-1]) < BYTES_MAX
