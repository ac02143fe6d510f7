"""The filter language: tags combined with `and`, `or` and `not`.

    checkout or refund
    region:eu and not test
    (priority:high or priority:urgent) and region:*
    "odd (tag)" or "and"

    filter = both { "or" both }
    both   = one { "and" one }
    one    = "not" one | "(" filter ")" | tag
    tag    = name | name ":" value | name ":*" | quoted

- `name:*` is any tag that begins with `name:`; it does not match the tag `name`. The name ends at
  the first colon, so that a tag has one.
- A tag without quotes has no spaces, control characters, or any of ( ) " ' * , & | ! < > \\ in it.
  In double quotes it may have all of them; \\" and \\\\ stand for a quote and a backslash. What is
  quoted is taken literally: "region:*" is the tag of these nine characters, "and" is no keyword.
- Keywords are lower case; tags are case-sensitive.
- The empty filter lets everything pass.

Invariants
- What a filter costs is bounded: FILTER_BYTES_MAX bytes, TERMS_MAX tags, NESTING_MAX parentheses
  inside each other.
- Two filters are equal when their expressions are.

Deliberately absent: regular expressions, the payload, evaluation (matching.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from features.filtering.tags import TAG_BYTES_MAX

FILTER_BYTES_MAX: Final = 4096
TERMS_MAX: Final = 256
NESTING_MAX: Final = 64

KEYWORDS: Final = ("and", "or", "not")
_ENDS_TAG: Final = "()\"'*,&|!<>\\"


class InvalidFilter(ValueError):
    """A filter that is not understood. `column` counts characters from 1."""

    def __init__(self, column: int, problem: str) -> None:
        super().__init__(f"column {column}: {problem}")
        self.column = column
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Tag:
    """The record has this tag."""

    tag: bytes


@dataclass(frozen=True, slots=True)
class AnyValue:
    """The record has a tag `name:` with any value."""

    name: bytes


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Everything:
    """The empty filter."""


Expression = Tag | AnyValue | Not | And | Or | Everything


def parse_filter(text: str) -> Expression:
    """The expression that `text` stands for. Raises InvalidFilter."""
    size = len(text.encode(errors="surrogatepass"))
    if size > FILTER_BYTES_MAX:
        raise InvalidFilter(1, f"the filter has {size} bytes, more than {FILTER_BYTES_MAX}")
    tokens = _tokens(text)
    if len(tokens) == 1:
        return Everything()
    return _Parser(tokens).parse()


class _Token(NamedTuple):
    """`kind`: a keyword, a parenthesis, "tag", "any" (of `name:*`), or "" at the end."""

    kind: str
    column: int
    text: str


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char.isspace():
            position += 1
        elif char in "()":
            tokens.append(_Token(char, position + 1, char))
            position += 1
        elif char == '"':
            tag, end = _quoted(text, position)
            tokens.append(_Token("tag", position + 1, tag))
            position = end
        else:
            token, position = _bare(text, position)
            tokens.append(token)
    tokens.append(_Token("", len(text) + 1, ""))
    return tokens


def _quoted(text: str, start: int) -> tuple[str, int]:
    """(the tag, position behind its closing quote)"""
    tag = ""
    position = start + 1
    while position < len(text):
        char = text[position]
        if char == '"':
            return tag, position + 1
        if char == "\\":
            position += 1
            char = text[position : position + 1]
            if char not in ('"', "\\"):
                raise InvalidFilter(position, 'a backslash stands before " or \\ only')
        tag += char
        position += 1
    raise InvalidFilter(start + 1, "the quote is not closed")


def _bare(text: str, start: int) -> tuple[_Token, int]:
    end = start
    while end < len(text) and not text[end].isspace() and text[end] not in _ENDS_TAG:
        if not text[end].isprintable():
            raise InvalidFilter(end + 1, f"{text[end]!r} stands in quotes only")
        end += 1
    word = text[start:end]
    if text[end : end + 1] == "*" and word.endswith(":"):
        name = word[:-1]
        if ":" in name or not name:
            raise InvalidFilter(start + 1, "one name without a colon stands before `:*`")
        following = text[end + 1 : end + 2]
        if following and not following.isspace() and following not in "()":
            raise InvalidFilter(end + 2, "nothing stands behind `:*`: it is any value")
        return _Token("any", start + 1, name), end + 1
    if end < len(text) and text[end] in _ENDS_TAG and text[end] not in "()":
        char = text[end]
        if char == "*":
            raise InvalidFilter(end + 1, "`*` stands behind `name:` only, for any value")
        raise InvalidFilter(end + 1, f"{char} stands in double quotes only")
    if word in KEYWORDS:
        return _Token(word, start + 1, word), end
    return _Token("tag", start + 1, word), end


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._terms_count = 0
        self._nesting = 0

    def parse(self) -> Expression:
        expression = self._alternatives()
        token = self._tokens[self._next]
        if token.kind == ")":
            raise InvalidFilter(token.column, "there is no ( for this )")
        if token.kind:
            raise InvalidFilter(
                token.column, _missing_operator(self._tokens[self._next - 1], token)
            )
        return expression

    def _alternatives(self) -> Expression:
        operands = [self._both()]
        while self._take("or"):
            operands.append(self._both())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _both(self) -> Expression:
        operands = [self._one()]
        while self._take("and"):
            operands.append(self._one())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _one(self) -> Expression:
        is_negated = False
        while self._take("not"):
            is_negated = not is_negated
        expression = self._unnegated()
        return Not(expression) if is_negated else expression

    def _unnegated(self) -> Expression:
        token = self._tokens[self._next]
        self._next += 1
        match token.kind:
            case "(":
                return self._nested(token)
            case "tag" | "any":
                return self._term(token)
            case "":
                raise InvalidFilter(token.column, "a tag is missing at the end")
            case _:
                raise InvalidFilter(token.column, f"a tag is missing before {token.text}")

    def _nested(self, opening: _Token) -> Expression:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise InvalidFilter(
                opening.column, f"more than {NESTING_MAX} parentheses are open at once"
            )
        expression = self._alternatives()
        token = self._tokens[self._next]
        if token.kind == "":
            raise InvalidFilter(opening.column, "the ( is not closed")
        if token.kind != ")":
            raise InvalidFilter(
                token.column, _missing_operator(self._tokens[self._next - 1], token)
            )
        self._next += 1
        self._nesting -= 1
        return expression

    def _term(self, token: _Token) -> Expression:
        self._terms_count += 1
        if self._terms_count > TERMS_MAX:
            raise InvalidFilter(token.column, f"more than {TERMS_MAX} tags")
        try:
            tag = token.text.encode()
        except UnicodeEncodeError:
            raise InvalidFilter(token.column, "the tag is not Unicode text") from None
        if not tag:
            raise InvalidFilter(token.column, "a tag is not empty")
        if len(tag) > TAG_BYTES_MAX:
            raise InvalidFilter(
                token.column, f"the tag has {len(tag)} bytes, more than {TAG_BYTES_MAX}"
            )
        return AnyValue(tag) if token.kind == "any" else Tag(tag)

    def _take(self, keyword: str) -> bool:
        if self._tokens[self._next].kind != keyword:
            return False
        self._next += 1
        return True


def _missing_operator(before: _Token, token: _Token) -> str:
    for word in (token.text, before.text):
        if word.lower() in KEYWORDS and word not in KEYWORDS:
            return f"`and` or `or` is missing here; keywords are lower case, {word} is a tag"
    return f"`and` or `or` is missing before {token.text}"
