"""The metadata store of the simulated cell, and the ways in which it fails.

One `InMemoryMetadataStore` (whose contract the Postgres adapter passes, too) is the truth. Each
broker reaches it through a `StoreClient` of its own, which may

- find it down, or cut off in either direction: StoreUnavailable, after a while;
- lose the answer: the call has happened, and the caller is told StoreUnavailable;
- be late: the caller has given up, and the call happens seconds later;
- be slow: a call takes 40 times as long;
- have no feed that reaches back far enough: the whole image has to be read;
- find another one in its place (`stand_in`): an older backup, or one of another identity. Each
  client holds what it is answered against what it has seen (the real `Lineage`), so nobody may
  commit anything there. Who has seen nothing that tells them apart finds the store down.

An operator who has lost the store makes it anew (`recover`, the real decision) from the image files
on the brokers' disks. Everybody is poked when something is committed, now and then in vain, and
sometimes not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from data_plane.cell.changes import Change
from data_plane.cell.image_file import IMAGE_FILE, ImageFile, decode_image_file
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import (
    Commit,
    FeedTruncated,
    Heartbeat,
    InMemoryMetadataStore,
    StoreError,
    StoreUnavailable,
    StoreWentBack,
)
from data_plane.cell.postgres_schema import CellRow, Lineage
from data_plane.cell.recover import Candidate, choose, plan_recovery

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

T = TypeVar("T")

HOST = "store"
CLUSTER_ID = "simulatedclusterid0000"
CALL_US_MIN = 200
CALL_US_MEAN = 800
SLOW_FACTOR = 40
SLOW_CHANCE = 0.01
# How long a caller waits for a store that does not answer.
TIMEOUT_US_MIN = 50_000
TIMEOUT_US_MAX = 400_000
LATE_US_MAX = 1_500_000
POKE_LOST_CHANCE = 0.02
FEED_TRUNCATED_CHANCE = 0.04


class Origin(NamedTuple):
    """Which store an image was committed to."""

    identity: str
    ancestors: tuple[str, ...]


class CellStore:
    """The truth, and what is wrong with it at the moment."""

    def __init__(self, cell: Cell, image: MetadataImage) -> None:
        self.cell = cell
        self.world = cell.world
        self.random = cell.world.stream("store")
        self.clock_offset_ms = 0
        self.inner = InMemoryMetadataStore(image, self._now_ms, "simulated")
        self.ancestors: tuple[str, ...] = ()
        self.images: dict[int, MetadataImage] = {image.version: image}
        self._origins = {image.version: Origin("simulated", ())}
        self._is_down = False
        self.stand_in: InMemoryMetadataStore | None = None
        self._stand_in_ancestors: tuple[str, ...] = ()
        self.reply_loss_chance = 0.0
        self.late_chance = 0.0
        # Brokers for which the feed does not reach back far enough now.
        self.short_feeds: dict[str, None] = {}

    @property
    def is_down(self) -> bool:
        return self._is_down

    @is_down.setter
    def is_down(self, is_down: bool) -> None:
        self._is_down = is_down
        self._availability_changed()

    def _availability_changed(self) -> None:
        if self._is_down or self.stand_in is not None:
            self.cell.commits.store_went_down()
        else:
            self.cell.commits.store_came_back()

    # A store that went back, and what operators do about it.

    def backup_version(self, commits: int) -> int:
        """The version so many commits ago, or the oldest."""
        versions = sorted(self.images)
        return versions[max(0, len(versions) - 1 - commits)]

    def restore(self, version: int) -> None:
        """A backup of `version` stands in the store's place."""
        origin = self._origins[version]
        self._stand_in(self.images[version], origin)

    def put_another(self) -> None:
        """A store of another identity does: somebody's own one of the same cell, and newer."""
        image = self.images[min(self.images)]
        image = replace(image, version=self.image.version + 10)
        self._stand_in(image, Origin("another", ()))

    def _stand_in(self, image: MetadataImage, origin: Origin) -> None:
        self.stand_in = InMemoryMetadataStore(image, self._now_ms, origin.identity)
        self._stand_in_ancestors = origin.ancestors
        self._availability_changed()

    def put_back(self) -> None:
        """The right store again."""
        self.stand_in = None
        self._availability_changed()

    def recover(self) -> bool:
        """What `tidewheel cell recover` does with the image files of all brokers, over whatever
        stands there. False, and nothing happens, when no file has all that was committed: what
        such a recovery would cost is known (docs/cell.md)."""
        candidates = list(self._image_files())
        if not candidates or choose(candidates).image.version != self.image.version:
            return False
        present = self.row
        plan = plan_recovery(
            candidates, present, replace_other=present.identity != self.inner.identity
        )
        identity = f"recovered at {plan.image.version}"
        self.inner = InMemoryMetadataStore(
            plan.image, self._now_ms, identity, controller_epoch=plan.image.version
        )
        self.ancestors = plan.ancestors
        self.images[plan.image.version] = plan.image
        self._origins[plan.image.version] = Origin(identity, plan.ancestors)
        self.put_back()
        return True

    def _image_files(self) -> Iterable[Candidate]:
        for node in self.cell.nodes.values():
            path = f"{node.settings.data_directories[0]}/{IMAGE_FILE}"
            try:
                image, identity = decode_image_file(node.fs.read_file(path), path)
            except FileNotFoundError:
                continue
            yield Candidate(path, image, identity)

    @property
    def row(self) -> CellRow:
        """What the store that answers now says of itself."""
        store, ancestors = self.standing, self.ancestors
        if self.stand_in is not None:
            ancestors = self._stand_in_ancestors
        return CellRow(1, store.identity, ancestors, CLUSTER_ID, store.read().version)

    @property
    def standing(self) -> InMemoryMetadataStore:
        """The store that answers now."""
        return self.inner if self.stand_in is None else self.stand_in

    def is_told_apart(self, lineage: Lineage) -> bool:
        """Whether who has seen so much can know that this is not the store."""
        row = self.row
        if not lineage.identity:
            return False
        is_known = lineage.identity in (row.identity, *row.ancestors)
        return not is_known or row.version < lineage.version

    def _now_ms(self) -> int:
        return self.world.now_ms + self.clock_offset_ms

    @property
    def image(self) -> MetadataImage:
        return self.inner.read()

    def apply(
        self,
        node_name: str,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        controller_epoch: int | None,
    ) -> MetadataImage:
        """Commit, and let everybody know."""
        if self.stand_in is not None:
            self.world.violate(
                f"{node_name} commits {changes} to {self.row}, which is not the cell's store"
            )
        before = self.inner.read()
        after = self.inner.apply(
            changes, expected_version, request_id, controller_epoch=controller_epoch
        )
        if after is not before:
            self.images[after.version] = after
            self._origins[after.version] = Origin(self.inner.identity, self.ancestors)
            commit = Commit(after.version, request_id, tuple(changes), controller_epoch)
            self.cell.commits.committed(node_name, before, after, commit)
            self.cell.undeletes.committed(before, after, commit)
            for node in self.cell.nodes.values():
                if self.random.random() >= POKE_LOST_CHANCE:
                    delay_us = CALL_US_MIN + int(self.random.expovariate(1 / CALL_US_MEAN))
                    node.at(delay_us, self._poke, node)
        return after

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        """Renew a session."""
        if self.stand_in is None:
            self.cell.commits.renewed(incarnation_id)
        return self.standing.heartbeat(
            node_id, incarnation_id, lease_ms, wants_controller=wants_controller
        )

    def _poke(self, node: Node) -> None:
        if node.services is not None and not self.is_cut_off(node.name):
            follower = node.services.metadata_follower
            if follower is not None:
                follower.request_update()

    def is_cut_off(self, host: str) -> bool:
        """Whether nothing gets from the store to `host`."""
        return self.is_down or self.cell.network.is_cut(HOST, host)


class StoreClient:
    """The MetadataStore of one life of one broker."""

    is_shared = True

    def __init__(self, node: Node) -> None:
        self._node = node
        self._store = node.cell.store
        self._random = node.cell.store.random
        seen = ImageFile(node.fs, str(node.settings.data_directories[0])).read()
        identity, version = ("", 0) if seen is None else (seen[1], seen[0].version)
        self._lineage = Lineage(CLUSTER_ID, identity, version)

    @property
    def identity(self) -> str:
        return self._lineage.identity

    def _call(self, do: Callable[[], T], *, is_write: bool) -> T:
        node, store, rng = self._node, self._store, self._random
        network = node.cell.network
        delay = CALL_US_MIN + rng.expovariate(1 / CALL_US_MEAN)
        if rng.random() < SLOW_CHANCE:
            delay *= SLOW_FACTOR
        is_late = is_write and rng.random() < store.late_chance
        if store.is_down or network.is_cut(node.name, HOST) or is_late:
            node.stall(rng.randint(TIMEOUT_US_MIN, TIMEOUT_US_MAX))
            if is_late and not store.is_down:
                node.world.count("late store calls")
                delay_us = rng.randint(0, LATE_US_MAX)
                node.world.at(delay_us, self._do_late, do, store.inner)
            raise StoreUnavailable("the store does not answer")
        if store.stand_in is not None and not store.is_told_apart(self._lineage):
            # Nobody can tell, and what came of it would be a fork: see faults.py.
            node.stall(TIMEOUT_US_MIN)
            raise StoreUnavailable("an older store stands there, and this broker would believe it")
        result = self._on_known_store(do)
        if network.is_cut(HOST, node.name) or (is_write and rng.random() < store.reply_loss_chance):
            node.world.count("lost replies of the store")
            node.stall(rng.randint(TIMEOUT_US_MIN, TIMEOUT_US_MAX))
            raise StoreUnavailable("the store's answer is lost")
        node.stall(int(delay))
        return result

    def _on_known_store(self, do: Callable[[], T]) -> T:
        """Each answer is held against what was seen, and none is given by a store that is not
        the one that is known or follows it."""
        store, lineage = self._store, self._lineage
        floor = lineage.version
        try:
            row = store.row
            if row.identity != lineage.identity:
                lineage.accept(row, floor)
            lineage.saw(row.version, floor)
            result = do()
            lineage.saw(store.row.version, floor)
        except StoreWentBack:
            self._node.world.count("stores refused")
            self._node.stall(CALL_US_MIN)
            raise
        return result

    def _do_late(self, do: Callable[[], object], inner: InMemoryMetadataStore) -> None:
        store = self._store
        if store.is_down or store.stand_in is not None or store.inner is not inner:
            # What was under way to one store does not get to another.
            return
        try:
            do()
        except StoreError:
            # Whoever wanted it is long past caring.
            return

    def read(self) -> MetadataImage:
        return self._call(lambda: self._store.standing.read(), is_write=False)

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        return self._call(
            lambda: self._store.apply(
                self._node.name, changes, expected_version, request_id, controller_epoch
            ),
            is_write=True,
        )

    def feed(self, after_version: int) -> Sequence[Commit]:
        is_short = self._random.random() < FEED_TRUNCATED_CHANCE
        if is_short or self._node.name in self._store.short_feeds:
            self._node.world.count("truncated feeds")
            raise FeedTruncated("the feed does not reach back that far")
        return self._call(lambda: self._store.standing.feed(after_version), is_write=False)

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        return self._call(
            lambda: self._store.heartbeat(
                node_id, incarnation_id, lease_ms, wants_controller=wants_controller
            ),
            is_write=True,
        )

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        return self._store.inner.wait(after_version, timeout_ms)

    def close(self) -> None:
        """Nothing is held."""
