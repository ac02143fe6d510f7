"""A followed partition: what a fetcher needs of the local replica, and what it notes about it.

Deliberately absent: what to fetch and when (fetcher.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from data_plane.replica.fetch_session import FetchState, PartitionKey

FOR_EVER_MS = 1 << 62


class LocalReplica(Protocol):
    """A replica that follows. All of it raises LogError when its log fails."""

    def fetch_state(self) -> FetchState:
        """Where it stands. Refuses (a LogError) when it has ended."""

    @property
    def is_busy(self) -> bool:
        """What was appended last is not synced yet, where its topic asks for syncs, or the log is
        being cut: it is not to be fetched, and takes no answers."""

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call once when `is_busy` ends, also when what it was busy with fails."""

    def append_as_follower(
        self,
        buf: memoryview,
        start: int,
        end: int,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        leader_log_start: int,
        now_ms: int,
    ) -> None:
        """Store the leader's batches, none when start == end, and follow its high watermark and
        log start. Refuses (a LogError) when `leader_epoch` is not the present one."""

    def truncate_for_divergence(self, epoch: int, end_offset: int) -> None:
        """The leader's largest epoch up to this replica's last one is `epoch`, and ends there. The
        replica may be busy with it for a while."""

    def restart_at(self, start_offset: int, epoch_before: int) -> None:
        """Drop everything and begin anew where the leader's log begins on its disk; what it had
        before was of that leader epoch, -1 for unknown."""


class FollowedPartition:
    """What a fetcher notes about a partition.

    - `state`: as it was named to the leader in request `named_in`; 0: it has changed since.
    - `paused_until_ms`: it is in no session until then; None: it is fetched.
    - `is_throttled`: it is being added, and limited in bytes per second.
    - `is_caught_up`: it had all that was committed when its leader answered last. Its leader may
      wait for it from then on, so the limit holds for it no longer.
    """

    __slots__ = (
        "failures_count",
        "is_caught_up",
        "is_throttled",
        "key",
        "leader_high_watermark",
        "named_in",
        "paused_until_ms",
        "replica",
        "state",
    )

    def __init__(self, key: PartitionKey, replica: LocalReplica, is_throttled: bool) -> None:
        self.key = key
        self.replica = replica
        self.is_throttled = is_throttled
        self.is_caught_up = False
        self.state = FetchState(-1, -1, -1, -1)
        self.named_in = 0
        self.paused_until_ms: int | None = None
        self.failures_count = 0
        self.leader_high_watermark = -1


class FetchRequest(NamedTuple):
    """The body of a Fetch to send; its response belongs to `number`."""

    number: int
    body: bytearray


class FetchProblem(NamedTuple):
    """A partition is left out for `pause_ms`. `is_expected`: it happens with every change of
    leaders and passes by itself."""

    key: PartitionKey
    reason: str
    pause_ms: int
    is_expected: bool


class FetchOutcome(NamedTuple):
    """What became of a response. `connection_problem`: why its connection is of no use any more,
    "" when it is."""

    problems: list[FetchProblem]
    connection_problem: str = ""
