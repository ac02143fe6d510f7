"""ACLs: what each tenant has said about who may do what, from where, to which of its resources.

An ACL is about a *pattern*: all resources of a type with this name (`literal`), or whose names
begin with it (`prefixed`). The literal name `*` stands for every name. The numbers are those of the
Kafka protocol, and names are those that the tenant's clients use.

    (tenant acme)  TOPIC literal `orders`    User:alice  *  READ  ALLOW
                   TOPIC prefixed `pay-`     User:bob    *  ALL   DENY

They are kept by pattern: all that is about one resource is found by its name and the beginnings of
it, however many there are (`TenantAcls.about`).

Invariants
- No tenant has an ACL twice, or more than ACLS_MAX. What is added is not there, what is removed is.
- A tenant that has none is not in `Acls`.
- Nothing of this is stored below metadata.version 3 (features.py).
- An ACL has exactly these seven fields. Another one would say when it does not hold, so it needs a
  level of its own.

Deliberately absent: what follows from ACLs (data_plane/broker/request/authorizer.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

ACLS_MAX: Final = 10_000
"""Of one tenant."""
NAME_CHARACTERS_MAX: Final = 1024
"""Of the name, the principal and the host of an ACL, each."""
ANY_NAME: Final = "*"


class AclResourceType(IntEnum):
    """What an ACL is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL's name is meant. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What is done to a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What an ACL says about it. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """What an ACL is about."""

    resource_type: int
    pattern_type: int
    name: str


class AclEntry(NamedTuple):
    """What an ACL says: a principal as `User:alice`, a host or `*`."""

    principal: str
    host: str
    operation: int
    permission: int


class Acl(NamedTuple):
    """Pattern and entry."""

    pattern: ResourcePattern
    entry: AclEntry


Entries = frozenset[AclEntry]


@dataclass(frozen=True, slots=True)
class TenantAcls:
    """Those of one tenant. `prefix_lengths`: of prefixed patterns by resource type, how many there
    are of each length."""

    by_pattern: Mapping[ResourcePattern, Entries]
    count: int = field(compare=False)
    prefix_lengths: Mapping[int, Mapping[int, int]] = field(compare=False)

    def __contains__(self, acl: Acl) -> bool:
        return acl.entry in self.by_pattern.get(acl.pattern, ())

    def __iter__(self) -> Iterator[Acl]:
        for pattern, entries in self.by_pattern.items():
            for entry in entries:
                yield Acl(pattern, entry)

    def about(self, resource_type: int, name: str) -> Iterator[AclEntry]:
        """What is said about the resource of this name."""
        by_pattern = self.by_pattern
        yield from by_pattern.get(ResourcePattern(resource_type, PatternType.LITERAL, name), ())
        if name != ANY_NAME:
            anything = ResourcePattern(resource_type, PatternType.LITERAL, ANY_NAME)
            yield from by_pattern.get(anything, ())
        for length in self.prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                prefix = ResourcePattern(resource_type, PatternType.PREFIXED, name[:length])
                yield from by_pattern.get(prefix, ())


Acls = Mapping[str, TenantAcls]


@dataclass(frozen=True, slots=True)
class AddAcls:
    """A tenant has these, too."""

    tenant: str
    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class RemoveAcls:
    """A tenant has these no more."""

    tenant: str
    acls: tuple[Acl, ...]


NO_ACLS: Final = TenantAcls({}, 0, {})


def acls_added(acls: TenantAcls, added: Iterable[Acl]) -> TenantAcls | str:
    """`acls` and those that are added, or why that cannot be."""
    draft = _Draft(acls)
    for acl in added:
        reason = why_invalid_acl(acl)
        if reason:
            return reason
        entries = draft.entries(acl.pattern)
        if acl.entry in entries:
            return f"there is {acl} already"
        entries.add(acl.entry)
        draft.count += 1
    if draft.count > ACLS_MAX:
        return f"a tenant has {ACLS_MAX} ACLs at most"
    return draft.finish()


def acls_removed(acls: TenantAcls, removed: Iterable[Acl]) -> TenantAcls | str:
    """`acls` without those that are removed, or why that cannot be."""
    draft = _Draft(acls)
    for acl in removed:
        entries = draft.entries(acl.pattern)
        if acl.entry not in entries:
            return f"there is no {acl}"
        entries.remove(acl.entry)
        draft.count -= 1
    return draft.finish()


class _Draft:
    """A tenant's ACLs while some are added or removed: each pattern's entries are copied once."""

    def __init__(self, acls: TenantAcls) -> None:
        self._acls = acls
        self._changed: dict[ResourcePattern, set[AclEntry]] = {}
        self.count = acls.count

    def entries(self, pattern: ResourcePattern) -> set[AclEntry]:
        entries = self._changed.get(pattern)
        if entries is None:
            entries = set(self._acls.by_pattern.get(pattern, ()))
            self._changed[pattern] = entries
        return entries

    def finish(self) -> TenantAcls:
        by_pattern = dict(self._acls.by_pattern)
        lengths = {kind: Counter(counts) for kind, counts in self._acls.prefix_lengths.items()}
        for pattern, entries in self._changed.items():
            change = bool(entries) - (pattern in by_pattern)
            if entries:
                by_pattern[pattern] = frozenset(entries)
            else:
                by_pattern.pop(pattern, None)
            if change and pattern.pattern_type == PatternType.PREFIXED:
                lengths.setdefault(pattern.resource_type, Counter())[len(pattern.name)] += change
        return TenantAcls(
            by_pattern, self.count, {kind: +counts for kind, counts in lengths.items() if +counts}
        )


def with_tenant(all_acls: Acls, tenant: str, acls: TenantAcls) -> Acls:
    """`all_acls` with those of one tenant."""
    changed = dict(all_acls)
    if acls.by_pattern:
        changed[tenant] = acls
    else:
        changed.pop(tenant, None)
    return changed


def why_invalid_acl(acl: Acl) -> str:
    """Why this cannot be an ACL, in Kafka's words where it has some; "" when it can."""
    pattern, entry = acl
    if pattern.resource_type not in _RESOURCE_TYPES:
        return f"Invalid resourceType {_name(AclResourceType, pattern.resource_type)}"
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {_name(PatternType, pattern.pattern_type)}"
    if entry.operation not in _OPERATIONS:
        return f"Invalid operation {_name(AclOperation, entry.operation)}"
    if entry.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {_name(Permission, entry.permission)}"
    if not pattern.name:
        return "Resource name should not be empty"
    if ":" not in entry.principal:
        return (
            f"Could not parse principal from `{entry.principal[:NAME_CHARACTERS_MAX]}` (no colon "
            "is present separating the principal type from the principal name)"
        )
    if max(map(len, (pattern.name, entry.principal, entry.host))) > NAME_CHARACTERS_MAX:
        return f"an ACL's name, principal and host have {NAME_CHARACTERS_MAX} characters at most"
    return ""


def characters_of(acl: Acl) -> int:
    """Of its texts."""
    return len(acl.pattern.name) + len(acl.entry.principal) + len(acl.entry.host)


_RESOURCE_TYPES = frozenset(AclResourceType) - {AclResourceType.ANY}
_OPERATIONS = frozenset(AclOperation) - {AclOperation.ANY}


def _name(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if number in kind._value2member_map_ else "UNKNOWN"


def encode_acls(acls: Iterable[Acl]) -> list[list[Any]]:
    """JSON-ready, in the order given."""
    return [[*pattern, *entry] for pattern, entry in acls]


def decode_acls(items: Iterable[Iterable[Any]]) -> tuple[Acl, ...]:
    """The inverse of `encode_acls`."""
    return tuple(
        Acl(ResourcePattern(*fields[:3]), AclEntry(*fields[3:])) for fields in map(tuple, items)
    )


def encode_all_acls(acls: Acls) -> dict[str, Any]:
    """Those of all tenants, in one order whatever the one they came in."""
    return {tenant: encode_acls(sorted(of_tenant)) for tenant, of_tenant in acls.items()}


def decode_all_acls(document: Mapping[str, Any]) -> dict[str, TenantAcls]:
    """The inverse of `encode_all_acls`. Raises ValueError."""
    decoded = {}
    for tenant, items in document.items():
        acls = acls_added(NO_ACLS, decode_acls(items))
        if isinstance(acls, str):
            raise ValueError(f"ACLs of tenant {tenant}: {acls}")
        decoded[tenant] = acls
    return decoded
