"""The partitions of `__consumer_offsets` that this broker leads: which of them are being read, and
which have been; in what order they open, and when their shards are looked through.

    start_loading ─► (read and folded elsewhere) ─► load ─► opening ─► loaded ─► unload
                                                      (a chore)

Invariants
- A partition is asked only when all of it is open, and only in the newest epoch that is known.
- Whoever waits in a partition that is given up is told so, as soon as their turn comes.

Deliberately absent: what is done in a shard (loaded_shard.py), and reading the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial

from data_plane.groups.chores import Pieces
from data_plane.groups.loaded_shard import LoadedPartition, LoadedShard
from data_plane.groups.loading import FoldedTenants
from data_plane.groups.shard import CoordinatorParts
from data_plane.wire.errors import ErrorCode


class LedPartitions:
    """See the module."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._parts = parts
        self._loading: dict[int, int] = {}
        # Those of them that have been read, and whose groups are being restored.
        self.opening: dict[int, LoadedPartition] = {}
        self.loaded: dict[int, LoadedPartition] = {}
        self._unswept: list[LoadedShard] = []

    def start_loading(self, partition: int, epoch: int) -> bool:
        """This broker leads `partition` in `epoch` and is about to read it. False when a newer
        epoch is known already, or when this one is being or has been loaded."""
        loaded = self.loaded.get(partition)
        known_epoch = self._loading.get(partition, -1) if loaded is None else loaded.epoch
        if epoch <= known_epoch:
            return False
        if loaded is not None:
            raise AssertionError(f"partition {partition} must be unloaded before it is loaded")
        self._loading[partition] = epoch
        return True

    def load(self, partition: int, epoch: int, folded: FoldedTenants, now_ms: int) -> None:
        if self._loading.get(partition) != epoch or partition in self.opening:
            return  # Given up, or given anew, while it was read.
        loaded = LoadedPartition(partition, epoch, self._parts, self._schedule_first_expiry)
        self.opening[partition] = loaded
        for tenant, of_tenant in folded.items():
            loaded.of(tenant).shard.take_offsets(of_tenant.offsets)
        pieces = self._open_or_fail(loaded, folded, now_ms)
        self._parts.chores.begin(loaded, pieces, now_ms, is_urgent=True)

    def _open_or_fail(self, loaded: LoadedPartition, folded: FoldedTenants, now_ms: int) -> Pieces:
        try:
            yield from self._open(loaded, folded, now_ms)
        except Exception:
            if loaded.opened_ms is None:
                # A bug: whoever asks is told to look elsewhere, instead of to wait for ever.
                del self.opening[loaded.partition]
                del self._loading[loaded.partition]
                loaded.close()
            raise

    def _open(self, loaded: LoadedPartition, folded: FoldedTenants, now_ms: int) -> Pieces:
        now_ms = yield from loaded.restore(folded, now_ms)
        del self.opening[loaded.partition]
        del self._loading[loaded.partition]
        self.loaded[loaded.partition] = loaded
        for of_tenant in loaded.shards.values():
            self._unswept.append(of_tenant)
            self._schedule_expiry(loaded, of_tenant, now_ms)
        yield from loaded.shrink_groups(now_ms)

    def load_failed(self, partition: int, epoch: int) -> None:
        if self._loading.get(partition) == epoch:
            del self._loading[partition]

    def unload(self, partition: int, now_ms: int) -> None:
        self._loading.pop(partition, None)
        loaded = self.loaded.pop(partition, None) or self.opening.pop(partition, None)
        if loaded is not None:
            loaded.close()
            self._parts.chores.begin(None, loaded.free(now_ms), now_ms, is_urgent=True)

    # Who asks

    @property
    def is_loading(self) -> bool:
        """Whether some of them cannot be asked yet."""
        return bool(self._loading)

    def find(self, tenant: str, partition: int) -> tuple[LoadedShard | None, ErrorCode]:
        """The tenant's shard, or why there is none."""
        loaded = self.loaded.get(partition)
        if loaded is not None:
            return loaded.of(tenant), ErrorCode.NONE
        if partition in self._loading:
            return None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None, ErrorCode.NOT_COORDINATOR

    def shards(self) -> Iterator[LoadedShard]:
        """Of all tenants, in those that can be asked."""
        for partition in self.loaded.values():
            yield from partition.shards.values()

    def shards_of(self, tenant: str) -> list[LoadedShard]:
        """What a tenant has in those that can be asked."""
        found = (partition.shards.get(tenant) for partition in self.loaded.values())
        return [loaded for loaded in found if loaded is not None]

    def opening_shards_of(self, tenant: str) -> list[LoadedShard]:
        """And in those that cannot yet."""
        found = (partition.shards.get(tenant) for partition in self.opening.values())
        return [loaded for loaded in found if loaded is not None]

    def led_among(self, partitions: Set[int]) -> list[LoadedPartition]:
        """Those of these partitions that are led here, and have been read."""
        return [
            led[partition]
            for led in (self.loaded, self.opening)
            for partition in led.keys() & partitions
        ]

    # Looking through

    @property
    def has_unswept(self) -> bool:
        """Whether there are shards in which nobody has looked for offsets without topics."""
        return bool(self._unswept)

    def take_unswept(self) -> list[LoadedShard]:
        unswept, self._unswept = self._unswept, []
        return [loaded for loaded in unswept if not loaded.shard.is_closed]

    def _schedule_first_expiry(self, of_tenant: LoadedShard) -> None:
        partition = self.loaded[of_tenant.shard.partition]
        assert partition.opened_ms is not None
        self._schedule_expiry(partition, of_tenant, partition.opened_ms)

    def _schedule_expiry(
        self, partition: LoadedPartition, of_tenant: LoadedShard, now_ms: int
    ) -> None:
        check_ms = now_ms + self._parts.config.offsets_retention_check_interval_ms
        action = partial(self._expire, partition, of_tenant)
        self._parts.deadlines.schedule(of_tenant.shard.expiry_timer, check_ms, action)

    def _expire(self, partition: LoadedPartition, of_tenant: LoadedShard, now_ms: int) -> None:
        if of_tenant.is_idle:
            partition.forget(of_tenant)
            return
        of_tenant.expiry.check(now_ms)
        if of_tenant.sweeps.take_orphans_left():
            self._unswept.append(of_tenant)
        self._schedule_expiry(partition, of_tenant, now_ms)
