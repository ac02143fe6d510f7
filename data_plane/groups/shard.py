"""What the coordinator knows of a tenant in one partition of `__consumer_offsets` that it leads.

Each tenant has a shard of its own: everything in it is that tenant's, and names in it are as its
clients say them. Nothing that works on a shard can reach another tenant's groups.

A shard is the data that `rebalance`, `membership`, `offset_commits` and the others work on: the
groups of a tenant that hash to the partition, their offsets, and the writes in flight. Shards share
nothing but the outbox, the timers, the chores and the counters, so that one can be loaded or given
up on its own.

Offsets change when the append that carries the change settles, and by loading: so memory is what
the log says, and two commits in flight count in the order of the log.

A shard that is *closed* is led here no more. What is left of it is answered and freed in pieces;
meanwhile its timers do nothing, and it asks for no appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from data_plane.groups.appends import Appends, Outcome, Reply
from data_plane.groups.chores import Chores, Pieces
from data_plane.groups.config import TOMBSTONE_BYTES_PER_APPEND_MAX, GroupCoordinatorConfig
from data_plane.groups.deadlines import Deadlines, Timer, TimerAction
from data_plane.groups.effects import Effect, GroupEvent, ReplyToken, Respond
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.offsets import OffsetStore
from data_plane.groups.record_formats import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    encode_group,
    encode_key,
)
from data_plane.groups.totals import (
    BROKER,
    GROUP_QUOTAS,
    GROUPS,
    TELL_AGAIN_MS,
    GroupTotals,
    LimitOf,
)
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord

# A tombstone of an offset, its tenant's name included, beside its group's name; in UTF-8.
KEY_BYTES_MAX: Final = 384
BYTES_PER_CHARACTER_MAX: Final = 3


class ExpiryPause(NamedTuple):
    """What was used last before `ended_ms` expires by `length_ms` later; None: as if it had been
    used at `ended_ms`."""

    ended_ms: int
    length_ms: int | None

    def longer_ms(self, used_ms: int) -> int:
        """How much later what was used last then expires."""
        if used_ms >= self.ended_ms:
            return 0
        return self.ended_ms - used_ms if self.length_ms is None else self.length_ms


NO_PAUSE: Final = ExpiryPause(0, 0)


class Bound(NamedTuple):
    """How much a broker may have of something, how much it has, and how much of that a tenant."""

    what: str
    most: int
    used: int
    own: int


@dataclass(slots=True)
class GroupCounters:
    """What has happened since the broker started, for metrics."""

    rebalances_started: int = 0
    rebalances_completed: int = 0
    members_expired: int = 0
    offset_commits: int = 0
    offset_deletions: int = 0
    offset_expirations: int = 0
    groups_deleted: int = 0
    append_failures: int = 0
    # By limits of tenants, for each of them, and by the broker's bounds.
    refused: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((*GROUP_QUOTAS, BROKER), 0)
    )


@dataclass(slots=True)
class CoordinatorParts:
    """What all shards of one coordinator have in common."""

    config: GroupCoordinatorConfig
    outbox: list[Effect]
    deadlines: Deadlines
    append_ids: Iterator[int]
    new_uuid: Callable[[], str]
    counters: GroupCounters
    chores: Chores
    totals: GroupTotals
    # What a tenant's groups may come to.
    limit_of: LimitOf
    # The date at a steady time: for what is written down, and what is held against that.
    wall_ms: Callable[[int], int]
    # False while the date or the settings cannot be trusted: nothing expires by them.
    may_expire: Callable[[], bool]
    # Of a tenant's topic: until when, and for how long, the expiry of its offsets was paused
    # (`NO_PAUSE`: never); None while it is.
    expiry_pause: Callable[[str, str], ExpiryPause | None]


class Shard:
    """A tenant's groups and offsets in one partition."""

    def __init__(self, tenant: str, partition: int, epoch: int, parts: CoordinatorParts) -> None:
        self.tenant = tenant
        self.partition = partition
        self.epoch = epoch
        self.config = parts.config
        self.counters = parts.counters
        self.totals = parts.totals.of_shard(tenant)
        self._limit_of = parts.limit_of
        self.wall_ms = parts.wall_ms
        self.may_expire = parts.may_expire
        self._expiry_pause = parts.expiry_pause
        self.new_uuid = parts.new_uuid
        self._deadlines = parts.deadlines
        self._chores = parts.chores
        self._outbox = parts.outbox
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        # Since when requests are answered; None while groups are being restored.
        self.opened_ms: int | None = None
        self.is_closed = False
        self.expiry_timer = Timer()
        self.appends = Appends(
            tenant,
            partition,
            epoch,
            outbox=parts.outbox,
            schedule=parts.deadlines.schedule,
            ids=parts.append_ids,
            timeout_ms=parts.config.offset_commit_timeout_ms,
        )

    def expiry_pause(self, topic: str) -> ExpiryPause | None:
        """See `CoordinatorParts`."""
        return self._expiry_pause(self.tenant, topic)

    def respond(self, token: ReplyToken | None, response: object) -> None:
        if token is not None:
            self._outbox.append(Respond(token, response))

    def tell(self, group_id: str, kind: str, detail: str) -> None:
        self._outbox.append(GroupEvent(self.tenant, group_id, kind, detail))

    def schedule(self, timer: Timer, due_ms: int, action: TimerAction) -> None:
        """Let `timer` fire at `due_ms`, unless the shard is closed by then."""
        self._deadlines.schedule(timer, due_ms, partial(self._fire, action))

    def _fire(self, action: TimerAction, now_ms: int) -> None:
        if not self.is_closed:
            action(now_ms)

    def begin(self, pieces: Pieces, now_ms: int) -> None:
        """Begin a chore that ends with this shard."""
        self._chores.begin(self, pieces, now_ms, tenant=self.tenant)

    def close(self) -> None:
        """This partition is led here no more."""
        self.is_closed = True
        self.expiry_timer.cancel()
        self.appends.close()
        self._chores.drop(self, tenant=self.tenant)
        # Those in flight will not come to count here.
        totals = self.totals
        totals.add_pending_offsets(-totals.pending_offset_count, -totals.pending_offset_bytes)
        totals.add_offsets(-self.offsets.count, -self.offsets.size_bytes)
        totals.close()

    def tombstones_per_append(self, group_id: str) -> int:
        """How many tombstones of a group's offsets one append has room for."""
        size_max = KEY_BYTES_MAX + BYTES_PER_CHARACTER_MAX * len(group_id)
        room = TOMBSTONE_BYTES_PER_APPEND_MAX // size_max
        return max(1, min(self.config.tombstones_per_append_max, room))

    def take_offsets(self, offsets: OffsetStore) -> None:
        """Begin with these; nobody else has them."""
        assert not self.offsets.count
        self.offsets = offsets
        self.totals.add_offsets(offsets.count, offsets.size_bytes)

    def append_offsets(
        self,
        changes: dict[OffsetKey, bytes | None],
        now_ms: int,
        *,
        reply: Reply | None = None,
        growth: int = 0,
        growth_bytes: int = 0,
        behind: Iterable[NewRecord] = (),
        on_outcome: Outcome | None = None,
        on_settled: Outcome | None = None,
    ) -> None:
        """Write these values of offsets, None for a tombstone, and the records `behind` them, or
        nothing of it. The values count when the log has them; until then they are pending, and are
        to enlarge the offsets by `growth`, and by `growth_bytes`."""
        wall_ms = self.wall_ms(now_ms)
        batch = [self._offset_record(key, value, wall_ms) for key, value in changes.items()]
        batch += behind
        self.offsets.add_pending(changes)
        self.totals.add_pending_offsets(growth, growth_bytes)
        self.appends.append(
            batch,
            now_ms,
            replies=() if reply is None else (reply,),
            on_outcome=on_outcome,
            on_settled=partial(self._offsets_settled, changes, (growth, growth_bytes), on_settled),
        )

    def group_records(
        self, group_id: str, record: GroupRecord | None, now_ms: int
    ) -> list[NewRecord]:
        """One record that says what a group is, or that it is no more (None)."""
        key = encode_key(self.tenant, GroupKey(group_id))
        value = None if record is None else encode_group(record)
        return [NewRecord(timestamp=self.wall_ms(now_ms), key=key, value=value)]

    def _offset_record(self, key: OffsetKey, value: bytes | None, wall_ms: int) -> NewRecord:
        """A record that sets an offset, or deletes it (None)."""
        return NewRecord(timestamp=wall_ms, key=encode_key(self.tenant, key), value=value)

    def _offsets_settled(
        self,
        changes: dict[OffsetKey, bytes | None],
        growth: tuple[int, int],
        on_settled: Outcome | None,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        self.offsets.remove_pending(changes)
        count, size_bytes = growth
        self.totals.add_pending_offsets(-count, -size_bytes)
        if error is ErrorCode.NONE:
            for key, value in changes.items():
                if value is not None and key.group_id not in self.groups:
                    self.new_group(key.group_id, now_ms)
                self._apply_offset(key, value)
        else:
            self.counters.append_failures += 1
            self._drop_unmade(dict.fromkeys(key.group_id for key in changes), now_ms)
        if on_settled is not None:
            on_settled(error, now_ms)

    def _drop_unmade(self, group_ids: Iterable[str], now_ms: int) -> None:
        """Groups are none whose first commits the log has refused."""
        offsets = self.offsets
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if (
                group is not None
                and group.is_nothing_without_offsets
                and not offsets.has_offsets(group_id)
                and not offsets.has_pending(group_id)
            ):
                self.drop_group(group, now_ms)

    def _apply_offset(self, key: OffsetKey, value: bytes | None) -> None:
        """A record of an offset, or a tombstone, is in the log."""
        offsets = self.offsets
        count, size_bytes = offsets.count, offsets.size_bytes
        offsets.apply(key, value)
        self.totals.add_offsets(offsets.count - count, offsets.size_bytes - size_bytes)

    def refuses(self, quota: str, more: int, group_id: str, now_ms: int) -> bool:
        """Whether a limit of the tenant does not allow so much more."""
        limit = self._limit_of(self.tenant, quota) if more > 0 else None
        if limit is None:
            return False
        why = limit.why_not(self.totals.tenant.use_of(quota), more, quota)
        if why:
            self.counters.refused[quota] += 1
            self._tell_refused(group_id, quota, why, now_ms)
        return bool(why)

    def is_one_too_many(self, group_id: str, now_ms: int) -> bool:
        """Whether there may be no further group, which this would be."""
        used, own = self.totals.whole.group_count, self.totals.tenant.group_count
        bound = Bound("groups", self.config.groups_max, used, own)
        return not self.has_room(bound, 1, group_id, now_ms) or self.refuses(
            GROUPS, 1, group_id, now_ms
        )

    def has_room(self, bound: Bound, more: int, group_id: str, now_ms: int) -> bool:
        """Whether the broker may keep so much more of it for the tenant."""
        what, most, used, own = bound
        if self.totals.whole.has_room(most, used, own, more):
            return True
        self.counters.refused[BROKER] += 1
        words = (
            f"The broker has {used} {what}, {own} of them the tenant's, and may have {most}: "
            f"{more} more is too much for one tenant."
        )
        self._tell_refused(group_id, BROKER, words, now_ms)
        return False

    def _tell_refused(self, group_id: str, quota: str, why: str, now_ms: int) -> None:
        """Answers about groups have no place for the words."""
        told_ms = self.totals.tenant.told_ms
        if now_ms - told_ms.get(quota, now_ms - TELL_AGAIN_MS) >= TELL_AGAIN_MS:
            told_ms[quota] = now_ms
            self.tell(group_id, "refused", why)

    def new_group(self, group_id: str, now_ms: int | None) -> ClassicGroup:
        group = ClassicGroup(
            group_id,
            now_ms,
            totals=self.totals,
            wall_ms=self.wall_ms,
        )
        assert group_id not in self.groups
        self.groups[group_id] = group
        return group

    def drop_group(self, group: ClassicGroup, now_ms: int) -> None:
        """Forget a group whose members have all been answered. Its offsets stay as they are."""
        group.transition_to(GroupState.DEAD, now_ms)
        group.join_timer.cancel()
        group.sync_timer.cancel()
        group.forget_members()
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            self.totals.forget_group(group.state)
