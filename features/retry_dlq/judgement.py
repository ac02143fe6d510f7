"""What becomes of commands: a copy that comes back, a dead letter, or nothing when it was said.

    command ─► was its position nacked before? ── yes ─► repeat
            └► the original ─► the attempt that failed ─► the last one, or a dead letter asked for?
                                                     yes ─► dead
                                                     no ──► copy, due after the policy's delay

Pure: what it goes by comes from a `Deliveries` port and an `Outlook`, and chance is passed in.

Invariants
- One outcome for each command, in their order; a batch is judged as a whole or refused.
- Of a position there is at most one outcome that is no repeat, in one batch as over all of them.
- A copy has the attempt after the one that failed, which the original says.

Deliberately absent: reading (originals.py), and how outcomes are stored (stored_form.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from data_plane.log.errors import AppendError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import Record
from features.retry_dlq.commands import PROBLEMS_MAX, Command, Position
from features.retry_dlq.policy import Policy

# Of one batch, whose originals are read one after the other.
COMMANDS_MAX: Final = 10_000


class Original(NamedTuple):
    """What was delivered. `attempt`: which delivery that was. `source`: topic/partition/offset of
    the record in the source; `produced_at_ms` when that was produced. `first_failed_at_ms` is None
    for what did not fail before."""

    record: Record
    attempt: int
    source: bytes
    produced_at_ms: int
    first_failed_at_ms: int | None


class NoOriginal(Exception):
    """There is none, and will be none: why, in words for whoever named it."""


class NotThere(Exception):
    """It cannot be read here now; whoever tries again may find it."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class Deliveries(Protocol):
    """What this broker knows of what was delivered from a pair of partitions."""

    def nacked(self, positions: Iterable[Position]) -> set[Position]:
        """Which of these were nacked before."""

    def original(self, position: Position) -> Original:
        """What was delivered there. Raises NoOriginal, NotThere."""


class Outlook(NamedTuple):
    """By what a batch is judged. `pair`: the number of the source's partition. `target`: where dead
    letters go, as topic/partition."""

    pair: int
    policy: Policy
    target: bytes
    wall_ms: int


class Copy(NamedTuple):
    """It comes back at `due_ms` as this attempt."""

    command: Command
    original: Original
    attempt: int
    due_ms: int


class Dead(NamedTuple):
    """It is a dead letter after so many deliveries."""

    command: Command
    original: Original
    attempts: int


class Repeat(NamedTuple):
    """It was said before."""

    command: Command


Outcome = Copy | Dead | Repeat


def judge(
    commands: Sequence[Command], deliveries: Deliveries, outlook: Outlook, chance: random.Random
) -> list[Outcome]:
    """The outcome of each. Raises AppendError, which names those that are refused for good."""
    if len(commands) > COMMANDS_MAX:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(commands)} records: a retry partition takes {COMMANDS_MAX}",
        )
    problems = [
        (index, f"partition {command.position.partition} is not one of this pair")
        for index, command in enumerate(commands)
        if command.position.partition // 2 != outlook.pair
    ]
    if problems:
        raise refusal_of(problems)
    said = deliveries.nacked({command.position for command in commands})
    outcomes: list[Outcome] = []
    not_there: NotThere | None = None
    for index, command in enumerate(commands):
        if command.position in said:
            outcomes.append(Repeat(command))
            continue
        said.add(command.position)
        try:
            original = deliveries.original(command.position)
        except NoOriginal as error:
            problems.append((index, f"{command.position.encoded().decode()}: {error}"))
        except NotThere as error:
            not_there = not_there or error
        else:
            outcomes.append(_outcome(command, original, outlook, chance))
    if problems:
        raise refusal_of(problems)
    if not_there is not None:
        raise AppendError(not_there.error_code, str(not_there))
    return outcomes


def _outcome(
    command: Command, original: Original, outlook: Outlook, chance: random.Random
) -> Outcome:
    attempt, policy = original.attempt, outlook.policy
    if command.is_dead_letter or policy.is_last(attempt):
        return Dead(command, original, attempt)
    delay_ms = command.delay_ms
    if delay_ms is None:
        delay_ms = policy.delay_ms(attempt, chance.random())
    return Copy(command, original, attempt + 1, outlook.wall_ms + delay_ms)


def refusal_of(problems: Sequence[tuple[int, str]]) -> AppendError:
    """Of a batch with these: (index of the record, what is wrong)."""
    index, problem = problems[0]
    return AppendError(
        ErrorCode.INVALID_RECORD,
        f"record {index}: {problem}",
        len(problems),
        lambda: problems[:PROBLEMS_MAX],
    )
