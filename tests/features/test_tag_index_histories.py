"""Subscriptions over random histories of a log, read with tag indexes: byte for byte what the
filter leaves of everything, and its count.

Batches of all codecs, transactions, rolls, cuts, compaction, deleted records, kills, power loss and
a cold memory come in any order, and indexes are made at any time.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.fetch import projected_reads, projected_searches
from data_plane.wire.compression import Compression
from features.filtering import tag_index, tag_indexes
from features.filtering.language import Expression
from tests.features.filters import EXPRESSIONS
from tests.features.tagged_log import TaggedLog

SETTINGS: dict[str, object] = {
    "segment_bytes": 1_500,
    "cleanup_policy": frozenset({"compact", "delete"}),
    "min_cleanable_dirty_ratio": 0.01,
    "delete_retention_ms": 0,
}
PRODUCERS = (1, 2)
TAG_LISTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "region:eu", "region:us:1"]), max_size=3),
    min_size=1,
    max_size=4,
)
KEYS = [b"k%d" % number for number in range(6)]
STEPS = st.one_of(
    st.tuples(st.just("append"), TAG_LISTS, st.sampled_from(Compression)),
    st.tuples(st.just("append many"), TAG_LISTS, st.integers(1, 12)),
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), TAG_LISTS),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("transaction"), st.booleans(), TAG_LISTS),
    st.tuples(st.just("append uncommitted"), TAG_LISTS, st.none()),
    st.tuples(st.just("index"), st.none(), st.none()),
    st.tuples(st.just("index"), st.none(), st.none()),
    st.tuples(st.just("roll"), st.none(), st.none()),
    st.tuples(st.just("truncate"), st.floats(0, 1), st.none()),
    st.tuples(st.just("cut and go on"), st.integers(1, 9), TAG_LISTS),
    st.tuples(st.just("compact"), st.none(), st.none()),
    st.tuples(st.just("delete"), st.floats(0, 1), st.none()),
    st.tuples(st.just("forget"), st.none(), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
    st.tuples(st.just("kill"), st.none(), st.none()),
    st.tuples(st.just("lose power"), st.integers(0, 1 << 30), st.none()),
    st.tuples(st.just("look"), st.integers(0, 1), st.just(0.0)),
    st.tuples(st.just("look"), st.integers(0, 1), st.floats(0, 1)),
)


class World:
    def __init__(self, expressions: list[Expression], rng: random.Random) -> None:
        self.one = TaggedLog(**SETTINGS)
        self.rng = rng
        self.expressions = expressions
        self.make_projections()

    def make_projections(self) -> None:
        self.projections = [self.one.projection(expression) for expression in self.expressions]

    def run(self, kind: str, first: Any, second: Any) -> None:
        one = self.one
        if kind == "append":
            one.put(*first, codec=second, keys=self.keys(first))
        elif kind == "append many":
            for _ in range(second):
                one.put(*first, keys=self.keys(first))
        elif kind == "append uncommitted":
            one.put(*first, keys=self.keys(first), commit=False)
        elif kind == "send":
            one.put(*second, producer_id=first, keys=self.keys(second))
        elif kind == "end":
            one.end_transaction(first, is_commit=second)
        elif kind == "transaction":
            one.put(*second, producer_id=3, keys=self.keys(second))
            one.put(*second, keys=self.keys(second))
            one.put(*second, producer_id=3, keys=self.keys(second))
            one.end_transaction(3, is_commit=first)
            one.put(*second, producer_id=3, keys=self.keys(second))
            one.end_transaction(3, is_commit=not first)
        elif kind == "cut and go on":
            one.index()
            self.look(0, 0.0)
            end = one.log.log_end_offset
            one.truncate(end - first)
            while one.log.log_end_offset < end:
                one.put(*second, keys=self.keys(second))
            self.look(0, 0.0)
        elif kind == "index":
            one.index()
        elif kind == "roll":
            one.log.roll()
        elif kind == "truncate":
            one.truncate(int(first * one.log.log_end_offset))
        elif kind == "compact":
            self.compact()
        elif kind == "delete":
            one.log.delete_records(int(first * one.log.high_watermark))
            one.log.apply_retention(one.now_ms)
        elif kind == "forget":
            self.forget()
        elif kind == "look":
            self.look(first, second)
        else:
            self.open_again(kind, first)

    def keys(self, tag_lists: list[list[str]]) -> list[bytes]:
        return [self.rng.choice(KEYS) for _ in tag_lists]

    def compact(self) -> None:
        one = self.one
        one.now_ms += 1_000
        one.checkpoint()
        job = one.log.compaction_job(one.now_ms)
        if job is not None:
            job.run()
            job.finish()

    def forget(self) -> None:
        self.one.forget()
        self.make_projections()

    def open_again(self, kind: str, seed: int | None) -> None:
        one = self.one
        if kind == "restart":
            one.restart()
        elif kind == "kill":
            one.kill()
        else:
            one.lose_power(random.Random(seed))
        one.set_config()
        if not one.log.is_loaded:
            one.log.load()
        one.commit()
        # Broker and memory are other ones.
        self.forget()

    def look(self, number: int, fraction: float) -> None:
        one, log = self.one, self.one.log
        expression, projection = self.expressions[number], self.projections[number]
        for end in {log.high_watermark, log.last_stable_offset}:
            start = log.log_start_offset
            start += int(fraction * max(end - start, 0))
            if start >= end:
                continue
            shown = one.shown(projection, start, end)
            assert shown == one.plainly_shown(expression, start, end)
        end = log.last_stable_offset
        if start < end:
            visible = one.visible(expression, start, end)
            assert one.count(projection, start, end) == len(visible)
            for record in (visible[:1], visible[-1:]):
                at_ms = record[0].timestamp if record else 0
                expected = [(r.offset, r.timestamp) for r in visible if r.timestamp >= at_ms]
                found = one.first(projection, start, end, at_ms)
                assert found == (expected[0] if expected else None)


@pytest.mark.parametrize("are_tags_unbounded", [False, True])
@settings(max_examples=120)
@given(
    steps=st.lists(STEPS, min_size=5, max_size=50),
    expressions=st.lists(EXPRESSIONS, min_size=2, max_size=2),
    seed=st.integers(0, 1 << 30),
)
def test_what_is_read_with_indexes_is_what_the_filter_leaves(
    are_tags_unbounded: bool,
    steps: list[tuple[str, Any, Any]],
    expressions: list[Expression],
    seed: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tag_indexes, "INDEX_FROM_BYTES", 1)
        patch.setattr(tag_indexes, "STEP_BYTES", 400)
        patch.setattr(tag_indexes, "SAVE_BYTES", 300)
        patch.setattr(tag_index, "BLOCK_BYTES", 250)
        patch.setattr(projected_reads, "SLICE_BYTES_MAX", 700)
        patch.setattr(projected_searches, "READ_BYTES", 500)
        if are_tags_unbounded:
            patch.setattr(tag_index, "SETS_MAX", 2)
            patch.setattr(tag_index, "POSTINGS_MAX", 12)
        world = World(expressions, random.Random(seed))
        for step in steps:
            world.run(*step)
        world.one.index()
        for number in (0, 1):
            for fraction in (0, 0.3):
                world.look(number, fraction)
        assert not [event for event in world.one.remembering.events if event[0] == "error"]
