"""Filters as additions: what the plain way says, of filters up to the largest, and how many."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.filtering.evaluation import Evaluation
from features.filtering.language import (
    NESTING_MAX,
    TERMS_MAX,
    And,
    AnyValue,
    Everything,
    Expression,
    Not,
    Or,
    Tag,
    parse_filter,
)
from tests.features.filters import EXPRESSIONS, TAG_LISTS, says, written


def mask_of(evaluation: Evaluation, tags: list[str]) -> int:
    mask = 0
    for tag in tags:
        mask |= evaluation.bits.get(tag.encode(), 0)
        name, colon, _ = tag.partition(":")
        if colon:
            mask |= evaluation.name_bits.get(name.encode(), 0)
    return mask


def check(expression: Expression, tag_lists: list[list[str]]) -> None:
    evaluation = Evaluation(expression)
    for tags in tag_lists:
        assert evaluation.decide(mask_of(evaluation, tags)) is says(expression, tags), tags


@given(EXPRESSIONS, st.lists(TAG_LISTS, min_size=1, max_size=20))
def test_the_plain_way_says_the_same(expression: Expression, tag_lists: list[list[str]]) -> None:
    check(expression, [[], *tag_lists])


def random_tree(rng: random.Random, terms_count: int) -> Expression:
    """With so many terms, some of which are the same."""
    if terms_count == 1:
        number = rng.randrange(40)
        leaf = AnyValue(b"t%d" % number) if rng.random() < 0.2 else Tag(b"t%d" % number)
        return Not(leaf) if rng.random() < 0.3 else leaf
    parts = min(terms_count, rng.choice([2, 2, 3, 8, 64]))
    cuts = sorted(rng.sample(range(1, terms_count), parts - 1))
    if rng.random() < 0.4:
        # All but one have one term: a deep tree.
        cuts = list(range(1, parts))
    sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, terms_count], strict=True)]
    rng.shuffle(sizes)
    operands = tuple(random_tree(rng, size) for size in sizes)
    joined = And(operands) if rng.random() < 0.5 else Or(operands)
    return Not(joined) if rng.random() < 0.2 else joined


@pytest.mark.parametrize("seed", range(60))
def test_large_filters(seed: int) -> None:
    rng = random.Random(seed)
    expression = random_tree(rng, rng.choice([5, 30, TERMS_MAX]))
    tag_lists = []
    for _ in range(40):
        numbers = rng.sample(range(40), rng.choice([0, 1, 3, 20, 40]))
        tag_lists.append([f"t{number}" + rng.choice(["", "", ":x"]) for number in numbers])
    check(expression, tag_lists)
    assert Evaluation(expression).additions_count <= TERMS_MAX.bit_length()


def test_everything_passes_in_any_place() -> None:
    for expression in (
        Everything(),
        Or((Tag(b"a"), Everything())),
        And((Everything(), Not(Tag(b"a")))),
    ):
        check(expression, [[], ["a"], ["b"]])
    check(Not(Everything()), [[], ["a"]])


def test_what_is_nested_as_deeply_as_may_be_is_one_addition() -> None:
    text = "t0"
    for number in range(1, NESTING_MAX):
        text = f"({'not ' * (number % 3 == 0)}{text}) {('and', 'or')[number % 2]} t{number}"
    evaluation = Evaluation(parse_filter(text))
    assert evaluation.additions_count == 1
    rng = random.Random(1)
    check(
        parse_filter(text),
        [[f"t{one}" for one in range(NESTING_MAX) if rng.random() < 0.7] for _ in range(200)],
    )


def test_a_balanced_tree_takes_the_most_additions() -> None:
    level: list[Expression] = [Tag(b"t%d" % number) for number in range(TERMS_MAX)]
    depth = 0
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2], strict=True))
        level = [And(pair) if depth % 2 else Or(pair) for pair in pairs]
        depth += 1
    (expression,) = level
    assert Evaluation(expression).additions_count == TERMS_MAX.bit_length() - 1
    assert parse_filter(written(expression)) == expression
    rng = random.Random(1)
    check(
        expression,
        [[f"t{one}" for one in range(TERMS_MAX) if rng.random() < 0.6] for _ in range(200)],
    )
