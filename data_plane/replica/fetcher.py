"""Following: copies what one leading broker has of the partitions that this broker follows.

One fetcher per leader, one request at a time, all partitions in one fetch session:

    next_request ──► leader ──► handle_response: per partition, where the bytes were received
         ▲                        records            → append, its state has changed
         │                        diverging epoch    → truncate, its state has changed
         └── names what changed   out of range       → begin where the leader's log does on its disk
                                  error              → left out for a while, then named again

A partition that has not changed stands in no request and, when its leader has nothing new, in no
response: 2,000 quiet partitions cost an empty request each `replica.fetch.wait.max.ms`.

Whose answer is it? A partition may change (truncated, another leader epoch, failed) while a
request is under way that was made before; what comes back for it then is not for what it is now.
So each partition notes the number of the request that has named its present state (`named_in`, 0
for none yet), and takes only answers to that request and later ones.

    request 7 names p at 50 ─► in flight ─► p gets a new leader epoch: named_in = 0
    response 7 with records of p: not taken        request 8 names p ─► response 8 is taken

A second request may follow while one waits at the leader (which then answers the first one at
once): after INTERRUPT_AFTER_MS, when a partition has news that should not wait for the long poll:
a new leader, a finished sync or cut, the end of a pause.

Invariants
- Records are appended only in the leader epoch under which they were asked for.
- What a request says of a partition, its follower has (and has synced, where the topic asks).
- A partition whose log is being cut stands in no request, and takes no answer.
- A failure of one partition pauses that partition and no other.
- At most IN_FLIGHT_MAX requests; every pause ends by itself.

Deliberately absent: sockets, clocks, which broker leads (broker/replicas/replication.py); how a
log is truncated and when records are committed (partition.py).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

from data_plane.log.errors import LogError
from data_plane.replica.errors import StaleLeaderEpoch
from data_plane.replica.fetch_session import (
    API_VERSION,
    FetchSession,
    FetchState,
    Limits,
    PartitionKey,
)
from data_plane.replica.followed import (
    FOR_EVER_MS,
    FetchOutcome,
    FetchProblem,
    FetchRequest,
    FollowedPartition,
    LocalReplica,
)
from data_plane.replica.throttle import Throttle
from data_plane.wire.errors import ErrorCode, MalformedFrame
from data_plane.wire.kernel import parse_fetch_response
from data_plane.wire.kernel_types import FetchedPartition

IN_FLIGHT_MAX = 2
# A request that is out for so long waits at the leader; before, its answer is on the way.
INTERRUPT_AFTER_MS = 2
# Pauses begin with this and double with each failure in a row. A leader that was elected a moment
# ago answers with errors until it has seen the image, which takes a few milliseconds.
BACKOFF_MS_MIN = 20
# The longest pause of a partition whose own log fails.
STORAGE_BACKOFF_MS_MAX = 30_000
# The longest pause for the throttle, whose rate may change at any time. What one answer has taken
# too much may be hours' worth of a low rate.
THROTTLED_PAUSE_MS_MAX = 1000

_NONE = int(ErrorCode.NONE)
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_SESSION_ERRORS = frozenset(
    {
        int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        int(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    }
)
# What a leader says when it and this broker have not seen the same image yet.
_EXPECTED_ERRORS = frozenset(
    {
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.LEADER_NOT_AVAILABLE),
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        int(ErrorCode.FENCED_LEADER_EPOCH),
        int(ErrorCode.UNKNOWN_LEADER_EPOCH),
        int(ErrorCode.UNKNOWN_TOPIC_ID),
        int(ErrorCode.INCONSISTENT_TOPIC_ID),
    }
)


class ReplicaFetcher:
    """See the module. `on_ready` is told when there may be a request to make before the next
    response or deadline."""

    def __init__(
        self, replica_id: int, limits: Limits, backoff_ms_max: int, throttle: Throttle
    ) -> None:
        self.limits = limits
        self.backoff_ms_max = backoff_ms_max
        self.on_ready: Callable[[], None] | None = None
        self.fetched_bytes = 0
        self._replica = (replica_id, -1)
        self._throttle = throttle
        self._session = FetchSession()
        # Kafka's leaders have a bounded number of sessions; without one, full requests do the same.
        self._is_session_refused = False
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._changed: dict[FollowedPartition, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._throttled: dict[FollowedPartition, None] = {}
        self._paused: list[tuple[int, int, FollowedPartition]] = []
        self._order = count()
        self._numbers = count(1)
        # (number, when sent), oldest first.
        self._in_flight: deque[tuple[int, int]] = deque()
        self._failures_count = 0
        self._retry_at_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def paused_count(self) -> int:
        return sum(one.paused_until_ms is not None for one in self._followed.values())

    def lag_max(self) -> int:
        """The most offsets that any partition is known to lack of its leader's high watermark."""
        lags = (
            one.leader_high_watermark - one.state.fetch_offset
            for one in self._followed.values()
            if one.leader_high_watermark >= 0
        )
        return max(0, max(lags, default=0))

    # What is followed.

    def follow(
        self, topic_id: bytes, index: int, replica: LocalReplica, *, is_throttled: bool = False
    ) -> None:
        """Fetch this partition from now on; again, when its leader epoch has changed."""
        key = (topic_id, index)
        self._remove(key)
        one = FollowedPartition(key, replica, is_throttled)
        self._followed[key] = one
        if is_throttled:
            self._throttled[one] = None
        self._name_again(one)

    def unfollow(self, topic_id: bytes, index: int) -> None:
        """Take nothing for this partition any more."""
        key = (topic_id, index)
        self._remove(key)
        if key in self._session.partitions:
            self._forgotten[key] = None

    def log_start_changed(self, topic_id: bytes, index: int) -> None:
        """The replica begins later now, by its own retention: the leader is to hear of it."""
        one = self._followed.get((topic_id, index))
        if one is not None and one.paused_until_ms is None:
            self._name_again(one)

    def set_throttled(self, topic_id: bytes, index: int, is_throttled: bool) -> None:
        """Whether the partition is still being added, and so limited in bytes per second."""
        one = self._followed.get((topic_id, index))
        if one is not None and one.is_throttled != is_throttled:
            one.is_throttled = is_throttled
            if is_throttled:
                self._throttled[one] = None
            else:
                self._throttled.pop(one, None)
                if one.paused_until_ms is not None and self._rests_for_throttle(one):
                    # It has joined the ISR, and producers wait for it.
                    one.paused_until_ms = None
                    self._name_again(one)

    def set_replica_epoch(self, replica_epoch: int) -> None:
        """The epoch of this broker's registration. A leader takes it from the requests that name a
        partition, so all are named again."""
        if replica_epoch != self._replica[1]:
            self._replica = (self._replica[0], replica_epoch)
            self._reset()

    def retry_now(self) -> None:
        """Something has changed about the leader: its address, its incarnation."""
        self._retry_at_ms = 0
        self._failures_count = 0

    def _remove(self, key: PartitionKey) -> None:
        one = self._followed.pop(key, None)
        if one is not None:
            one.paused_until_ms = None
            self._changed.pop(one, None)
            self._throttled.pop(one, None)

    # Requests.

    def next_request(self, now_ms: int) -> tuple[FetchRequest | None, list[FetchProblem]]:
        """The request to send now, if there is one, and what came up making it. There is none more
        until time passes or something comes up."""
        problems: list[FetchProblem] = []
        if self._throttled:
            self._pause_throttled(now_ms)
        self._end_pauses(now_ms)
        if not self._may_send(now_ms):
            return None, problems
        session = self._session
        candidates = self._changed
        if not session.is_open:
            session.reset()
            self._forgotten.clear()
            candidates = dict.fromkeys(
                one for one in self._followed.values() if one.paused_until_ms is None
            )
        self._changed = {}
        number = next(self._numbers)
        named: list[tuple[PartitionKey, FetchState, int]] = []
        for one in candidates:
            try:
                if one.replica.is_busy:
                    self._pause_until_free(one)
                    continue
                state = one.replica.fetch_state()
            except Exception as error:
                problems.append(self._failed(one, error, now_ms))
                continue
            one.state = state
            one.named_in = number
            named.append((one.key, state, one.leader_high_watermark))
        if not named and not session.partitions:
            return None, problems
        forgotten, self._forgotten = self._forgotten, {}
        limits = self.limits
        if not session.is_open and not self._is_session_refused:
            # Until the session is open nothing more can be asked, so its opening should not wait.
            limits = limits._replace(wait_ms_max=0)
        body = session.encode(limits, self._replica, named, forgotten)
        self._in_flight.append((number, now_ms))
        return FetchRequest(number, body), problems

    def _may_send(self, now_ms: int) -> bool:
        in_flight = self._in_flight
        if not in_flight:
            return now_ms >= self._retry_at_ms and bool(self._changed or self._session.partitions)
        return self._may_interrupt() and now_ms >= in_flight[-1][1] + INTERRUPT_AFTER_MS

    def _may_interrupt(self) -> bool:
        return (
            len(self._in_flight) < IN_FLIGHT_MAX
            and self._session.is_open
            and bool(self._changed or self._forgotten)
        )

    def next_deadline_ms(self) -> int | None:
        """When `next_request` should be called at the latest, without any other event."""
        paused = self._paused
        while paused and paused[0][2].paused_until_ms != paused[0][0]:
            heapq.heappop(paused)
        deadline_ms = paused[0][0] if paused else None
        if not self._in_flight:
            if not self._changed and not self._session.partitions:
                return deadline_ms
            send_ms = self._retry_at_ms
        elif self._may_interrupt():
            send_ms = self._in_flight[-1][1] + INTERRUPT_AFTER_MS
        else:
            return deadline_ms
        return send_ms if deadline_ms is None else min(deadline_ms, send_ms)

    # Responses.

    def handle_response(self, number: int, body: memoryview | None, now_ms: int) -> FetchOutcome:
        """Act on the response to request `number`; None when its connection failed. The bytes are
        used within the call only."""
        in_flight = self._in_flight
        if body is None and any(number == sent for sent, _ in in_flight):
            self._give_up(now_ms)
            return FetchOutcome([])
        if body is None or not in_flight or in_flight[0][0] != number:
            # The session it belongs to was given up meanwhile.
            return FetchOutcome([])
        in_flight.popleft()
        try:
            view = parse_fetch_response(body, 0, len(body), API_VERSION)
        except MalformedFrame as error:
            self._give_up(now_ms)
            return FetchOutcome([], f"malformed Fetch response: {error}")
        session = self._session
        if view.error_code in _SESSION_ERRORS and session.is_open and not self._failures_count:
            # A new session at once; if that is lost too, after a while.
            session.lost()
            self._reset()
            self._failures_count = 1
            return FetchOutcome([])
        if view.error_code != _NONE:
            self._give_up(now_ms)
            return FetchOutcome([], f"Fetch refused with {_name(view.error_code)}")
        if not session.is_open:
            session.opened(view.session_id)
            self._is_session_refused = not session.is_open
            if self._is_session_refused:
                self._failures_count = 0
        elif view.session_id != session.session_id:
            # The leader has closed it, being left without partitions.
            session.lost()
            self._reset()
        else:
            self._failures_count = 0
        problems: list[FetchProblem] = []
        followed = self._followed
        for item in view.partitions:
            one = followed.get((item.topic_id, item.partition))
            if one is None or not 0 < one.named_in <= number:
                continue
            try:
                problem = self._take(one, item, body, now_ms)
            except Exception as error:
                problem = self._failed(one, error, now_ms)
            if problem is not None:
                problems.append(problem)
        return FetchOutcome(problems)

    def _take(
        self, one: FollowedPartition, item: FetchedPartition, body: memoryview, now_ms: int
    ) -> FetchProblem | None:
        """One partition's part of a response."""
        replica = one.replica
        error_code = item.error_code
        is_progress_due = True
        if error_code == _NONE and item.diverging_epoch is None:
            size = item.records_end - item.records_start
            is_progress_due = size > 0
            one.leader_high_watermark = item.high_watermark
            replica.append_as_follower(
                body,
                item.records_start,
                item.records_end,
                leader_epoch=one.state.leader_epoch,
                leader_high_watermark=item.high_watermark,
                leader_log_start=item.log_start_offset,
                now_ms=now_ms,
            )
            self.fetched_bytes += size
            if one.is_throttled:
                self._throttle.take(size, now_ms)
        elif error_code == _NONE and item.diverging_epoch is not None:
            replica.truncate_for_divergence(*item.diverging_epoch)
            if replica.is_busy:
                self._pause_until_free(one)
                return None
        elif error_code == _OUT_OF_RANGE and _must_restart(one.state, item.log_start_offset):
            epoch_before = -1 if item.diverging_epoch is None else item.diverging_epoch[0]
            replica.restart_at(item.log_start_offset, epoch_before)
        else:
            is_expected = error_code in _EXPECTED_ERRORS
            reason = f"the leader answers {_name(error_code)}"
            return self._pause_after_failure(one, reason, now_ms, is_expected=is_expected)
        state = replica.fetch_state()
        one.is_caught_up = state.fetch_offset >= one.leader_high_watermark >= 0
        if state == one.state:
            if is_progress_due:
                # Asking again at once would give the same, again and again.
                reason = "the leader's answer brings this replica no further"
                return self._pause_after_failure(one, reason, now_ms)
            return None
        one.failures_count = 0
        if replica.is_busy:
            self._pause_until_free(one)
        else:
            self._name_again(one)
        return None

    def _reset(self) -> None:
        """Begin a new session with the next request, naming everything."""
        self._session.reset()
        self._in_flight.clear()
        self._forgotten.clear()
        for one in self._followed.values():
            if one.paused_until_ms is None:
                one.named_in = 0
                self._changed[one] = None

    def _give_up(self, now_ms: int) -> None:
        """As `_reset`, after a while: the connection or the leader is not well."""
        self._reset()
        self._failures_count += 1
        self._retry_at_ms = now_ms + self._backoff_ms(self._failures_count, self.backoff_ms_max)

    # Pauses.

    def _name_again(self, one: FollowedPartition) -> None:
        one.named_in = 0
        self._changed[one] = None
        self._forgotten.pop(one.key, None)

    def _pause(self, one: FollowedPartition, until_ms: int) -> None:
        """Leave a partition out of the session for a while."""
        one.named_in = 0
        one.paused_until_ms = until_ms
        self._changed.pop(one, None)
        if one.key in self._session.partitions:
            self._forgotten[one.key] = None
        if until_ms < FOR_EVER_MS:
            heapq.heappush(self._paused, (until_ms, next(self._order), one))

    def _pause_until_free(self, one: FollowedPartition) -> None:
        self._pause(one, FOR_EVER_MS)

        def freed() -> None:
            if one.paused_until_ms == FOR_EVER_MS:
                one.paused_until_ms = None
                self._name_again(one)
                if self.on_ready is not None:
                    self.on_ready()

        one.replica.when_free(freed)

    @staticmethod
    def _rests_for_throttle(one: FollowedPartition) -> bool:
        """Whether a pause is neither for a failure nor for what the replica is busy with."""
        return not one.failures_count and one.paused_until_ms != FOR_EVER_MS

    def _throttled_ms(self, now_ms: int) -> int:
        return min(self._throttle.wait_ms(now_ms), THROTTLED_PAUSE_MS_MAX)

    def _pause_throttled(self, now_ms: int) -> None:
        wait_ms = self._throttled_ms(now_ms)
        if wait_ms:
            for one in self._throttled:
                if one.paused_until_ms is None and not one.is_caught_up:
                    self._pause(one, now_ms + wait_ms)

    def _end_pauses(self, now_ms: int) -> None:
        paused = self._paused
        while paused and paused[0][0] <= now_ms:
            until_ms, _, one = heapq.heappop(paused)
            if one.paused_until_ms != until_ms:
                continue
            wait_ms = self._throttled_ms(now_ms) if one.is_throttled else 0
            if wait_ms:
                # Others of this broker have used up what there was.
                self._pause(one, now_ms + wait_ms)
            else:
                one.paused_until_ms = None
                self._name_again(one)

    def _failed(self, one: FollowedPartition, error: Exception, now_ms: int) -> FetchProblem:
        """This replica itself refused. Not only LogError: a bug, too, costs one partition."""
        reason = str(error) if isinstance(error, LogError) else repr(error)
        is_expected = isinstance(error, StaleLeaderEpoch)
        return self._pause_after_failure(
            one, reason, now_ms, is_expected=is_expected, is_own=not is_expected
        )

    def _pause_after_failure(
        self,
        one: FollowedPartition,
        reason: str,
        now_ms: int,
        *,
        is_expected: bool = False,
        is_own: bool = False,
    ) -> FetchProblem:
        one.failures_count += 1
        pause_ms_max = STORAGE_BACKOFF_MS_MAX if is_own else self.backoff_ms_max
        pause_ms = self._backoff_ms(one.failures_count, pause_ms_max)
        self._pause(one, now_ms + pause_ms)
        return FetchProblem(one.key, reason, pause_ms, is_expected)

    @staticmethod
    def _backoff_ms(failures_count: int, backoff_ms_max: int) -> int:
        return min(backoff_ms_max, BACKOFF_MS_MIN << min(failures_count - 1, 20))


def _must_restart(state: FetchState, leader_start_offset: int) -> bool:
    """Whether a replica whose offset is out of range is to begin anew where the leader's log
    begins: it lies below, or there, with records below that the leader cannot compare, or it is
    empty and has nothing to lose. One with records above the leader's log end has diverged, and is
    told so with an epoch."""
    if leader_start_offset < 0:
        return False
    return leader_start_offset >= state.fetch_offset or state.last_fetched_epoch < 0


def _name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
