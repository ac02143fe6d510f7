"""ISR changes: what leaders propose becomes commits of the metadata store.

A leader may not change its ISR by itself: whoever elects looks at the committed one. So proposals
are committed, several at a time, one commit in flight; meanwhile the leaders count both their
committed and their proposed ISR (leadership.py).

    a follower has caught up   → proposed at the end of the pass      (isr_may_grow)
    a follower has fallen back → proposed at the next look            (twice per lag time)

    committed, and the image has it        the leaders see it by the image
    decided otherwise, or not at all       refused: the proposals are withdrawn
    the store does not answer              unknown: they stay in flight and are asked for again

Invariants
- What is decided is decided on the image that it is committed to: the leader, its epoch and the
  partition's are those of the proposal, and who joins is registered with the broker epoch that its
  fetches named and not fenced (KIP-903).
- An outcome that is not known withdraws nothing. `decide` depends on the image alone, so when it
  leaves a proposal out, it does so on a newer image than the one that a lost commit was for.

Deliberately absent: when a follower is in sync (replica room), elections (controller).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_plane.broker.services import Services
from data_plane.cell.changes import Change, ChangePartition, InvalidChange
from data_plane.cell.metadata import MetadataImage, PartitionImage
from data_plane.cell.partition_state import may_join_isr, next_epochs, with_isr
from data_plane.replica.partition import Partition

if TYPE_CHECKING:
    from data_plane.replica.leadership import IsrProposal

# Proposals in one commit. More would hold up other commits.
PROPOSALS_PER_COMMIT_MAX = 1000
# How long to wait before a store that did not answer is asked again.
RETRY_MS = 500


@dataclass(frozen=True, slots=True)
class _Proposed:
    partition: Partition
    proposal: IsrProposal


class IsrManager:
    """The component that commits the proposals of all partitions led here."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # Partitions that may have somebody to take in.
        self._growing: dict[Partition, None] = {}
        # Proposed, and not known to be committed or refused.
        self._open: list[_Proposed] = []
        self._is_writing = False
        self._next_look_ms = 0
        self._retry_ms: int | None = None
        self._now_ms = 0
        self.expands_count = 0
        self.shrinks_count = 0
        services.partitions.on_isr_may_grow = self._may_grow

    def start(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._next_look_ms = now_ms + self._look_interval_ms()

    def next_deadline_ms(self) -> int:
        if self._retry_ms is not None:
            return min(self._retry_ms, self._next_look_ms)
        return self._next_look_ms

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + self._look_interval_ms()
            self._propose(self._services.partitions.leading(), now_ms, may_shrink=True)
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._commit()

    def stop(self, now_ms: int) -> None:
        """What is in flight is committed or not; the next leader reads it from the image."""

    def run(self, now_ms: int) -> None:
        """The end of a pass in which followers caught up."""
        self._now_ms = now_ms
        if self._is_writing or self._retry_ms is not None:
            return
        growing, self._growing = self._growing, {}
        self._propose(growing, now_ms, may_shrink=False)

    def _may_grow(self, partition: Partition) -> None:
        if partition not in self._growing:
            self._growing[partition] = None
            self._services.wakes.wake(self)

    def _look_interval_ms(self) -> int:
        return max(1, self._services.partitions.replica_lag_time_max_ms // 2)

    def _propose(self, partitions: Iterable[Partition], now_ms: int, *, may_shrink: bool) -> None:
        for partition in partitions:
            proposal = partition.propose_isr(now_ms, may_shrink=may_shrink)
            if proposal is not None:
                self._open.append(_Proposed(partition, proposal))
        self._commit()

    def _commit(self) -> None:
        if self._is_writing or self._retry_ms is not None or not self._open:
            return
        asked, self._open = (
            self._open[:PROPOSALS_PER_COMMIT_MAX],
            self._open[PROPOSALS_PER_COMMIT_MAX:],
        )
        self._is_writing = True

        def decide(image: MetadataImage) -> Sequence[Change]:
            changes = (self._decide(image, one) for one in asked)
            return [change for change in changes if change is not None]

        def done(error: BaseException | None) -> None:
            self._is_writing = False
            self._finish(asked, error)

        self._services.metadata.write(decide, done)

    def _decide(self, image: MetadataImage, one: _Proposed) -> ChangePartition | None:
        log, proposal = one.partition.log, one.proposal
        topic = image.topics_by_id.get(log.topic_id)
        if topic is None or log.partition >= len(topic.partitions):
            return None
        old = topic.partitions[log.partition]
        if (
            old.leader != self._services.node_id
            or old.leader_epoch != proposal.leader_epoch
            or old.partition_epoch != proposal.partition_epoch
        ):
            return None
        isr = _confirmed_isr(image, old, proposal)
        if set(isr) == set(old.isr):
            return None
        min_insync_replicas = self._services.partitions.min_insync_replicas(topic)
        new = next_epochs(old, with_isr(old, isr, min_insync_replicas))
        return ChangePartition(topic.topic_id, log.partition, new)

    def _finish(self, asked: list[_Proposed], error: BaseException | None) -> None:
        services = self._services
        if error is not None and not isinstance(error, InvalidChange):
            services.log.warning("isr_not_committed", proposals=len(asked), error=repr(error))
            self._open = asked + self._open
            self._retry_ms = self._now_ms + RETRY_MS
            return
        if error is not None:
            services.log.error("isr_refused", proposals=len(asked), error=repr(error))
        for one in asked:
            leadership = one.partition.leadership
            if leadership is None or leadership.leader_epoch != one.proposal.leader_epoch:
                continue
            if leadership.partition_epoch == one.proposal.partition_epoch:
                one.partition.isr_refused(one.proposal.partition_epoch, self._now_ms)
            elif error is None:
                self._note(one)
        if self._growing:
            services.wakes.wake(self)
        self._commit()

    def _note(self, one: _Proposed) -> None:
        leadership = one.partition.leadership
        assert leadership is not None
        if one.proposal.joining:
            self.expands_count += 1
        else:
            self.shrinks_count += 1
        self._services.log.info(
            "isr_changed",
            topic=one.partition.topic,
            partition=one.partition.index,
            isr=list(leadership.committed_isr),
        )


def _confirmed_isr(image: MetadataImage, old: PartitionImage, proposal: IsrProposal) -> list[int]:
    """The proposed ISR without those who may not join by this image."""
    joining = {
        node_id
        for node_id, broker_epoch in proposal.joining
        if node_id in old.replicas and may_join_isr(image, node_id, broker_epoch)
    }
    return [node_id for node_id in proposal.isr if node_id in old.isr or node_id in joining]
