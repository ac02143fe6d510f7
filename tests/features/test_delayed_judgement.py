"""Commands against a dict, at one broker: what is answered, and what is delivered, whatever is in
memory or on the disk, through restarts; and the index of names by itself."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from data_plane.log.file_system import SyncSite
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import Header
from features.delayed import fold as fold_module
from features.delayed.fold import DelayedMessages
from features.delayed.names import KEPT_MS, RUN_SUFFIX, Names, NameSearch
from features.delayed.outcomes import KEPT_MS as OUTCOMES_KEPT_MS
from features.delayed.outcomes import OUTCOMES_MAX, Outcomes
from features.delayed.pending_set import PendingSet
from features.delayed.run_search import RunSearch
from features.delayed.runs import memory_run, write_run
from tests.features.delayed_player import DelayedPlayer

FOLDER = "/log"


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    class SmallSet(PendingSet):
        def __init__(self, fs: Any, folder: str) -> None:
            super().__init__(
                fs, folder, near_max=6, near_low=2, run_entries=4, runs_merged=2, done_max=4
            )

    class SmallNames(Names):
        def __init__(self, fs: Any, folder: str) -> None:
            super().__init__(fs, folder, run_entries=4, runs_merged=2)

    monkeypatch.setattr(fold_module, "PendingSet", SmallSet)
    monkeypatch.setattr(fold_module, "Names", SmallNames)


@dataclass
class Message:
    value: bytes
    message_id: bytes
    due_ms: int
    state: str = "pending"


class World:
    """A broker, and what a dict says of its messages."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.player = DelayedPlayer()
        self.messages: dict[int, Message] = {}
        self.said: set[tuple[bytes, bytes, int | None]] = set()
        self.answers: set[tuple[bytes, str]] = set()

    def step(self) -> None:
        choices = [self.produce] * 4 + [self.command] * 6 + [self.pass_time] * 3 + [self.restart]
        self.rng.choice(choices)()

    def produce(self) -> None:
        records: list[tuple[bytes, *tuple[Header, ...]]] = []
        offset = self.player.orders.log.log_end_offset
        for _ in range(self.rng.randrange(1, 4)):
            message_id = self.rng.choice([b"", b"a", b"b", b"c", b"%d" % offset])
            due_ms = self.player.now_ms + self.rng.choice([1, 50, 1_000, 10_000, 1 << 30])
            value = b"%d" % offset
            headers: list[Header] = [(b"tw-deliver-at", b"%d" % due_ms)]
            headers += [(b"tw-id", message_id)] if message_id else []
            records.append((value, *headers))
            self.messages[offset] = Message(value, message_id, due_ms)
            offset += 1
        assert self.player.append(*records).error_code == ErrorCode.NONE

    def command(self) -> None:
        is_cancel = self.rng.random() < 0.4
        header = b"tw-cancel" if is_cancel else b"tw-reschedule"
        if self.rng.random() < 0.6:
            named = self.rng.randrange(self.player.orders.log.log_end_offset + 2)
            found = {named: self.messages[named]} if named in self.messages else {}
            header, value = header + b"-offset", b"%d" % named
        else:
            value = self.rng.choice([b"a", b"b", b"c", *[b"%d" % at for at in self.messages]])
            found = {at: one for at, one in self.messages.items() if one.message_id == value}
        due_ms: int | None = None
        headers: list[Header] = [(header, value)]
        if not is_cancel:
            times = [one.due_ms for one in found.values()]
            new_ms = self.player.now_ms + self.rng.choice([5, 500, 1 << 30, (1 << 30) + 1])
            due_ms = self.rng.choice([*times, new_ms, new_ms])
            headers.append((b"tw-deliver-at", b"%d" % due_ms))
        expected = self.expected((header, value, due_ms), found)
        produced = self.player.append((b"", *headers))
        message = produced.message or "done"
        assert expected in message, (headers, found, message)
        assert (produced.error_code == ErrorCode.NONE) is (expected == "done")
        self.answers.add((header, expected))
        self.settle()

    def expected(self, said: tuple[bytes, bytes, int | None], found: dict[int, Message]) -> str:
        """What is answered; it is done then."""
        header, _, due_ms = said
        pending = {at: one for at, one in found.items() if one.state == "pending"}
        if not pending:
            if said in self.said:
                return "done"
            return "too late" if found else "unknown"
        family = header.removesuffix(b"-offset") + b"-offset"
        for at, one in pending.items():
            if one.due_ms != due_ms:
                self.said |= {said, (family, b"%d" % at, due_ms)}
            if due_ms is None:
                one.state = "cancelled"
            else:
                one.due_ms = due_ms
        return "done"

    def pass_time(self) -> None:
        self.player.pass_ms(self.rng.choice([1, 60, 2_000]))
        self.settle()

    def restart(self) -> None:
        self.player = self.player.restarted(is_clean=self.rng.random() < 0.5)
        self.settle()

    def settle(self) -> None:
        """All that is due is delivered, after a start within a second or two."""
        for _ in range(300):
            first_ms = self.player.orders.log.fold(DelayedMessages).pending.first_due_ms
            if first_ms is None or first_ms > self.player.now_ms:
                break
            self.player.pass_ms(10)
        for one in self.messages.values():
            if one.state == "pending" and one.due_ms <= self.player.now_ms:
                one.state = "delivered"

    def check(self) -> None:
        delivered = [one.value for one in self.messages.values() if one.state == "delivered"]
        assert sorted(self.player.values()) == sorted(delivered)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_answered_and_delivered(seed: int) -> None:
    world = World(seed)
    for number in range(150):
        world.step()
        if number % 25 == 0:
            world.check()
    world.check()
    world.player.pass_ms(1 << 31)
    world.settle()
    world.check()
    assert all(one.state != "pending" for one in world.messages.values())


def test_what_histories_reach() -> None:
    answers = set()
    for seed in range(8):
        world = World(seed)
        for _ in range(150):
            world.step()
        answers |= world.answers
    headers = (b"tw-cancel", b"tw-cancel-offset", b"tw-reschedule", b"tw-reschedule-offset")
    assert answers == {(one, word) for one in headers for word in ("done", "too late", "unknown")}


def test_an_id_that_too_many_share_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.delayed.judgement.FOUND_MAX", 10)
    player = DelayedPlayer()
    for _ in range(11):
        player.append((b"", (b"tw-delay", b"1h"), (b"tw-id", b"same")))
    message = player.append((b"", (b"tw-cancel", b"same"))).message
    assert message is not None
    assert "more than 10 messages have this id" in message
    assert player.append((b"", (b"tw-cancel-offset", b"3"))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["COMMANDS_MAX", "FACTS_MAX"])
def test_a_batch_has_so_many_commands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"features.delayed.judgement.{name}", 3)
    player = DelayedPlayer()
    for _ in range(4):
        player.delayed(b"", b"1h")
    commands = [(b"", (b"tw-cancel-offset", b"%d" % offset)) for offset in range(4)]
    assert player.append(*commands).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert player.append(*commands[:3]).error_code == ErrorCode.NONE


# The index


def find(names: Names, fs: SimFileSystem, name: bytes, from_ms: int = 0) -> list[tuple[int, int]]:
    frozen = names.freeze()
    search = NameSearch(fs, FOLDER, frozen)
    try:
        return search.find(name, from_ms)
    finally:
        search.close()
        names.thaw(frozen)


def test_names_against_a_dict() -> None:
    rng = random.Random(1)
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    fs.sync_directory("/", SyncSite.DATA_FOLDER)
    names = Names(fs, FOLDER, run_entries=8, runs_merged=3)
    expected: dict[bytes, set[tuple[int, int]]] = {}
    jobs_count = 0
    for offset in range(2_000):
        name = b"%d" % rng.randrange(100)
        due_ms = KEPT_MS + offset + rng.randrange(1_000)
        names.add(name, due_ms, offset)
        expected.setdefault(name, set()).add((due_ms, offset))
        # Nothing is pending that was due before the offset, say.
        job = names.upkeep_job(KEPT_MS + offset, lambda *_: set())
        if job is not None and rng.random() < 0.5:
            job.run()
            jobs_count += 1
        if job is not None:
            names.finish(job)
        wanted = b"%d" % rng.randrange(100)
        from_ms = rng.choice([offset, KEPT_MS + offset, KEPT_MS + offset + 500])
        known = {entry for entry in expected.get(wanted, ()) if entry[0] >= from_ms}
        assert known <= set(find(names, fs, wanted, from_ms))
    assert jobs_count > 20
    # Other names have the same mark now and then, and few.
    assert len(find(names, fs, b"1")) < 2 * len(expected[b"1"])


def test_what_was_due_long_ago_goes() -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    names = Names(fs, FOLDER, run_entries=8, runs_merged=3)
    for offset in range(4_000):
        names.add(b"%d" % offset, offset, offset)
        job = names.upkeep_job(KEPT_MS + offset, lambda *_: set())
        if job is not None:
            job.run()
            names.finish(job)
        assert len(names) < 200
    assert len([one for one in fs.list_directory(FOLDER) if one.endswith(RUN_SUFFIX)]) <= 4


def test_outcomes_are_bounded_by_number_and_by_time() -> None:
    outcomes = Outcomes()
    for number in range(OUTCOMES_MAX + 5):
        outcomes.note(number, 1_000)
    assert 4 not in outcomes
    assert 5 in outcomes
    assert Outcomes(outcomes.entries()).entries() == outcomes.entries()
    outcomes.note(1, 1_000 + OUTCOMES_KEPT_MS)
    assert 7 in outcomes
    outcomes.note(7, 1_000 + OUTCOMES_KEPT_MS)
    outcomes.note(2, 1_001 + OUTCOMES_KEPT_MS)
    assert [entry for entry, _ in outcomes.entries()] == [1, 7, 2]
    assert (7 in outcomes, 8 in outcomes) == (True, False)


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1_500])
def test_a_run_is_searched_by_halves(size: int) -> None:
    fs = SimFileSystem()
    fs.make_directory(FOLDER)
    entries = sorted((due_ms // 7, due_ms % 3) for due_ms in range(size))
    written = write_run(fs, FOLDER, iter(entries))
    assert written is not None
    for run in (written, memory_run(entries)):
        with closing(RunSearch(fs, FOLDER, run)) as search:
            for wanted in {*entries, (0, 0), (0, 9), (size, size), (3, 1)}:
                before = [entry for entry in entries if entry < wanted]
                assert search.place_of(wanted) == len(before)
                assert search.count_of(wanted, 0) == entries.count(wanted)
            assert list(search.entries(size // 2)) == entries[size // 2 :]
            wanted_all = sorted({*entries, (0, 9), (size // 14, 1), (size, size)})
            for start in {0, 1, size // 3, size - 1, size}:
                left = entries[start:]
                counts = {one: left.count(one) for one in wanted_all if one in left}
                assert dict(search.counts_of(wanted_all, start)) == counts
                assert dict(search.counts_of(wanted_all[::40], start)) == {
                    one: counts[one] for one in wanted_all[::40] if one in counts
                }
