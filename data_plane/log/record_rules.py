"""The port through which a feature has a say in what clients may append: rules for records.

A feature that reads headers of records refuses those that it does not understand, so that nothing
is stored that it would have to guess about later. Which topics have rules is decided by their
properties (`TopicProperties.record_rules`); all others pay one comparison for a batch.

Invariants
- The same records get the same answer: rules know no clock and no state.
- They are asked about what clients produce, and about nothing that the cell writes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from data_plane.log.file_system import Buffer


class RecordRules(Protocol):
    """What the records of a topic have to be like, beyond what Kafka asks."""

    def problems(
        self, buf: Buffer, start: int, end: int, record_count: int
    ) -> Sequence[tuple[int, str]]:
        """(index in the batch, what is wrong) of the records that are refused, in their order; of
        many not all. Gets a batch's plain, sound records; may run in any thread."""
