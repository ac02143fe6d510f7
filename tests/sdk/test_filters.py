"""The SDK's filters against the brokers': what is taken, where a mistake is seen, what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidewheel.errors import ConfigurationError
from tidewheel.filters import (
    FILTER_BYTES_MAX,
    NESTING_MAX,
    TERMS_MAX,
    Filter,
    InvalidFilter,
    is_same_filter,
)

from features.filtering import language
from features.filtering.language import Expression, parse_filter
from tests.features.filters import EXPRESSIONS, TAG_LISTS, says, written

# What a filter is made of, and what it is not.
PIECES = st.sampled_from(
    [
        *("a", "b:c", "b:", ":", "::", "region:*", "*", ":*", "a:b:*", "not", "and", "or", "AND"),
        *("Or", "NOT", "(", ")", " ", "\t", "\u2003", "\x07", "\u200b", '"', '"x"', '"\\""', "\\"),
        *('"\\x"', '""', ",", "&", "|", "!", "<", ">", "'", "ü", "\ud800", '"a\nb"', "x" * 129),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=9).map("".join), st.lists(PIECES).map(" ".join))


def broker_column(text: str) -> int | None:
    """Where brokers see a mistake."""
    try:
        parse_filter(text)
    except language.InvalidFilter as error:
        return error.column
    return None


def sdk_column(text: str) -> int | None:
    try:
        Filter(text)
    except InvalidFilter as error:
        return error.column
    return None


@given(TEXTS)
def test_what_brokers_take_is_taken_and_a_mistake_is_where_they_see_it(text: str) -> None:
    assert sdk_column(text) == broker_column(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * FILTER_BYTES_MAX,
        "ü" * (FILTER_BYTES_MAX // 2) + "a",
        " or ".join(["a"] * TERMS_MAX),
        " or ".join(["a"] * (TERMS_MAX + 1)),
        "(" * NESTING_MAX + "a" + ")" * NESTING_MAX,
        "(" * (NESTING_MAX + 1) + "a" + ")" * (NESTING_MAX + 1),
        "(a) or " * NESTING_MAX + "(a)",
        "",
        " \n",
    ],
)
def test_limits_are_those_of_brokers(text: str) -> None:
    assert sdk_column(text) == broker_column(text)


@given(EXPRESSIONS, TAG_LISTS)
def test_a_filter_says_of_tags_what_it_says_at_brokers(
    expression: Expression, tags: list[str]
) -> None:
    assert Filter(written(expression)).matches(tags) == says(expression, tags)


@given(EXPRESSIONS, EXPRESSIONS)
def test_filters_are_equal_when_they_are_at_brokers(one: Expression, other: Expression) -> None:
    texts = written(one), written(other)
    assert is_same_filter(*texts) == (parse_filter(texts[0]) == parse_filter(texts[1]))


def test_spaces_and_needless_parentheses_make_no_other_filter() -> None:
    assert is_same_filter("a  or (b and c)", "(a or b and c)")
    assert not is_same_filter("a or b", "b or a")
    # Of a later version, for instance.
    assert is_same_filter("a ~ b", "a ~ b")
    assert not is_same_filter("a ~ b", "a  ~ b")
    assert hash(Filter("a or b")) == hash(Filter("a  or b"))


def test_a_mistake_is_told_with_its_column() -> None:
    with pytest.raises(ConfigurationError, match=r"column 4: `and` or `or` is missing") as told:
        Filter("eu us")
    assert "parentheses" in told.value.hint
