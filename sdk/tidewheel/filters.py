"""The filters of subscriptions: tags combined with `and`, `or` and `not`.

    checkout or refund
    region:eu and not test
    (priority:high or priority:urgent) and region:*
    "odd (tag)" or "and"

Brokers evaluate them. Here they are understood, so that a mistake is told where it was made, two of
them can be compared, and a broker in memory can do as the others do. A property test holds this
module to what brokers take, refuse and show.

    filter = both { "or" both }
    both   = one { "and" one }
    one    = "not" one | "(" filter ")" | tag
    tag    = name | name ":" value | name ":*" | quoted
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from tidewheel.errors import ConfigurationError
from tidewheel.headers import TAG_BYTES_MAX

FILTER_BYTES_MAX: Final = 4096
TERMS_MAX: Final = 256
NESTING_MAX: Final = 64

_KEYWORDS: Final = ("and", "or", "not")
_ENDS_TAG: Final = "()\"'*,&|!<>\\"
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_BAD_ESCAPE: Final = re.compile(r'"(?:[^"\\]|\\["\\])*\\(?!["\\])')

# ("all",), ("tag", tag), ("any", name), ("not", one), ("and" | "or", one, two, …)
_Expression = tuple[Any, ...]


class InvalidFilter(ConfigurationError):
    """A filter that is not understood. `column` counts characters from 1."""

    default_hint = "Write tags with and, or, not and parentheses: region:eu and not test"

    def __init__(self, column: int, problem: str) -> None:
        super().__init__(f"The filter, column {column}: {problem}")
        self.column = column


class Filter:
    """One that was understood. Two are equal when they say the same in the same order.

    >>> Filter("checkout and region:*").matches(["checkout", "region:eu"])
    True
    """

    def __init__(self, text: str) -> None:
        """Raises InvalidFilter."""
        size = len(text.encode(errors="surrogatepass"))
        if size > FILTER_BYTES_MAX:
            raise InvalidFilter(1, f"it has {size} bytes, more than {FILTER_BYTES_MAX}")
        self.text = text
        tokens = list(_tokens(text))
        self._expression: _Expression = ("all",) if len(tokens) == 1 else _Parser(tokens).parse()

    def matches(self, tags: Collection[str]) -> bool:
        """Whether a message with these tags is one of those that are wanted."""
        return _says(self._expression, tags)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._expression == other._expression

    def __hash__(self) -> int:
        return hash(self._expression)

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def is_same_filter(text: str, other_text: str) -> bool:
    """Whether two texts are the same filter, as far as this version understands them."""
    if text == other_text:
        return True
    try:
        return Filter(text) == Filter(other_text)
    except InvalidFilter:
        return False


def _says(expression: _Expression, tags: Collection[str]) -> bool:
    kind, *operands = expression
    match kind:
        case "tag":
            return bool(operands[0] in tags)
        case "any":
            return any(tag.startswith(f"{operands[0]}:") for tag in tags)
        case "not":
            return not _says(operands[0], tags)
        case "and":
            return all(_says(one, tags) for one in operands)
        case "or":
            return any(_says(one, tags) for one in operands)
    return True


class _Token(NamedTuple):
    """`kind`: a keyword, a parenthesis, "tag", "any" (of `name:*`), or "" at the end."""

    kind: str
    column: int
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        char, column = text[position], position + 1
        if char.isspace():
            position += 1
        elif char in "()":
            yield _Token(char, column, char)
            position += 1
        elif char == '"':
            quoted = _QUOTED.match(text, position)
            if quoted is None:
                bad = _BAD_ESCAPE.match(text, position)
                if bad is not None:
                    raise InvalidFilter(bad.end(), 'a backslash stands before " or \\ only')
                raise InvalidFilter(column, "the quote is not closed")
            yield _Token("tag", column, re.sub(r"\\(.)", r"\1", quoted[1]))
            position = quoted.end()
        else:
            token, position = _bare(text, position)
            yield token
    yield _Token("", len(text) + 1, "")


def _bare(text: str, start: int) -> tuple[_Token, int]:
    """What stands without quotes at `start`, and where it ends."""
    end = start
    while end < len(text) and not text[end].isspace() and text[end] not in _ENDS_TAG:
        if not text[end].isprintable():
            raise InvalidFilter(end + 1, f"{text[end]!r} stands in quotes only")
        end += 1
    word, column, ended_by = text[start:end], start + 1, text[end : end + 1]
    if ended_by == "*" and word.endswith(":"):
        if word.count(":") > 1 or word == ":":
            raise InvalidFilter(column, "one name without a colon stands before `:*`")
        behind = text[end + 1 : end + 2]
        if behind and not behind.isspace() and behind not in "()":
            raise InvalidFilter(end + 2, "nothing stands behind `:*`: it is any value")
        return _Token("any", column, word[:-1]), end + 1
    if ended_by == "*":
        raise InvalidFilter(end + 1, "`*` stands behind `name:` only, for any value")
    if ended_by and ended_by in _ENDS_TAG and ended_by not in "()":
        raise InvalidFilter(end + 1, f"{ended_by} stands in double quotes only")
    return _Token(word if word in _KEYWORDS else "tag", column, word), end


class _Parser:
    """One method for each rule of the grammar, from the loosest to the closest binding."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._terms_count = 0
        self._nesting = 0

    def parse(self) -> _Expression:
        expression = self._joined("or")
        token = self._tokens[self._next]
        if token.kind == ")":
            raise InvalidFilter(token.column, "there is no ( for this )")
        if token.kind:
            self._miss_operator(token)
        return expression

    def _joined(self, keyword: str) -> _Expression:
        operands = [self._operand(keyword)]
        while self._tokens[self._next].kind == keyword:
            self._next += 1
            operands.append(self._operand(keyword))
        return operands[0] if len(operands) == 1 else (keyword, *operands)

    def _operand(self, keyword: str) -> _Expression:
        return self._joined("and") if keyword == "or" else self._one()

    def _one(self) -> _Expression:
        is_negated = False
        while self._tokens[self._next].kind == "not":
            self._next += 1
            is_negated = not is_negated
        token = self._tokens[self._next]
        self._next += 1
        if token.kind == "(":
            expression = self._nested(token)
        elif token.kind in ("tag", "any"):
            expression = self._term(token)
        elif token.kind:
            raise InvalidFilter(token.column, f"a tag is missing before {token.text}")
        else:
            raise InvalidFilter(token.column, "a tag is missing at the end")
        return ("not", expression) if is_negated else expression

    def _nested(self, opening: _Token) -> _Expression:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise InvalidFilter(opening.column, f"more than {NESTING_MAX} ( are open at once")
        expression = self._joined("or")
        token = self._tokens[self._next]
        if not token.kind:
            raise InvalidFilter(opening.column, "the ( is not closed")
        if token.kind != ")":
            self._miss_operator(token)
        self._next += 1
        self._nesting -= 1
        return expression

    def _term(self, token: _Token) -> _Expression:
        self._terms_count += 1
        if self._terms_count > TERMS_MAX:
            raise InvalidFilter(token.column, f"more than {TERMS_MAX} tags")
        try:
            size = len(token.text.encode())
        except UnicodeEncodeError:
            raise InvalidFilter(token.column, "the tag is not Unicode text") from None
        if not 0 < size <= TAG_BYTES_MAX:
            problem = f"a tag has 1 to {TAG_BYTES_MAX} bytes, this one {size}"
            raise InvalidFilter(token.column, problem)
        return token.kind, token.text

    def _miss_operator(self, token: _Token) -> NoReturn:
        for word in (token.text, self._tokens[self._next - 1].text):
            if word.lower() in _KEYWORDS and word not in _KEYWORDS:
                problem = f"`and` or `or` is missing; keywords are lower case, {word} is a tag"
                raise InvalidFilter(token.column, problem)
        raise InvalidFilter(token.column, f"`and` or `or` is missing before {token.text}")
