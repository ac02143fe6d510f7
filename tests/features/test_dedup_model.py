"""A broker with a window for message ids against a naive model, answer by answer: batches of all
kinds, idempotent producers that send again, time, upkeep, restarts and kills."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from features.dedup.forgetting import SLACK_MS
from tests.features.dedup_player import WINDOW_MS, DedupPlayer, Message, Sequence, use_small_sets

PRODUCER_ID = 7
IDS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h" * 64]
MESSAGE_IDS = st.lists(st.sampled_from([None, *IDS]), min_size=1, max_size=5)
RUNS = settings(max_examples=60, stateful_step_count=40, deadline=None)


class AgainstAModel(RuleBasedStateMachine):
    """The model is what is said to users: a dict of ids, and a list of what is shown."""

    @initialize()
    def begin(self) -> None:
        self.player = DedupPlayer()
        self.values_count = 0
        self.known: dict[bytes, tuple[int, int]] = {}
        self.end_offset = 0
        self.shown: list[tuple[int, bytes]] = []
        self.next_sequence = 0
        self.last: tuple[list[Message], Sequence, int] | None = None

    @rule(ids=MESSAGE_IDS, compression=st.sampled_from([0, 1, 4]), in_sequence=st.booleans())
    def send(self, ids: list[bytes | None], compression: int, in_sequence: bool) -> None:
        values = [b"%d" % (self.values_count + number) for number in range(len(ids))]
        self.values_count += len(ids)
        messages = list(zip(ids, values, strict=True))
        sequence = Sequence(PRODUCER_ID, self.next_sequence) if in_sequence else None
        expected = self.expect(messages, in_sequence)
        answer = self.player.take(*messages, sequence=sequence, compression=compression)
        assert (answer.error_code, answer.base_offset) == (0, expected), answer
        if sequence is not None:
            self.next_sequence += len(ids)
            self.last = messages, sequence, expected

    def expect(self, messages: list[Message], in_sequence: bool) -> int:
        """The base offset that is answered."""
        now_ms, base_offset = self.player.now_ms, self.end_offset
        originals: list[int | None] = []
        taken = []
        for number, (message_id, value) in enumerate(messages):
            place = None if message_id is None else self.known.get(message_id)
            if place is not None and now_ms - place[1] < WINDOW_MS:
                originals.append(place[0])
                continue
            originals.append(None)
            taken.append((base_offset + number, value))
            if message_id is not None:
                self.known[message_id] = (base_offset + number, now_ms)
        is_new = bool(taken)
        if is_new or in_sequence:
            self.end_offset += len(messages)
        self.shown += taken
        if is_new:
            return base_offset
        first = originals[0]
        assert first is not None
        if originals == list(range(first, first + len(originals))):
            return first
        return base_offset if in_sequence else -1

    @rule()
    def send_again(self) -> None:
        """The last batch of the producer, whose answer may have been lost; within the window its
        answer is the same, and nothing changes."""
        if self.last is None:
            return
        messages, sequence, base_offset = self.last
        answer = self.player.take(*messages, sequence=sequence)
        assert answer.error_code == 0
        is_young = all(
            one is None or self.player.now_ms - self.known[one][1] < WINDOW_MS
            for one, _ in messages
        )
        assert answer.base_offset == base_offset or not is_young

    @rule(ms=st.sampled_from([1, 1_000, WINDOW_MS // 2, WINDOW_MS - 1, WINDOW_MS, 2 * SLACK_MS]))
    def pass_time(self, ms: int) -> None:
        self.player.pass_ms(ms)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.player = self.player.again(is_clean=is_clean)

    @rule()
    def roll(self) -> None:
        self.player.orders.log.roll()
        self.player.orders.log.flush()

    @invariant()
    def ends_where_it_should(self) -> None:
        assert self.player.orders.log.log_end_offset == self.end_offset

    def teardown(self) -> None:
        if hasattr(self, "player"):
            assert self.player.shown() == self.shown


def test_it_does_what_is_said_to_users(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_sets(monkeypatch)
    run_state_machine_as_test(AgainstAModel, settings=RUNS)
