"""What a control plane declares: what becomes of each resource, whatever its kind.

A declaration is decided against one image, together with the thing itself, so that both are in one
commit: no declared thing exists that its resource does not know, and no resource without its thing.

    nothing there                               the thing is made
    a client's thing                            CONFLICT, unless it is to be taken over
    another resource's                          CONFLICT
    its own, in an earlier generation           changed
    its own, in this generation, equal          UNCHANGED (else CONFLICT)
    its own, in a later generation              STALE
    its resource was deleted                    GONE, whatever it says
    owner `client`, its own                     released: the thing stays, and is its clients'

How a thing is made, changed and removed is its kind's: a row of `_DECISIONS`.

Deliberately absent: who may call; how it is called (data_plane/server).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from data_plane.broker.admin.declared import (
    Denied,
    KindDecision,
    NewDecision,
    Outcome,
    Removal,
    Resource,
    Result,
    Unavailable,
)
from data_plane.broker.admin.declared_credentials import CredentialDecision
from data_plane.broker.admin.declared_grants import GrantsDecision
from data_plane.broker.admin.declared_quotas import QuotaDecision
from data_plane.broker.admin.declared_tenants import TenantDecision
from data_plane.broker.admin.declared_topics import TopicDecision
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, apply_changes
from data_plane.cell.declarations import (
    API_OWNER,
    CLIENT_OWNER,
    CREDENTIAL_KIND,
    GRANTS_KIND,
    KINDS,
    QUOTA_KIND,
    RESOURCES_MAX,
    SPECIFICATION_CHARACTERS_MAX,
    TENANT_KIND,
    TOPIC_KIND,
    Declaration,
    Declared,
    PutDeclaration,
)
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DELETING_TENANT
from data_plane.wire.errors import ErrorCode

_DECISIONS: Final[Mapping[str, NewDecision]] = {
    TENANT_KIND: TenantDecision,
    TOPIC_KIND: TopicDecision,
    CREDENTIAL_KIND: CredentialDecision,
    GRANTS_KIND: GrantsDecision,
    QUOTA_KIND: QuotaDecision,
}


def decide_declarations(
    services: Services,
    image: MetadataImage,
    wanted: Sequence[Resource],
    results: list[Result],
) -> list[Change]:
    """Fill `results`, one for each in order, and return the changes of those that pass.

    Neither a resource nor a thing may be named twice. Raises Unavailable."""
    _check_level(image)
    batch = _Batch(services, image)
    changes: list[Change] = []
    found: dict[str, Result] = {}
    for kind in KINDS:
        made: list[Change] = []
        for resource in wanted:
            if resource.thing.kind == kind:
                result, its_changes = batch.declare(resource)
                found[result.resource_id] = result
                made += its_changes
        changes += batch.end_kind(kind, made)
    results += (found[resource.resource_id] for resource in wanted)
    return changes


def decide_deletions(
    services: Services,
    image: MetadataImage,
    wanted: Iterable[Removal],
    results: list[Result],
) -> list[Change]:
    """Delete resources, and the things that they own. Raises Unavailable.

    One that is not known is remembered as deleted: what declares it may still be on its way."""
    _check_level(image)
    batch = _Batch(services, image)
    changes: list[Change] = []
    for removal in wanted:
        result, its_changes = batch.delete(removal)
        results.append(result)
        changes += its_changes
    return changes


class _Batch:
    """What one batch is decided with."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._services = services
        self._image = image
        self._room = RESOURCES_MAX - len(image.declarations)
        self._decisions: dict[str, KindDecision] = {}

    def declare(self, resource: Resource) -> tuple[Result, Sequence[Change]]:
        known = self._image.declarations.by_id.get(resource.resource_id)
        generation = 0 if known is None else known.generation
        try:
            made = self._decide(resource, known)
        except Denied as denied:
            return Result(resource.resource_id, denied.outcome, generation, denied.reason), ()
        except Refusal as refusal:
            return _refused(resource.resource_id, generation, refusal), ()
        outcome = Outcome.DONE if made else Outcome.UNCHANGED
        return Result(resource.resource_id, outcome, resource.generation), made

    def end_kind(self, kind: str, made: Sequence[Change]) -> Sequence[Change]:
        """All of a kind were declared: their changes, with those that go with them."""
        if not made:
            return made
        made = [*made, *self._decision(kind).follow_ups(made)]
        if kind == TENANT_KIND:
            # What they have may be declared in the same call.
            self._image = apply_changes(self._image, made)
        return made

    def delete(self, removal: Removal) -> tuple[Result, Sequence[Change]]:
        resource_id, generation, keeps_thing = removal
        known = self._image.declarations.by_id.get(resource_id)
        if known is not None and known.is_deleted:
            return Result(resource_id, Outcome.UNCHANGED, known.generation), ()
        if known is not None and generation < known.generation:
            return Result(resource_id, Outcome.STALE, known.generation, _later(known)), ()
        if known is None:
            if self._room <= 0:
                return Result(resource_id, Outcome.REFUSED, 0, _NO_ROOM, _NO_ROOM_CODE), ()
            self._room -= 1
            known = Declaration(resource_id, generation, _NOTHING, API_OWNER, "")
            owned = None
        else:
            owned = known if known.is_owned_by_api and not keeps_thing else None
        tombstone = replace(known, generation=generation, specification="", is_deleted=True)
        changes: list[Change] = [PutDeclaration(tombstone)]
        if owned is not None:
            try:
                changes += self._decision(owned.declared.kind).remove(owned)
            except Refusal as refusal:
                return _refused(resource_id, owned.generation, refusal), ()
        return Result(resource_id, Outcome.DONE, generation), changes

    def _decide(self, resource: Resource, known: Declaration | None) -> list[Change]:
        """The changes of one resource; none when it is so already. Raises Refusal and Denied."""
        text = resource.specification.to_text()
        next_one = Declaration(
            resource.resource_id, resource.generation, resource.thing, resource.owner, text
        )
        if len(text) > SPECIFICATION_CHARACTERS_MAX:
            message = f"What is declared has {len(text)} characters, allowed are "
            message += f"{SPECIFICATION_CHARACTERS_MAX}."
            raise Refusal(ErrorCode.POLICY_VIOLATION, message)
        if known is not None:
            if _is_settled(known, next_one):
                return []
            next_one = replace(next_one, unknown_fields=known.unknown_fields)
        other = self._image.declarations.of_thing(resource.thing)
        if other is not None and other.resource_id != resource.resource_id:
            kind = resource.thing.kind
            message = f"the {kind} belongs to resource {other.resource_id}"
            raise Denied(Outcome.CONFLICT, message)
        if resource.owner == CLIENT_OWNER:
            if known is None:
                raise Denied(Outcome.CONFLICT, "the cell knows no such resource to release")
            return [PutDeclaration(next_one)]
        self._check_tenant(resource)
        if known is None and self._room <= 0:
            raise Refusal(_NO_ROOM_CODE, _NO_ROOM)
        owned = known if known is not None and known.is_owned_by_api else None
        changes = self._decision(resource.thing.kind).put(resource, owned)
        self._room -= known is None
        return [*changes, PutDeclaration(next_one)]

    def _check_tenant(self, resource: Resource) -> None:
        """That the tenant of a thing may have some. Raises Refusal."""
        if resource.thing.kind == TENANT_KIND:
            return
        tenant = self._image.tenant(resource.tenant)
        if tenant is None:
            message = f"There is no tenant '{resource.tenant}'."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if tenant.state == DELETING_TENANT:
            message = f"The tenant '{resource.tenant}' is being deleted."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)

    def _decision(self, kind: str) -> KindDecision:
        decision = self._decisions.get(kind)
        if decision is None:
            decision = self._decisions[kind] = _DECISIONS[kind](self._services, self._image)
        return decision


def _is_settled(known: Declaration, next_one: Declaration) -> bool:
    """Whether the cell has this already. Raises Denied."""
    if known.is_deleted:
        raise Denied(Outcome.GONE, f"it was deleted in generation {known.generation}")
    if next_one.generation < known.generation:
        raise Denied(Outcome.STALE, _later(known))
    if next_one.declared != known.declared:
        kind, tenant, name = known.declared
        thing = f"{kind} {name} of tenant {tenant}" if name else f"the {kind} of tenant {tenant}"
        raise Denied(Outcome.CONFLICT, f"it stands for {thing}")
    if next_one.generation > known.generation:
        return False
    if replace(next_one, unknown_fields=known.unknown_fields) == known:
        return True
    raise Denied(Outcome.CONFLICT, "the cell has another content in this generation")


def _refused(resource_id: str, generation: int, refusal: Refusal) -> Result:
    message = refusal.message or refusal.code.message
    return Result(resource_id, Outcome.REFUSED, generation, message, refusal.code)


_NOTHING = Declared(TOPIC_KIND, "", "")
_NO_ROOM = f"The cell remembers {RESOURCES_MAX} resources, which is the limit."
_NO_ROOM_CODE = ErrorCode.POLICY_VIOLATION


def _check_level(image: MetadataImage) -> None:
    if image.metadata_level < TENANCY_LEVEL:
        raise Unavailable(
            f"the cell is at {METADATA_VERSION} {image.metadata_level}; declarations need "
            f"{TENANCY_LEVEL}: upgrade all brokers, then finalize it"
        )


def _later(known: Declaration) -> str:
    return f"the cell has generation {known.generation}"
