"""A fetcher and a model of its leader, for tests: responses arrive when the test says so."""

from __future__ import annotations

from uuid import UUID

from data_plane.replica.fetch_session import API_VERSION, Limits
from data_plane.replica.fetcher import ReplicaFetcher
from data_plane.replica.followed import FetchOutcome, FetchProblem, FetchRequest
from data_plane.replica.throttle import UNLIMITED_BYTES_PER_S, Throttle
from data_plane.wire.kernel import parse_fetch
from tests.replica.leader_model import ModelLeader, ModelLog, ModelReplica

A, B = UUID(int=1).bytes, UUID(int=2).bytes
LIMITS = Limits(500, 1, 10 << 20, 1 << 20)
BACKOFF_MS = 1000
NODE_ID = 3


class Pair:
    """A fetcher, its leader, and a clock; responses arrive when the test says so."""

    def __init__(self, throttle: Throttle | None = None) -> None:
        self.now_ms = 1_000_000
        self.throttle = throttle or Throttle(UNLIMITED_BYTES_PER_S, self.now_ms)
        self.fetcher = ReplicaFetcher(NODE_ID, LIMITS, BACKOFF_MS, self.throttle)
        self.fetcher.set_replica_epoch(77)
        self.leader = ModelLeader()
        self.replicas: dict[tuple[bytes, int], ModelReplica] = {}
        self.problems: list[FetchProblem] = []

    def add(
        self, topic_id: bytes = A, index: int = 0, records: int = 0, *, is_throttled: bool = False
    ) -> ModelReplica:
        key = (topic_id, index)
        self.leader.logs[key] = ModelLog([0] * records)
        self.leader.epochs[key] = 0
        replica = self.replicas[key] = ModelReplica()
        self.fetcher.follow(topic_id, index, replica, is_throttled=is_throttled)
        return replica

    def request(self) -> FetchRequest | None:
        request, problems = self.fetcher.next_request(self.now_ms)
        self.problems += problems
        if request is not None:
            self.check(request)
        return request

    def check(self, request: FetchRequest) -> None:
        """What a request says of a replica, that replica has, and has synced."""
        view = parse_fetch(request.body, 0, len(request.body), API_VERSION)
        for topic in view.topics:
            for part in topic.partitions:
                replica = self.replicas[(topic.topic_id, part.partition)]
                assert part.fetch_offset == replica.log.end
                assert part.last_fetched_epoch == replica.log.last_epoch
                assert part.current_leader_epoch == replica.leader_epoch
                assert not replica.is_busy

    def respond(self, number: int, body: bytes | None) -> FetchOutcome:
        view = None if body is None else memoryview(bytearray(body))
        outcome = self.fetcher.handle_response(number, view, self.now_ms)
        self.problems += outcome.problems
        return outcome

    def exchange(self) -> FetchOutcome | None:
        """One request and its answer; None when there is nothing to ask."""
        request = self.request()
        if request is None:
            return None
        return self.respond(request.number, self.leader.answer(request.body))

    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    def settle(self, rounds: int = 200) -> None:
        """Go on until everything is copied and told."""
        for _ in range(rounds):
            if self.exchange() is None:
                deadline_ms = self.fetcher.next_deadline_ms()
                if deadline_ms is not None:
                    self.now_ms = max(self.now_ms + 1, deadline_ms)
            elif not self.leader.requests[-1].topics and not self.fetcher.paused_count:
                return
        raise AssertionError("it does not come to rest")


def named(pair: Pair) -> list[tuple[bytes, int, int]]:
    """(topic, partition, offset) of the last request."""
    return [
        (topic.topic_id, part.partition, part.fetch_offset)
        for topic in pair.leader.requests[-1].topics
        for part in topic.partitions
    ]
