"""Client quotas as Apache Kafka applies them: what holds for a client, and what it has used.

Of the quotas that name a client's user or client id the most special one holds, for each key by
itself:

    user and client id > user, default client id > user > default user and client id
    > default user and default client id > default user > client id > default client id

Who shares what follows from it: a quota of a user counts all that the user does, one of a user and
client id each pair; a default counts everybody by himself.

Invariants
- What a client has used stays when its quota changes, and when others' quotas do.
- There are at most LIMITS_MAX limits with something in them, and CLIENTS_MAX clients remembered.
  Who makes more of them (client ids are free) has those forgotten that are idle, then the oldest.

Deliberately absent: what becomes of it (quota_manager.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from data_plane.broker.quotas.rates import Bucket, SampledRate, Windows, throttle_ms
from data_plane.cell.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT_NAME,
    NO_CLIENT_QUOTAS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    TenantClientQuotas,
)

LIMITS_MAX: Final = 10_000
CLIENTS_MAX: Final = 10_000


class Limit:
    """A quota that holds, and what has been used of it."""

    __slots__ = ("bound", "rate")

    def __init__(self, bound: float, rate: SampledRate) -> None:
        self.bound = bound
        self.rate = rate

    def record(self, amount: float, now_ms: int) -> None:
        self.rate.record(amount, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        return throttle_ms(self.rate, self.bound, now_ms)


class MutationLimit:
    """KIP-599: partitions that are made and deleted. A bucket, so that a burst is not paid for by a
    long wait: it begins with what a whole span of windows allows."""

    __slots__ = ("bound", "bucket")

    def __init__(self, bound: float, bucket: Bucket) -> None:
        self.bound = bound
        self.bucket = bucket


class ClientLimits(NamedTuple):
    """What holds for one client; None: nothing does."""

    produce: Limit | None
    consume: Limit | None
    request: Limit | None
    mutation: MutationLimit | None


NO_LIMITS: Final = ClientLimits(None, None, None, None)

_Key = tuple[str, str, str, str]
_L = TypeVar("_L")


def matching_quota(
    quotas: TenantClientQuotas, key: str, user: str, client_id: str
) -> tuple[float, QuotaEntity] | None:
    """The value that holds, and whose it is."""
    for entity in (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT_NAME),
        QuotaEntity(user, None),
        QuotaEntity(DEFAULT_NAME, client_id),
        QuotaEntity(DEFAULT_NAME, DEFAULT_NAME),
        QuotaEntity(DEFAULT_NAME, None),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT_NAME),
    ):
        values = quotas.get(entity)
        if values is not None and key in values:
            return values[key], entity
    return None


class ClientLimitTable:
    """The limits of all clients of a broker."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._quotas: ClientQuotas = {}
        self._clients: dict[tuple[str, str, str], ClientLimits] = {}
        # By tenant, key, user and client id; "" where a limit does not tell them apart.
        self._limits: dict[_Key, Limit] = {}
        self._mutations: dict[_Key, MutationLimit] = {}

    def __len__(self) -> int:
        return len(self._limits) + len(self._mutations)

    def set_quotas(self, quotas: ClientQuotas) -> None:
        """Those of all tenants from now on."""
        self._quotas = quotas
        self._clients.clear()

    def of(self, tenant: str, user: str, client_id: str, now_ms: int) -> ClientLimits:
        client = tenant, user, client_id
        limits = self._clients.get(client)
        if limits is None:
            limits = self._find(client, now_ms)
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            self._clients[client] = limits
        return limits

    def _find(self, client: tuple[str, str, str], now_ms: int) -> ClientLimits:
        quotas = self._quotas.get(client[0], NO_CLIENT_QUOTAS)
        if not quotas:
            return NO_LIMITS

        def limit(key: str) -> Limit | None:
            return self._limit(quotas, key, client, now_ms)

        return ClientLimits(
            limit(PRODUCER_BYTE_RATE),
            limit(CONSUMER_BYTE_RATE),
            limit(REQUEST_PERCENTAGE),
            self._mutation_limit(quotas, client, now_ms),
        )

    def _limit(
        self, quotas: TenantClientQuotas, key: str, client: tuple[str, str, str], now_ms: int
    ) -> Limit | None:
        tenant, user, client_id = client
        found = matching_quota(quotas, key, user, client_id)
        if found is None:
            return None
        bound, entity = found
        counted = _counted(tenant, key, user, client_id, entity)
        limit = self._limits.get(counted)
        if limit is None:
            _make_room(self._limits, lambda one: one.rate.is_idle(now_ms))
            limit = self._limits[counted] = Limit(bound, SampledRate(self._windows))
        limit.bound = bound
        return limit

    def _mutation_limit(
        self, quotas: TenantClientQuotas, client: tuple[str, str, str], now_ms: int
    ) -> MutationLimit | None:
        tenant, user, client_id = client
        found = matching_quota(quotas, CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return None
        bound, entity = found
        counted = _counted(tenant, CONTROLLER_MUTATION_RATE, user, client_id, entity)
        limit = self._mutations.get(counted)
        if limit is None:
            windows, size_ms = self._mutation_windows
            span_s = windows * size_ms / 1000
            bucket = Bucket(bound, span_s, now_ms)
            _make_room(
                self._mutations,
                lambda one: one.bucket.level(now_ms) >= one.bound * one.bucket.burst_s,
            )
            limit = self._mutations[counted] = MutationLimit(bound, bucket)
        if limit.bound != bound:
            limit.bound = bound
            limit.bucket.set_rate(bound, now_ms)
        return limit


def _counted(tenant: str, key: str, user: str, client_id: str, entity: QuotaEntity) -> _Key:
    """What is counted together under the quota of `entity`."""
    return (
        tenant,
        key,
        "" if entity.user is None else user,
        "" if entity.client_id is None else client_id,
    )


def _make_room(limits: dict[_Key, _L], is_idle: Callable[[_L], bool]) -> None:
    """For one more."""
    if len(limits) < LIMITS_MAX:
        return
    for key in [key for key, limit in limits.items() if is_idle(limit)]:
        del limits[key]
    # By a tenth, or each one more would look at all of them again.
    excess = len(limits) - LIMITS_MAX * 9 // 10
    for key in list(limits)[: max(0, excess)]:
        del limits[key]
