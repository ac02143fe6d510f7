"""Holds what was sent against what was received. Pure: no client, no clock.

At-least-once delivery may hand a message out again when a partition moves to another consumer
before its last commit. Such a redelivery is the same record (same partition, same offset) and is
counted, not blamed. The same flight at a second place in the log is a duplicate, which the
idempotent producer rules out, and is blamed.

Order is judged on first deliveries: the flights of one key must appear with rising row numbers,
whichever consumer receives them.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EXAMPLES_MAX: Final = 5
UNSEEN: Final = -1
ROW_PREFIX: Final = b'{"row":'
PARTITION_BITS: Final = 16
"""A place in the log is offset << 16 | partition, so that one integer holds it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome. All but `received` and `redelivered` should be 0."""

    sent: int
    received: int
    missing: int
    altered: int
    out_of_order: int
    duplicates: int
    unknown: int
    redelivered: int
    examples: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        faults = self.missing + self.altered + self.out_of_order + self.duplicates + self.unknown
        return faults == 0 and self.received == self.sent


class Ledger:
    """One run's books. Rows count from 1 to `rows_max`."""

    def __init__(self, rows_max: int) -> None:
        self.sent = 0
        self.received = 0
        self.redelivered = 0
        self._altered = self._out_of_order = self._duplicates = self._unknown = 0
        self._examples: list[str] = []
        # 64-bit fingerprints instead of the messages themselves: 3 MB, not 130.
        self._fingerprints = array("q", bytes(8 * (rows_max + 1)))
        self._places = array("q", [UNSEEN]) * (rows_max + 1)
        self._sent_at_s = array("d", bytes(8 * (rows_max + 1)))
        self._last_row_of_key: dict[bytes, int] = {}
        self.latencies_s = array("d")

    def record_sent(
        self, row: int, key: bytes | None, value: bytes, at_s: float | None = None
    ) -> None:
        """A flight is about to be sent. With `at_s` its latency is measured."""
        self._fingerprints[row] = hash((key, value))
        self.sent += 1
        if at_s is not None:
            self._sent_at_s[row] = at_s

    def record_received(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int, at_s: float
    ) -> None:
        """A consumer got this message at this place in the log."""
        row = _row_of(value)
        if row is None or not 0 < row < len(self._places) or not self._fingerprints[row]:
            self._unknown += 1
            self._blame(f"{partition}@{offset} holds no flight that was sent")
            return
        if self._fingerprints[row] != hash((key, value)):
            self._altered += 1
            self._blame(f"row {row} at {partition}@{offset} is not what was sent")
        place = offset << PARTITION_BITS | partition
        if self._places[row] != UNSEEN:
            if self._places[row] == place:
                self.redelivered += 1
            else:
                self._duplicates += 1
                self._blame(f"row {row} is in the log twice, again at {partition}@{offset}")
            return
        self._places[row] = place
        self.received += 1
        if self._sent_at_s[row]:
            self.latencies_s.append(at_s - self._sent_at_s[row])
        if key is not None:
            last_row = self._last_row_of_key.get(key, 0)
            if row < last_row:
                self._out_of_order += 1
                self._blame(f"row {row} of key {key!r} came after row {last_row}")
            else:
                self._last_row_of_key[key] = row

    @property
    def keys(self) -> int:
        """How many different keys were received."""
        return len(self._last_row_of_key)

    def has_received(self, row: int) -> bool:
        """Whether some consumer got this flight."""
        return self._places[row] != UNSEEN

    def _blame(self, example: str) -> None:
        if len(self._examples) < EXAMPLES_MAX:
            self._examples.append(example)

    def verdict(self) -> Verdict:
        """The books closed."""
        missing = [
            row
            for row, place in enumerate(self._places)
            if place == UNSEEN and self._fingerprints[row]
        ]
        examples = [*self._examples, *(f"row {row} is missing" for row in missing)]
        return Verdict(
            sent=self.sent,
            received=self.received,
            missing=len(missing),
            altered=self._altered,
            out_of_order=self._out_of_order,
            duplicates=self._duplicates,
            unknown=self._unknown,
            redelivered=self.redelivered,
            examples=tuple(examples[:EXAMPLES_MAX]),
        )


def _row_of(value: bytes | None) -> int | None:
    """The row number in a message, None when it has none."""
    if value is not None and value.startswith(ROW_PREFIX):
        # Where it stands in what the demo sends. Whether the rest is as sent too, the fingerprint
        # says; there is no need to read it.
        digits = value[len(ROW_PREFIX) : value.find(b",", len(ROW_PREFIX))]
        if digits.isdigit():
            return int(digits)
    try:
        row = json.loads(value or b"null")["row"]
    except (ValueError, TypeError, KeyError):
        return None
    return row if isinstance(row, int) else None


def percentile(sorted_values: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile of ascending values.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    rank = max(1, -(-len(sorted_values) * fraction // 1))
    return sorted_values[int(rank) - 1]
