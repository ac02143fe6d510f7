"""Short ways to build requests, and one client of a group that keeps its ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from data_plane.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    encode_consumer_protocol_subscription,
)
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from data_plane.wire.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from data_plane.wire.primitives import ZERO_UUID, Writer


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    writer = Writer()
    writer.write_int16(0)
    encode_consumer_protocol_subscription(
        writer, ConsumerProtocolSubscription(topics=list(topics)), 0
    )
    return bytes(writer.buf)


def join(
    group_id: str,
    member_id: str = "",
    *,
    protocols: list[tuple[str, bytes]] | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 10_000,
    instance_id: str | None = None,
) -> JoinGroupRequest:
    if protocols is None:
        protocols = [("range", subscription("orders"))]
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
    )


def sync(
    group_id: str,
    member_id: str,
    generation_id: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance_id: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id=generation_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (assignments or {}).items()
        ],
    )


def old_sync(group_id: str, member_id: str, generation_id: int, **kwargs: Any) -> SyncGroupRequest:
    """Without protocol type and name, as before version 5."""
    return sync(
        group_id, member_id, generation_id, protocol_type=None, protocol_name=None, **kwargs
    )


def heartbeat(
    group_id: str, member_id: str, generation_id: int, instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id=generation_id,
        group_instance_id=instance_id,
    )


def leave(
    group_id: str, *members: tuple[str, str | None], reason: str | None = None
) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group_id,
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
            for member_id, instance_id in members
        ],
    )


def commit(
    group_id: str,
    offsets: dict[tuple[str | UUID, int], int],
    *,
    member_id: str = "",
    generation_id: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_time_ms: int = -1,
) -> OffsetCommitRequest:
    """Offsets by (topic name or id, partition)."""
    topics: dict[str | UUID, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        if topic not in topics:
            topics[topic] = OffsetCommitRequestTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, UUID) else ZERO_UUID,
                partitions=[],
            )
        topics[topic].partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_time_ms,
        topics=list(topics.values()),
    )


def fetch(
    group_id: str,
    topics: dict[str | UUID, list[int]] | None = None,
    *,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    """For version 8 and later; `topics` None asks for all."""
    return OffsetFetchRequest(require_stable=require_stable, groups=[fetch_group(group_id, topics)])


def fetch_group(
    group_id: str, topics: dict[str | UUID, list[int]] | None = None
) -> OffsetFetchRequestGroup:
    wanted = None
    if topics is not None:
        wanted = [
            OffsetFetchRequestTopics(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, UUID) else ZERO_UUID,
                partition_indexes=indexes,
            )
            for topic, indexes in topics.items()
        ]
    return OffsetFetchRequestGroup(group_id=group_id, topics=wanted)


def old_fetch(
    group_id: str, topics: dict[str, list[int]] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """For versions before 8."""
    wanted = None
    if topics is not None:
        wanted = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ]
    return OffsetFetchRequest(group_id=group_id, topics=wanted, require_stable=require_stable)


def delete_offsets(group_id: str, topics: dict[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in indexes],
            )
            for topic, indexes in topics.items()
        ],
    )
