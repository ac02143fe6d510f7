"""Histories as those of delayed_cell.py, of a compacted topic: each broker compacts when it likes,
and is restarted now and then.

What must hold besides, whatever has gone:
- All replicas end with nothing pending, and so does whoever reads the disk of one anew.
- On each the newest value of each key is there, of all that was ever committed.

What a replica has is noted before its cleaner gets to it, so that in the end all is known that was
ever committed.
"""

from __future__ import annotations

from data_plane.cell.metadata import PartitionImage
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import BatchHeader, Record
from features.delayed.commands import JUDGED_AT_HEADER
from features.delayed.firing import fold_of
from features.delayed.times import DELIVER_AT_HEADER
from tests.broker.cell_player import TOPIC_ID
from tests.features.delayed_cell import CONFIGS, DelayedCell, Told
from tests.features.faulty_cell import batches_of, play_to_its_end

KEYS = 4
COMPACTED = {
    **CONFIGS,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "20",
}


class CompactedCell(DelayedCell):
    """One history."""

    configs = COMPACTED

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # By offset: what was committed, as it was when it was seen first.
        self.noted: dict[int, tuple[BatchHeader, Record]] = {}
        self.compacted_count = 0
        # Cut off, and out of sync.
        self.away: int | None = None

    def key_of(self, value: bytes) -> bytes | None:
        return b"key-%d" % (int(value) % KEYS)

    def step(self) -> None:
        choice = self.rng.randrange(100)
        if choice < 10:
            self.compact()
        elif choice < 12:
            self.restart()
        elif choice < 14:
            self.heal()
            self.tell()
        elif choice < 16:
            self.leave()
        elif choice < 20:
            self.come_back()
        else:
            super().step()

    def forget_old(self) -> None:
        """Nothing is, by time or by request."""
        for node_id in self.leaders():
            self.cell.replica(node_id).log.roll()

    def thin(self) -> None:
        """There is nothing below the log start."""
        self.compact()

    # One replica may be away, and not in sync, while the others go on and compact.

    def elect(self) -> None:
        told = [one for one in self.cell.brokers if self.rng.random() < 0.6]
        self.cell.change(leader=self.rng.choice(self.partition.isr), only=told)

    @property
    def partition(self) -> PartitionImage:
        (partition,) = self.cell.image.topics_by_id[TOPIC_ID].partitions
        return partition

    def leave(self) -> None:
        if len(self.partition.isr) < len(self.cell.brokers):
            return
        self.away = self.rng.choice(
            [one for one in self.partition.isr if one != self.partition.leader]
        )
        self.cell.change(isr=tuple(one for one in self.partition.isr if one != self.away))
        self.heal()

    def heal(self) -> None:
        super().heal()
        if self.away is not None:
            others = set(self.cell.brokers) - {self.away}
            self.cell.cuts.update(frozenset((self.away, one)) for one in others)

    def come_back(self) -> None:
        """It fetches again, or is in sync again when it has all there is."""
        if self.away is not None:
            self.away = None
            self.heal()
            return
        leader = self.cell.replica(self.partition.leader)
        for node_id in set(self.cell.brokers) - set(self.partition.isr):
            one = self.cell.replica(node_id)
            follows = one.leader_epoch == leader.leader_epoch == self.partition.leader_epoch
            if follows and leader.is_leader and one.log.log_end_offset == leader.log.log_end_offset:
                self.cell.change(isr=(*self.partition.isr, node_id))

    def settle(self) -> None:
        self.away = None
        super().settle()
        self.come_back()
        super().settle()

    def restart(self) -> None:
        node_id = self.rng.choice(list(self.cell.brokers))
        broker = self.cell.restart(node_id, is_clean=self.rng.random() < 0.5)
        broker.services.wall_clock = self.clocks[node_id]  # type: ignore[assignment]
        self.cell.replica(node_id).log.load()

    def compact(self) -> None:
        """On one broker, as far as it can be."""
        node_id = self.rng.choice(list(self.cell.brokers))
        broker, log = self.cell.brokers[node_id], self.cell.replica(node_id).log
        if log.active.size and self.rng.random() < 0.7:
            log.roll()
        log.flush()
        checkpoint = broker.logs.checkpoint_job(broker.logs.directories[0])
        checkpoint.run()
        checkpoint.finish()
        self.note(node_id)
        job = log.compaction_job(self.now_ms)
        if job is not None:
            job.run()
            job.finish()
            self.compacted_count += 1

    def note(self, node_id: int) -> None:
        log = self.cell.replica(node_id).log
        for header, records in batches_of(log, log.log_start_offset):
            for record in records:
                if record.offset < log.high_watermark:
                    _, known = self.noted.setdefault(record.offset, (header, record))
                    assert record in (known, known._replace(value=None)), "replicas differ"

    def offsets_left(self) -> list[set[int]]:
        """What each broker still has."""
        logs = [self.cell.replica(node_id).log for node_id in self.cell.brokers]
        return [
            {record.offset for _, records in batches_of(log, 0) for record in records}
            for log in logs
        ]

    def check(self) -> None:
        for node_id in self.cell.brokers:
            self.note(node_id)
        history = [(header, [record]) for _, (header, record) in sorted(self.noted.items())]
        told = Told(history)
        twice = [value for value, count in told.values.items() if count > 1]
        assert not twice, f"delivered twice: {twice}"
        assert not told.pending, f"not delivered: {sorted(told.pending)}"
        self.check_acknowledged(told)
        self.check_said(told)
        newest = {
            record.key: record
            for header, records in history
            for record in records
            if not is_hidden(header, record)
        }
        for node_id in self.cell.brokers:
            self.check_replica(node_id, newest)

    def check_replica(self, node_id: int, newest: dict[bytes | None, Record]) -> None:
        log = self.cell.replica(node_id).log
        fold = fold_of(log)
        assert fold is not None
        assert len(fold) == 0
        found = list(batches_of(log, log.log_start_offset))
        assert not Told(found).pending, "who reads it anew delivers again"
        held = {
            record.key: record
            for header, records in found
            for record in records
            if not is_hidden(header, record)
        }
        assert held == newest, f"broker {node_id} lacks the newest values"


def is_hidden(header: BatchHeader, record: Record) -> bool:
    names = dict(record.headers)
    return bool(header.attributes & HIDDEN_FLAG) and (
        DELIVER_AT_HEADER in names or JUDGED_AT_HEADER in names or b"tw-cancel" in names
    )


def play(seed: int, steps: int = 400) -> CompactedCell:
    """A history, to its end. Raises AssertionError."""
    return play_to_its_end(CompactedCell(seed), steps)
