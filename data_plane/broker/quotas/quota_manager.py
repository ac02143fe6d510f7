"""What is asked about each request of a broker with quotas (the port: request/quotas.py).

    client quotas of the image ──► ClientLimitTable ─┐
                                                     ├─► wait = the longest of what holds
    quotas of tenants ───────────► (tenants' rates) ─┘

As Apache Kafka does it: a request is counted when its answer is ready, the time that the loop was
busy with it when it was handled; a Fetch that has to wait is answered without records, which do not
count; the time of requests alone is waited for one window at most.

Invariants
- It is active only while the image has a quota that could make somebody wait.
- What clients and tenants have used outlives each change of quotas.

Deliberately absent: muting (request/throttling.py), followers (they are never asked about).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from data_plane.broker.quotas.client_limits import ClientLimits, ClientLimitTable
from data_plane.broker.quotas.rates import Windows
from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.quotas import FETCH_BYTES_UNLIMITED
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage

PERCENT_PER_NS: Final = 100 / 1_000_000_000
# Of what is counted by tenant and reason there is no more than this.
THROTTLED_MAX: Final = 50_000

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
REQUEST: Final = "request"
MUTATION: Final = "mutation"
REASONS: Final[Mapping[str, str]] = {
    PRODUCE: "bytes that were produced",
    CONSUME: "bytes that were fetched",
    REQUEST: "requests, and the time that they took",
    MUTATION: "partitions that were made and deleted",
}


class Throttled:
    """How often somebody had to wait, and for how long together."""

    __slots__ = ("count", "duration_ms")

    def __init__(self) -> None:
        self.count = 0
        self.duration_ms = 0


class BrokerQuotas:
    """The quotas of one broker. Made on the loop; `services.quotas` from then on."""

    def __init__(
        self, services: Services, now_ms: Callable[[], int], clock_ns: Callable[[], int]
    ) -> None:
        self._now_ms = now_ms
        self.clock_ns = clock_ns
        number = services.config.get_int
        self._windows = Windows(
            number("quota.window.num"), number("quota.window.size.seconds") * 1000
        )
        controller_windows = Windows(
            number("controller.quota.window.num"),
            number("controller.quota.window.size.seconds") * 1000,
        )
        self._clients = ClientLimitTable(self._windows, controller_windows)
        self.is_active = False
        # By tenant and reason.
        self.throttled: dict[tuple[str, str], Throttled] = {}
        # Of the answer that is being made: why it waits, and for how long.
        self._why: tuple[str, int] = REQUEST, 0
        self._follow(services.image)
        services.image_listeners.append(self._image_changed)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.client_quotas is not new.client_quotas:
            self._follow(new)

    def _follow(self, image: MetadataImage) -> None:
        self._clients.set_quotas(image.client_quotas)
        self.is_active = bool(image.client_quotas)

    # The port

    def record_request(self, context: RequestContext) -> int:
        now_ms = self._now_ms()
        self._why = REQUEST, 0
        wait_ms = self._mutation_wait_ms(context)
        if wait_ms:
            self._explain(MUTATION, wait_ms)
        request = self._limits(context, now_ms).request
        if request is not None:
            time_ms = min(request.throttle_ms(now_ms), self._windows.size_ms)
            wait_ms = max(wait_ms, self._explain(REQUEST, time_ms))
        return wait_ms

    def record_produce(self, context: RequestContext, request_bytes: int) -> int:
        now_ms = self._now_ms()
        produce = self._limits(context, now_ms).produce
        if produce is None:
            return 0
        produce.record(request_bytes, now_ms)
        return self._explain(PRODUCE, produce.throttle_ms(now_ms))

    def record_fetch(self, context: RequestContext, answer_bytes: int, wait_ms: int) -> int:
        now_ms = self._now_ms()
        consume = self._limits(context, now_ms).consume
        if consume is None:
            return 0
        consume.record(answer_bytes, now_ms)
        fetch_ms = consume.throttle_ms(now_ms)
        if max(fetch_ms, wait_ms) > 0:
            consume.record(-answer_bytes, now_ms)
        return self._explain(CONSUME, fetch_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int:
        consume = self._limits(context, self._now_ms()).consume
        if consume is None:
            return FETCH_BYTES_UNLIMITED
        return min(FETCH_BYTES_UNLIMITED, int(consume.bound * self._windows.span_s))

    def record_mutations(self, context: RequestContext, partitions: int, is_strict: bool) -> int:
        now_ms = self._now_ms()
        mutation = self._limits(context, now_ms).mutation
        if mutation is None:
            return 0
        bucket = mutation.bucket
        wait_ms = bucket.wait_ms(now_ms)
        if not (wait_ms and is_strict):
            bucket.take(partitions, now_ms)
            wait_ms = 0 if is_strict else bucket.wait_ms(now_ms)
        connection = context.connection
        connection.mutation_wait_ms = max(connection.mutation_wait_ms, wait_ms)
        return wait_ms

    def record_handler_time(self, context: RequestContext, duration_ns: int) -> None:
        now_ms = self._now_ms()
        request = self._limits(context, now_ms).request
        if request is not None:
            request.record(duration_ns * PERCENT_PER_NS, now_ms)

    def note_throttled(self, context: RequestContext, throttle_ms: int) -> None:
        reason, _ = self._why
        key = context.namespace, reason
        throttled = self.throttled.get(key)
        if throttled is None:
            if len(self.throttled) >= THROTTLED_MAX:
                self.throttled.clear()
            throttled = self.throttled[key] = Throttled()
        throttled.count += 1
        throttled.duration_ms += throttle_ms

    # What it comes to

    def total(self, reason: str) -> Throttled:
        """Of all tenants."""
        total = Throttled()
        for (_, why), throttled in self.throttled.items():
            if why == reason:
                total.count += throttled.count
                total.duration_ms += throttled.duration_ms
        return total

    def _limits(self, context: RequestContext, now_ms: int) -> ClientLimits:
        connection = context.connection
        return self._clients.of(
            connection.namespace, connection.principal.name, context.client_id or "", now_ms
        )

    def _explain(self, reason: str, wait_ms: int) -> int:
        if wait_ms > self._why[1]:
            self._why = reason, wait_ms
        return wait_ms

    def _mutation_wait_ms(self, context: RequestContext) -> int:
        connection = context.connection
        wait_ms, connection.mutation_wait_ms = connection.mutation_wait_ms, 0
        return wait_ms
