"""The fold of delayed messages over real logs: whatever happens, it is what the log says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from data_plane.log.file_system import FileSystem
from data_plane.log.fold import FoldContext, StoredBatch
from data_plane.log.log import FEATURE
from data_plane.log.record_rules import HidingTerms
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    NewRecord,
    build_batch,
    decode_batch,
    filter_batch,
    iter_batch_headers,
    read_batch_header,
)
from features.delayed import fold as fold_module
from features.delayed.commands import (
    JUDGED_AT_HEADER,
    Command,
    Fact,
    decode_fact,
    encode_fact,
)
from features.delayed.fold import DelayedMessages, make_fold, source_of, source_offset
from features.delayed.names import Names, NameSearch, offset_name
from features.delayed.pending_entries import entries_in
from features.delayed.pending_set import PendingSet
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms
from features.headers import HEADER_RULES
from tests.log.one_log import START_MS, TOPIC_ID, OneLog
from tests.log.world import read_all


class DelayedLog(OneLog):
    """A log of a topic that reads headers, with the fold."""

    fold_factories = (make_fold,)

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

    def expected(self) -> dict[int, int]:
        """What is pending by what all of the log says."""
        pending: dict[int, int] = {}
        for data in read_all(self.log):
            for header in iter_batch_headers(data, 0, len(data)):
                for record in decode_batch(data, header.position):
                    headers = dict(record.headers)
                    if header.attributes & HIDDEN_FLAG and DELIVER_AT_HEADER in headers:
                        pending[record.offset] = deliver_at_ms(headers[DELIVER_AT_HEADER])
                    if b"tw-cancelled" in headers:
                        del pending[decode_fact(headers[b"tw-cancelled"]).offset]
                    if b"tw-moved" in headers:
                        fact = decode_fact(headers[b"tw-moved"])
                        assert pending[fact.offset] == fact.due_ms
                        assert fact.new_due_ms is not None
                        pending[fact.offset] = fact.new_due_ms
                    if header.attributes & FACTS_FLAG:
                        del pending[source_offset(headers[b"tw-source"])]
        return pending

    def check(self) -> None:
        pending = self.fold.pending
        frozen = pending.freeze()
        found = list(entries_in(self.fs, self.log.folder, frozen))
        pending.thaw(frozen)
        expected = self.expected()
        assert found == sorted((due_ms, offset) for offset, due_ms in expected.items())
        assert len(self.fold) == len(expected)
        self.check_names(expected)
        needed_from = self.fold.needed_from(0)
        assert needed_from is None if not expected else needed_from is not None
        assert not expected or (needed_from or 0) <= min(expected)
        assert (self.log.due_ms is None) is (not expected)

    def check_names(self, expected: dict[int, int]) -> None:
        """What has moved is found, at its time, whatever else is."""
        moved = {
            fact.offset
            for data in read_all(self.log)
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
        one.log.roll()
    elif action < 0.86:
        one.log.advance_high_watermark(one.log.log_end_offset)
        one.log.flush()
    elif action < 0.9:
        one.checkpoint()
    elif action < 0.93:
        one.log.truncate_to(
            rng.randrange(max(0, one.log.log_end_offset - 40), one.log.log_end_offset + 1)
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
    rng = random.Random(seed)
    one = DelayedLog(record_rules=HEADER_RULES)
    for _ in range(150):
        step(one, rng)
        one.check()


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


def test_while_there_are_hidden_records_compaction_leaves_all() -> None:
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
    assert one.fold.freeze_held().holds(0)
    assert one.fold.held_from(1) is None
