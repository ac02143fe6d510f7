"""Leading a partition that has followers: ISR, and what is committed (KIP-497, KIP-903, KIP-966).

    committed ISR   what the metadata store has confirmed; only its size may lift the high watermark
    proposed ISR    what this leader has asked the store for and not heard of yet; one at a time
    maximal ISR     both together: a record is committed when all of these have it

A proposal may be in force in the store before this leader hears of it, and whoever is in the ISR
there may be elected. So a follower that was proposed counts from the moment of the proposal, and
one that is to leave counts until the store says that it has left.

    isr 1 2       propose 1 2 3     maximal 1 2 3     the high watermark waits for 3 from here on
    isr 1 2 3     propose 1 2       maximal 1 2 3     3 is dead: nothing is committed until the
                                                      store has confirmed; then 1 and 2 suffice

A leader that began with the image on its disk, because the store is away, cannot know what its life
before had proposed: all replicas may be in the ISR until the store has spoken.

Invariants
- The high watermark does not advance while the committed ISR is below the effective min ISR.
- A follower joins only with everything that is committed and with the start of this leader epoch,
  and as the incarnation that is registered (`may_join_isr`).
- A proposal is withdrawn by an image with a newer partition epoch, or by `refuse_proposal` when it
  is certain that the store has not and will not take it.

Deliberately absent: the log, the high watermark itself, who waits (partition.py); commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from data_plane.replica.followers import NEVER_MS, NO_BROKER_EPOCH, Follower

NOTHING_COMMITTED = -1


class IsrHost(Protocol):
    """The part of `ports.Host` that decides about ISRs."""

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    @property
    def is_image_old(self) -> bool: ...

    def may_join_isr(self, node_id: int, broker_epoch: int) -> bool: ...


class PartitionState(Protocol):
    """What the metadata image says of a partition. Broker ids; leader -1 means none."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def is_active(self) -> bool: ...


class ReplicationSettings(NamedTuple):
    """A partition's settings as they concern its leader.

    - `min_isr`: the effective min ISR, never more than the partition has replicas.
    - `lag_messages_max`: replica.lag.max.messages, -1 for no bound."""

    min_isr: int = 1
    lag_messages_max: int = -1


class IsrProposal(NamedTuple):
    """A new ISR to ask the store for; valid in this leader epoch and partition epoch only.

    `joining` are (node id, broker epoch) of those that are not in the committed one."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    joining: tuple[tuple[int, int], ...]


class LogEnds(NamedTuple):
    """The leader's own log, for decisions: `epoch_start_offset` is where this epoch began."""

    log_end_offset: int
    high_watermark: int
    epoch_start_offset: int


class Leadership:
    """The followers of one partition as its leader sees them. Made when leading begins."""

    __slots__ = (
        "_counted",
        "_host",
        "_is_grace_due",
        "_is_isr_unknown",
        "_outside",
        "committed_isr",
        "followers",
        "latest_ms",
        "leader_epoch",
        "node_id",
        "partition_epoch",
        "proposed_isr",
        "settings",
    )

    def __init__(
        self,
        node_id: int,
        state: PartitionState,
        settings: ReplicationSettings,
        host: IsrHost,
    ) -> None:
        self.node_id = node_id
        self.latest_ms = NEVER_MS
        self.settings = settings
        self.followers: dict[int, Follower] = {}
        self._host = host
        self._counted: list[Follower] = []
        self._outside: list[Follower] = []
        self.begin_epoch(state)

    # What the image says

    def begin_epoch(self, state: PartitionState) -> None:
        """Lead in a new epoch. From the next call with a time on, those in the ISR have a while to
        show themselves."""
        self.leader_epoch = state.leader_epoch
        # What followers had in an older epoch says nothing any more: others may have led in between
        # without this replica having heard of it, and had them truncate.
        self.followers = {}
        self._is_grace_due = True
        self._is_isr_unknown = self._host.is_image_old
        self._take(state)

    def update(self, state: PartitionState) -> bool:
        """Follow an image of the same leader epoch; whether anybody's progress is forgotten.

        Who has left the ISR comes back by fetches that it sends from then on. Others than the
        leader take brokers out, too: one that stops, or whose disk has failed, had everything a
        moment ago and will fetch no more."""
        if state.partition_epoch <= self.partition_epoch:
            return False
        left = frozenset(self.committed_isr) - frozenset(state.isr)
        self._is_isr_unknown = self._host.is_image_old
        self._take(state)
        forgotten = left & self.followers.keys()
        for node_id in forgotten:
            self.followers[node_id].forget()
        return bool(forgotten)

    def _take(self, state: PartitionState) -> None:
        self.partition_epoch = state.partition_epoch
        self.committed_isr = state.isr
        self.proposed_isr: tuple[int, ...] | None = None
        known = self.followers
        self.followers = {
            node_id: known.get(node_id) or Follower(node_id)
            for node_id in state.replicas
            if node_id != self.node_id
        }
        self._sort()

    def _sort(self) -> None:
        maximal = self.maximal_isr()
        followers = self.followers.values()
        self._counted = [follower for follower in followers if follower.node_id in maximal]
        self._outside = [follower for follower in followers if follower.node_id not in maximal]

    def maximal_isr(self) -> frozenset[int]:
        """All that may be in the ISR by what the store knows now."""
        if self._is_isr_unknown:
            return frozenset((self.node_id, *self.followers))
        return frozenset(self.committed_isr) | frozenset(self.proposed_isr or ())

    def counts(self, node_id: int, log_end_offset: int) -> bool:
        """Whether what that follower has decides what is committed."""
        return any(follower.node_id == node_id for follower in self._counted) or any(
            follower.node_id == node_id and self._is_waited_for(follower, log_end_offset)
            for follower in self._outside
        )

    def _is_waited_for(self, follower: Follower, log_end_offset: int) -> bool:
        """Whether a follower outside the ISR may join it as soon as it has what is committed."""
        return (
            follower.is_caught_up(log_end_offset, self._lag_time_max_ms, self.latest_ms)
            and not self._lags_in_messages(follower, log_end_offset)
            and self._host.may_join_isr(follower.node_id, follower.broker_epoch)
        )

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.committed_isr) < self.settings.min_isr

    # What is committed

    def committed_offset(self, own_end_offset: int, log_end_offset: int, now_ms: int | None) -> int:
        """Below it everything is committed; -1 when nothing may be committed now.

        `own_end_offset` is how far this leader's own copy counts. An eligible follower just outside
        the ISR is waited for too: otherwise, with a leader alone in its ISR, the high watermark
        would run ahead of each of its fetches and it could never join under load. Without `now_ms`
        the latest time seen counts."""
        if now_ms is not None:
            self._note_time(now_ms)
        if len(self.committed_isr) < self.settings.min_isr:
            return NOTHING_COMMITTED
        offset = own_end_offset
        for follower in self._counted:
            if follower.log_end_offset < offset:
                offset = follower.log_end_offset
        for follower in self._outside:
            if follower.log_end_offset < offset and self._is_waited_for(follower, log_end_offset):
                offset = follower.log_end_offset
        return offset

    def _note_time(self, now_ms: int) -> None:
        self.latest_ms = now_ms
        if self._is_grace_due:
            self._is_grace_due = False
            for follower in self._counted:
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)

    def appended(self, old_end_offset: int, now_ms: int) -> None:
        """The leader's log ended at `old_end_offset` until now: who had that was caught up."""
        for follower in self.followers.values():
            if follower.log_end_offset >= old_end_offset:
                follower.last_caught_up_ms = now_ms

    # The ISR

    def may_join(self, follower: Follower, ends: LogEnds) -> bool:
        """Whether a follower outside the maximal ISR has what every member must have, and keeps up
        as members must. Kafka does not ask for the latter; where the high watermark stands still, a
        follower that has just left for lagging would join again at once."""
        return (
            follower.log_end_offset >= ends.high_watermark
            and follower.log_end_offset >= ends.epoch_start_offset
            and follower.broker_epoch != NO_BROKER_EPOCH
            and self._is_waited_for(follower, ends.log_end_offset)
        )

    def has_candidates(self, ends: LogEnds) -> bool:
        """Whether `propose` would have somebody join now."""
        if self.proposed_isr is not None:
            return False
        return any(self.may_join(follower, ends) for follower in self._outside)

    def propose(self, ends: LogEnds, now_ms: int, *, may_shrink: bool) -> IsrProposal | None:
        """Decide upon another ISR, which is in flight from then on; None when none is due."""
        self._note_time(now_ms)
        if self.proposed_isr is not None or self._is_complete(ends.log_end_offset):
            return None
        leaving: set[int] = set()
        if may_shrink:
            leaving = {
                follower.node_id
                for follower in self._counted
                if not follower.is_caught_up(ends.log_end_offset, self._lag_time_max_ms, now_ms)
                or self._lags_in_messages(follower, ends.log_end_offset)
            }
        joining = [follower for follower in self._outside if self.may_join(follower, ends)]
        if not leaving and not joining:
            return None
        isr = [node_id for node_id in self.committed_isr if node_id not in leaving]
        isr += [follower.node_id for follower in joining]
        self.proposed_isr = tuple(isr)
        self._sort()
        return IsrProposal(
            self.proposed_isr,
            self.leader_epoch,
            self.partition_epoch,
            tuple((follower.node_id, follower.broker_epoch) for follower in joining),
        )

    def _is_complete(self, log_end_offset: int) -> bool:
        """All replicas are in sync and have everything: what most partitions are, most of the
        time."""
        if self._outside:
            return False
        return all(follower.log_end_offset == log_end_offset for follower in self._counted)

    def refuse_proposal(self, partition_epoch: int) -> None:
        """The store has not taken the proposal made at `partition_epoch`, and never will."""
        if self.partition_epoch == partition_epoch and self.proposed_isr is not None:
            self.proposed_isr = None
            self._sort()

    @property
    def _lag_time_max_ms(self) -> int:
        return self._host.replica_lag_time_max_ms

    def _lags_in_messages(self, follower: Follower, log_end_offset: int) -> bool:
        bound = self.settings.lag_messages_max
        return 0 <= bound < log_end_offset - follower.log_end_offset

    @property
    def has_outsiders(self) -> bool:
        """Whether there are replicas outside the maximal ISR."""
        return bool(self._outside)

    def in_sync_followers(self) -> Iterable[Follower]:
        """Those in the committed ISR, which consumers may be sent to (KIP-392)."""
        return [one for one in self._counted if one.node_id in self.committed_isr]
