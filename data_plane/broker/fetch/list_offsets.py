"""ListOffsets, versions 1 to 11: offsets by time, and the ends of the log.

    -1  latest: the high watermark, or the last stable offset for read_committed
    -2  earliest: the log start
    -3  the record with the largest timestamp (KIP-734, version 7)
    -4  earliest local: what is on this broker's disk; the log start without an archive (8)
    -5  latest tiered: none without an archive (9)
    -6  earliest pending upload: none without an archive (11, KIP-1023)
    ≥0  the first record whose timestamp is at least this

An answer of offset -1 without an error means that there is no such record.

Of a partition that is read through a projection, time stands for the first record shown that is not
older. And there is one more question, of ours: how many records are shown from an offset on, which
is the lag of who has committed it. It is asked as a time that no record has, so that any client can
put it, and Apache Kafka answers that there is no such record:

    2^62 + offset  → offset: how many; timestamp: that of the first of them, -1 for none

And one of a subscription's own partitions, whose retries may pause (docs/retries.md):

    2^61           → nothing while they do not; otherwise timestamp: since when; offset: how many
                     messages were nacked; leader epoch: of how many that were passed

A leader that was just elected may not know yet how far its predecessor had committed: its high
watermark lies below the start of its epoch until its followers have shown themselves. Until then an
end that it could give might be one that a client has seen beyond, so consumers get
OFFSET_NOT_AVAILABLE (KIP-207; before version 5 LEADER_NOT_AVAILABLE). Other brokers, on the
inter-broker listener, see the log up to its end.
"""

from __future__ import annotations

from copy import copy

from data_plane.broker.fetch.projected_searches import (
    ReadBudget,
    TooMuchToRead,
    aborted_between,
    count_shown,
    find_first,
)
from data_plane.broker.fetch.projection import Projection
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext, Slices
from data_plane.broker.request.large_requests import SLICE_ITEMS_MAX, sliced
from data_plane.broker.request.partition_errors import check_leader_epoch
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION = 1
MAX_VERSION = 11

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The first version that knows each special timestamp; others are unsupported below it.
FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
# 2^62 + offset: how many records are shown from there on.
COUNT_FROM = 1 << 62
ASKS_PAUSE = 1 << 61
READ_COMMITTED = 1
# The first version that knows OFFSET_NOT_AVAILABLE.
OFFSET_NOT_AVAILABLE_VERSION = 5
# Of a record that has none.
NO_TIMESTAMP = -1

_Found = tuple[int, int, int]


class _Search:
    """A look-up that reads index and log files, which a worker thread does."""

    __slots__ = (
        "answer",
        "if_none",
        "is_committed",
        "limit",
        "partition",
        "projection",
        "timestamp",
    )

    def __init__(
        self,
        partition: Partition,
        projection: Projection | None,
        timestamp: int,
        limit: int,
        answer: ListOffsetsPartitionResponse,
        if_none: ErrorCode,
        *,
        is_committed: bool,
    ) -> None:
        self.partition = partition
        self.projection = projection
        self.if_none = if_none
        self.timestamp = timestamp
        self.limit = limit
        self.answer = answer
        self.is_committed = is_committed

    def run(self, budget: ReadBudget) -> _Found | LogError | None:
        """(offset, timestamp, leader epoch), None when there is no such record, or the error."""
        log = self.partition.log
        try:
            if self.timestamp == MAX_TIMESTAMP:
                return log.max_timestamp_offset(max_offset=self.limit)
            if self.timestamp >= COUNT_FROM:
                return None if self.projection is None else self._count(self.projection, budget)
            found = log.offset_for_timestamp(self.timestamp, max_offset=self.limit)
            if found is None or self.projection is None:
                return found
            return self._first_shown(self.projection, found, budget)
        except LogError as error:
            return error

    def _first_shown(
        self, projection: Projection, found: _Found, budget: ReadBudget
    ) -> _Found | None:
        log, limit = self.partition.log, self.limit
        try:
            return find_first(projection, log, found[0], limit, self.timestamp, (), budget)
        except TooMuchToRead:
            # A good place to begin all the same: nothing that is not older lies before.
            return found

    def _count(self, projection: Projection, budget: ReadBudget) -> _Found:
        log, limit = self.partition.log, self.limit
        start = max(self.timestamp - COUNT_FROM, log.log_start_offset)
        if start >= limit:
            return 0, -1, -1
        aborted = aborted_between(log, start, limit) if self.is_committed else ()
        count = count_shown(projection, log, start, limit, aborted, budget)
        first = None
        if count:
            first = find_first(projection, log, start, limit, NO_TIMESTAMP, aborted, budget)
        return count, NO_TIMESTAMP if first is None else first[1], -1


def handle_list_offsets(
    services: Services, context: RequestContext, request: ListOffsetsRequest, now_ms: int
) -> ListOffsetsResponse | Deferred[ListOffsetsResponse]:
    """Answer each partition by itself; a partition named twice is an INVALID_REQUEST."""
    is_refused = request.replica_id >= 0 and not context.connection.is_inter_broker
    searches: list[_Search] = []
    topics = []
    for topic in request.topics:
        topic_id = context.topics.id_of(topic.name)
        named: set[int] = set()
        twice: set[int] = set()
        for wanted in topic.partitions:
            (twice if wanted.partition_index in named else named).add(wanted.partition_index)
        partitions = []
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            partitions.append(answer)
            if is_refused:
                answer.error_code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            elif wanted.partition_index in twice:
                answer.error_code = int(ErrorCode.INVALID_REQUEST)
            elif wanted.timestamp < EARLIEST_PENDING_UPLOAD or context.api_version < (
                FIRST_VERSION.get(wanted.timestamp, MIN_VERSION)
            ):
                answer.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
            else:
                try:
                    _look_up(
                        services, context, request, topic.name, topic_id, wanted, answer, searches
                    )
                except LogError as error:
                    # Any question to a log may have to load it first.
                    answer.error_code = int(error.error_code)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    response = ListOffsetsResponse(topics=topics)
    if searches:
        return _search_later(services, context, searches, response)
    return response


def _look_up(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    topic_id: bytes,
    wanted: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
    searches: list[_Search],
) -> None:
    """Fill in the answer, or add a search that will."""
    projections = services.projections
    partition = projections.leading(context.tenant, topic, topic_id, wanted.partition_index)
    if partition is None or partition.leader_error is not ErrorCode.NONE:
        error = projections.error(
            context.tenant, topic, topic_id, wanted.partition_index, wanted.current_leader_epoch
        )
        answer.error_code = int(error)
        return
    error = check_leader_epoch(partition.leader_epoch, wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        answer.error_code = int(error)
        return
    limit, unknown_end = _readable_end(partition, request, context.api_version)
    log = partition.log
    # As in Kafka: whoever asks for the end would wait for it in vain.
    log.log_directory.check_online()
    timestamp = wanted.timestamp
    is_of_end = timestamp == LATEST or timestamp >= COUNT_FROM
    if is_of_end and unknown_end is not ErrorCode.NONE:
        answer.error_code = int(unknown_end)
    elif timestamp == LATEST:
        answer.offset, answer.leader_epoch = limit, partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.epoch_for_offset(log.log_start_offset)
        if log.log_start_offset == log.log_end_offset:
            # An empty log: what comes first will be of this epoch.
            answer.leader_epoch = partition.leader_epoch
    elif timestamp == ASKS_PAUSE:
        gate = services.firing_gate
        pause = None if gate is None else gate.pause_of(partition)
        if pause is not None:
            answer.timestamp, answer.offset = pause.since_ms, pause.nacked
            answer.leader_epoch = pause.passed
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        # The search runs in a worker thread, which must not load.
        if not log.is_loaded:
            log.load()
        projected = projections.find(context.tenant, topic, b"", wanted.partition_index)
        search = _Search(
            partition,
            None if projected is None else projected.projection,
            timestamp,
            limit,
            answer,
            unknown_end,
            is_committed=request.isolation_level == READ_COMMITTED,
        )
        searches.append(search)


def _readable_end(
    partition: Partition, request: ListOffsetsRequest, version: int
) -> tuple[int, ErrorCode]:
    """Where reading ends, and the error if that end cannot be told for certain."""
    if request.replica_id >= 0:
        return partition.log.log_end_offset, ErrorCode.NONE
    limit = partition.high_watermark
    error = ErrorCode.NONE
    if limit < partition.epoch_start_offset:
        error = ErrorCode.OFFSET_NOT_AVAILABLE
        if version < OFFSET_NOT_AVAILABLE_VERSION:
            error = ErrorCode.LEADER_NOT_AVAILABLE
    if request.isolation_level == READ_COMMITTED:
        limit = partition.last_stable_offset
    return limit, error


def _search_later(
    services: Services,
    context: RequestContext,
    searches: list[_Search],
    response: ListOffsetsResponse,
) -> Deferred[ListOffsetsResponse]:
    deferred: Deferred[ListOffsetsResponse] = Deferred()

    def done(
        outcomes: list[_Found | LogError | None] | None,
        error: BaseException | None,
    ) -> None:
        if outcomes is None:
            services.log.error("list_offsets_failed", error=repr(error))
            outcomes = [LogError(str(error))] * len(searches)
        for search, found in zip(searches, outcomes, strict=True):
            if isinstance(found, LogError):
                search.answer.error_code = int(found.error_code)
            elif found is not None:
                search.answer.offset, search.answer.timestamp, search.answer.leader_epoch = found
            else:
                search.answer.error_code = int(search.if_none)
        deferred.complete(response)

    budget = ReadBudget(len(searches))
    reads = services.fetches.cold_reads
    reads.submit(context, lambda: [search.run(budget) for search in searches], done)
    return deferred


def cut(request: ListOffsetsRequest) -> list[ListOffsetsRequest]:
    """A request with very many partitions as several. One that a topic names more than once stands
    in one of them, twice, so that it is refused there."""
    pieces: list[ListOffsetsTopic] = []
    for topic in request.topics:
        by_index: dict[int, list[ListOffsetsPartition]] = {}
        for wanted in topic.partitions:
            by_index.setdefault(wanted.partition_index, []).append(wanted)
        for named in sliced(list(by_index.values())):
            partitions = [wanted for same in named for wanted in same[:2]]
            pieces.append(ListOffsetsTopic(name=topic.name, partitions=partitions))
    parts: list[ListOffsetsRequest] = []
    room = 0
    for piece in pieces:
        if not parts or len(piece.partitions) > room:
            parts.append(copy(request))
            parts[-1].topics = []
            room = SLICE_ITEMS_MAX
        parts[-1].topics.append(piece)
        room -= max(1, len(piece.partitions))
    return parts or [request]


def merge(response: ListOffsetsResponse, more: ListOffsetsResponse) -> None:
    """Add the answer to the next part of what was cut up."""
    topics = more.topics
    if topics and response.topics and topics[0].name == response.topics[-1].name:
        response.topics[-1].partitions.extend(topics[0].partitions)
        topics = topics[1:]
    response.topics.extend(topics)


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.LIST_OFFSETS,
        MIN_VERSION,
        MAX_VERSION,
        handle_list_offsets,
        slices=Slices(cut, merge),
    )
