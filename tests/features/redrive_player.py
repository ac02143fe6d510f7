"""A broker without server that redrives the dead letters of the subscription `pay`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_plane.broker.dead_letter_operations import (
    DeadLetterOperations,
    NotPossible,
    Selection,
    Status,
    View,
    Wanted,
    Wish,
)
from data_plane.cell.changes import UpdateFeature
from data_plane.cell.features import REDRIVES
from data_plane.cell.metadata import MetadataImage
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import Record
from features.redrive.fold import Redrives
from features.retry_dlq.commands import DEAD_LETTER_HEADER
from tests.features.retry_player import RetryPlayer

ALL = Selection(is_all=True)


class RedrivePlayer(RetryPlayer):
    """Its dead letters are those of `pay.dlq`."""

    def __init__(
        self,
        *,
        redrives: int = 1,
        policy: Mapping[str, str] | None = None,
        disk: SimFileSystem | None = None,
        image: MetadataImage | None = None,
    ) -> None:
        super().__init__(policy=policy, disk=disk, image=image)
        if image is None and redrives:
            self.commit(UpdateFeature(REDRIVES, redrives))

    def settle(self, steps: int = 40) -> None:
        for _ in range(steps):
            self.pass_ms(100)
            while not self.services.images.is_settled:
                self.pass_ms(1)

    def bury(self, *values: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Messages of these values become dead letters."""
        first = self.orders.log.log_end_offset
        produced = self.append(*((value,) for value in values))
        assert produced.error_code == ErrorCode.NONE, produced.message
        for offset in range(first, first + len(values)):
            self.kill(f"0:{offset}", headers=headers)
        self.settle(10)

    def kill(self, position: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """What was delivered there becomes a dead letter."""
        produced = self.command(((DEAD_LETTER_HEADER, position.encode()), *headers))
        assert produced.error_code == ErrorCode.NONE, produced.message

    def letters(self, topic: str = "pay.dlq") -> list[Record]:
        partition = self.services.partitions.get_by_name("default", topic, 0)
        return [] if partition is None else self.read(topic, 0, 0, partition.high_watermark)

    @property
    def dlq(self) -> Partition:
        partition = self.services.partitions.get_by_name("default", "pay.dlq", 0)
        assert partition is not None
        return partition

    @property
    def redrives(self) -> Redrives:
        return self.dlq.log.fold(Redrives)

    @property
    def operations(self) -> DeadLetterOperations:
        operations = self.services.dead_letter_operations
        assert operations is not None
        return operations

    def begin(
        self,
        selection: Selection = ALL,
        *,
        id: str = "one",
        target: str = "",
        rate_max: int = 0,
        is_purge: bool = False,
        partition: Partition | None = None,
    ) -> View:
        """Raises NotPossible."""
        wanted = Wanted(id, is_purge, selection, target, rate_max, "User:me")
        return self._told(
            lambda done: self.operations.begin(partition or self.dlq, wanted, self.now_ms, done)
        )

    def change(self, wish: Wish, id: str = "one") -> View:
        """Raises NotPossible."""
        return self._told(
            lambda done: self.operations.change(self.dlq, id, wish, self.now_ms, done)
        )

    def _told(self, ask: Any) -> View:
        told: list[tuple[View | None, NotPossible | None]] = []
        ask(lambda view, error: told.append((view, error)))
        for _ in range(100):
            if told:
                break
            self.run_jobs()
            self.services.tick(self.now_ms)
        ((view, error),) = told
        if error is not None:
            raise error
        assert view is not None
        return view

    def view(self, id: str = "one") -> View:
        return next(one for one in self.operations.listed(self.dlq) if one.wanted.id == id)

    def finish(self, id: str = "one") -> View:
        """Until it has ended."""
        for _ in range(200):
            view = self.view(id)
            if view.status in (Status.DONE, Status.CANCELLED, Status.GONE):
                return view
            self.settle(1)
        raise AssertionError(f"it does not end: {self.view(id)}")

    def values_of(self, records: list[Record]) -> list[bytes]:
        return [record.value or b"" for record in records]
