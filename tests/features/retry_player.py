"""A broker without server, with `orders` and the subscription `pay` of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_plane.cell.changes import UpdateFeature
from data_plane.cell.features import RETRIES
from data_plane.cell.metadata import MetadataImage
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import Header, NewRecord, Record, build_batch
from features.retry_dlq.nacks import Nacks
from tests.broker.admin_player import new_topic
from tests.features.delayed_player import DelayedPlayer, Produced


class RetryPlayer(DelayedPlayer):
    """`policy`: configurations of the subscription, without their prefix."""

    def __init__(
        self,
        *,
        retries: int = 1,
        policy: Mapping[str, str] | None = None,
        disk: SimFileSystem | None = None,
        image: MetadataImage | None = None,
    ) -> None:
        super().__init__(disk=disk, image=image)
        if image is not None:
            return
        if retries:
            self.commit(UpdateFeature(RETRIES, retries))
        configs = {f"tidewheel.{name}": value for name, value in (policy or {}).items()}
        if retries:
            configs.setdefault("tidewheel.retry.backoff", "list:5s,30s,5m")
        configs["tidewheel.source"] = "orders"
        (made,) = self.create(new_topic("pay", -1, -1, configs=dict(configs)))
        assert made.error_code == ErrorCode.NONE, made.error_message

    @property
    def retry(self) -> Partition:
        """The retry partition."""
        partition = self.services.partitions.get_by_name("default", "pay", 0)
        assert partition is not None
        return partition

    @property
    def nacks(self) -> Nacks:
        return self.retry.log.fold(Nacks)

    def store(self, *values: bytes) -> None:
        produced = self.append(*((value,) for value in values))
        assert produced.error_code == ErrorCode.NONE, produced.message

    def nack(
        self, *positions: str, headers: tuple[Header, ...] = (), index: int = 1, **options: Any
    ) -> Produced:
        """Say of records that they have failed, in one batch."""
        return self.command(
            *(((b"tw-nack", position.encode()), *headers) for position in positions),
            index=index,
            **options,
        )

    def command(
        self, *records: tuple[Header, ...], index: int = 1, connection: Any = None, **options: Any
    ) -> Produced:
        """One batch of records of these headers."""
        made = [NewRecord(self.now_ms, None, None, headers) for headers in records]
        pending = self.produce(
            "pay", [], index=index, batch=build_batch(made, **options), connection=connection
        )
        self.run_jobs()
        ((part,),) = (topic.partition_responses for topic in pending.response.responses)
        return Produced(part.error_code, part.base_offset, part.error_message)

    def retried(self, offset: int = 0) -> list[Record]:
        """What readers see of the retry partition."""
        return self.read("pay", 1, offset, self.retry.high_watermark)
