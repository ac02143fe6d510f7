"""What a retry log and its topic of dead letters tell of a subscription's messages, by themselves.

    orders/0/5  ─► copy, attempt 2 ─► fired ─► copy, attempt 3 ─► fired ─► dead ─► arrived

Each message has one such chain. Raises AssertionError for what cannot be: a position that comes
back twice, an attempt that is not the next one, what is early, what was not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import BatchHeader, Record
from features.retry_dlq.commands import Position, parse_position


class Content(NamedTuple):
    """What is the client's of a message, and stays as it is."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def content_of(record: Record) -> Content:
    headers = tuple(one for one in record.headers if not one[0].startswith(b"tw-"))
    key, value = record.key, record.value
    return Content(
        None if key is None else bytes(key), None if value is None else bytes(value), headers
    )


class Delivery(NamedTuple):
    """What was delivered, or will be: of which record in the source, as which attempt, when."""

    source: bytes
    attempt: int
    content: Content
    due_ms: int


class Dead(NamedTuple):
    """`place`: its leader epoch and offset, by which it is known where it arrives."""

    source: bytes
    attempts: int
    content: Content
    place: tuple[int, int]


class Story:
    """That of one retry partition."""

    def __init__(
        self,
        source: bytes,
        values: Mapping[int, Content],
        backoff_ms: Sequence[int],
        attempts_max: int,
        delays_ms: Mapping[bytes, int],
    ) -> None:
        """`source` is topic/partition, with `values` by offset. `delays_ms`: what nacks ask for, by
        their reasons."""
        self._source = source
        self._values = values
        self._backoff_ms = backoff_ms
        self._attempts_max = attempts_max
        self._delays_ms = delays_ms
        # Where what was stored for each position is.
        self.said: dict[Position, int] = {}
        # By offset: of the copy, and of the delivery.
        self.pending: dict[int, Delivery] = {}
        self.fired: dict[int, Delivery] = {}
        self.dead: list[Dead] = []
        # How many of these have arrived.
        self.letters_count = 0

    def take(self, header: BatchHeader, record: Record) -> None:
        """The next record of the retry log."""
        headers = dict(record.headers)
        if not header.attributes & HIDDEN_FLAG:
            self._fire(record, headers)
        elif b"tw-nack" in headers:
            failed = self._failed(record, headers, b"tw-nack")
            assert failed.attempt < self._attempts_max, f"{record} should be a dead letter"
            attempt = _number(headers, b"tw-attempt")
            assert attempt == failed.attempt + 1, f"{record} comes after attempt {failed.attempt}"
            listed_ms = self._backoff_ms[min(failed.attempt, len(self._backoff_ms)) - 1]
            delay_ms = self._delays_ms.get(headers.get(b"tw-reason") or b"", listed_ms)
            due_ms = _number(headers, b"tw-deliver-at")
            assert due_ms - record.timestamp == delay_ms, f"{record} is not due after {delay_ms} ms"
            self.pending[record.offset] = failed._replace(attempt=attempt, due_ms=due_ms)
        elif b"tw-dead-letter" in headers:
            failed = self._failed(record, headers, b"tw-dead-letter")
            attempts = _number(headers, b"tw-attempt")
            assert attempts == failed.attempt, f"{record}: there were {failed.attempt} attempts"
            place = header.partition_leader_epoch, record.offset
            self.dead.append(Dead(failed.source, attempts, failed.content, place))

    def _failed(
        self, record: Record, headers: Mapping[bytes, bytes | None], name: bytes
    ) -> Delivery:
        """What has failed, which was delivered by then and is said to have failed once."""
        position = parse_position(headers[name])
        assert position not in self.said, f"{position} comes back twice: {record}"
        self.said[position] = record.offset
        if position.is_own:
            found = self.fired.get(position.offset)
        else:
            content = self._values.get(position.offset)
            source = b"%s/%d" % (self._source, position.offset)
            found = None if content is None else Delivery(source, 1, content, 0)
        assert found is not None, f"{position} was not delivered: {record}"
        assert content_of(record) == found.content, f"{record} is not {found}"
        assert headers[b"tw-source"] == found.source, f"{record} is not {found}"
        return found

    def _fire(self, record: Record, headers: Mapping[bytes, bytes | None]) -> None:
        copy = self.pending.pop(_number(headers, b"tw-fired"), None)
        assert copy is not None, f"{record} was not pending"
        assert record.timestamp >= copy.due_ms, f"{record} is early: {copy}"
        assert content_of(record) == copy.content, f"{record} is not {copy}"
        assert headers[b"tw-source"] == copy.source, f"{record} is not {copy}"
        assert _number(headers, b"tw-attempt") == copy.attempt, f"{record} is not {copy}"
        self.fired[record.offset] = copy

    def arrived(self, record: Record) -> None:
        """The next record of the topic of dead letters that comes from here."""
        headers = dict(record.headers)
        _, _, epoch, offset = (headers[b"tw-dead"] or b"").split(b"/")
        letter = Dead(
            headers[b"tw-source"] or b"",
            _number(headers, b"tw-attempt"),
            content_of(record),
            (int(epoch), int(offset)),
        )
        expected = self.dead[self.letters_count : self.letters_count + 1]
        assert expected == [letter], f"{record} is not the next dead letter, {expected}"
        self.letters_count += 1

    def waiting(self) -> list[Dead]:
        """Those that have not arrived."""
        return self.dead[self.letters_count :]

    def check_chains(self) -> None:
        """No message is dead twice, none has an attempt twice or skips one."""
        sources = [one.source for one in self.dead]
        assert len(sources) == len(set(sources)), "a message is dead twice"
        attempts: dict[bytes, list[int]] = {}
        for one in self.fired.values():
            attempts.setdefault(one.source, []).append(one.attempt)
        for source, found in attempts.items():
            assert found == list(range(2, len(found) + 2)), f"{source!r} has the attempts {found}"


def _number(headers: Mapping[bytes, bytes | None], name: bytes) -> int:
    return int(headers[name] or b"")
