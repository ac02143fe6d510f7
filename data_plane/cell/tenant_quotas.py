"""Quotas of tenants: what one may use of the whole cell, whichever brokers serve it.

    TenantQuotas(produce_bytes_per_s=10 MB/s,          the cap: never more, over all brokers
                 produce_floor_bytes_per_s=2 MB/s,     the floor: reached while others saturate
                 partitions=500, storage_bytes=1 TB)   counted: what would go beyond is refused

Floors are promises, so they are admitted only up to the capacity of the brokers that are
registered, which an operator declares for each broker or for all (`PRODUCE_CAPACITY`,
`CONSUME_CAPACITY`). Where none is declared nothing is promised.

Invariants
- What is not named has no limit. A limit is 1 or more; a rate of 0 is a state (tenants.py).
- A floor is not above its cap.
- No change raises a floor when the sum of all floors would be above the capacity. A capacity that
  is lowered afterwards, or a broker that goes, takes no floor away.

Deliberately absent: how rates are measured and shared among brokers, and what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from data_plane.cell.named_fields import unknown_in, unknown_named

QUOTA_MAX: Final = (1 << 63) - 1
# Properties of brokers: what one of them can take in and give out, in bytes per second.
PRODUCE_CAPACITY: Final = "quota.produce.capacity.bytes.per.second"
CONSUME_CAPACITY: Final = "quota.consume.capacity.bytes.per.second"


@dataclass(frozen=True, slots=True)
class TenantQuotas:
    """None: no limit, or nothing is promised.

    - `…_bytes_per_s` are caps, `…_floor_bytes_per_s` what is reserved;
    - `handler_ms_per_s`: time in which brokers handle requests, of all of them together;
    - `connections_per_s`: new ones;
    - `storage_bytes`: of all partitions, each counted once, however many replicas it has;
    - `message_bytes`: of a record batch;
    - `committed_offsets`, `group_metadata_bytes`: of all groups together; the latter is what
      members with their metadata and assignments, and offsets, take in a coordinator's memory.
    """

    produce_bytes_per_s: int | None = None
    produce_floor_bytes_per_s: int | None = None
    consume_bytes_per_s: int | None = None
    consume_floor_bytes_per_s: int | None = None
    requests_per_s: int | None = None
    handler_ms_per_s: int | None = None
    connections: int | None = None
    connections_per_s: int | None = None
    partitions: int | None = None
    storage_bytes: int | None = None
    groups: int | None = None
    message_bytes: int | None = None
    acls: int | None = None
    users: int | None = None
    committed_offsets: int | None = None
    group_metadata_bytes: int | None = None
    unknown_fields: str = ""


QUOTA_NAMES: Final = tuple(
    field.name for field in fields(TenantQuotas) if field.name != "unknown_fields"
)
NO_TENANT_QUOTAS: Final = TenantQuotas()

_FLOORS: Final = (
    ("produce_floor_bytes_per_s", "produce_bytes_per_s", PRODUCE_CAPACITY),
    ("consume_floor_bytes_per_s", "consume_bytes_per_s", CONSUME_CAPACITY),
)


@dataclass(frozen=True, slots=True)
class PutTenantQuotas:
    """The quotas of a tenant from now on, all of them."""

    tenant: str
    quotas: TenantQuotas


def why_invalid_quotas(quotas: TenantQuotas) -> str:
    """Why no tenant can have these; "" when one can."""
    for name in QUOTA_NAMES:
        value = getattr(quotas, name)
        if value is not None and (type(value) is not int or not 1 <= value <= QUOTA_MAX):
            return f"{name} is {value!r}, allowed are 1 to {QUOTA_MAX}"
    for floor_name, cap_name, _ in _FLOORS:
        floor, cap = getattr(quotas, floor_name), getattr(quotas, cap_name)
        if floor is not None and cap is not None and floor > cap:
            return f"{floor_name} is {floor}, above {cap_name}, which is {cap}"
    return ""


def why_beyond_capacity(
    old: TenantQuotas,
    new: TenantQuotas,
    others: Iterable[TenantQuotas],
    capacity_of: Callable[[str], int],
) -> str:
    """Why the floors of `new` cannot be promised beside those of all other tenants; "" when they
    can. `capacity_of`: that of all brokers together, by the name of its property."""
    raised = [
        (getattr(new, floor_name), floor_name, capacity_name)
        for floor_name, _, capacity_name in _FLOORS
        if (getattr(new, floor_name) or 0) > (getattr(old, floor_name) or 0)
    ]
    # There may be very many: they are looked through only when it matters.
    others = tuple(others) if raised else ()
    for floor, floor_name, capacity_name in raised:
        promised = sum(getattr(quotas, floor_name) or 0 for quotas in others)
        capacity = capacity_of(capacity_name)
        if promised + floor > capacity:
            return (
                f"{floor_name} is {floor}, {promised} is promised to other tenants, and "
                f"{capacity_name} of all brokers is {capacity}"
            )
    return ""


def capacity(configs: Iterable[Mapping[str, str]], of_all: Mapping[str, str], name: str) -> int:
    """That of brokers together: by each one's own properties, else by those of all brokers."""
    return sum(_number(own.get(name, of_all.get(name, ""))) for own in configs)


def _number(text: str) -> int:
    # Configurations are checked before they are committed, by brokers that know the property.
    return int(text) if text.isdecimal() else 0


def encode_quotas(quotas: TenantQuotas) -> dict[str, Any]:
    """JSON-ready, what has a limit by name."""
    limits = {name: getattr(quotas, name) for name in QUOTA_NAMES}
    return {
        **unknown_named(quotas.unknown_fields),
        **{name: value for name, value in limits.items() if value is not None},
    }


def decode_quotas(item: Mapping[str, Any]) -> TenantQuotas:
    """The inverse of `encode_quotas`."""
    known = {name: item[name] for name in QUOTA_NAMES if name in item}
    if len(known) == len(item):
        return TenantQuotas(**known) if known else NO_TENANT_QUOTAS
    return TenantQuotas(**known, unknown_fields=unknown_in(item, *QUOTA_NAMES))
