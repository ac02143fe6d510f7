"""Who may do what: what follows from a tenant's ACLs, by the rules of Kafka's StandardAuthorizer.

Whether a principal that comes from a host may do an operation to a resource:

    a super user of the tenant                                    yes
    an ACL about the resource denies it                           no, whatever else there is
    an ACL about the resource allows it                           yes
    there are ACLs about the resource, but none says so           no
    there is no ACL about the resource                            as the tenant's settings say

An ACL is about a resource if it names it, is about a beginning of its name, or about `*`. It speaks
for its principal or for `User:*`, and for its host or for `*`. Who is allowed to read, write,
delete or alter may describe, and who is allowed to alter configurations may describe them; what is
denied is denied by itself.

Two settings of a tenant, named as Kafka's broker properties, which are those of `default`:

    super.users                         User:alice;User:bob             nobody
    allow.everyone.if.no.acl.found      true or false                   true in `default` only

    context.names.rights.is_open                        true: nobody needs to ask anything
    context.may(AclOperation.READ, AclResourceType.TOPIC, name)

Invariants
- A decision is that of the image in force: what is remembered goes with the ACLs and settings that
  it was made from.
- ACLs of a tenant say nothing about another one's resources, and no tenant but `default` may do
  CLUSTER_ACTION, whatever its ACLs and super users: that is what brokers do to each other.
- No more than DECISIONS_MAX decisions are remembered, of all tenants, none of long names.
- What is remembered is the loop's. Other threads ask a tenant's `policy`.

Deliberately absent: what which request needs (docs/security.md), and who speaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from data_plane.broker.request.principal import Principal
from data_plane.cell.acls import (
    ANY_NAME,
    NO_ACLS,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    TenantAcls,
)
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DEFAULT_TENANT, TenantImage

SUPER_USERS: Final = "super.users"
OPERATORS: Final = "cell.operators"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"

DECISIONS_MAX: Final = 65_536
REMEMBERED_CHARACTERS_MAX: Final = 255
# What the one resource of the type CLUSTER is called.
CLUSTER_NAME: Final = "kafka-cluster"
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"

# Operations as a set of bits; the position of a bit is the operation's number.
NOTHING: Final = 0
_CLUSTER_ACTION: Final = 1 << AclOperation.CLUSTER_ACTION
EVERYTHING: Final = sum(1 << each for each in AclOperation) & ~(
    1 << AclOperation.ANY | 1 << AclOperation.ALL
)


def _allowed_by(operation: AclOperation) -> int:
    """What an ACL that allows this operation allows."""
    match operation:
        case AclOperation.ALL:
            return EVERYTHING
        case AclOperation.READ | AclOperation.WRITE | AclOperation.DELETE | AclOperation.ALTER:
            return 1 << operation | 1 << AclOperation.DESCRIBE
        case AclOperation.ALTER_CONFIGS:
            return 1 << operation | 1 << AclOperation.DESCRIBE_CONFIGS
    return 1 << operation


_ALLOWED_BY: Final[Mapping[int, int]] = {each: _allowed_by(each) for each in AclOperation}
_DENIED_BY: Final[Mapping[int, int]] = {
    each: EVERYTHING if each == AclOperation.ALL else 1 << each for each in AclOperation
}


def operations_allowed(entries: Iterable[AclEntry], principal: str, host: str, if_none: int) -> int:
    """What `entries`, all that are about one resource, let a principal do to it; `if_none` when
    there are none. As bits."""
    allowed = denied = NOTHING
    is_empty = True
    for acl_principal, acl_host, operation, permission in entries:
        is_empty = False
        if acl_principal not in (principal, ANY_PRINCIPAL) or acl_host not in (host, ANY_HOST):
            continue
        if permission == Permission.ALLOW:
            allowed |= _ALLOWED_BY[operation]
        else:
            denied |= _DENIED_BY[operation]
    return if_none if is_empty else allowed & ~denied


def is_allowed_somewhere(
    acls: TenantAcls, principal: str, host: str, operation: int, resource_type: int
) -> bool:
    """Whether there is, or could be, a resource of this type to which a principal may do this, by
    what an ACL says (Kafka's authorizeByResourceType)."""
    allowed: set[tuple[int, str]] = set()
    denied: set[tuple[int, str]] = set()
    for pattern, entries in acls.by_pattern.items():
        if pattern.resource_type != resource_type:
            continue
        for entry in entries:
            if (
                entry.principal in (principal, ANY_PRINCIPAL)
                and entry.host in (host, ANY_HOST)
                and entry.operation in (operation, AclOperation.ALL)
            ):
                chosen = allowed if entry.permission == Permission.ALLOW else denied
                chosen.add((pattern.pattern_type, pattern.name))
    anything = (int(PatternType.LITERAL), ANY_NAME)
    if anything in denied:
        return False
    if anything in allowed:
        return True
    return any(not _is_covered(pattern, denied) for pattern in allowed)


def _is_covered(pattern: tuple[int, str], denied: set[tuple[int, str]]) -> bool:
    pattern_type, name = pattern
    if pattern_type == PatternType.LITERAL and pattern in denied:
        return True
    prefixed = int(PatternType.PREFIXED)
    return any((prefixed, name[:length]) in denied for length in range(1, len(name) + 1))


class BrokerSettings(NamedTuple):
    """What the broker's properties say of the tenant `default`."""

    super_users: str = ""
    allows_everyone: bool = True
    operators: str = ""


NO_SETTINGS: Final = BrokerSettings()


class Policy:
    """What one tenant's ACLs and settings come to. Never changes, so any thread may ask it."""

    __slots__ = ("_acls", "_everything", "_if_none", "_super_users", "is_open", "operators")

    def __init__(
        self, name: str, acls: TenantAcls, tenant: TenantImage | None, of_broker: BrokerSettings
    ) -> None:
        is_default = name == DEFAULT_TENANT
        settings: Mapping[str, str] = {} if tenant is None else tenant.settings
        chosen = settings.get(ALLOW_EVERYONE, "").strip().lower()
        everyone = chosen == "true" if chosen else is_default and of_broker.allows_everyone
        self._acls = acls
        self._everything = EVERYTHING if is_default else EVERYTHING & ~_CLUSTER_ACTION
        self._if_none = self._everything if everyone else NOTHING
        users = settings.get(SUPER_USERS, "").split(";")
        if is_default:
            # Also when the tenant names others: somebody has to be left who can mend it.
            users += of_broker.super_users.split(";")
        # Who sees the cell as it is. None: whoever speaks for `default`, but for its own topics.
        self.operators = _principals(of_broker.operators.split(";")) if is_default else frozenset()
        self._super_users = _principals(users) | self.operators
        # Whether everybody may do everything.
        self.is_open = everyone and is_default and not acls.by_pattern and not self.operators

    def operations(self, principal: Principal, host: str, resource_type: int, name: str) -> int:
        """What may be done to a resource, as bits."""
        speaker = str(principal)
        if speaker in self._super_users:
            return self._everything
        entries = self._acls.about(resource_type, name)
        return operations_allowed(entries, speaker, host, self._if_none) & self._everything

    def may_somewhere(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether it may be done to some resource of this type, be there one or not."""
        # A resource of this name is asked about, as in Kafka, for super users and open tenants.
        if self.operations(principal, host, resource_type, "hardcode") >> operation & 1:
            return True
        return is_allowed_somewhere(self._acls, str(principal), host, operation, resource_type)


def _principals(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip() for name in names if name.strip())


class TenantRights:
    """What the principals of one tenant may do, as the image in force has it."""

    __slots__ = (
        "__weakref__",
        "_acls",
        "_authorizer",
        "_decisions",
        "_tenant",
        "is_open",
        "name",
        "policy",
    )

    def __init__(self, name: str, authorizer: Authorizer) -> None:
        self.name = name
        self._authorizer = authorizer
        self._decisions: dict[tuple[Principal, str, int, str], int] = {}
        self._acls: TenantAcls = NO_ACLS
        self._tenant: TenantImage | None = None
        # What other threads ask.
        self.policy = Policy(name, NO_ACLS, None, authorizer.of_broker)
        # What is asked most asks here first.
        self.is_open = self.policy.is_open

    def follow(self, image: MetadataImage) -> None:
        """Go by this image from now on."""
        acls = image.acls.get(self.name, NO_ACLS)
        tenant = image.tenants.get(self.name)
        if acls is self._acls and tenant is self._tenant:
            return
        self.forget()
        self._acls, self._tenant = acls, tenant
        self.policy = Policy(self.name, acls, tenant, self._authorizer.of_broker)
        self.is_open = self.policy.is_open

    def operations(self, principal: Principal, host: str, resource_type: int, name: str) -> int:
        """What may be done to a resource, as bits."""
        key = principal, host, resource_type, name
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self.policy.operations(principal, host, resource_type, name)
            if len(name) <= REMEMBERED_CHARACTERS_MAX:
                self._authorizer.make_room()
                self._decisions[key] = allowed
        return allowed

    def may(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        return self.operations(principal, host, resource_type, name) >> operation & 1 != 0

    def may_somewhere(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether it may be done to some resource of this type, be there one or not."""
        # No resource has a type below 0.
        key = principal, host, -resource_type, str(operation)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = int(self.policy.may_somewhere(principal, host, operation, resource_type))
            self._authorizer.make_room()
            self._decisions[key] = allowed
        return allowed != 0

    def is_operator(self, principal: Principal) -> bool:
        """Whether he sees the cell, and everybody's topics in it."""
        return str(principal) in self.policy.operators

    def may_see_cell(self, principal: Principal) -> bool:
        """Whether he is told of brokers, disks and replicas, be it of his own topics alone."""
        if self.name != DEFAULT_TENANT:
            return False
        return not self.policy.operators or self.is_operator(principal)

    def forget(self) -> None:
        """Remember no decision any more."""
        self._authorizer.decisions_count -= len(self._decisions)
        self._decisions.clear()


class ImageHolder(Protocol):
    """Who knows the image in force: the broker."""

    @property
    def image(self) -> MetadataImage: ...


class Authorizer:
    """The rights of all tenants that somebody on this broker speaks for."""

    def __init__(self, holder: ImageHolder, of_broker: BrokerSettings = NO_SETTINGS) -> None:
        self._holder = holder
        self.of_broker = of_broker
        # Each as long as somebody holds it.
        self._rights: WeakValueDictionary[str, TenantRights] = WeakValueDictionary()
        # Of all tenants.
        self.decisions_count = 0

    def of(self, tenant: str) -> TenantRights:
        """The one object for a tenant, which follows the image from now on."""
        rights = self._rights.get(tenant)
        if rights is None:
            rights = self._rights[tenant] = TenantRights(tenant, self)
            rights.follow(self._holder.image)
        return rights

    def image_changed(self, old: MetadataImage, image: MetadataImage, now_ms: int) -> None:
        """A listener of images."""
        if image.acls is old.acls and image.tenants is old.tenants:
            return
        for rights in list(self._rights.values()):
            rights.follow(image)

    def make_room(self) -> None:
        """One more decision will be remembered."""
        if self.decisions_count >= DECISIONS_MAX:
            for rights in list(self._rights.values()):
                rights.forget()
            self.decisions_count = 0
        self.decisions_count += 1
