"""Client quotas as Apache Kafka applies them: what holds for a client, and what it has used.

Of the quotas that name a client's user or client id the most special one holds, for each key by
itself:

    user and client id > user, default client id > user > default user and client id
    > default user and default client id > default user > client id > default client id

Who shares what follows from it: a quota of a user counts all that the user does, one of a user and
client id each pair; a default counts everybody by himself.

Invariants
- What a client has used stays when its quota changes, and when others' quotas do.
- A remembered client holds no limit that is forgotten: whoever shares a quota has the same limit.
- There are at most LIMITS_MAX limits with something in them, and CLIENTS_MAX clients remembered.
  Client ids are free: when there are more, those that are idle are forgotten, then the oldest of
  the tenants that have more than an equal part. So no tenant makes others' debts be forgotten.
- Of a tenant without client quotas nothing is kept, and of a client id no more than
  CLIENT_ID_CHARS_MAX characters.

Deliberately absent: what becomes of it (quota_manager.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from data_plane.broker.quotas.rates import Bucket, SampledRate, Windows, throttle_ms
from data_plane.cell.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT_NAME,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    TenantClientQuotas,
)

LIMITS_MAX: Final = 10_000
CLIENTS_MAX: Final = 10_000
# A longer one is kept as its digest.
CLIENT_ID_CHARS_MAX: Final = 256

# What has a Limit, in the order of ClientLimits.
_LIMITED: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)


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


class ClientLimits(NamedTuple):
    """What holds for one client; None: nothing does."""

    produce: Limit | None
    consume: Limit | None
    request: Limit | None
    # KIP-599: partitions that are made and deleted. A bucket, so that a burst is not paid for by a
    # long wait: it begins with what a whole span of windows allows.
    mutation: Bucket | None


NO_LIMITS: Final = ClientLimits(None, None, None, None)

# What a client id is kept as.
_ClientId = str | bytes
# A quota's key, user and client id; "" where a limit does not tell them apart.
_Key = tuple[str, str, _ClientId]
_K = TypeVar("_K")
_V = TypeVar("_V")


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


class _Client(NamedTuple):
    """Who asks; `kept_id` stands for his client id in what is kept."""

    tenant: str
    user: str
    client_id: str
    kept_id: _ClientId


class _ByTenant(Generic[_K, _V]):
    """What is kept for the clients of each tenant; of all of them not more than a maximum."""

    def __init__(self, is_idle: Callable[[_V, int], bool]) -> None:
        self._is_idle = is_idle
        self.of_tenants: dict[str, dict[_K, _V]] = {}
        self.count = 0

    def forget(self, tenants: Iterable[str]) -> None:
        """What is kept for clients of these."""
        for tenant in tenants:
            self.count -= len(self.of_tenants.pop(tenant, ()))

    def get(self, tenant: str, key: _K) -> _V | None:
        kept = self.of_tenants.get(tenant)
        return None if kept is None else kept.get(key)

    def add(self, tenant: str, key: _K, value: _V) -> None:
        """One that is not there, when there is room."""
        self.of_tenants.setdefault(tenant, {})[key] = value
        self.count += 1

    def make_room(self, more: int, most: int, now_ms: int) -> bool:
        """For so many more; whether something may have been forgotten for it."""
        if self.count + more <= most:
            return False
        self._give_up(most, now_ms)
        return True

    def _give_up(self, most: int, now_ms: int) -> None:
        """For a tenth, or each one more would look at all of them again."""
        for tenant, kept in list(self.of_tenants.items()):
            for key in [key for key, value in kept.items() if self._is_idle(value, now_ms)]:
                del kept[key]
            if not kept:
                del self.of_tenants[tenant]
        count = sum(map(len, self.of_tenants.values()))
        most = most * 9 // 10
        if count > most:
            part = most // len(self.of_tenants)
            for kept in self.of_tenants.values():
                for key in list(kept)[: max(0, len(kept) - part)]:
                    del kept[key]
            count = sum(map(len, self.of_tenants.values()))
        self.count = count


class ClientLimitTable:
    """The limits of all clients of a broker."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._quotas: ClientQuotas = {}
        self._clients: _ByTenant[tuple[str, _ClientId], ClientLimits] = _ByTenant(
            lambda limits, now_ms: False
        )
        self._limits: _ByTenant[_Key, Limit] = _ByTenant(
            lambda limit, now_ms: limit.rate.is_idle(now_ms)
        )
        self._mutations: _ByTenant[_Key, Bucket] = _ByTenant(
            lambda bucket, now_ms: bucket.level(now_ms) >= bucket.rate_per_s * bucket.burst_s
        )

    def __len__(self) -> int:
        return self._limits.count + self._mutations.count

    @property
    def clients_count(self) -> int:
        """Clients that are remembered."""
        return self._clients.count

    def set_quotas(self, quotas: ClientQuotas) -> None:
        """Those of all tenants from now on."""
        before, self._quotas = self._quotas, quotas
        remembered = self._clients.of_tenants.keys()
        self._clients.forget([one for one in remembered if quotas.get(one) is not before.get(one)])
        for kept in (self._limits, self._mutations):
            kept.forget(kept.of_tenants.keys() - quotas.keys())

    def of(self, tenant: str, user: str, client_id: str, now_ms: int) -> ClientLimits:
        quotas = self._quotas.get(tenant)
        if not quotas:
            return NO_LIMITS
        kept_id = client_id if len(client_id) <= CLIENT_ID_CHARS_MAX else _digest(client_id)
        client = user, kept_id
        # Each request asks several times: not through one more function.
        kept = self._clients.of_tenants.get(tenant)
        limits = None if kept is None else kept.get(client)
        if limits is None:
            self._make_room(now_ms)
            limits = self._find(quotas, _Client(tenant, user, client_id, kept_id), now_ms)
            self._clients.add(tenant, client, limits)
        return limits

    def _make_room(self, now_ms: int) -> None:
        """For one client more. Before its limits are looked for: a new one is idle."""
        are_forgotten = self._limits.make_room(len(_LIMITED), LIMITS_MAX, now_ms)
        are_forgotten |= self._mutations.make_room(1, LIMITS_MAX, now_ms)
        if are_forgotten:
            # Clients may hold what is forgotten, and others of the same user would get it anew.
            self._clients.forget(list(self._clients.of_tenants))
        self._clients.make_room(1, CLIENTS_MAX, now_ms)

    def _find(self, quotas: TenantClientQuotas, client: _Client, now_ms: int) -> ClientLimits:
        produce, consume, request = (self._limit(quotas, key, client) for key in _LIMITED)
        mutation = self._mutation_limit(quotas, client, now_ms)
        return ClientLimits(produce, consume, request, mutation)

    def _limit(self, quotas: TenantClientQuotas, key: str, client: _Client) -> Limit | None:
        found = matching_quota(quotas, key, client.user, client.client_id)
        if found is None:
            return None
        bound, entity = found
        counted = _counted(key, client, entity)
        limit = self._limits.get(client.tenant, counted)
        if limit is None:
            limit = Limit(bound, SampledRate(self._windows))
            self._limits.add(client.tenant, counted, limit)
        limit.bound = bound
        return limit

    def _mutation_limit(
        self, quotas: TenantClientQuotas, client: _Client, now_ms: int
    ) -> Bucket | None:
        found = matching_quota(quotas, CONTROLLER_MUTATION_RATE, client.user, client.client_id)
        if found is None:
            return None
        bound, entity = found
        counted = _counted(CONTROLLER_MUTATION_RATE, client, entity)
        bucket = self._mutations.get(client.tenant, counted)
        if bucket is None:
            windows, size_ms = self._mutation_windows
            bucket = Bucket(bound, windows * size_ms / 1000, now_ms)
            self._mutations.add(client.tenant, counted, bucket)
        if bucket.rate_per_s != bound:
            bucket.set_rate(bound, now_ms)
        return bucket


def _digest(client_id: str) -> bytes:
    return hashlib.blake2b(client_id.encode(), digest_size=32).digest()


def _counted(key: str, client: _Client, entity: QuotaEntity) -> _Key:
    """What is counted together under the quota of `entity`."""
    return (
        key,
        "" if entity.user is None else client.user,
        "" if entity.client_id is None else client.kept_id,
    )
