"""What a control plane has declared, and the changes that remember it.

A *resource* stands for one thing of a tenant, so far a topic: declared under an id that is never
used again, in a generation that grows with each change. A call that is repeated or comes late can
be told by them, also after the resource is gone: its id stays, as deleted.

    put    r1 generation 1  acme/orders  owner api        made by the control plane
    put    r1 generation 2  acme/orders  owner client     released: its clients change it again
    put    r1 generation 3  acme/orders  owner api        taken over again
    put    r1 generation 4  acme/orders  is_deleted       gone with its topic, and remembered

A tenant's topics are declared as deleted when it is deleted itself, whoever owns them.

Invariants
- Generations of a resource never go back, and what was deleted is never declared again.
- No two resources that are not deleted stand for the same thing.
- Whether the thing itself exists is the business of whoever commits: both go in one commit.

Deliberately absent: what a specification means. It is text here, in its canonical form, so that
equal content is equal text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from data_plane.cell.named_fields import unknown_in, unknown_named

# Each topic of a large cell has one, and those that were deleted stay.
RESOURCES_MAX: Final = 200_000
RESOURCE_ID_CHARACTERS_MAX: Final = 64
SPECIFICATION_CHARACTERS_MAX: Final = 64 * 1024

API_OWNER: Final = "api"
CLIENT_OWNER: Final = "client"
OWNERS: Final = (API_OWNER, CLIENT_OWNER)
TOPIC_KIND: Final = "topic"


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


class Declarations:
    """All of a cell. Immutable; found by resource id, and by what they stand for."""

    __slots__ = ("by_id", "by_thing")

    def __init__(self, declarations: Iterable[Declaration] = ()) -> None:
        self.by_id: Mapping[str, Declaration] = {item.resource_id: item for item in declarations}
        self.by_thing: Mapping[Declared, Declaration] = {
            item.declared: item for item in self.by_id.values() if not item.is_deleted
        }

    def __len__(self) -> int:
        return len(self.by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Declarations) and self.by_id == other.by_id

    def owner_of(self, kind: str, tenant: str, name: str) -> Declaration | None:
        """The declaration that clients must not contradict, if there is one."""
        declaration = self.by_thing.get(Declared(kind, tenant, name))
        return declaration if declaration is not None and declaration.is_owned_by_api else None

    def digest(self) -> bytes:
        """SHA-256 over all that is not deleted: ids, generations and content."""
        digest = hashlib.sha256()
        for _, item in sorted(self.by_id.items()):
            if not item.is_deleted:
                fields = (item.resource_id, str(item.generation), item.owner, *item.declared)
                for field_text in (*fields, item.specification):
                    encoded = field_text.encode()
                    digest.update(len(encoded).to_bytes(4, "big") + encoded)
        return digest.digest()


class DeclarationsDraft:
    """Declarations while one commit is applied: copied once, however many are put."""

    def __init__(self, base: Declarations) -> None:
        self._by_id = dict(base.by_id)
        self._by_thing = dict(base.by_thing)

    def put(self, new: Declaration) -> None:
        """Instead of, or beside, what there is. Raises ValueError."""
        reason = _why_invalid(self._by_id, self._by_thing, new)
        if reason:
            raise ValueError(f"resource {new.resource_id[:RESOURCE_ID_CHARACTERS_MAX]!r}: {reason}")
        old = self._by_id.get(new.resource_id)
        if old is not None:
            del self._by_thing[old.declared]
        self._by_id[new.resource_id] = new
        if not new.is_deleted:
            self._by_thing[new.declared] = new

    def delete_topics_of(self, tenant: str) -> None:
        """It is gone, and has no topics any more. Only released declarations can have outlived
        their topics; one that is made anew under its name has nothing to do with them."""
        for declared, item in list(self._by_thing.items()):
            if declared.tenant == tenant and declared.kind == TOPIC_KIND:
                self.put(replace(item, specification="", is_deleted=True))

    def finish(self) -> Declarations:
        declarations = Declarations()
        declarations.by_id, declarations.by_thing = self._by_id, self._by_thing
        return declarations


def _why_invalid(
    by_id: Mapping[str, Declaration], by_thing: Mapping[Declared, Declaration], new: Declaration
) -> str:
    """Why `new` cannot be put; "" when it can."""
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
    other = by_thing.get(new.declared)
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
