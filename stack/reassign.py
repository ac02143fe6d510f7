"""`reassign`: put replicas of a topic on other brokers, see what is moving, call it off; move
leaders back to their preferred brokers.

The wish is one AlterPartitionReassignments request; the cell does the moving (copies first, removes
what is redundant when the copies are in sync), throttled by its own settings. The command can stay
until it is done.

Spreading over `--to 1,2,3`: partition p gets these brokers, rotated by p, so that each of them is
the preferred leader of its share. With `--replicas K`, K of them; else as many as the topic has
when nothing of it is being moved. Fewer replicas than before are made only where that was said.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest
from data_plane.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from data_plane.wire.registry import ApiKey
from stack.admin_connection import AdminConnection
from stack.errors import EXIT_USAGE, StackError

LOOK_UP_S = 0.5
MISSING_S_MAX = 30.0
"""Longer than a broker needs to start again."""
PREFERRED_ELECTION = 0
"""ElectLeaders' type of election that loses nothing."""


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's replicas as they shall be; None calls a move off."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Moving:
    """One partition that is being moved."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: on {_ids(self.replicas)}, adding "
            f"{_ids(self.adding) or 'none'}, removing {_ids(self.removing) or 'none'}"
        )


def plan_spread(
    topic: str, partitions: Sequence[int], brokers: Sequence[int], replicas: int
) -> list[Move]:
    """Where the replicas of these partitions go: `replicas` of `brokers` each, rotated.

    >>> [move.replicas for move in plan_spread("t", [0, 1, 2], [1, 2, 3], 2)]
    [(1, 2), (2, 3), (3, 1)]
    """
    if len(set(brokers)) != len(brokers):
        raise StackError(f"--to {_ids(brokers)} names a broker twice.", EXIT_USAGE)
    if replicas < 1:
        raise StackError(f"--replicas {replicas}: a partition has at least one.", EXIT_USAGE)
    if replicas > len(brokers):
        raise StackError(
            f"{replicas} replicas need as many brokers; --to names {len(brokers)}. Name more of "
            "them, or say how many replicas there shall be with --replicas.",
            EXIT_USAGE,
        )
    return [
        Move(
            topic,
            partition,
            tuple(brokers[(partition + k) % len(brokers)] for k in range(replicas)),
        )
        for partition in partitions
    ]


def replicas_of(connection: AdminConnection, topic: str) -> dict[int, tuple[int, ...]]:
    """Partition → replicas. Raises StackError when there is no such topic."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (found,) = connection.request(ApiKey.METADATA, request).topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise StackError(f'Topic "{topic}" does not exist')
    if found.error_code:
        raise StackError(f"{topic}: {ErrorCode(found.error_code).message}")
    return {p.partition_index: tuple(p.replica_nodes) for p in found.partitions}


def replication_factor(
    replicas: Mapping[int, Sequence[int]], moving: Sequence[Moving], topic: str
) -> int:
    """How many replicas the partitions of a topic have, the most of them: without what a move under
    way is going to remove.

    >>> under_way = Moving("t", 0, (4, 5, 1, 2), adding=(4, 5), removing=(1, 2))
    >>> replication_factor({0: (4, 5, 1, 2)}, [under_way], "t")
    2
    """
    leaving = {item.partition: set(item.removing) for item in moving if item.topic == topic}
    return max(
        len(set(brokers) - leaving.get(partition, set())) for partition, brokers in replicas.items()
    )


def replica_counts(connection: AdminConnection) -> Counter[int]:
    """Broker → how many replicas it has, of all topics."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    topics = connection.request(ApiKey.METADATA, request).topics
    return Counter(i for topic in topics for p in topic.partitions for i in p.replica_nodes)


def unregister(connection: AdminConnection, broker_id: int) -> bool:
    """Have the cell forget a broker that has stopped and holds nothing. False when it knew none of
    this id. Raises StackError."""
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = connection.request(ApiKey.UNREGISTER_BROKER, request)
    if answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        return False
    if answer.error_code:
        raise StackError(_words(answer.error_code, answer.error_message))
    return True


def alter(connection: AdminConnection, moves: Sequence[Move]) -> None:
    """Ask for moves. Raises StackError with all that was refused."""
    topics: dict[str, ReassignableTopic] = {}
    for move in moves:
        topic = topics.setdefault(move.topic, ReassignableTopic(name=move.topic, partitions=[]))
        replicas = None if move.replicas is None else list(move.replicas)
        topic.partitions.append(
            ReassignablePartition(partition_index=move.partition, replicas=replicas)
        )
    answer = connection.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(topics=list(topics.values())),
    )
    problems = []
    if answer.error_code:
        problems.append(_words(answer.error_code, answer.error_message))
    for topic_answer in answer.responses:
        for partition in topic_answer.partitions:
            if partition.error_code:
                words = _words(partition.error_code, partition.error_message)
                problems.append(f"{topic_answer.name}-{partition.partition_index}: {words}")
    if problems:
        raise StackError("Not reassigned:\n" + "\n".join(problems))


def moving(connection: AdminConnection) -> list[Moving]:
    """All partitions that are being moved now."""
    answer = connection.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest()
    )
    if answer.error_code:
        raise StackError(_words(answer.error_code, answer.error_message))
    return [
        Moving(
            topic.name,
            p.partition_index,
            tuple(p.replicas),
            tuple(p.adding_replicas),
            tuple(p.removing_replicas),
        )
        for topic in answer.topics
        for p in topic.partitions
    ]


def elect_preferred(bootstrap: str | None) -> int:
    """Have the first replica of every partition lead, where it is in sync; how many leaders moved.

    Only the controller elects, so it is looked up and asked. Raises StackError."""
    with AdminConnection(bootstrap) as connection:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        metadata = connection.request(ApiKey.METADATA, request)
        access = connection.access
    controller = next((b for b in metadata.brokers if b.node_id == metadata.controller_id), None)
    if controller is None:
        raise StackError("The cell has no controller just now. Try again in a moment.")
    moved = 0
    place = replace(access, bootstrap=f"{controller.host}:{controller.port}")
    with AdminConnection(place) as connection:
        # One request moves a bounded number of leaders.
        while elected := _elect_some(connection):
            moved += elected
    return moved


def _elect_some(connection: AdminConnection) -> int:
    request = ElectLeadersRequest(election_type=PREFERRED_ELECTION, topic_partitions=None)
    answer = connection.request(ApiKey.ELECT_LEADERS, request)
    if answer.error_code:
        raise StackError(_words(answer.error_code, None))
    results = [p for topic in answer.replica_election_results for p in topic.partition_result]
    return sum(result.error_code == 0 for result in results)


def run_elect(bootstrap: str | None, *, as_json: bool) -> int:
    """Move leaders back to where they belong."""
    moved = elect_preferred(bootstrap)
    print(json.dumps({"moved": moved}) if as_json else f"{moved} leaders moved.")
    return 0


def run_list(bootstrap: str | None, *, as_json: bool) -> int:
    """Print what is moving."""
    with AdminConnection(bootstrap) as connection:
        found = moving(connection)
    if as_json:
        print(json.dumps([_as_json(item) for item in found]))
    else:
        print("\n".join(map(str, found)) or "No partition is being moved.")
    return 0


def run_cancel(bootstrap: str | None, topic: str | None, *, as_json: bool) -> int:
    """Call off what is moving, of one topic or of all."""
    with AdminConnection(bootstrap) as connection:
        found = [item for item in moving(connection) if topic in (None, item.topic)]
        if found:
            alter(connection, [Move(item.topic, item.partition, None) for item in found])
    if as_json:
        print(json.dumps({"cancelled": [_as_json(item) for item in found]}))
    else:
        print("\n".join(f"Called off: {item}" for item in found) or "Nothing was being moved.")
    return 0


def run_reassign(
    bootstrap: str | None,
    topic: str,
    partition: int | None,
    brokers: Sequence[int],
    replicas: int | None,
    *,
    wait: bool,
    as_json: bool,
) -> int:
    """Move a topic, or one partition of it, to `brokers`."""
    with AdminConnection(bootstrap) as connection:
        present = replicas_of(connection, topic)
        if partition is not None and partition not in present:
            raise StackError(f"{topic} has partitions 0 to {len(present) - 1}, no {partition}.")
        numbers = sorted(present) if partition is None else [partition]
        if partition is not None and replicas is None:
            # One partition, and its brokers in the order of preference: no rotation.
            moves = [Move(topic, partition, tuple(brokers))]
        else:
            if replicas is None:
                replicas = replication_factor(present, moving(connection), topic)
            moves = plan_spread(topic, numbers, brokers, replicas)
        alter(connection, moves)
        if wait:
            wait_until_done(connection, topic)
    if as_json:
        print(
            json.dumps(
                {
                    "topic": topic,
                    "done": wait,
                    "partitions": [
                        {"partition": move.partition, "replicas": list(move.replicas or ())}
                        for move in moves
                    ],
                }
            )
        )
    else:
        verb = "is" if wait else "will be"
        for move in moves:
            print(f"{topic}-{move.partition} {verb} on {_ids(move.replicas or ())}")
    return 0


def wait_until_done(
    connection: AdminConnection, topic: str, missing_s_max: float = MISSING_S_MAX
) -> None:
    """Return when nothing of the topic is being moved any more. Raises StackError when a broker
    that shall get replicas does not run, for `missing_s_max`: without it there is no end."""
    missing_since: float | None = None
    while under_way := [item for item in moving(connection) if item.topic == topic]:
        wanted = {broker for item in under_way for broker in item.adding}
        missing = sorted(wanted - running_brokers(connection))
        if not missing:
            missing_since = None
        elif missing_since is None:
            missing_since = time.monotonic()
        elif time.monotonic() - missing_since > missing_s_max:
            raise StackError(
                f"Broker {_ids(missing)} does not run, so {len(under_way)} partitions wait for it. "
                "They go on when it is back; reassign --cancel calls them off."
            )
        time.sleep(LOOK_UP_S)


def running_brokers(connection: AdminConnection) -> set[int]:
    """The ids of the brokers that clients may ask."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return {broker.node_id for broker in connection.request(ApiKey.METADATA, request).brokers}


def parse_brokers(text: str) -> list[int]:
    """`1,2,3`. Raises StackError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise StackError(f"--to {text}: write broker ids, such as 1,2,3.", EXIT_USAGE) from error


def _as_json(item: Moving) -> dict[str, object]:
    return {
        "topic": item.topic,
        "partition": item.partition,
        "replicas": list(item.replicas),
        "adding": list(item.adding),
        "removing": list(item.removing),
    }


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _words(code: int, message: str | None) -> str:
    return message or ErrorCode(code).message
