"""Operations on dead letters against a dict, whatever happens in between: the process dies at any
step, requests are repeated, operations pause, end, and follow each other.

What must hold:
- Each letter that an operation has moved is in its target once for it, and nothing else is.
- An operation that is done has moved all that it was about, and one that was cancelled a beginning
  of that.
- What was purged is never moved.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from data_plane.broker.dead_letter_operations import NotPossible, Selection, Status, Wish
from tests.features.redrive_player import ALL, RedrivePlayer

LETTERS_MAX = 40
# As many as are listed after their end.
OPERATIONS_MAX = 20
OVER = (Status.DONE, Status.CANCELLED)
SELECTIONS = st.sampled_from(
    [
        ALL,
        ALL._replace(again=True),
        Selection(reason="odd"),
        Selection(from_offset=3),
        Selection(offsets=(1, 4, 5, 9)),
        Selection(reason="odd", until_offset=8, again=True),
    ]
)
TARGETS = st.sampled_from(["", "", "elsewhere"])


class Asked:
    """An operation: which letters it is about by the model, and where they go."""

    def __init__(self, chosen: list[int], target: str, is_purge: bool, words: Any) -> None:
        self.chosen = chosen
        self.target = target
        self.is_purge = is_purge
        self.words = words


class Redriving(RuleBasedStateMachine):
    """One history of `pay.dlq`."""

    def __init__(self) -> None:
        super().__init__()
        self.player = RedrivePlayer(policy={"redrive.max": "0"})
        self.player.create_topic("elsewhere", 1, {"tidewheel.headers": "true"})
        self.letters_count = 0
        self.asked: dict[str, Asked] = {}
        # What was moved, by the operations that are over.
        self.redriven: set[int] = set()
        self.purged: set[int] = set()
        self.bury(2)

    @rule(count=st.integers(1, 6))
    def bury(self, count: int) -> None:
        if self.letters_count + count > LETTERS_MAX:
            return
        first = self.player.orders.log.log_end_offset
        self.player.append(*((b"%d" % number,) for number in range(first, first + count)))
        for number in range(first, first + count):
            reason = b"odd" if number % 2 else b"even"
            self.player.kill(f"0:{number}", headers=((b"tw-reason", reason),))
        self.player.settle(10)
        self.letters_count += count

    def offsets(self) -> dict[int, int]:
        """Of the letters, with their numbers: between them is what is written of operations."""
        return {one.offset: int(one.value or b"") for one in self.player.letters()}

    def active(self) -> str | None:
        views = self.player.operations.listed(self.player.dlq)
        return next((one.wanted.id for one in views if one.status not in OVER), None)

    @rule(
        selection=SELECTIONS,
        goes_to=TARGETS,
        is_purge=st.integers(0, 4).map(lambda n: n == 0),
        rate_max=st.sampled_from([0, 10, 50]),
        dies_after=st.none() | st.integers(0, 12),
    )
    def begin(
        self,
        selection: Selection,
        goes_to: str,
        is_purge: bool,
        rate_max: int,
        dies_after: int | None,
    ) -> None:
        if self.active() is not None or len(self.asked) >= OPERATIONS_MAX:
            return
        chosen = [
            offset
            for offset, number in self.offsets().items()
            if offset not in self.purged
            and (selection.again or offset not in self.redriven)
            and (not selection.reason or number % 2)
            and offset >= (selection.from_offset or 0)
            and (selection.until_offset is None or offset < selection.until_offset)
            and (not selection.offsets or offset in selection.offsets)
        ]
        target = "" if is_purge else goes_to
        name = f"{len(self.asked)}"
        words: dict[str, Any] = {
            "id": name,
            "target": target,
            "is_purge": is_purge,
            "rate_max": rate_max,
        }
        self.asked[name] = Asked(chosen, target, is_purge, (selection, words))
        self.player.begin(selection, **words)
        if dies_after is not None:
            self.work(dies_after)
            self.player = self.player.restarted(is_clean=False)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.asked)))
        known = {one.wanted.id for one in self.player.operations.listed(self.player.dlq)}
        if name in known:
            selection, words = self.asked[name].words
            self.player.begin(selection, **words)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), wish=st.sampled_from(list(Wish)))
    def change(self, data: st.DataObject, wish: Wish) -> None:
        with suppress(NotPossible):
            self.player.change(wish, data.draw(st.sampled_from(sorted(self.asked))))

    @rule(steps=st.integers(1, 12))
    def let_work(self, steps: int) -> None:
        self.work(steps)

    def work(self, steps: int) -> None:
        """Threads and timers, one at a time."""
        for _ in range(steps):
            if self.player.executor.queue:
                self.player.executor.run_one()
            self.player.pass_time(7)

    @rule(is_clean=st.booleans(), steps=st.integers(0, 12))
    def die(self, is_clean: bool, steps: int) -> None:
        self.work(steps)
        self.player = self.player.restarted(is_clean=is_clean)

    @rule()
    def finish(self) -> None:
        name = self.active()
        if name is not None:
            with suppress(NotPossible):
                self.player.change(Wish.RUN, name)
            self.player.finish(name)

    @invariant()
    def what_was_moved_is_there_once(self) -> None:
        if not self.asked or self.active() is not None:
            return
        numbers = self.offsets()
        moved: dict[str, Counter[int]] = {"": Counter(), "elsewhere": Counter()}
        redriven, purged = set(), set()
        for view in self.player.operations.listed(self.player.dlq):
            asked = self.asked[view.wanted.id]
            count = view.counts.moved
            if view.status is Status.DONE:
                assert count == len(asked.chosen)
            if asked.is_purge:
                purged.update(asked.chosen[:count])
            else:
                redriven.update(asked.chosen[:count])
                moved[asked.target].update(numbers[one] for one in asked.chosen[:count])
        self.redriven, self.purged = redriven, purged
        assert self.player.operations.marked(self.player.dlq, 0, 1_000) == (
            sorted(redriven),
            sorted(purged),
        )
        found = {"": self.player.retried(), "elsewhere": self.player.letters("elsewhere")}
        for target, records in found.items():
            assert Counter(int(one.value or b"") for one in records) == moved[target]

    def teardown(self) -> None:
        self.finish()
        self.what_was_moved_is_there_once()


TestRedriving = Redriving.TestCase
TestRedriving.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
