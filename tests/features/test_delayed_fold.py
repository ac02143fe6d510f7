"""The fold of delayed messages over real logs: whatever happens, it is what the log says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from data_plane.log import log_appends
from data_plane.log.file_system import FileSystem
from data_plane.log.fold import FoldContext, FoldFactory, StoredBatch
from data_plane.log.log import FEATURE
from data_plane.log.record_rules import HidingTerms
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    BatchHeader,
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    filter_batch,
    iter_batch_headers,
    read_batch_header,
)
from features.delayed import fold as fold_module
from features.delayed import held
from features.delayed.commands import (
    JUDGED_AT_HEADER,
    Command,
    Fact,
    decode_fact,
    encode_fact,
)
from features.delayed.fold import DelayedMessages, make_fold, source_of, source_offset
from features.delayed.held import HeldMessages
from features.delayed.names import Names, NameSearch, offset_name
from features.delayed.pending_entries import FrozenPending, entries_in
from features.delayed.pending_set import PendingSet
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms
from features.headers import HEADER_RULES
from tests.log.one_log import START_MS, TOPIC_ID, OneLog
from tests.log.world import read_all


class DelayedLog(OneLog):
    """A log of a topic that reads headers, with the fold."""

    fold_factories: Sequence[FoldFactory] = (make_fold,)
    thinned_count = 0

    @property
    def fold(self) -> DelayedMessages:
        return self.log.fold(DelayedMessages)

    def append_some(self, rng: random.Random) -> None:
        """A batch of plain and hidden records, as a leader stores it."""
        records = []
        for _ in range(rng.randrange(1, 5)):
            due_ms = self.now_ms + rng.choice([0, 5, 1_000, 1 << 30])
            headers = ((DELIVER_AT_HEADER, b"%d" % due_ms),) if rng.random() < 0.7 else ()
            records.append(NewRecord(self.now_ms, None, b"v" * rng.randrange(60), headers))
        is_hiding = any(record.headers for record in records)
        self._append(records, HIDDEN_FLAG if is_hiding else 0)

    def fire_some(self, rng: random.Random) -> None:
        """Deliver some of what is pending, due or not: the fold knows no clock."""
        pending = sorted(self.expected())
        offsets = rng.sample(pending, min(len(pending), rng.randrange(1, 6)))
        if offsets:
            records = [
                NewRecord(self.now_ms, None, b"", ((b"tw-source", source_of("flights", 0, one)),))
                for one in offsets
            ]
            self._append(records, FACTS_FLAG)

    def command_some(self, rng: random.Random) -> None:
        """Cancel or move some of what is pending, with messages in the same batch."""
        expected = self.expected()
        records = []
        for offset in rng.sample(sorted(expected), min(len(expected), rng.randrange(1, 5))):
            fact = Fact(offset, expected[offset])
            command = Command(offset, b"", None)
            if rng.random() < 0.7:
                new_due_ms = self.now_ms + rng.choice([0, 5, 1_000, 1 << 30])
                fact = fact._replace(new_due_ms=new_due_ms, message_id=rng.choice([b"", b"a:\xff"]))
                command = Command(None, b"some", new_due_ms)
            headers = (command.header, encode_fact(fact), (JUDGED_AT_HEADER, b"%d" % self.now_ms))
            records.append(NewRecord(self.now_ms, None, None, headers))
            if rng.random() < 0.3:
                later = ((DELIVER_AT_HEADER, b"%d" % (self.now_ms + 50)),)
                records.append(NewRecord(self.now_ms, None, b"", later))
        if records:
            self._append(records, HIDDEN_FLAG)

    def _append(self, records: list[NewRecord], attributes: int) -> None:
        batch = build_batch(records, attributes=attributes, compression=3)
        self.log.append_as_leader(
            batch, 0, len(batch), leader_epoch=self.epoch, now_ms=self.now_ms, origin=FEATURE
        )

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """All that is on the disk."""
        for data in read_all(self.log, of_disk=True):
            for header in iter_batch_headers(data, 0, len(data)):
                yield header, decode_batch(data, header.position)

    def expected(self, end_offset: int = 1 << 62) -> dict[int, int]:
        """What is pending by what the log says below `end_offset`, or what is left of it."""
        pending: dict[int, int] = {}
        for header, records in self.batches():
            if header.base_offset >= end_offset:
                break
            for record in records:
                headers = dict(record.headers)
                if header.attributes & HIDDEN_FLAG and DELIVER_AT_HEADER in headers:
                    pending[record.offset] = deliver_at_ms(headers[DELIVER_AT_HEADER])
                # What was over below the log start is there no more; what made it so is.
                if b"tw-cancelled" in headers:
                    pending.pop(decode_fact(headers[b"tw-cancelled"]).offset, None)
                if b"tw-moved" in headers:
                    fact = decode_fact(headers[b"tw-moved"])
                    assert pending.get(fact.offset, fact.due_ms) == fact.due_ms
                    assert fact.new_due_ms is not None
                    pending[fact.offset] = fact.new_due_ms
                if header.attributes & FACTS_FLAG:
                    pending.pop(source_offset(headers[b"tw-source"]), None)
        return pending

    def seal(self) -> None:
        """All that there is, durably."""
        if self.log.active.size:
            self.log.roll()
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.checkpoint()

    def delete_some(self, rng: random.Random) -> None:
        """As readers see it."""
        committed = range(self.log.log_start_offset, self.log.high_watermark + 1)
        self.log.delete_records(committed[-1] if rng.random() < 0.7 else rng.choice(committed))
        self.log.flush()
        self.log.apply_retention(self.now_ms)
        self.log.flush()
        self.log.delete_pending_segments()

    def thin(self) -> None:
        """What is pending stays, and facts, and nothing besides."""
        log, last = self.log, self.log.needs.thinned
        job = log.thinning_job()
        if job is None:
            # What is held may have to be settled first.
            self.seal()
            job = log.thinning_job()
        if job is None:
            return
        settled_end = job._holds.end_offset
        pending = self.expected(settled_end)
        start_offset = job._segments[0].base_offset
        assert start_offset <= min(pending)
        job.run()
        job.finish()
        thinned = log.needs.thinned
        assert thinned is not None
        if last is not None and last.goes_on:
            return
        self.thinned_count += 1
        for header, records in self.batches():
            if start_offset <= header.base_offset < thinned.end_offset:
                is_fact = bool(header.attributes & FACTS_FLAG)
                others = {
                    record.offset
                    for record in records
                    if JUDGED_AT_HEADER not in dict(record.headers)
                }
                assert is_fact or others <= pending.keys()

    def check(self) -> None:
        pending = self.fold.pending
        frozen = pending.freeze()
        found = list(entries_in(self.fs, self.log.folder, frozen))
        pending.thaw(frozen)
        expected = self.expected()
        assert found == sorted((due_ms, offset) for offset, due_ms in expected.items())
        # Facts of what was thinned away before this log was read count as entries that are done.
        assert len(self.fold) <= len(expected)
        self.check_names(expected)
        needed_from = self.fold.needed_from(0)
        if expected:
            assert needed_from is not None
            assert needed_from <= min(expected)
            assert self.log.due_ms is not None
        elif not pending.wants_upkeep:
            assert (needed_from, self.log.due_ms) == (None, None)

    def check_names(self, expected: dict[int, int]) -> None:
        """What has moved is found, at its time, whatever else is."""
        moved = {
            fact.offset
            for data in read_all(self.log, of_disk=True)
            for header in iter_batch_headers(data, 0, len(data))
            for record in decode_batch(data, header.position)
            for key, value in record.headers
            if key == b"tw-moved" and (fact := decode_fact(value))
        }
        frozen = self.fold.names.freeze()
        search = NameSearch(self.fs, self.log.folder, frozen)
        for offset in moved & expected.keys():
            assert (expected[offset], offset) in search.find(offset_name(offset))
        search.close()
        self.fold.names.thaw(frozen)

    def upkeep(self) -> None:
        found = self.fold.upkeep_job()
        if found is not None:
            job, finish = found
            job.run()
            finish()


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short log has runs."""

    class SmallSet(PendingSet):
        def __init__(self, fs: FileSystem, folder: str) -> None:
            super().__init__(
                fs, folder, near_max=16, near_low=4, run_entries=8, runs_merged=2, done_max=6
            )

    monkeypatch.setattr(fold_module, "PendingSet", SmallSet)

    class SmallNames(Names):
        def __init__(self, fs: FileSystem, folder: str) -> None:
            super().__init__(fs, folder, run_entries=4, runs_merged=2)

    monkeypatch.setattr(fold_module, "Names", SmallNames)


def step(one: DelayedLog, rng: random.Random) -> None:
    action = rng.random()
    if action < 0.4:
        one.append_some(rng)
    elif action < 0.5:
        one.fire_some(rng)
    elif action < 0.6:
        one.command_some(rng)
    elif action < 0.75:
        one.upkeep()
    elif action < 0.8:
        if one.log.active.size:
            one.log.roll()
    elif action < 0.82:
        one.log.advance_high_watermark(one.log.log_end_offset)
        one.log.flush()
    elif action < 0.84:
        one.checkpoint()
    elif action < 0.87:
        one.seal()
        one.delete_some(rng)
    elif action < 0.91:
        one.thin()
    elif action < 0.93:
        one.log.truncate_to(
            rng.randrange(
                max(one.log.high_watermark, one.log.log_end_offset - 40),
                one.log.log_end_offset + 1,
            )
        )
        one.epoch += 1
    elif action < 0.95:
        one.restart()
    elif action < 0.98:
        one.kill()
    else:
        one.lose_power(rng)
        one.epoch += 1


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_the_log_says_whatever_happens(seed: int) -> None:
    play(seed)


def test_histories_thin_logs() -> None:
    assert sum(play(seed).thinned_count for seed in range(20)) > 10


def play(seed: int) -> DelayedLog:
    rng = random.Random(seed)
    one = DelayedLog(record_rules=HEADER_RULES)
    for _ in range(150):
        step(one, rng)
        one.check()
    return one


def test_of_a_batch_with_gaps_it_takes_what_is_left() -> None:
    """As thinning leaves it, and a new replica gets it."""
    one = DelayedLog(record_rules=HEADER_RULES)
    hidden = [
        NewRecord(START_MS, None, b"v", ((DELIVER_AT_HEADER, b"%d" % (START_MS + number)),))
        for number in range(4)
    ]
    batch = build_batch(hidden, base_offset=100, attributes=HIDDEN_FLAG, compression=3)
    part = filter_batch(batch, 0, b"\0\1\0\1")
    assert part is not None
    fold = make_fold(FoldContext(TOPIC_ID, "flights", 0, one.log.folder, one.config, one.fs))
    assert fold is not None
    fold.apply(StoredBatch(read_batch_header(part, 0), part))
    frozen = fold.pending.freeze()
    found = list(entries_in(one.fs, one.log.folder, frozen))
    fold.pending.thaw(frozen)
    assert found == [(START_MS + 1, 101), (START_MS + 3, 103)]


def test_a_log_without_record_rules_has_none() -> None:
    one = DelayedLog()
    with pytest.raises(LookupError):
        one.log.fold(DelayedMessages)


def test_it_comes_with_the_rules_of_a_configuration_that_was_not_known() -> None:
    one = DelayedLog(record_rules=HEADER_RULES)
    one.append_some(random.Random(1))
    one.append_some(random.Random(2))
    expected = one.expected()
    assert expected
    one.config = replace(one.config, record_rules=None)
    one.kill()
    with pytest.raises(LookupError):
        one.log.fold(DelayedMessages)
    one.set_config(record_rules=HEADER_RULES)
    assert len(one.fold) == len(expected)
    one.check()


def test_it_sees_no_batches_but_those_that_are_flagged() -> None:
    one = DelayedLog(record_rules=HEADER_RULES)
    headers = ((DELIVER_AT_HEADER, b"5"),)
    batch = build_batch([NewRecord(START_MS, None, b"old data", headers)])
    one.append(batch)
    assert len(one.fold) == 0
    one.check()


def nothing_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldMessages, "needs", lambda self, offset: False)


def all_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldMessages, "needs", lambda self, offset: True)


def what_is_in_memory_is_not_held(patch: pytest.MonkeyPatch) -> None:
    real = held._offsets_in

    def offsets_in(fs: FileSystem, folder: str, frozen: FrozenPending, lowest: int) -> Any:
        return real(fs, folder, frozen._replace(recent={}), lowest)

    patch.setattr(held, "_offsets_in", offsets_in)


def what_is_in_runs_is_not_held(patch: pytest.MonkeyPatch) -> None:
    real = held._offsets_in

    def offsets_in(fs: FileSystem, folder: str, frozen: FrozenPending, lowest: int) -> Any:
        return real(fs, folder, frozen._replace(runs=()), lowest)

    patch.setattr(held, "_offsets_in", offsets_in)


def what_is_done_is_held(patch: pytest.MonkeyPatch) -> None:
    real = held._offsets_in

    def offsets_in(fs: FileSystem, folder: str, frozen: FrozenPending, lowest: int) -> Any:
        return real(fs, folder, frozen._replace(done=frozenset()), lowest)

    patch.setattr(held, "_offsets_in", offsets_in)


def what_was_moved_is_held(patch: pytest.MonkeyPatch) -> None:
    real = held._offsets_in

    def offsets_in(fs: FileSystem, folder: str, frozen: FrozenPending, lowest: int) -> Any:
        return real(fs, folder, frozen._replace(stale={}), lowest)

    patch.setattr(held, "_offsets_in", offsets_in)


def commands_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        DelayedMessages,
        "facts_in",
        lambda self, batch: bool(batch.header.attributes & FACTS_FLAG),
    )


def facts_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelayedMessages, "facts_in", lambda self, batch: False)


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize(
    "plant",
    [
        nothing_is_held,
        all_is_held,
        what_is_in_memory_is_not_held,
        what_is_in_runs_is_not_held,
        what_is_done_is_held,
        what_was_moved_is_held,
        commands_go,
        facts_go,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(200):
        try:
            play(seed)
        except (AssertionError, ValueError):
            return
    pytest.fail(f"{plant.__name__} is not found")


def test_compaction_is_asked_to_leave_what_is_pending() -> None:
    one = DelayedLog(record_rules=HEADER_RULES, cleanup_policy=frozenset({"compact"}))
    batch = build_batch([NewRecord(START_MS, b"k", b"v", ((DELIVER_AT_HEADER, b"5"),))])
    assert one.fold.held_from(0) is None
    stored = HEADER_RULES.hidden_form(
        next(iter_batch_headers(batch, 0, len(batch))), batch, 61, len(batch), HidingTerms("", 1)
    )
    one.log.append_as_leader(
        stored, 0, len(stored), leader_epoch=0, now_ms=one.now_ms, origin=FEATURE
    )
    assert one.fold.held_from(0) == 0
    held_now = one.fold.freeze_held()
    assert held_now.holds(0)
    assert not held_now.holds(1)
    held_now.close()
    one.fire_some(random.Random(1))
    assert one.fold.held_from(0) is None


@pytest.mark.parametrize("flags", [HIDDEN_FLAG, FACTS_FLAG, 0])
def test_a_segment_rolls_before_a_recovery_has_too_many_records_to_look_at(
    flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_appends, "FOLDED_RECORDS_MAX", 10)
    one = DelayedLog(segment_bytes=1 << 20)
    for number in range(7):
        header = (DELIVER_AT_HEADER, b"%d" % (one.now_ms + 5))
        if flags == FACTS_FLAG:
            header = (b"tw-source", source_of("flights", 0, number))
        one._append([NewRecord(one.now_ms, None, b"", (header,))] * 3, flags)
        # What it had counts also after a kill, and after a clean stop.
        if number % 3 == 1:
            one.fs.process_death()
            one.open()
        elif number % 3 == 2:
            one.manager.close(one.now_ms)
            one.open()
    starts = [segment.base_offset for segment in one.log.segments]
    assert starts == ([0, 12] if flags else [0])


def test_a_recovery_begins_behind_what_was_rolled_and_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The directory's checkpoint does not wait for its minute."""
    monkeypatch.setattr(log_appends, "FOLDED_RECORDS_MAX", 10)
    one = DelayedLog(segment_bytes=1 << 20)
    recovery_points, sequences = [], []
    for _ in range(12):
        header = (DELIVER_AT_HEADER, b"%d" % (one.now_ms + 1_000_000))
        one._append([NewRecord(one.now_ms, None, b"", (header,))] * 3, HIDDEN_FLAG)
        for _ in range(3):
            one.now_ms += 1_000
            for job in one.manager.tick(one.now_ms):
                job.run()
                job.finish()
        recovery_points.append(one.log.checkpointed_recovery_point)
        sequences.append(one.manager.directories[0].checkpoint_sequence)
    assert recovery_points == [0] * 3 + [12] * 4 + [24] * 4 + [36]
    assert len(set(sequences)) == 4, "one after each roll, beside the first"
