"""A filter as a few additions: what it says of the tags that are there, whatever they are.

Each place at which the filter names a tag has a bit. In an addition a carry goes through bits as
truth goes through `and` and `or`: into the next bit goes the majority of the two bits added and the
carry. With a constant 0 beside the bit this is `bit and carry`, with a constant 1 `bit or carry`:

    b and (c or d and a)      bits, the lowest first     a  d  c  b  out
                              constant                   1  0  1  0  0
    {a, d, b}                 added to                   1  1  0  1  0
                              carry into the next        1  1  1  1

The carry that comes out is the filter's value. An operand that has operands itself goes through
the same *chain* if it is the largest one beside its siblings (a heavy path: Sleator and Tarjan, "A
data structure for dynamic trees", 1983). Each other one is a chain of its own that comes before;
its bits lie just below the bit that its value is carried into, and the carry of the chain around it
passes over them. All chains of a level are one addition, and there are log2 of the terms levels at
most.

Deliberately absent: which tags a record has, and what was decided before (matching.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from features.filtering.language import And, AnyValue, Everything, Expression, Not, Or, Tag


@dataclass(frozen=True, slots=True)
class _Literal:
    """A term, or its contrary; without a term it is false, or true."""

    term: Tag | AnyValue | None
    is_negated: bool


@dataclass(frozen=True, slots=True)
class _Gate:
    is_or: bool
    operands: tuple[_Literal | _Gate, ...]
    literals_count: int


@dataclass(slots=True)
class _Level:
    """Chains that are added at once: their bits, those that carries pass over, the constants, and
    where carries come out."""

    bits: int = 0
    passed: int = 0
    ors: int = 0
    outs: int = 0


class Evaluation:
    """One expression.

    `bits` and `name_bits` are the bits of each tag, and of each name of `name:*`: the mask of a
    record has those of all that it has."""

    def __init__(self, expression: Expression) -> None:
        self.bits: dict[bytes, int] = {}
        self.name_bits: dict[bytes, int] = {}
        self._flips = 0
        self._end = 0
        self._levels: list[_Level] = []
        node = _without_not(expression, is_negated=False)
        self._place_chain(node if isinstance(node, _Gate) else _gate(is_or=True, operands=(node,)))
        self._out = 1 << (self._end - 1)
        self._steps = [(level.bits, level.passed, level.ors, level.outs) for level in self._levels]

    @property
    def additions_count(self) -> int:
        return len(self._steps)

    def decide(self, mask: int) -> bool:
        state = mask ^ self._flips
        for bits, passed, ors, outs in self._steps:
            state |= (((state & bits) | passed) + ors) & outs
        return state & self._out != 0

    def _place_chain(self, gate: _Gate) -> int:
        """Lay it out from the next free bit on; the last one is where its value comes out. Returns
        its level."""
        placed = _Level()
        number = 0
        inner: _Gate | None = None
        for outer in reversed(_heavy_path(gate)):
            for operand in outer.operands:
                if operand is inner:
                    continue
                begin = self._end
                if isinstance(operand, _Literal):
                    self._place_literal(operand)
                else:
                    number = max(number, self._place_chain(operand) + 1)
                bit = 1 << (self._end - 1)
                placed.passed |= bit - (1 << begin)
                # There is nothing to be joined with the first of all.
                if outer.is_or or not placed.bits:
                    placed.ors |= bit
                placed.bits |= bit
            inner = outer
        placed.outs = 1 << self._end
        self._end += 1
        while len(self._levels) <= number:
            self._levels.append(_Level())
        level = self._levels[number]
        level.bits |= placed.bits
        level.passed |= placed.passed
        level.ors |= placed.ors
        level.outs |= placed.outs
        return number

    def _place_literal(self, literal: _Literal) -> None:
        bit = 1 << self._end
        self._end += 1
        if literal.is_negated:
            self._flips |= bit
        match literal.term:
            case Tag(tag):
                self.bits[tag] = self.bits.get(tag, 0) | bit
            case AnyValue(name):
                self.name_bits[name] = self.name_bits.get(name, 0) | bit
            case None:
                pass


def _heavy_path(gate: _Gate) -> list[_Gate]:
    """From the gate down, always to the largest one among its operands."""
    path = [gate]
    while True:
        inner = [one for one in path[-1].operands if isinstance(one, _Gate)]
        if not inner:
            return path
        path.append(max(inner, key=lambda one: one.literals_count))


def _gate(*, is_or: bool, operands: tuple[_Literal | _Gate, ...]) -> _Gate:
    counts = (one.literals_count if isinstance(one, _Gate) else 1 for one in operands)
    return _Gate(is_or, operands, sum(counts))


def _without_not(expression: Expression, *, is_negated: bool) -> _Literal | _Gate:
    """By De Morgan's laws: only terms are negated."""
    match expression:
        case Tag() | AnyValue():
            return _Literal(expression, is_negated)
        case Everything():
            return _Literal(None, not is_negated)
        case Not(operand):
            return _without_not(operand, is_negated=not is_negated)
        case And(operands) | Or(operands):
            parts = tuple(_without_not(one, is_negated=is_negated) for one in operands)
            return _gate(is_or=isinstance(expression, Or) != is_negated, operands=parts)
