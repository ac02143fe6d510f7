"""DescribeLogDirs (1 to 5) and AlterReplicaLogDirs (1 and 2).

Sizes are the bytes of a partition's segments. Free space is asked of the operating system in a
worker thread. Partitions are not moved between data directories: asking for the one where a
partition already is succeeds, as in Kafka; asking for another existing one is refused.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.cell.virtual_topics import own_index, shown_count, shown_index
from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from data_plane.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from data_plane.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from data_plane.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from data_plane.wire.registry import ApiKey

DESCRIBE_MIN_VERSION, DESCRIBE_MAX_VERSION = 1, 5
ALTER_MIN_VERSION, ALTER_MAX_VERSION = 1, 2
UNKNOWN_SPACE = (-1, -1)
# Where everything is for who does not see the cell.
VIRTUAL_DIRECTORY = "/"

# Path → (size, usable) in bytes; raises OSError.
MeasureSpace = Callable[[str], tuple[int, int]]


def handle_describe_log_dirs(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest, now_ms: int
) -> Deferred[DescribeLogDirsResponse]:
    deferred: Deferred[DescribeLogDirsResponse] = Deferred()
    if not context.may_see_cell:
        deferred.complete(_describe_virtually(services, context, request))
        return deferred
    online = [item.path for item in services.logs.directories if item.failure is None]

    measure_space = services.measure_space

    def measure() -> dict[str, tuple[int, int]]:
        return {path: _space_bytes(measure_space, path) for path in online}

    def done(spaces: dict[str, tuple[int, int]] | None, error: BaseException | None) -> None:
        deferred.complete(_describe(services, context, request, spaces or {}))

    services.executor.submit(measure, done)
    return deferred


def _space_bytes(measure: MeasureSpace | None, path: str) -> tuple[int, int]:
    """(size, usable) of the file system; -1 where it does not say."""
    if measure is None:
        return UNKNOWN_SPACE
    try:
        return measure(path)
    except OSError:
        return UNKNOWN_SPACE


def _sizes(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> dict[str, dict[str, list[DescribeLogDirsPartition]]]:
    """What is asked for, by directory and topic."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_directory: dict[str, dict[str, list[DescribeLogDirsPartition]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name, index, path, size_bytes in _replicas(services, context):
        if wanted is None or (name, index) in wanted:
            # The offset lag says how far this replica is behind; the only one is behind nobody.
            by_directory[path][name].append(
                DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes)
            )
    return by_directory


def _describe_virtually(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """To who does not see the cell: one directory, with what he has on this broker."""
    merged: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for topics in _sizes(services, context, request).values():
        for name, partitions in topics.items():
            merged[name] += partitions
    shown = [
        DescribeLogDirsTopic(
            name=name, partitions=sorted(partitions, key=lambda each: each.partition_index)
        )
        for name, partitions in sorted(merged.items())
    ]
    total_bytes, usable_bytes = UNKNOWN_SPACE
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=VIRTUAL_DIRECTORY,
                topics=shown,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


def _describe(
    services: Services,
    context: RequestContext,
    request: DescribeLogDirsRequest,
    spaces: Mapping[str, tuple[int, int]],
) -> DescribeLogDirsResponse:
    by_directory = _sizes(services, context, request)
    results = []
    for directory in services.logs.directories:
        if directory.failure is not None:
            results.append(
                DescribeLogDirsResult(
                    error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=directory.path
                )
            )
            continue
        total_bytes, usable_bytes = spaces.get(directory.path, UNKNOWN_SPACE)
        results.append(
            DescribeLogDirsResult(
                log_dir=directory.path,
                topics=[
                    DescribeLogDirsTopic(name=name, partitions=partitions)
                    for name, partitions in by_directory[directory.path].items()
                ],
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _replicas(services: Services, context: RequestContext) -> Iterator[tuple[str, int, str, int]]:
    """(topic, partition, directory, bytes) of all replicas here that the client may know of.

    A log is made when it is first used; until then its replica is shown, empty, where the first
    log would go."""
    logs = {(log.topic_id, log.partition): log for log in services.logs.logs()}
    online = [item.path for item in services.logs.directories if item.failure is None]
    topics = context.cell_topics
    for topic in topics.all():
        name = topics.name_of(topic)
        for index, partition in enumerate(topic.partitions):
            if services.node_id not in partition.replicas:
                continue
            log = logs.get((topic.topic_id, index))
            # The others of a virtual topic have no log.
            shown = shown_index(topic, index)
            if log is not None:
                yield name, shown, log.log_directory.path, log.size_bytes
            elif online or not context.may_see_cell:
                yield name, shown, online[0] if online else VIRTUAL_DIRECTORY, 0


def handle_alter_replica_log_dirs(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest, now_ms: int
) -> AlterReplicaLogDirsResponse:
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    known = {posixpath.normpath(item.path): item.path for item in services.logs.directories}
    for wanted in request.dirs:
        directory = known.get(posixpath.normpath(wanted.path))
        for topic in wanted.topics:
            for index in topic.partitions:
                code = _alter(services, context, directory, topic.name, index)
                by_topic[topic.name].append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code))
                )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
    )


def _alter(
    services: Services, context: RequestContext, directory: str | None, name: str, index: int
) -> ErrorCode:
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = context.cell_topics.by_name(name)
    if topic is None or not 0 <= index < shown_count(topic):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    own = own_index(topic, index)
    if own is None:
        # Its log is the source's.
        return ErrorCode.REPLICA_NOT_AVAILABLE
    try:
        partition = services.partitions.replica(topic.topic_id, own)
    except LogError as error:
        return error.error_code
    if partition is None:
        code = services.partitions.error_of_named(topic.topic_id, own)
        # Kafka has kept the older name of that one here.
        is_elsewhere = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else code
    if partition.log.log_directory.path == directory:
        return ErrorCode.NONE
    return ErrorCode.INVALID_REQUEST


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.DESCRIBE_LOG_DIRS,
        DESCRIBE_MIN_VERSION,
        DESCRIBE_MAX_VERSION,
        handle_describe_log_dirs,
    )
    table.register(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ALTER_MIN_VERSION,
        ALTER_MAX_VERSION,
        handle_alter_replica_log_dirs,
    )
