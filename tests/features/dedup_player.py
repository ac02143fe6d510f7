"""A broker without server that has all features, and a topic with a window for message ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from data_plane.broker.request.api import ConnectionInfo
from data_plane.cell.changes import UpdateFeature
from data_plane.cell.features import DEDUPLICATION
from data_plane.log.file_system import FileSystem
from data_plane.wire.records import NewRecord, build_batch
from features.dedup import fold as fold_module
from features.dedup.forgetting import Forgetting
from features.dedup.judgement import Duplicates
from features.dedup.remembered_ids import RememberedIds
from tests.broker.broker_player import Pending
from tests.features.delayed_player import DelayedPlayer, Produced

WINDOW_MS = 60_000
CONFIGS = {"dedup.window.ms": str(WINDOW_MS)}
ID = b"tw-id"


class SmallSet(RememberedIds):
    """So that short histories have runs."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        super().__init__(fs, folder, group_ids=4, merged=2)


def use_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "RememberedIds", SmallSet)


class Sequence(NamedTuple):
    """Of an idempotent producer."""

    producer_id: int
    base_sequence: int
    epoch: int = 0


# An id (None: without), and a value.
Message = tuple[bytes | None, bytes]


def batch_of(
    *messages: Message, now_ms: int, sequence: Sequence | None = None, compression: int = 0
) -> bytearray:
    records = [
        NewRecord(now_ms - 3, b"key", value, () if one is None else ((ID, one),))
        for one, value in messages
    ]
    if sequence is None:
        return build_batch(records, compression=compression)
    return build_batch(
        records,
        compression=compression,
        producer_id=sequence.producer_id,
        producer_epoch=sequence.epoch,
        base_sequence=sequence.base_sequence,
    )


def produced(pending: Pending) -> Produced:
    ((part,),) = (topic.partition_responses for topic in pending.response.responses)
    return Produced(part.error_code, part.base_offset, part.error_message)


class DedupPlayer(DelayedPlayer):
    """`orders` has a window of WINDOW_MS, unless it is told otherwise."""

    def __init__(
        self, *, configs: Mapping[str, str] = CONFIGS, dedup_level: int = 1, **options: Any
    ) -> None:
        super().__init__(configs=configs, **options)
        if dedup_level and options.get("image") is None:
            self.commit(UpdateFeature(DEDUPLICATION, dedup_level))

    def begin(
        self,
        *messages: Message,
        sequence: Sequence | None = None,
        compression: int = 0,
        connection: ConnectionInfo | None = None,
    ) -> Pending:
        """Send a batch, and leave the rest to threads."""
        batch = batch_of(*messages, now_ms=self.now_ms, sequence=sequence, compression=compression)
        return self.produce("orders", [], batch=batch, connection=connection)

    def take(self, *messages: Message, **options: Any) -> Produced:
        """Send a batch, and wait for the answer."""
        pending = self.begin(*messages, **options)
        self.run_jobs()
        return produced(pending)

    def taken(self, *ids: bytes, **options: Any) -> int:
        """The base offset of messages that have these ids, and values that say so."""
        answer = self.take(*((one, b"v" + one) for one in ids), **options)
        assert answer.error_code == 0, answer.message
        return answer.base_offset

    def shown(self) -> list[tuple[int, bytes]]:
        """(offset, value) of what readers see."""
        return [(record.offset, record.value or b"") for record in self.read()]

    def again(self, *, is_clean: bool) -> DedupPlayer:
        """The next life of this broker, at the same time."""
        if is_clean:
            self.services.stop(self.now_ms)
            self.logs.close(self.now_ms)
        self.fs.process_death()
        other = DedupPlayer(disk=self.fs, image=self.services.image)
        other.now_ms = self.now_ms
        other.services.tick(other.now_ms)
        other.run_jobs()
        return other

    @property
    def duplicates(self) -> Duplicates:
        assert isinstance(self.services.duplicates, Duplicates)
        return self.services.duplicates

    @property
    def forgetting(self) -> Forgetting:
        return next(one for one in self.services.components if isinstance(one, Forgetting))
