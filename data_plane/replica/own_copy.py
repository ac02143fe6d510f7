"""How far one replica's own copy counts, which is not always as far as its log goes.

Where the topic asks for a sync (`durability=fsync`, or `flush.messages` reached) a copy counts when
it is synced: a leader's up to `end_offset`, a follower's because it does not fetch on before
(`is_sync_pending`), which would acknowledge what it has. Everywhere else it counts when it is
appended.

Invariants
- One sync is asked for at a time. Records that come in while it runs count with the next one.
- What is not known to be synced when this replica begins to lead is synced again before it counts:
  a crash may have come between a write and its sync.

Deliberately absent: asking for the sync. Where a method returns True its caller has to, and it ends
with `synced` or the end of the replica.
"""

from __future__ import annotations

from data_plane.log.log import Log


class OwnCopy:
    """A replica's own copy, by what its log says. `end_offset` is kept while the replica leads."""

    __slots__ = ("_log", "end_offset", "is_sync_pending")

    def __init__(self, log: Log) -> None:
        self._log = log
        self.end_offset = 0
        self.is_sync_pending = False

    def appended(self) -> bool:
        """A leader has appended. Whether to ask for a sync."""
        if self.is_sync_pending:
            return False
        log = self._log
        # `needs_sync`, written out: this is called for every append.
        config, end_offset = log.config, log.log_end_offset
        unsynced_count = end_offset - log.recovery_point
        if unsynced_count > 0 and (
            config.durability_fsync or unsynced_count >= config.flush_messages
        ):
            self.is_sync_pending = True
            return True
        self.end_offset = end_offset
        return False

    def count_anew(self) -> bool:
        """This replica begins to lead. Whether to ask for a sync."""
        log = self._log
        begins_sync = self.begin_sync()
        if self.is_sync_pending:
            self.end_offset = max(log.recovery_point, log.log_start_offset)
        else:
            self.end_offset = log.log_end_offset
        return begins_sync

    def begin_sync(self) -> bool:
        """Whether to ask for a sync: there is something to be synced, and no sync pending."""
        if self.is_sync_pending or not self.needs_sync():
            return False
        self.is_sync_pending = True
        return True

    def synced(self, synced_offset: int) -> bool:
        """A sync has made everything below `synced_offset` durable. Whether to ask for another."""
        assert self.is_sync_pending
        log_end_offset = self._log.log_end_offset
        self.is_sync_pending = self.needs_sync()
        if self.is_sync_pending:
            # Records came in while the sync ran.
            self.end_offset = min(synced_offset, log_end_offset)
        else:
            self.end_offset = log_end_offset
        return self.is_sync_pending

    def needs_sync(self) -> bool:
        log, config = self._log, self._log.config
        unsynced_count = log.log_end_offset - log.recovery_point
        if unsynced_count <= 0:
            return False
        return config.durability_fsync or unsynced_count >= config.flush_messages
