"""What requests are told that name a partition which is not there, or another leader epoch."""

from __future__ import annotations

from data_plane.wire.errors import ErrorCode

# In a request: its sender knows of no leader epoch.
ANY_LEADER_EPOCH = -1
# What a request is told that names a partition which there is not, by name or by topic id.
UNKNOWN_PARTITION_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def check_leader_epoch(leader_epoch: int, current_leader_epoch: int) -> ErrorCode:
    """Whether what a request takes for the leader epoch is the one known here (KIP-320)."""
    if current_leader_epoch in (ANY_LEADER_EPOCH, leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
