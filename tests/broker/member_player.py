"""A broker as member of a cell, without logs: one image, and a shared store with faults.

Several members may share one store and one clock. Work runs when told to, in any order the test
likes; time passes only in `pass_time`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from data_plane.broker.cell.metadata_follower import MetadataFollower
from data_plane.broker.cell.metadata_writer import MetadataWriter
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, CreateTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import (
    Commit,
    Heartbeat,
    InMemoryMetadataStore,
    StoreUnavailable,
)
from tests.broker.doubles import NOW_MS, QueueExecutor, RememberingLog


class FaultyStore:
    """A broker's way to a store: it can be cut, and answers can get lost."""

    def __init__(self, store: InMemoryMetadataStore) -> None:
        self.store = store
        self.is_down = False
        # Runs whenever it is asked while it is down.
        self.when_down: Callable[[], None] | None = None
        # How many of the next commits are made, and their answers lost.
        self.lost_replies = 0
        self.applied: list[tuple[str, tuple[Change, ...], int | None]] = []
        # Runs once, just before the next commit reaches the store: somebody else was faster.
        self.before_apply: Callable[[], None] | None = None
        self.feeds = 0

    @property
    def is_shared(self) -> bool:
        return self.store.is_shared

    @property
    def identity(self) -> str:
        return self.store.identity

    def _check(self) -> None:
        if self.is_down:
            if self.when_down is not None:
                self.when_down()
            raise StoreUnavailable("cut")

    def read(self) -> MetadataImage:
        self._check()
        return self.store.read()

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        if self.before_apply is not None:
            before, self.before_apply = self.before_apply, None
            before()
        self._check()
        self.applied.append((request_id, tuple(changes), controller_epoch))
        image = self.store.apply(
            changes, expected_version, request_id, controller_epoch=controller_epoch
        )
        if self.lost_replies:
            self.lost_replies -= 1
            raise StoreUnavailable("the answer is lost")
        return image

    def feed(self, after_version: int) -> Sequence[Commit]:
        self._check()
        self.feeds += 1
        return self.store.feed(after_version)

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        self._check()
        return self.store.heartbeat(
            node_id, incarnation_id, lease_ms, wants_controller=wants_controller
        )

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        self._check()
        return self.store.wait(after_version, timeout_ms)

    def close(self) -> None:
        pass


class FakePartitions:
    """Notes the versions it was shown."""

    is_image_old = False
    has_work_left = False

    def __init__(self) -> None:
        self.versions: list[int] = []

    def apply_image(self, image: MetadataImage, now_ms: int) -> None:
        self.versions.append(image.version)

    apply_step = apply_image


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS


class Directories:
    """What the data directories are told."""

    def __init__(self) -> None:
        self.broker_epochs: list[int] = []

    def set_broker_epoch(self, broker_epoch: int) -> None:
        self.broker_epochs.append(broker_epoch)


class Member:
    """One broker's metadata side."""

    def __init__(
        self,
        store: InMemoryMetadataStore | None = None,
        clock: Clock | None = None,
        *,
        node_id: int = 1,
        image: MetadataImage | None = None,
        is_shared: bool = True,
    ) -> None:
        self.clock = clock or Clock()
        if store is None:
            time = (lambda: self.clock.now_ms) if is_shared else None
            store = InMemoryMetadataStore(MetadataImage("cluster"), time)
        self.cell_store = store
        self.store = FaultyStore(store)
        self.executor = QueueExecutor()
        self.log = RememberingLog()
        self.partitions = FakePartitions()
        self.directories = Directories()
        anything: Any = None
        directories: Any = self.directories
        partitions: Any = self.partitions
        self.services = Services(
            config=EffectiveConfig({}, node_id),
            store=self.store,
            image=image or store.read(),
            logs=directories,
            partitions=partitions,
            handlers=anything,
            executor=self.executor,
            counters=anything,
            metrics=anything,
            node_id=node_id,
            cluster_id="cluster",
            random=random.Random(node_id),
            log=self.log,
        )
        self.services.metadata = MetadataWriter(self.services, self.now_ms)
        self.files: list[MetadataImage] = []
        self.follower = MetadataFollower(self.services, self.now_ms, self.files.append)

    def now_ms(self) -> int:
        return self.clock.now_ms

    @property
    def image(self) -> MetadataImage:
        return self.services.image

    def run_jobs(self) -> None:
        """All work that is due now, and what it leads to."""
        for _ in range(1000):
            if not self.executor.queue:
                return
            self.executor.run_one()
        raise AssertionError("the work does not end")

    def pass_time(self, ms: int, step_ms: int = 10) -> None:
        """Let time pass in steps; work runs after each."""
        for _ in range(max(1, ms // step_ms)):
            self.clock.now_ms += step_ms
            self.services.tick(self.clock.now_ms)
            self.run_jobs()

    def write(self, *changes: Change, controller_epoch: int | None = None) -> Outcome:
        """Have fixed changes committed."""
        return self.decide(lambda image: changes, controller_epoch)

    def decide(
        self,
        decide: Callable[[MetadataImage], Sequence[Change]],
        controller_epoch: int | None = None,
    ) -> Outcome:
        outcome = Outcome(self)
        self.services.metadata.write(decide, outcome.done, controller_epoch)
        return outcome


class Outcome:
    """What became of one `write`."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.calls = 0
        self.error: BaseException | None = None
        # The image's version when the answer came.
        self.version: int | None = None

    def done(self, error: BaseException | None) -> None:
        self.calls += 1
        self.error = error
        self.version = self._member.image.version

    @property
    def is_ok(self) -> bool:
        return self.calls == 1 and self.error is None


def topic(name: str, number: int, replicas: tuple[int, ...] = (1,)) -> CreateTopic:
    return CreateTopic("default", name, UUID(int=number), (replicas,))
