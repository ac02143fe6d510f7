"""Fetch requests with very many partitions, handled in slices.

A thousand partitions take some 6 ms to name, look at and answer, and a client that uses no session,
or opens one, names all of its partitions and has to be told of each:

    thread: parse    loop: name a slice, a pause, a slice, …; look at a slice, …
    wait for records, as any poll does; look at what has changed
    loop: an answer's slice, a pause, a slice, …    thread: encode

An incremental request is named in slices, and then a poll like any other, which looks at no more at
a time (fetch_poll.py).

Invariants
- The set is this request's from the first slice to the answer, or to the poll that waits: others of
  the connection have sets of their own, and nobody knows a session before its first answer. Should
  somebody want it all the same, or the broker stop, the connection is closed. A request without
  an answer ends its session: half of it must not count.
- Partitions, roles and offsets may change between slices. The set watches its partitions, so what
  has changed since it was looked at is dirty again, and is told with the next answer; what this
  answer says of a partition was true when its slice was made, and that is noted as sent.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

from data_plane.broker.fetch import fetch_sets
from data_plane.broker.fetch.cold_reads import ColdRead
from data_plane.broker.fetch.fetch_authorization import may_read_all, withhold_unreadable
from data_plane.broker.fetch.fetch_poll import Poll
from data_plane.broker.fetch.fetch_reads import FetchReads
from data_plane.broker.fetch.fetch_response import (
    SESSIONS_VERSION,
    LeaderHints,
    PartitionResult,
    Topics,
    encode_refusal,
    encode_topics,
    full_fields,
    leader_hints_of,
)
from data_plane.broker.fetch.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    NO_SESSION_ID,
    FetchPartition,
    FetchSet,
)
from data_plane.broker.produce.produce_response import node_endpoints
from data_plane.broker.request.api import (
    Buffer,
    CloseConnection,
    Deferred,
    KeptRequest,
    RequestContext,
)
from data_plane.broker.request.fair_work import OnDone
from data_plane.broker.request.large_requests import pause, sliced
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode, WireError
from data_plane.wire.kernel import parse_fetch
from data_plane.wire.kernel_types import FetchRequestView, FetchTopicView, ForgottenTopicView
from data_plane.wire.registry import ApiKey

# Partitions of a slice, each some 2 ms. Whoever is first to ask for a partition has its log made.
NAMED_MAX = 2_000
LOOKED_AT_MAX = 200
TOLD_MAX = 1_000
# How often an answer is made anew because rights have changed meanwhile.
ASKED_AGAIN_MAX = 10

# Each step begins something that calls back when it is over; the result comes with the next turn.
Steps = Generator[Callable[[OnDone], None], Any, None]
TopicView = FetchTopicView | ForgottenTopicView


class LargeFetch:
    """One request, and the poll that waits as long as it lasts. See the module."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        kept: KeptRequest,
        position: int,
        end: int,
    ) -> None:
        self._services = services
        self._context = context
        self._kept = kept
        self._position = position
        self._end = end
        self._fetches = services.fetches
        self._fetch_set: FetchSet | None = None
        self._reads: FetchReads | None = None
        self._now_ms = 0
        self._back: tuple[Any, BaseException | None] | None = None
        # Where the poll waits: whom to call when something has changed, or did since it looked.
        self._on_change: OnDone | None = None
        self._has_changed = False
        self._is_late = False
        self._timer: Timer | None = None
        self.deferred: Deferred[list[Buffer]] = Deferred()
        self._fetches.parked[self] = None
        context.connection.on_close[self._abandon] = None
        self._steps: Steps | None = self._all_steps()
        next(self._steps)(self._came_back)

    # The poll that others know

    def wake(self) -> None:
        self._has_changed = True
        on_change, self._on_change = self._on_change, None
        if on_change is not None:
            on_change(None, None)

    def finish_early(self) -> None:
        self._fail("a long Fetch request was cut short")

    # One step after the other

    def _came_back(self, result: Any, error: BaseException | None) -> None:
        if self._steps is not None:
            self._back = (result, error)
            self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Go on with what a thread, or waiting, has brought."""
        back, self._back = self._back, None
        steps = self._steps
        if steps is None or back is None:
            return
        self._now_ms = now_ms
        result, error = back
        try:
            begin = steps.send(result) if error is None else steps.throw(error)
            begin(self._came_back)
        except StopIteration:
            self._stop()
        except (WireError, CloseConnection) as failure:
            self._fail(str(failure))
        except Exception as failure:
            # This runs at the end of somebody else's pass, whom a bug here must not hurt.
            self._services.log.error(
                "request_failed",
                api_key=int(ApiKey.FETCH),
                peer=self._context.connection.peer,
                error=repr(failure),
                traceback="".join(traceback.format_exception(failure)),
            )
            self._fail(f"request failed: {failure!r}")

    def _fail(self, reason: str) -> None:
        self._abandon()
        self._context.connection.close(reason)

    def _abandon(self) -> None:
        """Nobody knows the session yet, or what has become of it."""
        fetch_set = self._fetch_set
        self._stop()
        if fetch_set is not None and fetch_set.session_id != NO_SESSION_ID:
            self._fetches.cache.remove(fetch_set.session_id)

    def _stop(self) -> None:
        """It is answered, or nobody waits for that any more."""
        self._steps = self._on_change = None
        self._services.wakes.forget(self)
        self._fetches.parked.pop(self, None)
        self._context.connection.on_close.pop(self._abandon, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._reads is not None:
            self._reads.drop_scans()
        self._let_go()
        self._kept.release()

    def _let_go(self) -> None:
        """Of the set, which goes where nobody keeps it."""
        fetch_set, self._fetch_set = self._fetch_set, None
        if fetch_set is not None:
            fetch_set.parked = None
            if not fetch_set.is_kept:
                self._fetches.closing.close(fetch_set)

    # The steps

    def _pause(self, on_done: OnDone) -> None:
        pause(self._services, self._context, on_done)

    def _in_thread(self, work: Callable[[], Any], on_done: OnDone) -> None:
        self._services.request_work.submit(self._context, work, on_done)

    def _all_steps(self) -> Steps:
        context = self._context
        fetches = self._fetches
        view, topics, forgotten = yield partial(self._in_thread, self._parse)
        if view.replica_id >= 0 and not context.connection.is_inter_broker:
            if context.api_version < SESSIONS_VERSION:
                raise CloseConnection("replicas are not fetched through this listener")
            self._refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return
        is_full = EPOCH_FINAL <= view.session_epoch <= EPOCH_INITIAL
        choose = fetch_sets.for_full if is_full else fetch_sets.of_session
        fetch_set = choose(fetches, context, view, self._now_ms)
        if isinstance(fetch_set, ErrorCode):
            self._refuse(fetch_set)
            return
        self._fetch_set = fetch_set
        fetch_set.parked = self
        may_read = True
        if is_full:
            may_read = yield from self._name_all(fetch_set, topics)
        else:
            for piece in topics:
                fetch_set.name_changes(piece)
                may_read = may_read and may_read_all(context, piece)
                yield self._pause
            for gone in forgotten:
                fetch_set.forget_all(gone)
                yield self._pause
        if is_full:
            fetch_sets.keep(fetches, context, view, fetch_set, self._now_ms, may_read=may_read)
        else:
            error = fetch_sets.keep_session(fetches, fetch_set, may_read=may_read)
            if error is not ErrorCode.NONE:
                self._refuse(error)
                return
        if view.isolation_level != fetch_set.isolation_level:
            fetch_set.use_isolation_level(view.isolation_level)
        if fetch_set.is_follower:
            for piece in topics:
                fetch_set.report(piece)
                yield self._pause
        if is_full:
            yield from self._poll(view, fetch_set)
        else:
            self._hand_over(view, fetch_set)

    def _parse(
        self,
    ) -> tuple[FetchRequestView, list[list[FetchTopicView]], list[list[ForgottenTopicView]]]:
        """In a thread."""
        kept = self._kept
        position, end = self._position - kept.shift, self._end - kept.shift
        view = parse_fetch(kept.buf, position, end, self._context.api_version)
        return (
            view,
            cast(list[list[FetchTopicView]], _pieces(view.topics)),
            cast(list[list[ForgottenTopicView]], _pieces(view.forgotten_topics)),
        )

    def _name_all(
        self, fetch_set: FetchSet, topics: Sequence[Sequence[FetchTopicView]]
    ) -> Generator[Callable[[OnDone], None], Any, bool]:
        """As `FetchSet.name_all`; whether all may be read."""
        fetch_set.generation += 1
        named_count = 0
        may_read = True
        for piece in topics:
            may_read = may_read and may_read_all(self._context, piece)
            named_count += sum(fetch_set.name(topic) for topic in piece)
            yield self._pause
        if named_count != fetch_set.partitions_count:
            for targets in sliced(list(fetch_set.partitions()), NAMED_MAX):
                fetch_set.forget_unnamed(targets)
                yield self._pause
        return may_read

    def _refuse(self, error: ErrorCode) -> None:
        self.deferred.complete(encode_refusal(self._services, self._context, error))

    def _hand_over(self, view: FetchRequestView, fetch_set: FetchSet) -> None:
        """An incremental request goes on as a poll like any other."""
        self._fetch_set = fetch_set.parked = None
        poll = Poll(self._services, self._context, view, fetch_set, False, self._now_ms)
        answer = poll.begin(view.max_wait_ms, self._now_ms)
        if isinstance(answer, Deferred):
            answer.when_complete(self.deferred.complete)
        else:
            self.deferred.complete(answer)

    def _poll(self, view: FetchRequestView, fetch_set: FetchSet) -> Steps:
        """As a `Poll` that names everything."""
        reads = FetchReads(self._services, self._context, view, fetch_set, self._now_ms)
        self._reads = reads
        # What it finds is watched from then on.
        reads.is_waiting = True
        deadline_ms = self._now_ms + view.max_wait_ms
        while True:
            self._has_changed = False
            yield from self._look_at_all(reads, fetch_set)
            is_late = self._is_late or view.max_wait_ms <= 0
            wants_turn = reads.wants_turn(is_late=is_late)
            if not wants_turn and (is_late or reads.is_enough):
                break
            if self._timer is None:
                self._timer = self._services.timers.schedule(deadline_ms, self._timed_out)
                # The connection may go on with its next request.
                self._kept.release()
            # They are looked at again when there is more.
            reads.results = []
            if wants_turn:
                yield lambda on_done: reads.begin_turn(partial(on_done, None, None))
            else:
                yield self._until_changed
        reads.close_scans()
        if reads.cold:
            yield from self._read_cold(reads)
        frames = yield from self._answer(reads, fetch_set)
        deferred = self.deferred
        self._let_go()
        deferred.complete(frames)

    def _look_at_all(self, reads: FetchReads, fetch_set: FetchSet) -> Steps:
        reads.now_ms = self._now_ms
        reads.start_over()
        # What is different when it is answered is asked for again.
        fetch_set.policy = self._context.names.rights.policy
        for targets in sliced(list(fetch_set.dirty), LOOKED_AT_MAX):
            reads.look_at(targets)
            yield self._pause

    def _until_changed(self, on_done: OnDone) -> None:
        if self._has_changed or self._is_late:
            on_done(None, None)
        else:
            self._on_change = on_done

    def _timed_out(self, now_ms: int) -> None:
        self._is_late = True
        self.wake()

    def _read_cold(self, reads: FetchReads) -> Steps:
        cold: list[ColdRead] = []
        outcomes = yield lambda on_done: cold.extend(reads.run_cold(on_done))
        for read, outcome in zip(cold, outcomes, strict=True):
            reads.take_cold(read, outcome)

    def _answer(
        self, reads: FetchReads, fetch_set: FetchSet
    ) -> Generator[Callable[[OnDone], None], Any, list[Buffer]]:
        """The frames, as `Poll` makes them."""
        services, context = self._services, self._context
        is_opening = fetch_set.session_id != NO_SESSION_ID
        throttle_ms = reads.throttle_ms()
        if throttle_ms > 0:
            return reads.throttled_answer(throttle_ms, is_session_opening=is_opening)
        results, reads.results = reads.results, []
        for sent in sliced(results, TOLD_MAX):
            reads.note_sent(sent)
            yield self._pause
        by_target = {result.target: result for result in results}
        rights = context.names.rights
        for _ in range(ASKED_AGAIN_MAX):
            policy = rights.policy
            leader_hints = leader_hints_of(context)
            topics = yield from self._told(reads, fetch_set, by_target, leader_hints)
            endpoints = node_endpoints(services, context, leader_hints) if leader_hints else ()
            frames: list[Buffer] = yield partial(
                self._in_thread,
                partial(encode_topics, context, topics, 0, fetch_set.session_id, endpoints),
            )
            if rights.policy is policy:
                return frames
        raise CloseConnection("rights have changed all the time while it was answered")

    def _told(
        self,
        reads: FetchReads,
        fetch_set: FetchSet,
        by_target: dict[FetchPartition, PartitionResult],
        leader_hints: LeaderHints,
    ) -> Generator[Callable[[OnDone], None], Any, Topics]:
        """The fields of all partitions, of which none is told that may not be read any more."""
        topics: Topics = []
        is_opening = fetch_set.session_id != NO_SESSION_ID
        told_count = 0
        for (topic, topic_id), group in fetch_set.topics.items():
            fields: list[tuple[Any, ...]] = []
            topics.append((topic, topic_id, fields))
            for part in sliced(list(group.values()), TOLD_MAX):
                if told_count + len(part) > TOLD_MAX:
                    told_count = 0
                    yield self._pause
                told_count += len(part)
                found = [by_target[target] for target in part if target in by_target]
                withhold_unreadable(self._context, fetch_set, found)
                fields += full_fields(
                    self._services,
                    fetch_set,
                    part,
                    by_target,
                    leader_hints,
                    reads.rights.is_read_committed,
                    is_opening,
                )
        return topics


def _pieces(topics: Sequence[TopicView]) -> list[list[TopicView]]:
    """`topics`, cut into pieces of at most NAMED_MAX partitions, or as many topics."""
    pieces: list[list[TopicView]] = [[]]
    room = NAMED_MAX
    for topic in topics:
        for indexes in sliced(cast(list[Any], topic.partitions), NAMED_MAX):
            if room <= 0:
                pieces.append([])
                room = NAMED_MAX
            pieces[-1].append(topic._replace(partitions=list(indexes)))
            room -= max(1, len(indexes))
    return pieces
