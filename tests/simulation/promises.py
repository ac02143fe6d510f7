"""What clients were told, and whether it is true.

- An acknowledged batch of acks=all is committed, at the offset that was named, with the bytes that
  were sent; at that moment at least min.insync.replicas disks have it. From then on history.py
  guards it as part of the committed log.
- A producer id belongs to one producer.
- A committed group offset that was acknowledged is what a later fetch of it gives, or what a later
  commit has put in its place (`GroupOffsets`).
- A member's share is the one that the leader of its generation has given it.
- In a generation of a group a partition belongs to one member, or one instance of a static one.

The numbers of all records are checked in the end, on the bytes that consumers get (audit.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.groups.group_state import GroupState
from data_plane.wire.errors import ErrorCode

if TYPE_CHECKING:
    from data_plane.groups.coordinator import GroupCoordinator
    from tests.simulation.cell import Cell
    from tests.simulation.producer import Outgoing, Producer

# Errors that a producer of ours may get for good, because of what the workload does.
EXPECTED_REFUSALS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID})


@dataclass(slots=True)
class OffsetCommit:
    """One commit of one offset: when it was sent and answered (None: nobody knows)."""

    offset: int
    sent_us: int
    acknowledged_us: int | None = None


class Promises:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._producer_ids: dict[int, str] = {}
        # (topic id, index) → {(producer, number): offset} of what acks=all acknowledged.
        self.acknowledged_numbers: dict[tuple[UUID, int], dict[tuple[str, int], int]] = {}
        self.acknowledged_count = 0
        self.offset_commits: dict[tuple[str, str, int], list[OffsetCommit]] = {}
        self._given: dict[tuple[str, int, str], set[bytes]] = {}
        # (group, generation) → {partition: the member, or instance, that has it}
        self._shares: dict[tuple[str, int], dict[tuple[str, int], str]] = {}

    def producer_id_given(self, producer: Producer, producer_id: int) -> None:
        owner = self._producer_ids.setdefault(producer_id, f"{producer.name} once")
        if owner != f"{producer.name} once":
            self._world.violate(f"producer id {producer_id} of {owner} is given to {producer.name}")
        self._producer_ids[producer_id] = producer.name

    def acknowledged(self, producer: Producer, batch: Outgoing, base_offset: int) -> None:
        if not producer.is_idempotent:
            return
        topic = producer.topics.get(batch.topic)
        if topic is None:
            return
        key = (topic.topic_id, batch.index)
        partition = self._cell.history.partitions.get(key)
        if partition is None or partition.is_lossy:
            return
        what = f"{producer.name}'s batch {batch.first_number} in {batch.topic}-{batch.index}"
        if topic.topic_id not in self._cell.store.image.topics_by_id:
            return
        found = partition.by_offset.get(base_offset)
        if found is None and base_offset >= partition.start_offset:
            self._world.violate(
                f"{what} is acknowledged at {base_offset}, which is not committed "
                f"(up to {partition.end_offset})"
            )
        assert found is not None
        if (found.producer_id, found.base_sequence) != (producer.producer_id, batch.sequence):
            self._world.violate(f"{what} is acknowledged at {base_offset}, where {found} stands")
        holders = [
            name
            for name, views in self._cell.history.disks.items()
            if key in views and views[key].holds(found)
        ]
        losers = [
            name
            for name, lost in (*partition.lost.items(), *partition.dropped.items())
            if lost.start <= base_offset < lost.end and name not in holders
        ]
        if len({*holders, *losers}) < partition.isr_min:
            self._world.violate(
                f"{what} is acknowledged, and only {holders} have it; needed {partition.isr_min}"
            )
        self.acknowledged_count += 1
        numbers = self.acknowledged_numbers.setdefault(key, {})
        for delta in range(batch.count):
            numbers[(producer.name, batch.first_number + delta)] = base_offset + delta

    def given_up(self, producer: Producer, batch: Outgoing) -> None:
        """Its outcome is unknown for good."""

    def refused(self, producer: Producer, batch: Outgoing, error: ErrorCode) -> None:
        self._world.count(f"produce refused {error.name}")
        if error not in EXPECTED_REFUSALS:
            self._world.violate(
                f"{producer.name}'s batch {batch.first_number} in {batch.topic}-{batch.index} is "
                f"refused with {error.name}"
            )

    def gap_accepted(self, producer: Producer, topic: str, index: int) -> None:
        """A batch that leaves out sequences was acknowledged."""
        info = producer.topics.get(topic)
        partition = None
        if info is not None:
            partition = self._cell.history.partitions.get((info.topic_id, index))
        if partition is not None and not partition.is_lossy:
            self._world.violate(f"{producer.name}'s gap of sequences in {partition} is accepted")

    def out_of_order(self, producer: Producer, batch: Outgoing) -> None:
        """The leader does not know the batches that were acknowledged before."""
        topic = producer.topics.get(batch.topic)
        partition = None
        if topic is not None:
            partition = self._cell.history.partitions.get((topic.topic_id, batch.index))
        if topic is not None and self._cell.commits.allows_unclean(topic.topic_id):
            return
        if batch.sequence == 0:
            # Refused by a broker that began to lead a moment later and took the next one: of an
            # unknown producer any sequence is the first, as in Kafka. Nothing acknowledged is lost.
            return
        if partition is None or partition.is_lossy:
            return
        if any(
            (one.producer_id, one.base_sequence) == (producer.producer_id, batch.sequence)
            and one.last_offset < partition.start_offset
            for one in partition.batches
        ):
            # It was committed, and its records deleted: a replica made since knows no more of it,
            # as in Kafka.
            self._world.count("duplicates of deleted batches")
            return
        self._world.violate(
            f"{producer.name}'s batch {batch.first_number} (sequence {batch.sequence}) in "
            f"{partition} is out of order for good"
        )

    # Group offsets: a register with one writer at a time.

    def offset_commit_sent(self, group: str, topic: str, index: int, offset: int) -> OffsetCommit:
        commit = OffsetCommit(offset, self._world.now_us)
        self.offset_commits.setdefault((group, topic, index), []).append(commit)
        return commit

    def share_given(self, group: str, generation: int, member: str, share: bytes) -> None:
        """The leader of a generation gives that share to a member (or instance)."""
        self._given.setdefault((group, generation, member), set()).add(share)

    def check_share(self, group: str, generation: int, member: str, share: bytes) -> None:
        """A member is told its share: of this generation, and its own."""
        given = self._given.get((group, generation, member), set())
        if share not in given and not self._cell.is_group_lossy(group):
            self._world.violate(
                f"{member} of {group} is told {share!r} in generation {generation}, given was "
                f"{given}"
            )

    def share_taken(
        self, group: str, generation: int, holder: str, targets: list[tuple[str, int]]
    ) -> None:
        """A member is told its share of a generation: no other member has any of it."""
        holders = self._shares.setdefault((group, generation), {})
        for target in targets:
            other = holders.setdefault(target, holder)
            if other != holder and not self._cell.is_group_lossy(group):
                self._world.violate(
                    f"{holder} and {other} both have {target} in generation {generation} of {group}"
                )

    def look_at_groups(self, coordinator: GroupCoordinator) -> None:
        """At the end of a pass. Those that are being deleted may end: by their coordinator alone
        where nobody has committed anything for them, or when their offsets have expired."""
        if coordinator.totals.state_counts.get(GroupState.DEAD):
            for group in coordinator.groups():
                if group.state is GroupState.DEAD:
                    self._group_may_end(group.group_id)

    def _group_may_end(self, group: str) -> None:
        """The next group of that name begins with generation 1."""
        for known in [key for key in self._shares if key[0] == group]:
            del self._shares[known]
        for given in [key for key in self._given if key[0] == group]:
            del self._given[given]

    def offset_commit_refused(self, group: str, topic: str, index: int, commit: object) -> None:
        """It is known not to have happened."""
        commits = self.offset_commits[(group, topic, index)]
        commits[:] = [one for one in commits if one is not commit]

    def offset_fetched(
        self, group: str, topic: str, index: int, offset: int, asked_us: int
    ) -> None:
        """A coordinator said that `offset` is committed (-1: nothing is)."""
        commits = self.offset_commits.get((group, topic, index), [])
        settled = [
            one
            for one in commits
            if one.acknowledged_us is not None and one.acknowledged_us < asked_us
        ]
        # Superseded: another commit was sent after this one's answer and answered before the fetch.
        newest_sent_us = max((one.sent_us for one in settled), default=-1)
        possible = {
            one.offset
            for one in commits
            if one.acknowledged_us is None or one.acknowledged_us >= newest_sent_us
        }
        if not settled:
            possible.add(-1)
        if offset not in possible and not self._cell.is_group_lossy(group):
            self._world.violate(
                f"group {group} is told offset {offset} of {topic}-{index}; committed was "
                f"{sorted(possible)[-5:]}"
            )
        read = [one for one in commits if one.offset == offset]
        if read and all(one.acknowledged_us is None for one in read):
            # Who was told of it may rely on it, as if the commit had been acknowledged.
            read[0].acknowledged_us = self._world.now_us
            self._world.count("offsets told before their commit was acknowledged")
        self._world.count("group offsets fetched")
