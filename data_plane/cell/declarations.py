"""What a control plane has declared, and the changes that remember it.

A *resource* stands for a tenant or one thing of it (`KINDS`): declared under an id that is never
used again, in a generation that grows with each change. A call that is repeated or comes late can
be told by them, also after the resource is gone: its id stays, as deleted.

    put    r1 generation 1  acme/orders  owner api        made by the control plane
    put    r1 generation 2  acme/orders  owner client     released: its clients change it again
    put    r1 generation 3  acme/orders  owner api        taken over again
    put    r1 generation 4  acme/orders  is_deleted       gone with its topic, and remembered

What a tenant has is declared as deleted when it is deleted itself, whoever owns it.

Invariants
- Generations of a resource never go back, and what was deleted is never declared again.
- No two resources that are not deleted stand for the same thing.
- Whether the thing itself exists is the business of whoever commits: both go in one commit.
- Digests, and who grants what, are kept with each change: nobody walks through everything for them.

Deliberately absent: what a specification means, except which ACLs grants are made of. It is text
here, in its canonical form, so that equal content is equal text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from data_plane.cell.acls import Acl
from data_plane.cell.declared_digest import NOTHING_DIGESTED, KindDigest
from data_plane.cell.grants import acls_of_grants
from data_plane.cell.named_fields import unknown_in, unknown_named

# Each topic of a large cell has one, and those that were deleted stay.
RESOURCES_MAX: Final = 200_000
RESOURCE_ID_CHARACTERS_MAX: Final = 64
SPECIFICATION_CHARACTERS_MAX: Final = 64 * 1024

API_OWNER: Final = "api"
CLIENT_OWNER: Final = "client"
OWNERS: Final = (API_OWNER, CLIENT_OWNER)
TENANT_KIND: Final = "tenant"
TOPIC_KIND: Final = "topic"
CREDENTIAL_KIND: Final = "credential"
GRANTS_KIND: Final = "grants"
QUOTA_KIND: Final = "quota"
# In the order in which they are made: what a tenant has comes after it.
KINDS: Final = (TENANT_KIND, TOPIC_KIND, CREDENTIAL_KIND, GRANTS_KIND, QUOTA_KIND)


class Declared(NamedTuple):
    """The thing that a resource stands for."""

    kind: str
    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """A resource. `specification` is what was declared last, "" when it `is_deleted`."""

    resource_id: str
    generation: int
    declared: Declared
    owner: str
    specification: str
    is_deleted: bool = False
    unknown_fields: str = ""

    @property
    def is_owned_by_api(self) -> bool:
        """Whether clients may neither delete the thing nor change what is declared."""
        return not self.is_deleted and self.owner == API_OWNER


@dataclass(frozen=True, slots=True)
class PutDeclaration:
    """A resource's next generation, or its first."""

    declaration: Declaration


# Resource ids, of those that declare an ACL.
Granters = frozenset[str]
Things = Mapping[Declared, Declaration]


class Declarations:
    """All of a cell. Immutable; found by resource id, and by what they stand for.

    - `by_tenant`: those that are not deleted;
    - `digests`: over the same, by kind;
    - `granted`: by tenant, the ACLs that a control plane owns.
    """

    __slots__ = ("by_id", "by_tenant", "digests", "granted")

    def __init__(self, declarations: Iterable[Declaration] = ()) -> None:
        self.by_id: Mapping[str, Declaration] = {}
        self.by_tenant: Mapping[str, Things] = {}
        self.digests: Mapping[str, KindDigest] = {}
        self.granted: Mapping[str, Mapping[Acl, Granters]] = {}
        draft = DeclarationsDraft(self)
        for declaration in declarations:
            draft.keep(declaration)
        draft.finish_into(self)

    def __len__(self) -> int:
        return len(self.by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Declarations) and self.by_id == other.by_id

    def of_thing(self, declared: Declared) -> Declaration | None:
        """The resource, not deleted, that stands for it."""
        return self.by_tenant.get(declared.tenant, _NO_THINGS).get(declared)

    def owner_of(self, kind: str, tenant: str, name: str) -> Declaration | None:
        """The declaration that clients must not contradict, if there is one."""
        declaration = self.of_thing(Declared(kind, tenant, name))
        return declaration if declaration is not None and declaration.is_owned_by_api else None

    def digest(self) -> KindDigest:
        """Over all kinds."""
        total = NOTHING_DIGESTED
        for of_kind in self.digests.values():
            total = total.and_of(of_kind)
        return total

    def granters(self, tenant: str, acl: Acl) -> Granters:
        """The resources of the control plane's that declare this ACL."""
        return self.granted.get(tenant, _NO_GRANTS).get(acl, _NO_GRANTERS)


_NO_THINGS: Final[Things] = {}
_NO_GRANTERS: Final[Granters] = frozenset()
_NO_GRANTS: Final[Mapping[Acl, Granters]] = {}


class DeclarationsDraft:
    """Declarations while one commit is applied: what is touched is copied once, however many are
    put."""

    def __init__(self, base: Declarations) -> None:
        self._by_id = dict(base.by_id)
        self._by_tenant = dict(base.by_tenant)
        self._digests = dict(base.digests)
        self._granted = dict(base.granted)
        # Tenants of which this draft has its own mappings.
        self._own_things: dict[str, dict[Declared, Declaration]] = {}
        self._own_grants: dict[str, dict[Acl, Granters]] = {}

    def put(self, new: Declaration) -> None:
        """Instead of, or beside, what there is. Raises ValueError."""
        other = self._by_tenant.get(new.declared.tenant, _NO_THINGS).get(new.declared)
        reason = _why_invalid(self._by_id, other, new)
        if reason:
            raise ValueError(f"resource {new.resource_id[:RESOURCE_ID_CHARACTERS_MAX]!r}: {reason}")
        self.keep(new)

    def keep(self, new: Declaration) -> None:
        """As `put`, of what has been found valid before."""
        old = self._by_id.get(new.resource_id)
        if old is not None and not old.is_deleted:
            self._take_out(old)
        self._by_id[new.resource_id] = new
        if not new.is_deleted:
            self._put_in(new)

    def end_all_of(self, tenant: str) -> None:
        """It is gone with all that it had, whoever owned it; one that is made anew under its name
        has nothing to do with that."""
        for item in list(self._by_tenant.get(tenant, _NO_THINGS).values()):
            self.keep(replace(item, specification="", is_deleted=True))

    def finish(self) -> Declarations:
        declarations = Declarations()
        self.finish_into(declarations)
        return declarations

    def finish_into(self, declarations: Declarations) -> None:
        for tenant, things in self._own_things.items():
            _put_or_drop(self._by_tenant, tenant, things)
        for tenant, grants in self._own_grants.items():
            _put_or_drop(self._granted, tenant, grants)
        declarations.by_id, declarations.by_tenant = self._by_id, self._by_tenant
        declarations.digests, declarations.granted = self._digests, self._granted

    def _put_in(self, new: Declaration) -> None:
        self._things(new.declared.tenant)[new.declared] = new
        kind = new.declared.kind
        self._digests[kind] = self._digests.get(kind, NOTHING_DIGESTED).plus(*_digested(new))
        if kind == GRANTS_KIND and new.is_owned_by_api:
            grants = self._grants(new.declared.tenant)
            for acl in acls_of_grants(new.specification):
                grants[acl] = grants.get(acl, _NO_GRANTERS) | {new.resource_id}

    def _take_out(self, old: Declaration) -> None:
        del self._things(old.declared.tenant)[old.declared]
        kind = old.declared.kind
        self._digests[kind] = self._digests[kind].minus(*_digested(old))
        if kind == GRANTS_KIND and old.is_owned_by_api:
            grants = self._grants(old.declared.tenant)
            for acl in acls_of_grants(old.specification):
                grants[acl] -= {old.resource_id}
                if not grants[acl]:
                    del grants[acl]

    def _things(self, tenant: str) -> dict[Declared, Declaration]:
        things = self._own_things.get(tenant)
        if things is None:
            things = dict(self._by_tenant.get(tenant, _NO_THINGS))
            self._own_things[tenant] = self._by_tenant[tenant] = things
        return things

    def _grants(self, tenant: str) -> dict[Acl, Granters]:
        grants = self._own_grants.get(tenant)
        if grants is None:
            grants = self._own_grants[tenant] = dict(self._granted.get(tenant, _NO_GRANTS))
        return grants


K = TypeVar("K")


def _put_or_drop(items: dict[str, K], key: str, value: K) -> None:
    if value:
        items[key] = value
    else:
        items.pop(key, None)


def _digested(item: Declaration) -> tuple[str, ...]:
    """What of a resource is in the digest of its kind."""
    generation = str(item.generation)
    return item.resource_id, generation, item.owner, *item.declared, item.specification


def _why_invalid(
    by_id: Mapping[str, Declaration], other: Declaration | None, new: Declaration
) -> str:
    """Why `new` cannot be put; "" when it can. `other` stands for the same thing now."""
    if not 1 <= len(new.resource_id) <= RESOURCE_ID_CHARACTERS_MAX:
        return f"an id has 1 to {RESOURCE_ID_CHARACTERS_MAX} characters"
    if new.owner not in OWNERS:
        return f"{new.owner!r} is no owner"
    if len(new.specification) > SPECIFICATION_CHARACTERS_MAX:
        return f"a specification of more than {SPECIFICATION_CHARACTERS_MAX} characters"
    old = by_id.get(new.resource_id)
    if old is None:
        if len(by_id) >= RESOURCES_MAX:
            return f"there are {RESOURCES_MAX} resources"
        if new.generation < 1:
            return f"generation {new.generation} is none"
    elif old.is_deleted:
        return "it was deleted"
    elif new.generation < old.generation:
        return f"generation {new.generation} after {old.generation}"
    elif new.declared != old.declared:
        return f"it stands for {'/'.join(old.declared)}"
    if new.declared.kind == GRANTS_KIND and not new.is_deleted:
        try:
            acls_of_grants(new.specification)
        except ValueError as error:
            return str(error)
    if not new.is_deleted and other is not None and other.resource_id != new.resource_id:
        return f"{'/'.join(new.declared)} belongs to resource {other.resource_id}"
    return ""


def encode_declaration(declaration: Declaration) -> dict[str, Any]:
    """JSON-ready, all fields by name."""
    item: dict[str, Any] = {
        **unknown_named(declaration.unknown_fields),
        "id": declaration.resource_id,
        "generation": declaration.generation,
        "kind": declaration.declared.kind,
        "tenant": declaration.declared.tenant,
        "name": declaration.declared.name,
        "owner": declaration.owner,
        "specification": declaration.specification,
    }
    if declaration.is_deleted:
        item["deleted"] = True
    return item


def decode_declaration(item: Mapping[str, Any]) -> Declaration:
    """The inverse of `encode_declaration`."""
    known = ("id", "generation", "kind", "tenant", "name", "owner", "specification")
    resource_id, generation, kind, tenant, name, owner, specification = (
        item[field_name] for field_name in known
    )
    return Declaration(
        resource_id,
        generation,
        Declared(kind, tenant, name),
        owner,
        specification,
        item.get("deleted", False),
        unknown_in(item, *known, "deleted"),
    )
