"""Filters and tags for tests, and what a filter says of tags, the plain way."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st

from features.filtering.language import And, AnyValue, Everything, Expression, Not, Or, Tag

NAMES = ["a", "b", "region", "and", "odd (tag)", "ü"]
VALUES = ["", "eu", "us:1"]
TAGS = st.one_of(
    st.sampled_from(NAMES),
    st.builds(
        lambda name, value: f"{name}:{value}", st.sampled_from(NAMES), st.sampled_from(VALUES)
    ),
    st.text(min_size=1, max_size=5).filter(str.isprintable),
)
TAG_LISTS = st.lists(TAGS, max_size=4)

_TERMS: st.SearchStrategy[Expression] = st.one_of(
    st.builds(lambda tag: Tag(tag.encode()), TAGS),
    st.builds(lambda name: AnyValue(name.encode()), st.sampled_from(["a", "region", "nowhere"])),
)
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    _TERMS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=2, max_size=4)),
        st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=2, max_size=4)),
    ),
    max_leaves=12,
)


def says(expression: Expression, tags: Collection[str]) -> bool:
    """What the filter says of a record with these tags."""
    match expression:
        case Tag(tag):
            return tag.decode() in tags
        case AnyValue(name):
            return any(tag.startswith(name.decode() + ":") for tag in tags)
        case Not(operand):
            return not says(operand, tags)
        case And(operands):
            return all(says(operand, tags) for operand in operands)
        case Or(operands):
            return any(says(operand, tags) for operand in operands)
        case Everything():
            return True


def written(expression: Expression) -> str:
    """A text that stands for the expression: everything quoted and in parentheses."""
    match expression:
        case Tag(tag):
            text = tag.decode().replace("\\", "\\\\").replace('"', '\\"')
            return f'"{text}"'
        case AnyValue(name):
            return f"{name.decode()}:*"
        case Not(operand):
            return f"(not {written(operand)})"
        case And(operands):
            return "(" + " and ".join(map(written, operands)) + ")"
        case Or(operands):
            return "(" + " or ".join(map(written, operands)) + ")"
        case Everything():
            return ""
