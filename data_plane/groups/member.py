"""One member of a classic group: what its client has said, and what the client waits for.

A member is data. What it may do, and what becomes of it, is decided by the group that it is in
(`group`) and by those who change groups (`membership`, `static_members`, `rebalance`).

Invariants
- One JoinGroup and one SyncGroup at most are parked for it: `join_token`, `sync_token`.
- While it is in a group, `size_bytes` is what it counts for in the totals; its group sets that.

Deliberately absent: the meaning of metadata and assignments, which are the client's bytes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from data_plane.groups.deadlines import Timer
from data_plane.groups.effects import ReplyToken

# Protocols in the member's order of preference: (name, metadata).
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]

# What a member takes beside the bytes of its client, for the bound on all members of a broker:
# measured with CPython.
MEMBER_OVERHEAD_BYTES: Final = 2_000


class Member:
    """One member of a group, or of none yet. Identity is the object, not the id: a static member
    that comes back gets a new id and a new `Member`."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "session_timer",
        "size_bytes",
        "sync_token",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        # Runs while it is a member of a group that lives.
        self.session_timer = Timer()
        self.assignment = assignment
        # As it counts in its group's totals.
        self.size_bytes = 0
        self.join_token: ReplyToken | None = None
        self.sync_token: ReplyToken | None = None
        self.is_new = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_excused_from_heartbeat(self) -> bool:
        """A member that waits for the coordinator cannot be blamed for silence, unless it is new:
        then nobody knows whether its client is still there."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """This member's metadata for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol_name}")

    def measure_bytes(self) -> int:
        """About what it takes in memory."""
        texts = len(self.member_id) + len(self.group_instance_id or "")
        texts += len(self.client_id) + len(self.client_host)
        texts += bytes_of_protocols(self.protocols)
        return MEMBER_OVERHEAD_BYTES + texts + len(self.assignment)

    def vote(self, candidates: set[str]) -> str:
        """The candidate that this member likes best."""
        return next(name for name, _ in self.protocols if name in candidates)


def bytes_of_protocols(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)
