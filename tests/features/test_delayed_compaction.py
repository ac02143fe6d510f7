"""Compacted topics with delayed messages: a log beside a dict of what is pending and of the newest
value of each key, whatever comes.

What the fold says is pending is what the history says, what a new replica would find that copies
the log, and what one would that was away at any time and goes on with what is left. Readers find
the newest value of each key; no older one comes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_plane.log import cleaned_end, held_records
from data_plane.log.fold import StoredBatch
from data_plane.log.key_map import KeyMap
from data_plane.log.log import FEATURE
from data_plane.log.sim_file_system import PowerLoss
from data_plane.replica.following import truncate_for_divergence
from data_plane.wire.kernel import scan_headers
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import NewRecord, Record, build_batch, unpacked_records
from features.delayed.commands import JUDGED_AT_HEADER, Command, Fact, decode_fact, encode_fact
from features.delayed.fold import DelayedMessages, make_fold, source_of, source_offset
from features.delayed.held import HeldMessages
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms
from features.headers import HEADER_RULES
from features.retry_dlq.arrivals import make_arrivals
from tests.features.test_delayed_fold import DelayedLog, small_sets
from tests.log.one_log import START_MS

__all__ = ["small_sets"]

COMPACT = frozenset({"compact"})
BOTH = frozenset({"compact", "delete"})
DELETE_RETENTION_MS = 40
KEYS = (b"a", b"b", b"c", b"d")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("append",) * 6
            + ("fire", "command") * 3
            + ("upkeep", "upkeep", "roll", "seal", "compact", "compact", "compact", "cut")
            + ("restart", "kill", "lose power", "delete", "policy")
        ),
        st.integers(0, 1 << 20),
    ),
    min_size=1,
    max_size=60,
)


class Event(NamedTuple):
    """What was appended at an offset: a record, and the flags of its batch."""

    record: NewRecord
    flags: int

    @property
    def is_hidden(self) -> bool:
        names = dict(self.record.headers)
        return bool(self.flags & HIDDEN_FLAG) and (
            DELIVER_AT_HEADER in names or JUDGED_AT_HEADER in names
        )


class CompactedLog(DelayedLog):
    """The log and its history."""

    def __init__(self, policy: frozenset[str] = COMPACT) -> None:
        super().__init__(
            record_rules=HEADER_RULES,
            cleanup_policy=policy,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.history: dict[int, Event] = {}
        self.compacted_count = 0

    def put(self, records: list[NewRecord], flags: int = 0) -> int:
        """One batch; the offset of its first record."""
        first = self.log.log_end_offset
        self._append(records, flags)
        for offset, record in enumerate(records, start=first):
            self.history[offset] = Event(record, flags)
        return first

    def append_some(self, rng: random.Random) -> None:
        records: list[NewRecord] = []
        for _ in range(rng.randrange(1, 5)):
            due_ms = self.now_ms + rng.choice([0, 5, 1_000, 1 << 30])
            headers = ((DELIVER_AT_HEADER, b"%d" % due_ms),) if rng.random() < 0.4 else ()
            number = self.log.log_end_offset + len(records)
            value = None if rng.random() < 0.2 else b"v%d" % number + bytes(rng.randrange(60))
            records.append(NewRecord(self.now_ms, rng.choice(KEYS), value, headers))
        is_hiding = any(record.headers for record in records)
        self.put(records, HIDDEN_FLAG if is_hiding else 0)

    def fire(self, *offsets: int) -> None:
        """Deliver originals."""
        records = []
        for offset in offsets:
            made = self.history[offset].record
            headers = ((b"tw-source", source_of("flights", 0, offset)),)
            records.append(NewRecord(self.now_ms, made.key, made.value, headers))
        self.put(records, FACTS_FLAG)

    def fire_some(self, rng: random.Random) -> None:
        pending = sorted(self.pending_by_history())
        if pending:
            self.fire(*rng.sample(pending, min(len(pending), rng.randrange(1, 4))))

    def command_some(self, rng: random.Random) -> None:
        """Cancel or move some, under the key of anything, with messages in the same batch."""
        pending = self.pending_by_history()
        records = []
        for offset in rng.sample(sorted(pending), min(len(pending), rng.randrange(1, 4))):
            fact = Fact(offset, pending[offset])
            if rng.random() < 0.5:
                fact = fact._replace(new_due_ms=self.now_ms + rng.choice([0, 5, 1 << 30]))
            command = Command(offset, b"", fact.new_due_ms)
            headers = (command.header, encode_fact(fact), (JUDGED_AT_HEADER, b"%d" % self.now_ms))
            key, value = rng.choice((None, *KEYS)), rng.choice((None, b"of a command"))
            records.append(NewRecord(self.now_ms, key, value, headers))
            if rng.random() < 0.3:
                records.append(NewRecord(self.now_ms, rng.choice(KEYS), b"beside a command"))
        if records:
            self.put(records, HIDDEN_FLAG)

    def compact(self, rng: random.Random) -> None:
        """A pass, perhaps with work between, perhaps with the power lost in its swap."""
        self.now_ms += rng.randrange(2 * DELETE_RETENTION_MS)
        if rng.random() < 0.7:
            self.seal()
        job = self.log.compaction_job(self.now_ms)
        if job is None:
            self.thin()
            return
        if rng.random() < 0.3:
            self.fire_some(rng)
        job.run()
        if rng.random() < 0.3:
            self.append_some(rng)
        if rng.random() < 0.15:
            self.fs.power_loss_at = self.fs.operations + rng.randrange(18)
        job.finish()
        self.fs.power_loss_at = None
        self.compacted_count += 1

    def delete_some(self, rng: random.Random) -> None:
        if "delete" in self.config.cleanup_policy:
            self.seal()
            super().delete_some(rng)

    def lose_power(self, rng: random.Random) -> None:
        super().lose_power(rng)
        self.forget_from(self.log.log_end_offset)

    def cut(self, offset: int) -> None:
        self.log.truncate_to(offset)
        # A batch that it lies within goes as a whole.
        self.forget_from(self.log.log_end_offset)

    def forget_from(self, end_offset: int) -> None:
        self.epoch += 1
        for offset in [one for one in self.history if one >= end_offset]:
            del self.history[offset]

    def step(self, kind: str, number: int) -> None:
        rng = random.Random(number)
        self.now_ms += number % 7
        match kind:
            case "append":
                self.append_some(rng)
            case "fire":
                self.fire_some(rng)
            case "command":
                self.command_some(rng)
            case "upkeep":
                self.upkeep()
            case "roll":
                if self.log.active.size:
                    self.log.roll()
            case "seal":
                self.seal()
            case "compact":
                self.compact(rng)
            case "cut":
                end_offset = self.log.log_end_offset
                self.cut(
                    rng.randrange(max(self.log.high_watermark, end_offset - 20), end_offset + 1)
                )
            case "restart":
                self.restart()
            case "kill":
                self.kill()
            case "lose power":
                self.lose_power(rng)
            case "delete":
                self.delete_some(rng)
            case "policy":
                policy = rng.choice((COMPACT, BOTH, frozenset({"delete"})))
                self.set_config(cleanup_policy=policy)

    def take(self, kind: str, number: int) -> None:
        """A step, and a look at what has come of it."""
        try:
            self.step(kind, number)
        except PowerLoss:
            self.fs.power_loss_at = None
            self.lose_power(random.Random(number))
        self.check_all(random.Random(number))

    # What must be so

    def pending_by_history(self, end_offset: int = 1 << 62) -> dict[int, int]:
        pending: dict[int, int] = {}
        for offset in sorted(self.history):
            if offset < end_offset:
                event = self.history[offset]
                apply(pending, offset, event.flags, event.record.headers)
        return pending

    def pending_of_one_away(self, end_offset: int) -> dict[int, int]:
        """What a replica finds pending that has had all up to there, and gets what is left."""
        pending = self.pending_by_history(end_offset)
        for header, records in self.batches():
            for record in records:
                if record.offset >= end_offset:
                    apply(pending, record.offset, header.attributes, record.headers)
        return pending

    def check_all(self, rng: random.Random) -> None:
        pending = self.pending_by_history()
        assert self.expected() == pending, "who copies the log finds this pending"
        self.check()
        start, end = self.log.disk_start_offset, self.log.log_end_offset
        for _ in range(3):
            away = rng.randrange(start, end + 1)
            assert self.pending_of_one_away(away) == pending, f"who was away at {away}"
        self.check_records(pending)

    def check_records(self, pending: Mapping[int, int]) -> None:
        shown: dict[bytes, Record] = {}
        found: set[int] = set()
        for header, records in self.batches():
            for record in records:
                event = self.history[record.offset]
                made = event.record
                assert header.attributes & (HIDDEN_FLAG | FACTS_FLAG) == event.flags
                assert (record.key, record.timestamp) == (made.key, made.timestamp)
                assert record.headers == made.headers
                found.add(record.offset)
                if event.is_hidden:
                    assert record.value == made.value
                else:
                    assert record.value in (made.value, None)
                    if record.offset >= self.log.log_start_offset:
                        assert record.key is not None
                        shown[bytes(record.key)] = record
        assert found >= pending.keys(), "what is pending is there"
        newest = {
            event.record.key: (offset, event.record.value)
            for offset, event in sorted(self.history.items())
            if not event.is_hidden
        }
        for key, (offset, value) in newest.items():
            assert key is not None
            if offset < self.log.log_start_offset:
                continue
            if value is not None:
                assert (shown[key].offset, shown[key].value) == (offset, value)
            elif key in shown:
                assert shown[key].value is None, f"{key!r} is back"


def apply(
    pending: dict[int, int], offset: int, flags: int, headers: tuple[tuple[bytes, Any], ...]
) -> None:
    """What a record says of what is pending."""
    known = dict(headers)
    if flags & HIDDEN_FLAG and DELIVER_AT_HEADER in known:
        pending[offset] = deliver_at_ms(known[DELIVER_AT_HEADER])
    if b"tw-cancelled" in known:
        pending.pop(decode_fact(known[b"tw-cancelled"]).offset, None)
    if b"tw-moved" in known:
        fact = decode_fact(known[b"tw-moved"])
        assert fact.new_due_ms is not None
        pending[fact.offset] = fact.new_due_ms
    if flags & FACTS_FLAG:
        pending.pop(source_offset(known[b"tw-source"]), None)


@pytest.mark.usefixtures("small_sets")
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(STEPS, st.sampled_from((COMPACT, BOTH)))
def test_what_is_pending_and_newest_stays(
    steps: list[tuple[str, int]], policy: frozenset[str]
) -> None:
    one = CompactedLog(policy)
    for kind, number in steps:
        one.take(kind, number)


def play(seed: int, steps: int = 60) -> CompactedLog:
    rng = random.Random(seed)
    kinds = ["append"] * 6 + ["fire", "command"] * 3 + ["compact"] * 3
    kinds += ["upkeep", "restart", "kill", "lose power", "roll"]
    one = CompactedLog()
    for _ in range(steps):
        one.take(rng.choice(kinds), rng.randrange(1 << 20))
    return one


@pytest.mark.usefixtures("small_sets")
def test_histories_compact_logs() -> None:
    assert sum(play(seed).compacted_count for seed in range(5)) > 20


def fired_facts_go(patch: pytest.MonkeyPatch) -> None:
    real = DelayedMessages.facts_in

    def facts_in(self: DelayedMessages, batch: StoredBatch) -> bytes | bool:
        return real(self, batch) if batch.header.attributes & HIDDEN_FLAG else False

    patch.setattr(DelayedMessages, "facts_in", facts_in)


def facts_of_commands_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        DelayedMessages,
        "facts_in",
        lambda self, batch: bool(batch.header.attributes & FACTS_FLAG),
    )


def what_is_pending_is_an_old_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelayedMessages, "values_in", lambda self, batch: True)
    patch.setattr(HeldMessages, "holds", lambda self, offset: False)


def what_is_pending_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldMessages, "holds", lambda self, offset: False)


def what_is_hidden_supersedes(patch: pytest.MonkeyPatch) -> None:
    real = KeyMap.__init__

    def init(self: KeyMap, *arguments: Any) -> None:
        real(self, *arguments)
        self._kinds = None

    patch.setattr(KeyMap, "__init__", init)


def commands_are_values(patch: pytest.MonkeyPatch) -> None:
    real = DelayedMessages.values_in

    def values_in(self: DelayedMessages, batch: StoredBatch) -> bytes | bool:
        found = real(self, batch)
        count = batch.header.record_count
        values = bytearray([found]) * count if isinstance(found, bool) else bytearray(found)
        place = (*unpacked_records(batch.buf, batch.header), count)
        for index, _, _ in scan_headers(*place, JUDGED_AT_HEADER):
            values[index] = 1
        return bytes(values)

    patch.setattr(DelayedMessages, "values_in", values_in)


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize(
    "plant",
    [
        fired_facts_go,
        facts_of_commands_go,
        what_is_pending_is_an_old_value,
        what_is_pending_goes,
        what_is_hidden_supersedes,
        commands_are_values,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(100):
        try:
            play(seed)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{plant.__name__} is not found")


# One by one


def hidden(key: bytes | None, value: bytes | None, due_ms: int = START_MS + 5) -> NewRecord:
    return NewRecord(START_MS, key, value, ((DELIVER_AT_HEADER, b"%d" % due_ms),))


def plain(key: bytes, value: bytes | None) -> NewRecord:
    return NewRecord(START_MS, key, value)


def compacted(one: CompactedLog, later_ms: int = 1) -> None:
    one.now_ms += later_ms
    one.seal()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    one.check_all(random.Random(1))


def left(one: CompactedLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for _, records in one.batches() for record in records]


def test_a_pending_record_is_no_value_and_its_delivery_is() -> None:
    one = CompactedLog()
    original = one.put([hidden(b"k", b"later")], HIDDEN_FLAG)
    one.put([plain(b"k", b"1")])
    one.put([plain(b"k", b"2"), plain(b"other", b"x")])
    compacted(one)
    assert left(one) == [(0, b"later"), (2, b"2"), (3, b"x")]
    one.fire(original)
    one.put([plain(b"other", b"y")])
    compacted(one)
    assert left(one) == [(4, b"later"), (5, b"y")], "the delivery is the newest, and a fact"
    one.put([plain(b"k", b"3")])
    compacted(one)
    assert left(one) == [(4, None), (5, b"y"), (6, b"3")], "the fact outlives its value"
    one.put([plain(b"k", None)])
    compacted(one)
    one.put([plain(b"z", b"")])
    compacted(one, 2 * DELETE_RETENTION_MS)
    assert left(one) == [(4, None), (5, b"y"), (8, b"")]


def test_a_delayed_tombstone_deletes_when_it_is_delivered() -> None:
    one = CompactedLog()
    original = one.put([hidden(b"k", None)], HIDDEN_FLAG)
    one.put([plain(b"k", b"1")])
    for _ in range(3):
        one.put([plain(b"other", b"x")])
        compacted(one, 2 * DELETE_RETENTION_MS)
        assert (1, b"1") in left(one)
    one.fire(original)
    one.put([plain(b"other", b"x")])
    compacted(one)
    assert left(one)[0] == (5, None)


def test_a_fired_record_without_a_key_stays_as_it_is() -> None:
    """Produced while the topic was not compacted."""
    one = CompactedLog(frozenset({"delete"}))
    original = one.put([hidden(None, b"later")], HIDDEN_FLAG)
    one.set_config(cleanup_policy=COMPACT)
    one.put([plain(b"k", b"1")])
    one.fire(original)
    one.put([plain(b"k", b"2")])
    one.now_ms += 1
    one.seal()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    assert left(one) == [(2, b"later"), (3, b"2")]
    assert one.expected() == one.pending_by_history() == {}


def test_hidden_batches_keep_what_they_are() -> None:
    one = CompactedLog()
    records = [hidden(b"k", b"done"), plain(b"k", b"1"), hidden(b"k", b"later")]
    batch = build_batch(
        records,
        attributes=HIDDEN_FLAG,
        compression=4,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
    )
    one.log.append_as_leader(
        batch, 0, len(batch), leader_epoch=0, now_ms=one.now_ms, origin=FEATURE
    )
    one.history.update({at: replace_event(record) for at, record in enumerate(records)})
    one.fire(0)
    compacted(one)
    header, found = next(one.batches())
    assert [record.offset for record in found] == [2]
    assert (header.base_offset, header.last_offset) == (0, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert header.compression == 4
    assert header.attributes & HIDDEN_FLAG
    one.kill()
    assert one.log.producers.producers[7].last_sequence == 13


def replace_event(record: NewRecord) -> Event:
    return Event(record, HIDDEN_FLAG)


def test_what_let_go_of_a_record_that_is_gone_counts_as_cleaned() -> None:
    """The fact lies behind what the pass could rewrite: a cut between them brings the original
    back for others, and this log lacks it."""
    one = CompactedLog()
    original = one.put([hidden(b"k", b"later")], HIDDEN_FLAG)
    one.put([plain(b"k", b"1")])
    one.put([plain(b"k", b"2")])
    one.log.roll()
    one.fire(original)
    one.log.advance_high_watermark(one.log.log_end_offset)
    held_records.freeze(one.log)
    one.checkpoint()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    assert (0, b"later") not in left(one)
    assert one.log.cleaned_end == 4
    assert cleaned_end.read_cleaned_end(one.log, one.names(), 4) == 4


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_is_pending_outlives_each_change_of_the_policy(is_compacted: bool) -> None:
    policies = [frozenset({"delete"}), COMPACT]
    one = CompactedLog(policies[is_compacted])
    one.put([hidden(b"k", b"later", START_MS + 1_000), plain(b"k", b"1")], HIDDEN_FLAG)
    for number in range(6):
        one.set_config(cleanup_policy=policies[(number + is_compacted) % 2])
        one.put([plain(b"k", b"%d" % number)])
        one.seal()
        job = one.log.compaction_job(one.now_ms)
        assert (job is not None) is one.config.compact
        if job is not None:
            job.run()
            job.finish()
        one.check_all(random.Random(number))
    assert one.expected() == {0: START_MS + 1_000}


def test_a_pass_is_dropped_when_the_log_is_cut_below_the_fact_meanwhile() -> None:
    one = CompactedLog()
    original = one.put([hidden(b"k", b"later")], HIDDEN_FLAG)
    one.put([plain(b"k", b"1")])
    one.put([plain(b"k", b"2")])
    one.log.roll()
    one.epoch += 1
    one.fire(original)
    one.log.advance_high_watermark(one.log.log_end_offset)
    held_records.freeze(one.log)
    one.checkpoint()
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    truncate_for_divergence(one.log, 0, 3)
    one.forget_from(3)
    job.finish()
    assert one.log.log_end_offset == 3
    assert one.pending_by_history().keys() == {original}
    assert (original, b"later") in left(one)


class _RedrivenTo(CompactedLog):
    """A topic that dead letters of others are put into."""

    fold_factories = (make_fold, make_arrivals)


def test_what_was_redriven_to_a_compacted_topic_is_a_value_of_its_key() -> None:
    one = _RedrivenTo()
    headers = (
        (b"tw-source", b"flights/0/0"),
        (b"tw-redriven", b"1"),
        (b"tw-dead", b"0" * 32 + b"/0/1/5"),
    )
    one.put([NewRecord(one.now_ms, b"k", b"redriven", headers)], FACTS_FLAG)
    one.put([plain(b"k", None)])
    for _ in range(4):
        one.put([plain(b"other", b"x")])
        one.now_ms += 3 * DELETE_RETENTION_MS
        one.seal()
        job = one.log.compaction_job(one.now_ms)
        if job is not None:
            job.run()
            job.finish()
    assert b"redriven" not in [value for _, value in left(one)]
