"""Which partitions of a Fetch its sender may read, where not everybody may do everything.

Each look at the partitions asks anew: rights may go while a poll waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from data_plane.broker.fetch.fetch_response import PartitionResult
from data_plane.broker.fetch.fetch_sessions import FetchPartition, FetchSet
from data_plane.broker.request.api import RequestContext
from data_plane.cell.acls import AclOperation
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchTopicView

Targets = Sequence[FetchPartition]


def look_again_if_rights_changed(context: RequestContext, fetch_set: FetchSet) -> None:
    """Who has lost a right hears of it, be there news of the partition or not."""
    policy = context.names.rights.policy
    if policy is not fetch_set.policy:
        fetch_set.policy = policy
        for target in fetch_set.partitions():
            fetch_set.dirty[target] = None


def readable_of(
    context: RequestContext, fetch_set: FetchSet, targets: Targets
) -> tuple[Targets, Targets]:
    """Those that may be read, and those that are refused."""
    if fetch_set.is_follower or context.connection.is_inter_broker:
        return targets, ()
    readable: list[FetchPartition] = []
    refused: list[FetchPartition] = []
    for target in targets:
        name = _name_of(context, fetch_set, target)
        may_read = name is None or context.may_to_topic(AclOperation.READ, name)
        (readable if may_read else refused).append(target)
    return readable, refused


def withhold_unreadable(
    context: RequestContext, fetch_set: FetchSet, results: Sequence[PartitionResult]
) -> None:
    """Of what was read, elsewhere than on the loop, while rights changed: who has lost his is
    refused. Looked at just before the answer is made."""
    rights = context.names.rights
    if rights.is_open or rights.policy is fetch_set.policy:
        return
    _, refused = readable_of(context, fetch_set, [result.target for result in results])
    gone = set(refused)
    for result in results:
        if result.target in gone:
            result.withhold(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def may_read_all(context: RequestContext, topics: Iterable[FetchTopicView]) -> bool:
    """Whether its sender may read what a request names. Nothing else is remembered for him."""
    if context.names.rights.is_open or context.connection.is_inter_broker:
        return True
    for topic in topics:
        name = topic.name
        if not name:
            known = context.topics.by_id(UUID(bytes=topic.topic_id))
            if known is None:
                continue
            name = known.name
        if not context.may_to_topic(AclOperation.READ, name):
            return False
    return True


def _name_of(context: RequestContext, fetch_set: FetchSet, target: FetchPartition) -> str | None:
    """What the client calls its topic; None for an id that no topic has, which it will be told."""
    if not fetch_set.uses_topic_ids:
        return target.topic
    topic = context.topics.by_id(UUID(bytes=target.topic_id))
    return None if topic is None else topic.name
