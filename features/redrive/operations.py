"""An operation on the dead letters of a partition, and the records of its log that say how far it
is.

    begin   what is asked for, and up to which offset                              once
    step    how far it has come, and what it moves next: its *plan*                again and again
    wish    that it goes on, pauses, or ends                                       at any time

All three are hidden records of the partition itself (`tw-redrive`, with JSON as value), written by
its leader. So whoever leads next goes on from there.

    plan     {"topic": "…", "partition": 3, "base": 120, "bits": "8f"}     in a step at 900
    moved    tw-dead: <topic's id>/<partition>/<epoch>/<number>/<offset>, one of each bit

Invariants
- A plan is moved whole, or not at all: an operation ends, pauses or goes on from a step without
  one.
- `number`, the leader epoch and the offset of the beginning, grows with each operation of a
  partition, and of those of a partition one is active at a time.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from data_plane.broker.dead_letter_operations import Counts, Selection, Wish
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import NewRecord, build_batch
from features.delayed.hidden import FILLER_HEADER
from features.redrive.marks import Bits

OPERATION_HEADER: Final = b"tw-redrive"


class Order(NamedTuple):
    """What was asked for. `target` is the id of a topic in hex, or empty: back to the subscription
    that each came from, which is one of `subscriptions` (ids in hex, with how often a letter may
    be redriven; 0: for ever). `limit` is that of a topic. `rate_max`: letters a second, or 0."""

    id: str
    is_purge: bool
    selection: Selection
    target: str
    subscriptions: dict[str, int]
    limit: int
    rate_max: int
    first_offset: int
    end_offset: int
    principal: str


class Plan(NamedTuple):
    """What is being moved, and where to: a partition of the topic with this id in hex. `offset` is
    that of the step that says so; `fresh` are those that were not redriven before it."""

    topic: str
    partition: int
    letters: Bits
    offset: int
    fresh: Bits | None = None


class Operation(NamedTuple):
    """As the log says. `ended` is empty, or what became of it: the value of a Status."""

    order: Order
    number: tuple[int, int]
    begun_ms: int
    wish: Wish
    cursor: int
    counts: Counts
    plan: Plan | None
    ended: str = ""
    ended_ms: int = 0

    @property
    def is_active(self) -> bool:
        return not self.ended

    @property
    def has_work(self) -> bool:
        """Whether its runner has anything to do."""
        return self.is_active and (self.wish is not Wish.PAUSE or self.plan is not None)


class Step(NamedTuple):
    """What a leader has done: `plan` has no offset yet. `purged` are those that a purge has marked.
    `is_void`: what was planned before was not moved, and never will be."""

    id: str
    cursor: int
    counts: Counts
    plan: Plan | None = None
    purged: Bits | None = None
    ended: str = ""
    is_void: bool = False


def begin_batch(order: Order, wall_ms: int) -> bytearray:
    """The batch that begins an operation."""
    order_json = order._asdict() | {"selection": order.selection._asdict()}
    return _batch({"say": "begin", "order": order_json}, wall_ms)


def wish_batch(operation_id: str, wish: Wish, wall_ms: int) -> bytearray:
    return _batch({"say": "wish", "id": operation_id, "wish": wish.value}, wall_ms)


def step_batch(step: Step, wall_ms: int) -> bytearray:
    said: dict[str, Any] = {
        "say": "step",
        "id": step.id,
        "cursor": step.cursor,
        "counts": list(step.counts),
        "ended": step.ended,
        "void": step.is_void,
    }
    if step.plan is not None:
        said["plan"] = plan_json(step.plan)
    if step.purged is not None:
        said["purged"] = bits_json(step.purged)
    return _batch(said, wall_ms)


def _batch(said: dict[str, Any], wall_ms: int) -> bytearray:
    value = json.dumps(said, separators=(",", ":")).encode()
    headers = ((FILLER_HEADER, None), (OPERATION_HEADER, said["say"].encode()))
    return build_batch([NewRecord(wall_ms, None, value, headers)], attributes=HIDDEN_FLAG)


def plan_json(plan: Plan) -> dict[str, Any]:
    return {"topic": plan.topic, "partition": plan.partition, **bits_json(plan.letters)}


def plan_of(said: dict[str, Any], offset: int) -> Plan:
    return Plan(said["topic"], said["partition"], bits_from(said), offset)


def bits_json(bits: Bits) -> dict[str, Any]:
    return {"base": bits.base, "bits": f"{bits.bits:x}"}


def bits_from(said: dict[str, Any]) -> Bits:
    return Bits(said["base"], int(said["bits"], 16))


def order_of(said: dict[str, Any]) -> Order:
    """What a beginning says."""
    selection = dict(said["selection"])
    for name in ("offsets", "ids"):
        selection[name] = tuple(selection[name])
    return Order(**{**said, "selection": Selection(**selection)})
