"""The filter language: what texts stand for, and what is said of those that stand for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given

from features.filtering.language import (
    FILTER_BYTES_MAX,
    NESTING_MAX,
    TERMS_MAX,
    And,
    AnyValue,
    Everything,
    Expression,
    InvalidFilter,
    Not,
    Or,
    Tag,
    parse_filter,
)
from tests.features.filters import EXPRESSIONS, written

A, B, C = Tag(b"a"), Tag(b"b"), Tag(b"c")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("", Everything()),
        (" \t\n", Everything()),
        ("a", A),
        ("(((a)))", A),
        ("a or b and c", Or((A, And((B, C))))),
        ("(a or b) and c", And((Or((A, B)), C))),
        ("a and b and c", And((A, B, C))),
        ("not a or b", Or((Not(A), B))),
        ("not not a", A),
        ("not not not a", Not(A)),
        ("not(a)and(b)", And((Not(A), B))),
        ("region:eu", Tag(b"region:eu")),
        ("region:eu:west", Tag(b"region:eu:west")),
        ("region:*", AnyValue(b"region")),
        ("(region:*)", AnyValue(b"region")),
        ('"region:*"', Tag(b"region:*")),
        ('"and"', Tag(b"and")),
        ("And", Tag(b"And")),
        ("android or notes", Or((Tag(b"android"), Tag(b"notes")))),
        ('"a \\\\ \\" b"', Tag(b'a \\ " b')),
        ("prix:10€", Tag("prix:10€".encode())),
        ("a.b-c_d/e#f@g+h=1", Tag(b"a.b-c_d/e#f@g+h=1")),
    ],
)
def test_what_a_text_stands_for(text: str, expression: Expression) -> None:
    assert parse_filter(text) == expression


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("a b", 3, "`and` or `or` is missing before b"),
        ("a OR b", 3, "`and` or `or` is missing here; keywords are lower case, OR is a tag"),
        ("NOT a", 5, "`and` or `or` is missing here; keywords are lower case, NOT is a tag"),
        ("a and", 6, "a tag is missing at the end"),
        ("or a", 1, "a tag is missing before or"),
        ("a and or b", 7, "a tag is missing before or"),
        ("()", 2, "a tag is missing before )"),
        ("a)", 2, "there is no ( for this )"),
        ("(a or (b)", 1, "the ( is not closed"),
        ("(a b)", 4, "`and` or `or` is missing before b"),
        ('a or "b', 6, "the quote is not closed"),
        ('"a\\n"', 3, 'a backslash stands before " or \\ only'),
        ('""', 1, "a tag is not empty"),
        ("a && b", 3, "& stands in double quotes only"),
        ("!a", 1, "! stands in double quotes only"),
        ("it's", 3, "' stands in double quotes only"),
        ("reg*", 4, "`*` stands behind `name:` only, for any value"),
        ("*", 1, "`*` stands behind `name:` only, for any value"),
        (":*", 1, "one name without a colon stands before `:*`"),
        ("a:b:*", 1, "one name without a colon stands before `:*`"),
        ("a:*b", 4, "nothing stands behind `:*`: it is any value"),
        ("a\x00", 2, "'\\x00' stands in quotes only"),
        ("a or \ud800", 6, "'\\ud800' stands in quotes only"),
        ('"\ud800"', 1, "the tag is not Unicode text"),
        ("x" * 129, 1, "the tag has 129 bytes, more than 128"),
    ],
)
def test_what_is_wrong_with_a_text(text: str, column: int, problem: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(text)
    assert (caught.value.column, caught.value.problem) == (column, problem)
    assert str(caught.value) == f"column {column}: {problem}"


def test_bounds() -> None:
    parse_filter("x" * 128)
    parse_filter("a or " * (TERMS_MAX - 1) + "a")
    with pytest.raises(InvalidFilter, match="more than 256 tags"):
        parse_filter("a or " * TERMS_MAX + "a")
    parse_filter("(" * NESTING_MAX + "a" + ")" * NESTING_MAX)
    parse_filter("(a) or " * (NESTING_MAX + 1) + "a")
    with pytest.raises(InvalidFilter, match="more than 64 parentheses are open at once"):
        parse_filter("(" * 3000)
    parse_filter("a" + " " * (FILTER_BYTES_MAX - 1))
    with pytest.raises(InvalidFilter, match="the filter has 4097 bytes, more than 4096"):
        parse_filter("a" + " " * FILTER_BYTES_MAX)
    parse_filter("not " * 1_000 + "a")


@given(EXPRESSIONS)
def test_what_is_written_is_understood(expression: Expression) -> None:
    assert parse_filter(written(expression)) == expression
