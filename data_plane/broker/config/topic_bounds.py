"""What an operator allows tenants to choose for their topics, in one property of brokers.

    tenant.topic.bounds=segment.bytes=1048576..,min.insync.replicas=1..2,
                        unclean.leader.election.enable=false,replication.factor=3,manual.assignment=false

A bound is a range of numbers, either end of which may be missing, or words, with `|` between them.
Besides configurations of topics there are `replication.factor` and `manual.assignment`: whether a
client may say on which brokers replicas are.

Invariants
- Bounds hold for all tenants but `default`, and for what a client sets or a control plane declares;
  what a topic has already stays, and the defaults are the operator's own.
- A bound that cannot be read is refused when it is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from data_plane.broker.config.definition import Allowed, Value
from data_plane.broker.request.refusal import Refusal
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode

TOPIC_BOUNDS: Final = "tenant.topic.bounds"
REPLICATION_FACTOR: Final = "replication.factor"
MANUAL_ASSIGNMENT: Final = "manual.assignment"
_RANGE: Final = ".."


def _why_unreadable(text: str) -> str | None:
    name, found, bound = text.partition("=")
    if not name or not found or not bound:
        return f"{text!r} is not a bound; write name=low..high or name=word|word"
    if _RANGE in bound:
        low, _, high = bound.partition(_RANGE)
        for end in (low, high):
            if end and not end.removeprefix("-").isdecimal():
                return f"{text!r}: {end!r} is not a number"
    return None


def _check(_: str, value: Value) -> str | None:
    assert isinstance(value, list)
    return next((why for text in value if (why := _why_unreadable(text))), None)


BOUNDS: Final = Allowed("a list of name=low..high or name=word|word", _check)


def refuse_beyond_bounds(tenant: str, bounds: Iterable[str], wanted: Mapping[str, str]) -> None:
    """Raises Refusal when a tenant wants for a topic what is not allowed."""
    if tenant == DEFAULT_TENANT:
        return
    for text in bounds:
        name, _, bound = text.partition("=")
        value = wanted.get(name)
        if value is not None and not _is_within(value.strip(), bound):
            raise Refusal(
                ErrorCode.POLICY_VIOLATION, f"{name} is {value}, and tenants may have {bound}"
            )


def _is_within(value: str, bound: str) -> bool:
    low, is_range, high = bound.partition(_RANGE)
    if not is_range:
        return value.lower() in bound.lower().split("|")
    try:
        number = int(value)
    except ValueError:
        return False
    return (not low or int(low) <= number) and (not high or number <= int(high))
