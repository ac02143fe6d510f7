"""The metadata store of the simulated cell, and the ways in which it fails.

One `InMemoryMetadataStore` (whose contract the Postgres adapter passes, too) is the truth. Each
broker reaches it through a `StoreClient` of its own, which may

- find it down, or cut off in either direction: StoreUnavailable, after a while;
- lose the answer: the call has happened, and the caller is told StoreUnavailable;
- be late: the caller has given up, and the call happens seconds later;
- be slow: a call takes 40 times as long;
- have no feed that reaches back far enough: the whole image has to be read.

Everybody is poked when something is committed, now and then in vain, and sometimes not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import (
    Commit,
    FeedTruncated,
    Heartbeat,
    InMemoryMetadataStore,
    StoreError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

T = TypeVar("T")

HOST = "store"
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


class CellStore:
    """The truth, and what is wrong with it at the moment."""

    def __init__(self, cell: Cell, image: MetadataImage) -> None:
        self.cell = cell
        self.world = cell.world
        self.random = cell.world.stream("store")
        self.clock_offset_ms = 0
        self.inner = InMemoryMetadataStore(image, self._now_ms, "simulated")
        self.images: dict[int, MetadataImage] = {image.version: image}
        self._is_down = False
        self.reply_loss_chance = 0.0
        self.late_chance = 0.0

    @property
    def is_down(self) -> bool:
        return self._is_down

    @is_down.setter
    def is_down(self, is_down: bool) -> None:
        self._is_down = is_down
        if is_down:
            self.cell.commits.store_went_down()
        else:
            self.cell.commits.store_came_back()

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
        before = self.inner.read()
        after = self.inner.apply(
            changes, expected_version, request_id, controller_epoch=controller_epoch
        )
        if after is not before:
            self.images[after.version] = after
            commit = Commit(after.version, request_id, tuple(changes), controller_epoch)
            self.cell.commits.committed(node_name, before, after, commit)
            for node in self.cell.nodes.values():
                if self.random.random() >= POKE_LOST_CHANCE:
                    delay_us = CALL_US_MIN + int(self.random.expovariate(1 / CALL_US_MEAN))
                    node.at(delay_us, self._poke, node)
        return after

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        """Renew a session."""
        self.cell.commits.renewed(incarnation_id)
        return self.inner.heartbeat(
            node_id, incarnation_id, lease_ms, wants_controller=wants_controller
        )

    def _poke(self, node: Node) -> None:
        if node.services is not None and not self.is_cut_off(node.name):
            follower = node.services.parts.get("metadata_follower")
            if follower is not None:
                follower.poke()

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

    @property
    def identity(self) -> str:
        return self._store.inner.identity

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
                node.world.at(rng.randint(0, LATE_US_MAX), self._do_late, do)
            raise StoreUnavailable("the store does not answer")
        result = do()
        if network.is_cut(HOST, node.name) or (is_write and rng.random() < store.reply_loss_chance):
            node.world.count("lost replies of the store")
            node.stall(rng.randint(TIMEOUT_US_MIN, TIMEOUT_US_MAX))
            raise StoreUnavailable("the store's answer is lost")
        node.stall(int(delay))
        return result

    def _do_late(self, do: Callable[[], object]) -> None:
        if self._store.is_down:
            return
        try:
            do()
        except StoreError:
            # Whoever wanted it is long past caring.
            return

    def read(self) -> MetadataImage:
        return self._call(self._store.inner.read, is_write=False)

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
        if self._random.random() < FEED_TRUNCATED_CHANCE:
            self._node.world.count("truncated feeds")
            raise FeedTruncated("the feed does not reach back that far")
        return self._call(lambda: self._store.inner.feed(after_version), is_write=False)

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
