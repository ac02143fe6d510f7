"""What a replica needs of the broker around it, and who may want to hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from data_plane.log.cut_job import CutJob
    from data_plane.replica.partition import Partition


class Watcher(Protocol):
    """Somebody who wants to know that there may be something new to read here."""

    def partition_changed(self) -> None: ...


class LogEndWatcher(Watcher, Protocol):
    """A watcher that reads up to the log end: a follower's fetch. For it a high watermark that
    moved is nothing to wake up for, only something to tell with the next answer."""

    def high_watermark_changed(self) -> None: ...

    def report_again(self) -> None:
        """Who this watcher reads for may have to be counted anew: its next request shall report
        where it stands, also when it does not name this partition because nothing has changed."""


class Host(Protocol):
    """The broker, as a replica sees it."""

    @property
    def replica_lag_time_max_ms(self) -> int:
        """How long a follower in the ISR may not have been caught up."""

    @property
    def is_image_old(self) -> bool:
        """Whether the image is one that the broker found on its disk and has not compared with the
        store's yet."""

    def wall_ms(self, now_ms: int) -> int:
        """The date, in ms, at the steady time `now_ms`."""

    def request_sync(self, partition: Partition) -> None:
        """Have `sync_finished` or `sync_failed` called once what the log holds now is synced."""

    def request_cut(self, partition: Partition, job: CutJob) -> None:
        """Have `job.run` called elsewhere, then `cut_finished`, and then `job.tidy` elsewhere."""

    def may_join_isr(self, node_id: int, broker_epoch: int) -> bool:
        """Whether that incarnation of a follower is registered and not fenced (KIP-903)."""

    def isr_may_grow(self, partition: Partition) -> None:
        """`propose_isr` has something to propose."""
