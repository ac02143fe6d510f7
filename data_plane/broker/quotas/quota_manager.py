"""What is asked about each request of a broker with quotas (the port: request/quotas.py).

    client quotas of the image ──► ClientLimitTable ─┐
                                                     ├─► wait = the longest of what holds
    quotas of tenants ───────────► TenantRateTable ──┘   a client quota can only lower a tenant's

As Apache Kafka does it: a request is counted when its answer is ready (the bytes of a Produce when
they are appended: Kafka has one request of a connection at a time), the time that the loop was busy
with it when it was handled; a Fetch that has to wait is answered without records, which do not
count; the time of requests alone is waited for one window at most.

Invariants
- It is active only while the image has a quota that could make somebody wait.
- What clients and tenants have used outlives each change of quotas, while they have any.
- A change of client quotas costs nothing for tenants that it does not concern.
- A tenant that stores as much as it may produces nothing; all else of it goes on.
- What tenants hold is counted whether there are limits or not: one holds as soon as it is set.

Deliberately absent: muting (request/throttling.py), followers (they are never asked about).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from data_plane.broker.quotas.client_limits import ClientLimits, ClientLimitTable
from data_plane.broker.quotas.held import Held, TenantHoldings
from data_plane.broker.quotas.rates import Windows
from data_plane.broker.quotas.shares import Demand
from data_plane.broker.quotas.tenant_rates import (
    BURST_S,
    CONNECTIONS,
    CONSUME,
    PRODUCE,
    RateKey,
    TenantRates,
    TenantRateTable,
)
from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.quotas import FETCH_BYTES_UNLIMITED
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenant_quotas import CONSUME_CAPACITY, PRODUCE_CAPACITY
from data_plane.groups.totals import TenantLimit

PERCENT_PER_NS: Final = 100 / 1_000_000_000

# A client whose connection would have to wait for longer is turned away.
CONNECTION_WAIT_MS_MAX: Final = 20_000
# A fetch gets that much even where a second of its tenant's share would be less.
FETCH_BYTES_MIN: Final = 64 << 10

OF_CLIENT: Final[Mapping[str, str]] = {
    "produce": "bytes that a user or client id produced",
    "consume": "bytes that a user or client id fetched",
    "request": "time that requests of a user or client id took",
    "mutation": "partitions that were made and deleted",
}
OF_TENANT: Final[Mapping[str, str]] = {
    "tenant_produce": "bytes that a tenant produced",
    "tenant_consume": "bytes that a tenant fetched",
    "tenant_requests": "requests of a tenant",
    "tenant_handler": "time that requests of a tenant took",
    "tenant_connections": "new connections of a tenant",
}
REASONS: Final[Mapping[str, str]] = {**OF_CLIENT, **OF_TENANT}
CAPACITIES: Final[Mapping[str, str]] = {PRODUCE: PRODUCE_CAPACITY, CONSUME: CONSUME_CAPACITY}


class Throttled:
    """How often somebody had to wait for one of REASONS, and for how long together."""

    __slots__ = ("count", "duration_ms")

    def __init__(self) -> None:
        self.count = 0
        self.duration_ms = 0


class BrokerQuotas:
    """The quotas of one broker. Made on the loop; `services.quotas` from then on."""

    def __init__(
        self,
        services: Services,
        now_ms: Callable[[], int],
        clock_ns: Callable[[], int],
        thread_clock_ns: Callable[[], int],
    ) -> None:
        self._now_ms = now_ms
        self.clock_ns = clock_ns
        self.thread_clock_ns = thread_clock_ns
        number = services.config.get_int
        self._windows = Windows(
            number("quota.window.num"), number("quota.window.size.seconds") * 1000
        )
        controller_windows = Windows(
            number("controller.quota.window.num"),
            number("controller.quota.window.size.seconds") * 1000,
        )
        self._services = services
        self._clients = ClientLimitTable(self._windows, controller_windows)
        self._tenants = TenantRateTable()
        self.holdings = TenantHoldings(services, now_ms)
        # Called when the image has other quotas of tenants.
        self.on_tenants_changed: Callable[[int], None] = lambda now_ms: None
        self.is_active = False
        self.throttled: Mapping[str, Throttled] = {reason: Throttled() for reason in REASONS}
        # Of the answer that is being made: why it waits, and for how long.
        self._why: tuple[str, int] = "request", 0
        self._follow_client_quotas(services.image)
        self._follow_tenants(services.image)
        services.image_listeners.append(self._image_changed)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.client_quotas is not new.client_quotas:
            self._follow_client_quotas(new)
        if old.tenants is not new.tenants:
            self._follow_tenants(new)
            self.on_tenants_changed(now_ms)

    def _follow_client_quotas(self, image: MetadataImage) -> None:
        self._clients.set_quotas(image.client_quotas)
        self.is_active = bool(image.client_quotas) or self._tenants.is_active

    def _follow_tenants(self, image: MetadataImage) -> None:
        self._tenants.set_tenants(image.tenants)
        self.holdings.set_tenants(image.tenants)
        self.is_active = bool(image.client_quotas) or self._tenants.is_active

    # The port

    def record_request(self, context: RequestContext) -> int:
        now_ms = self._now_ms()
        self._why = "request", 0
        wait_ms = self._explain("mutation", self._mutation_wait_ms(context))
        window_ms = self._windows.size_ms
        request = self._limits(context, now_ms).request
        if request is not None:
            time_ms = min(request.throttle_ms(now_ms), window_ms)
            wait_ms = max(wait_ms, self._explain("request", time_ms))
        use = self._use(context)
        if use is not None:
            count_ms = self._explain("tenant_requests", use.requests.take(1, now_ms))
            time_ms = min(use.handler.wait_ms(now_ms), window_ms)
            wait_ms = max(wait_ms, count_ms, self._explain("tenant_handler", time_ms))
        return wait_ms

    def record_produce(self, context: RequestContext, request_bytes: int) -> int:
        now_ms = self._now_ms()
        wait_ms = 0
        produce = self._limits(context, now_ms).produce
        if produce is not None:
            produce.record(request_bytes, now_ms)
            wait_ms = self._explain("produce", produce.throttle_ms(now_ms))
        use = self._use(context)
        if use is not None:
            tenant_ms = self._explain("tenant_produce", use.produce.take(request_bytes, now_ms))
            wait_ms = max(wait_ms, tenant_ms)
        return wait_ms

    def record_fetch(self, context: RequestContext, answer_bytes: int, wait_ms: int) -> int:
        now_ms = self._now_ms()
        fetch_ms = 0
        use = self._use(context)
        if use is not None:
            fetch_ms = self._explain("tenant_consume", use.consume.wait_ms(now_ms))
        consume = self._limits(context, now_ms).consume
        if consume is not None:
            consume.record(answer_bytes, now_ms)
            fetch_ms = max(fetch_ms, self._explain("consume", consume.throttle_ms(now_ms)))
            if max(fetch_ms, wait_ms) > 0:
                consume.record(-answer_bytes, now_ms)
        if use is not None and max(fetch_ms, wait_ms) <= 0:
            # What is more than there was the next fetch waits for.
            use.consume.take(answer_bytes, now_ms)
        return fetch_ms

    def fetch_bytes_max(self, context: RequestContext) -> int:
        bytes_max = FETCH_BYTES_UNLIMITED
        consume = self._limits(context, self._now_ms()).consume
        if consume is not None:
            bytes_max = min(bytes_max, int(consume.bound * self._windows.span_s))
        use = self._use(context)
        if use is not None and use.consume.bucket is not None:
            share_bytes = int(use.consume.bucket.rate_per_s * BURST_S)
            bytes_max = min(bytes_max, max(FETCH_BYTES_MIN, share_bytes))
        return bytes_max

    def record_mutations(self, context: RequestContext, partitions: int, is_strict: bool) -> int:
        now_ms = self._now_ms()
        bucket = self._limits(context, now_ms).mutation
        if bucket is None:
            return 0
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
        use = self._use(context)
        if use is not None:
            use.handler.take(duration_ns / 1_000_000, now_ms)

    def limit_of_groups(self, tenant_id: str, quota: str) -> TenantLimit | None:
        return self.holdings.limit_of_groups(tenant_id, quota)

    def why_no_connection(self, tenant: str) -> str:
        why = self.holdings.why_no_connection(tenant)
        use = None if why else self._tenants.of(tenant)
        if use is None or use.connections.wait_ms(self._now_ms()) <= CONNECTION_WAIT_MS_MAX:
            return why
        self.holdings.refused_connections_count += 1
        return (
            f"The tenant may open {self._tenants.cap_of(RateKey(tenant, CONNECTIONS)):g} "
            "connections per second, and has used up those of the next "
            f"{CONNECTION_WAIT_MS_MAX // 1000} seconds"
        )

    def owed_ms(self, tenant: str) -> int:
        self._why = "request", 0
        use = self._tenants.of(tenant)
        if use is None:
            return 0
        now_ms = self._now_ms()
        handler_ms = min(use.handler.wait_ms(now_ms), self._windows.size_ms)
        return max(
            self._explain("tenant_connections", use.connections.take(1, now_ms)),
            self._explain("tenant_produce", use.produce.wait_ms(now_ms)),
            self._explain("tenant_consume", use.consume.wait_ms(now_ms)),
            self._explain("tenant_requests", use.requests.wait_ms(now_ms)),
            self._explain("tenant_handler", handler_ms),
        )

    def note_throttled(self, throttle_ms: int) -> None:
        reason, _ = self._why
        throttled = self.throttled[reason]
        throttled.count += 1
        throttled.duration_ms += throttle_ms

    # What is shared among brokers (share_exchange.py)

    def needs_shares(self) -> bool:
        return self._tenants.is_active or self.holdings.is_active

    def share_caps(self) -> Mapping[RateKey, float]:
        return self._tenants.caps()

    def end_period(self, duration_ms: int, now_ms: int) -> tuple[Mapping[RateKey, Demand], Held]:
        demands = self._tenants.end_period(duration_ms, now_ms)
        return demands, self.holdings.look()

    def set_shares(
        self,
        shares: Mapping[RateKey, float],
        changed: Collection[RateKey],
        brokers: int,
        now_ms: int,
    ) -> None:
        number = self._services.config.get_int
        capacities = {rate: float(number(name)) for rate, name in CAPACITIES.items()}
        self._tenants.set_shares(shares, changed, capacities, brokers, now_ms)

    def set_held(
        self, held_elsewhere: dict[int, Held], tenants: Collection[str] | None = None
    ) -> None:
        self.holdings.set_elsewhere(held_elsewhere, tenants)

    # Who asks

    def _limits(self, context: RequestContext, now_ms: int) -> ClientLimits:
        connection = context.connection
        return self._clients.of(
            connection.namespace, connection.principal.name, context.client_id or "", now_ms
        )

    def _use(self, context: RequestContext) -> TenantRates | None:
        return self._tenants.of(context.connection.namespace)

    def _explain(self, reason: str, wait_ms: int) -> int:
        if wait_ms > self._why[1]:
            self._why = reason, wait_ms
        return wait_ms

    def _mutation_wait_ms(self, context: RequestContext) -> int:
        connection = context.connection
        wait_ms, connection.mutation_wait_ms = connection.mutation_wait_ms, 0
        return wait_ms
