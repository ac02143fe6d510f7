"""The port through which a feature has a say in what clients may append: rules for records.

A feature that reads headers of records refuses those that it does not understand, so that nothing
is stored that it would have to guess about later. Which topics have rules is decided by their
properties (`TopicProperties.record_rules`); all others pay one comparison for a batch.

Invariants
- The same records get the same answer: rules know no clock and no state.
- They are asked about what clients produce, and about nothing that the cell writes itself.

Some records are stored, and not to be shown to readers as they are. The rules find them, and make
the batch that is stored in the place of the client's (attribute HIDDEN_FLAG); what shows or hides
records is a projection.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple, Protocol

from data_plane.log.file_system import Buffer
from data_plane.wire.records import BatchHeader


class HidingTerms(NamedTuple):
    """What hidden records of a batch go by: why there can be none here ("" when there can), and the
    date, None while it is in doubt."""

    refusal: str
    wall_ms: int | None


class RecordRules(Protocol):
    """What the records of a topic have to be like, beyond what Kafka asks."""

    @property
    def dedup_window_ms(self) -> int:
        """For how long a message id that was taken is not taken again, by the time of the append,
        which the topic's batches have then; 0: ids are of no consequence."""

    @property
    def takes_commands(self) -> bool:
        """Whether what is produced there is stored as its taker makes it
        (data_plane/broker/produce/takers.py), and these rules are not asked."""

    def has_ids(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        """Whether some of these records, which have no problems, have an id."""

    def problems(
        self, buf: Buffer, start: int, end: int, record_count: int
    ) -> Sequence[tuple[int, str]]:
        """(index in the batch, what is wrong) of the records that are refused, in their order; of
        many not all. Gets a batch's plain, sound records; may run in any thread."""

    def hides(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        """Whether some of these records, which have no problems, are to be hidden."""

    def commands_in(self, buf: Buffer, start: int, end: int, record_count: int) -> Set[int]:
        """Which of these records, some of which are to be hidden, are commands, by their place:
        what they ask for is judged before their batch is stored (broker/produce/judging.py), and
        they need no key. In a worker thread."""

    def hidden_form(
        self, header: BatchHeader, buf: Buffer, start: int, end: int, terms: HidingTerms
    ) -> bytearray:
        """The batch to store, of which some records are hidden: `header` is the client's, its plain
        records are at buf[start:end]. Raises AppendError. In a worker thread."""
