"""Produced batches with commands: judged by a thread, and stored if that still holds then.

    looked at ─► is it stored already? ─► append, which answers as a duplicate
             └─► begin: what is known now ─► a thread judges, and makes the batch to store
                 ─► on the loop: does it still hold? ─► append, or refuse
                                                  └► judge again, by what is known then
    refused     ─► told when what it goes by is committed (produce_waits.py)

A command changes what becomes of a record that is stored, so what is answered depends on what else
has happened to that record: the answer is the truth because nothing happens between the last look
and the append.

Deliberately absent: what commands there are and how they are judged (a feature, `Judges`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from data_plane.broker.produce.produce_checks import (
    Checked,
    Nothing,
    ProduceChecks,
    Refusal,
    ready_to_append,
)
from data_plane.log.errors import AppendError
from data_plane.log.log import Log
from data_plane.log.producer_state import SEQUENCE_MASK
from data_plane.replica.partition import Partition
from data_plane.wire.errors import InvalidRecords

if TYPE_CHECKING:
    from data_plane.broker.services import Services


class Judgement(Protocol):
    """Of one batch."""

    def judge(self) -> bytearray:
        """The batch to store. In a worker thread; raises AppendError, InvalidRecords."""

    def judged(self) -> None:
        """The thread has ended. On the loop, once."""

    def still_holds(self, partition: Partition) -> bool:
        """Whether what was found in it is so now, also a refusal. On the loop."""

    def stored(self) -> None:
        """What it has found was appended. On the loop."""


class Judges(Protocol):
    """A feature that has commands."""

    def begin(self, partition: Partition, checked: Checked, now_ms: int) -> Judgement:
        """Of a batch for a partition that this broker leads, by what is known now."""


class Judged(NamedTuple):
    """What a thread has found of a batch with commands."""

    batch: Checked
    judgement: Judgement
    verdict: Checked | Refusal


Found = Checked | Refusal | Judged | Nothing


def settled(
    found: Checked | Refusal | Judged, partition: Partition
) -> tuple[Checked | Refusal, Judgement | None]:
    """What to store or to refuse, and whose verdict that is; the batch itself where it has to be
    judged again."""
    if not isinstance(found, Judged):
        return found, None
    if not found.judgement.still_holds(partition):
        return found.batch, None
    return found.verdict, found.judgement


def needs_judgement(checked: Checked, log: Log) -> bool:
    """Whether it has commands, and is not one that its producer has sent before: that is answered
    as a duplicate."""
    header = checked.batches[0]
    if not checked.has_commands or header.producer_id < 0:
        return checked.has_commands
    producers = log.producers_if_loaded
    entry = None if producers is None else producers.producers.get(header.producer_id)
    first = header.base_sequence
    last = (first + header.last_offset_delta) & SEQUENCE_MASK
    return entry is None or entry.find_duplicate(header.producer_epoch, first, last) is None


def work_left(
    services: Services,
    checks: ProduceChecks,
    partition: Partition,
    checked: Checked,
    now_ms: int,
) -> tuple[Callable[[], Checked | Refusal | Judged], Judgement | None] | None:
    """What a thread has to do before the batch may be stored; None for nothing."""
    look = checked.duplicates
    if look is not None and not look.holds(partition):
        look.judge_again(partition, now_ms)
        return partial(checks.judge_in_thread, checked, look), None
    if needs_judgement(checked, partition.log):
        return work_on(services, checks, partition, checked, now_ms)
    return None


def work_on(
    services: Services,
    checks: ProduceChecks,
    partition: Partition,
    checked: Checked,
    now_ms: int,
) -> tuple[Callable[[], Judged], Judgement]:
    """What a thread has to do for it."""
    judges = services.judges
    assert judges is not None, "who has rules for commands judges them"
    judgement = judges.begin(partition, checked, now_ms)
    config = partition.log.config
    wall_ms = services.wall_clock.wall_ms(now_ms)
    name = f"{partition.topic}-{partition.index}"

    def work() -> Judged:
        try:
            stored = judgement.judge()
            verdict: Checked | Refusal = ready_to_append(stored, config, wall_ms, name)
        except (AppendError, InvalidRecords) as error:
            verdict = checks.refusal(error)
        return Judged(checked, judgement, verdict)

    return work, judgement
