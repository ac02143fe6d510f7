"""Faults of the replica room. A subclass of the log's errors, since both are met in one place."""

from __future__ import annotations

from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode


class StaleLeaderEpoch(LogError):
    """What is to be done was meant for another leader epoch, or for a follower that is none."""

    error_code = ErrorCode.FENCED_LEADER_EPOCH
