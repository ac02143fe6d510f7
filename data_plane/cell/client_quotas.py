"""Client quotas (KIP-546): what users and client ids of a tenant may use, each by itself.

An *entity* is a user, a client id, or both; each by its name, or as the default for all that have
none of their own. The keys and the meaning of the values are those of Apache Kafka, which counts
them on each broker by itself.

    user alice                       producer_byte_rate=1e6
    user alice, client id <default>  producer_byte_rate=1e5
    client id loader                 request_percentage=50

Invariants
- An entity without values is not there, and neither is a tenant without entities.
- No tenant has more than ENTITIES_MAX.
- They stand beside the quotas of the tenant (tenant_quotas.py) and cannot raise them.
- Nothing of this is stored below metadata.version 3 (features.py).

Deliberately absent: which of several entities holds for a client, and quotas of IP addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

ENTITIES_MAX: Final = 10_000
NAME_CHARACTERS_MAX: Final = 255

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
QUOTA_KEYS: Final = frozenset(
    (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
)
# Bytes are whole ones.
_WHOLE_KEYS: Final = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE))
_LONG_MAX: Final = (1 << 63) - 1

USER: Final = "user"
CLIENT_ID: Final = "client-id"


class QuotaEntity(NamedTuple):
    """Whom values are for. None: not said; "" is the default for all (no user or client id that
    a quota could be set for has an empty name)."""

    user: str | None
    client_id: str | None

    def __str__(self) -> str:
        parts = ((USER, self.user), (CLIENT_ID, self.client_id))
        return ", ".join(
            f"{kind} {name or '<default>'}" for kind, name in parts if name is not None
        )


DEFAULT_NAME: Final = ""

QuotaValues = Mapping[str, float]
TenantClientQuotas = Mapping[QuotaEntity, QuotaValues]
ClientQuotas = Mapping[str, TenantClientQuotas]
NO_CLIENT_QUOTAS: Final[TenantClientQuotas] = {}


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Values of an entity: a number sets one, None takes it away."""

    tenant: str
    entity: QuotaEntity
    values: tuple[tuple[str, float | None], ...]


def why_invalid_alteration(change: AlterClientQuotas) -> str:
    """Why these values cannot be set, in Kafka's words where it has some; "" when they can."""
    entity = change.entity
    if entity.user is None and entity.client_id is None:
        return "Invalid empty client quota entity"
    if any(name is not None and len(name) > NAME_CHARACTERS_MAX for name in entity):
        return f"a user or client id has {NAME_CHARACTERS_MAX} characters at most"
    for key, value in change.values:
        if key not in QUOTA_KEYS:
            return f"Invalid configuration key {key}"
        if value is None:
            continue
        if not value > 0 or math.isinf(value):
            return f"Quota {key} must be greater than 0"
        if key in _WHOLE_KEYS and (value > _LONG_MAX or value != int(value)):
            return f"{key} cannot be a Double: it is a whole number of bytes"
    return ""


def client_quotas_altered(
    quotas: TenantClientQuotas, change: AlterClientQuotas
) -> TenantClientQuotas | str:
    """`quotas` with that change, or why it cannot be."""
    reason = why_invalid_alteration(change)
    if reason:
        return reason
    values = dict(quotas.get(change.entity, {}))
    for key, value in change.values:
        if value is None:
            values.pop(key, None)
        else:
            values[key] = float(value)
    altered = dict(quotas)
    if values:
        altered[change.entity] = values
    else:
        altered.pop(change.entity, None)
    if len(altered) > max(ENTITIES_MAX, len(quotas)):
        return f"a tenant has client quotas of {ENTITIES_MAX} users and client ids at most"
    return altered


def with_client_quotas(
    all_quotas: ClientQuotas, tenant: str, quotas: TenantClientQuotas
) -> ClientQuotas:
    """`all_quotas` with those of one tenant."""
    changed = dict(all_quotas)
    if quotas:
        changed[tenant] = quotas
    else:
        changed.pop(tenant, None)
    return changed


def encode_entity(entity: QuotaEntity) -> list[str | None]:
    """JSON-ready."""
    return [entity.user, entity.client_id]


def encode_client_quotas(quotas: ClientQuotas) -> dict[str, Any]:
    """Those of all tenants, in one order whatever the one they came in."""
    return {
        tenant: [
            [*encode_entity(entity), dict(values)]
            for entity, values in sorted(of_tenant.items(), key=lambda item: _order(item[0]))
        ]
        for tenant, of_tenant in quotas.items()
    }


def decode_client_quotas(document: Mapping[str, Iterable[Any]]) -> dict[str, TenantClientQuotas]:
    """The inverse of `encode_client_quotas`."""
    return {
        tenant: {QuotaEntity(user, client_id): dict(values) for user, client_id, values in items}
        for tenant, items in document.items()
    }


def _order(entity: QuotaEntity) -> tuple[bool, str, bool, str]:
    user, client_id = entity
    return user is not None, user or "", client_id is not None, client_id or ""
