"""What is known of one partition: its committed log, and what its disks have lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.compacted import CompactedRecords
from tests.simulation.pin_fold import Pins
from tests.simulation.replicas import Batch, TopicPartition


@dataclass(slots=True)
class LostRange:
    """Offsets [start, end) that a disk had, and has lost. Once its broker has registered again,
    everybody has been told."""

    start: int
    end: int
    is_registered: bool = False


@dataclass(slots=True)
class PartitionHistory:
    """One partition's committed log and what is known of its disks."""

    topic: str
    key: TopicPartition
    batches: list[Batch] = field(default_factory=list)
    by_offset: dict[int, Batch] = field(default_factory=dict)
    start_offset: int = 0
    end_offset: int = 0
    # Every batch any disk ever held, by (base offset, epoch).
    matching: dict[tuple[int, int], Batch] = field(default_factory=dict)
    # producer id → (epoch, next sequence)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    # What disks have lost and not got back: of what was committed then, and of all.
    lost: dict[str, LostRange] = field(default_factory=dict)
    dropped: dict[str, LostRange] = field(default_factory=dict)
    # What was in the unsynced tail of a machine that lost power, and may have survived: the cell
    # cannot know. Until that broker is in the ISR again.
    doubted: dict[str, LostRange] = field(default_factory=dict)
    # What bit rot has struck on which disk, until the log is cut there (bit_rot.py).
    rotten: dict[str, Batch] = field(default_factory=dict)
    # The same of what lies below the log start by now and is still on the disk, held by a fold.
    rotten_below: dict[str, Batch] = field(default_factory=dict)
    # Who has deleted since what was struck, and has it noted as damaged all the same (repairs.py).
    outlived: dict[str, None] = field(default_factory=dict)
    # Who was a replica and was given up, and by which commit: it may be one again, and empty.
    removals: dict[str, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    isr_min: int = 1 << 30
    # Loss was permitted at some time: unclean elections, or too many disks lost.
    is_lossy: bool = False
    # Where the cleaner is at work: what was said. None where disks keep all that they get.
    compacted: CompactedRecords | None = None
    # What a fold holds by what is committed (held.py); None where nobody keeps count.
    pins: Pins | None = None

    def note_removals(self, node_ids: set[int], version: int) -> None:
        """These were given up by the commit of that version."""
        self.removals.update((f"b{node_id}", version) for node_id in node_ids)

    def __str__(self) -> str:
        return f"{self.topic}-{self.key[1]}"
