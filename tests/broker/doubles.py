"""Doubles of ports: work that waits to be run, a log that remembers, quotas that are set."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from data_plane.broker.request.api import RequestContext
from data_plane.groups.totals import TenantLimit

NOW_MS = 1_700_000_000_000


class QueueExecutor:
    """Runs work when told to, in order. The Executor port's double."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]]
        self.queue = deque()

    def submit(self, work: Any, on_done: Any) -> None:
        self.queue.append((work, on_done))

    def run_one(self) -> None:
        work, on_done = self.queue.popleft()
        try:
            result = work()
        except Exception as error:
            on_done(None, error)
        else:
            on_done(result, None)


class RememberingLog:
    """The Logger port's double: (level, event, fields)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.events.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.events.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.events.append(("error", event, fields))


class FixedQuotas:
    """The QuotaManager port's double: who has to wait, and for how long, is set from outside. It
    remembers what it was asked to count."""

    def __init__(self) -> None:
        self.is_active = True
        self.request_ms = 0
        self.produce_ms = 0
        self.fetch_ms = 0
        self.fetch_bytes = 1 << 30
        self.mutation_ms = 0
        self.handled_ns = 0
        self.clock_reads = 0
        self.thread_clock_reads = 0
        self.noted_ms: list[int] = []
        self.asked: list[tuple[str, int]] = []

    def record_request(self, context: RequestContext) -> int:
        self.asked.append(("request", context.api_key))
        return self.request_ms

    def record_produce(self, context: RequestContext, request_bytes: int) -> int:
        self.asked.append(("produce", request_bytes))
        return self.produce_ms

    def record_fetch(self, context: RequestContext, answer_bytes: int, wait_ms: int) -> int:
        self.asked.append(("fetch", answer_bytes))
        return self.fetch_ms

    def record_mutations(self, context: RequestContext, partitions: int, is_strict: bool) -> int:
        self.asked.append(("mutations", partitions))
        return self.mutation_ms

    def record_handler_time(self, context: RequestContext, duration_ns: int) -> None:
        self.handled_ns += duration_ns

    def clock_ns(self) -> int:
        self.clock_reads += 1
        return self.clock_reads * 1000

    def thread_clock_ns(self) -> int:
        self.thread_clock_reads += 1
        return self.thread_clock_reads * 1_000_000

    def limit_of_groups(self, tenant_id: str, quota: str) -> TenantLimit | None:
        return None

    def why_no_connection(self, tenant: str) -> str:
        return ""

    def owed_ms(self, tenant: str) -> int:
        return 0

    def note_throttled(self, throttle_ms: int) -> None:
        self.noted_ms.append(throttle_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int:
        return self.fetch_bytes
