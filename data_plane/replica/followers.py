"""What a leader knows of one follower, from the fetches that the follower sends (KIP-227, KIP-903).

A follower's fetch offset is the end of its log: everything below it, the follower has (and, where
the topic asks for syncs, has synced). A fetch therefore is the acknowledgement of the one before.

When a follower was last *caught up* decides whether it is in sync. It is caught up

- at a fetch from the leader's log end, and at an append to a log whose end it had already;
- at the time of its previous fetch, when it now fetches from where the leader's log ended then: it
  has got everything there was, only the leader has gone on meanwhile.

    leader's log end   100        130        160
    fetch at           t0: 100    t1: 130    t2: 140
    caught up at       t0         t1         t1, for 140 < 160, and 140 ≥ 130 shows t1 (known)

Deliberately absent: ISR membership and what follows from it (leadership.py).
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
NEVER_MS = -(1 << 62)


class Follower:
    """The progress of one follower within one leader epoch of its leader."""

    __slots__ = (
        "broker_epoch",
        "fetched_end_offset",
        "fetched_ms",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.forget()

    def forget(self) -> None:
        """Nothing is known: the leader is new, or the follower's process is."""
        self.broker_epoch = NO_BROKER_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER_MS
        # When it fetched last, and where the leader's log ended then.
        self.fetched_ms = NEVER_MS
        self.fetched_end_offset = 1 << 62

    def fetched(
        self,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """Take note of a fetch. The offset may be lower than before: a follower whose disk lost
        its tail says so, and what it says is true of the log it has now."""
        if broker_epoch != self.broker_epoch:
            if self.broker_epoch != NO_BROKER_EPOCH:
                # Another process, whose disk may have lost what the one before had.
                self.forget()
            self.broker_epoch = broker_epoch
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.fetched_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.fetched_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.fetched_ms = now_ms
        self.fetched_end_offset = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, lag_time_max_ms: int, now_ms: int) -> bool:
        """Whether it has all there is, or had it no longer than `lag_time_max_ms` ago."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
