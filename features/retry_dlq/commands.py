"""Commands: what the records say that are produced to a retry partition.

    tw-nack: 6:100           the record that was delivered at offset 100 of partition 6 has failed
    tw-dead-letter: 6:100    it is to be a dead letter at once
    tw-delay, tw-reason, tw-exception, tw-consumer    as docs/retries.md says

Key, value and headers of other names mean nothing here: libraries add such to all that is produced.

Deliberately absent: whether there is such a record, and what becomes of it (judgement.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from features.delayed.times import DELAY_HEADER, InvalidTime, delay_ms

NACK_HEADER: Final = b"tw-nack"
DEAD_LETTER_HEADER: Final = b"tw-dead-letter"
REASON_HEADER: Final = b"tw-reason"
EXCEPTION_HEADER: Final = b"tw-exception"
CONSUMER_HEADER: Final = b"tw-consumer"
REASON_BYTES_MAX: Final = 1024
NAME_BYTES_MAX: Final = 256
# Records that are named in a refusal; a client reads no more.
PROBLEMS_MAX: Final = 1_000

_COMMANDS: Final = (NACK_HEADER, DEAD_LETTER_HEADER)
_TEXT_BYTES_MAX: Final = {
    REASON_HEADER: REASON_BYTES_MAX,
    EXCEPTION_HEADER: NAME_BYTES_MAX,
    CONSUMER_HEADER: NAME_BYTES_MAX,
}
_POSITION: Final = re.compile(rb"([0-9]{1,10}):([0-9]{1,19})")
_PARTITION_END: Final = 1 << 31
_OFFSET_END: Final = 1 << 63

# (index of the record, header key, header value), in order.
Headers = Iterable[tuple[int, bytes, bytes | None]]


class Position(NamedTuple):
    """Where something was delivered, by the subscription's partitions."""

    partition: int
    offset: int

    @property
    def is_own(self) -> bool:
        """Whether it was delivered from the retry partition, or else from the source."""
        return bool(self.partition % 2)

    def encoded(self) -> bytes:
        return b"%d:%d" % self


class Command(NamedTuple):
    """A record's. `texts`: the reason, the exception and the consumer, where they are given."""

    position: Position
    is_dead_letter: bool
    delay_ms: int | None
    texts: tuple[tuple[bytes, bytes], ...]


class InvalidCommand(ValueError):
    """What is wrong with a record, in words for whoever has sent it."""


def parse_position(value: bytes | None) -> Position:
    """What a header says that names something delivered; raises InvalidCommand."""
    match = None if value is None else _POSITION.fullmatch(value)
    if match is not None:
        found = Position(int(match[1]), int(match[2]))
        if found.partition < _PARTITION_END and found.offset < _OFFSET_END:
            return found
    raise InvalidCommand("it names a partition and an offset of the subscription, such as 6:100")


def read_commands(
    headers: Headers, record_count: int
) -> tuple[list[Command], list[tuple[int, str]]]:
    """The commands of a batch with these `tw-` headers, one for each record, or (index, problem) of
    records at fault, not all of many. There is one or the other."""
    of_records: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(record_count)]
    for index, key, value in headers:
        of_records[index].append((key, value))
    commands, problems = [], []
    for index, found in enumerate(of_records):
        try:
            commands.append(_command(found))
        except InvalidCommand as error:
            problems.append((index, str(error)))
            if len(problems) >= PROBLEMS_MAX:
                break
    return ([], problems) if problems else (commands, [])


def _command(headers: Sequence[tuple[bytes, bytes | None]]) -> Command:
    """That of one record; raises InvalidCommand."""
    names = [key for key, _ in headers]
    position: Position | None = None
    is_dead_letter, delay = False, None
    texts = []
    for key, value in headers:
        if names.count(key) > 1:
            raise _problem(key, "a record has it once")
        if key in _COMMANDS:
            if position is not None:
                raise InvalidCommand("a record has one of tw-nack and tw-dead-letter")
            try:
                position = parse_position(value)
            except InvalidCommand as error:
                raise _problem(key, str(error)) from error
            is_dead_letter = key == DEAD_LETTER_HEADER
        elif key == DELAY_HEADER:
            try:
                delay = delay_ms(value)
            except InvalidTime as error:
                raise _problem(key, str(error)) from error
        elif key in _TEXT_BYTES_MAX:
            texts.append((key, _text(key, value)))
        else:
            raise _problem(key, "a subscription's retry partition takes no such header")
    if position is None:
        raise InvalidCommand("a subscription takes records with tw-nack or tw-dead-letter only")
    if is_dead_letter and delay is not None:
        raise _problem(DELAY_HEADER, "a dead letter has no delay")
    return Command(position, is_dead_letter, delay, tuple(texts))


def _text(key: bytes, value: bytes | None) -> bytes:
    if value is None:
        raise _problem(key, "it has a value")
    if len(value) > _TEXT_BYTES_MAX[key]:
        raise _problem(key, f"it has {len(value)} bytes, more than {_TEXT_BYTES_MAX[key]}")
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise _problem(key, f"it is not UTF-8: {error}") from error
    return value


def _problem(key: bytes, reason: str) -> InvalidCommand:
    name = key.decode(errors="backslashreplace")
    name = name if name.isprintable() else ascii(name)[1:-1]
    return InvalidCommand(f"header {name[:100]}: {reason}")
