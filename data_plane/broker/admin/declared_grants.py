"""Declared grants: how a tenant's ACLs become what a resource says (declarations.py).

An ACL may be in several grants: it is there as long as one of them has it. One that a client has
made is taken over, or it is a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_plane.broker.admin.acls import why_not_created
from data_plane.broker.admin.declared import Denied, Outcome, Resource
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.acls import ACLS_MAX, NO_ACLS, Acl, AddAcls, RemoveAcls
from data_plane.cell.changes import Change
from data_plane.cell.declarations import GRANTS_KIND, Declaration, Granters
from data_plane.cell.grants import acls_of_grants, grants_text
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class GrantsSpecification:
    """What is declared of grants."""

    KIND: ClassVar[str] = GRANTS_KIND

    acls: frozenset[Acl]

    def to_text(self) -> str:
        return grants_text(self.acls)


class _TenantDraft:
    """The ACLs of one tenant while a batch is decided."""

    def __init__(self, image: MetadataImage, tenant: str) -> None:
        self._acls = image.acls.get(tenant, NO_ACLS)
        self._declarations = image.declarations
        self._tenant = tenant
        self._granters: dict[Acl, Granters] = {}
        # What was added and removed here: whether it is there now.
        self._changed: dict[Acl, bool] = {}
        self.count = self._acls.count

    def is_there(self, acl: Acl) -> bool:
        changed = self._changed.get(acl)
        return acl in self._acls if changed is None else changed

    def granters(self, acl: Acl) -> Granters:
        granters = self._granters.get(acl)
        return self._declarations.granters(self._tenant, acl) if granters is None else granters

    def replace(
        self, resource_id: str, gone: Iterable[Acl], come: Iterable[Acl]
    ) -> Sequence[Change]:
        """These are granted by the resource no more, and those from now on."""
        removed, added = [], []
        for acl in gone:
            granters = self._granters[acl] = self.granters(acl) - {resource_id}
            if not granters and self.is_there(acl):
                self._changed[acl] = False
                removed.append(acl)
        for acl in come:
            self._granters[acl] = self.granters(acl) | {resource_id}
            if not self.is_there(acl):
                self._changed[acl] = True
                added.append(acl)
        self.count += len(added) - len(removed)
        changes: list[Change] = []
        if removed:
            changes.append(RemoveAcls(self._tenant, tuple(removed)))
        if added:
            changes.append(AddAcls(self._tenant, tuple(added)))
        return changes


class GrantsDecision:
    """See `KindDecision`."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._image = image
        self._drafts: dict[str, _TenantDraft] = {}

    def put(self, resource: Resource, owned: Declaration | None) -> Sequence[Change]:
        specification = resource.specification
        assert isinstance(specification, GrantsSpecification)
        wanted = specification.acls
        before = frozenset(() if owned is None else acls_of_grants(owned.specification))
        gone, come = sorted(before - wanted), sorted(wanted - before)
        draft = self._draft(resource.tenant)
        for acl in come:
            refusal = why_not_created(resource.tenant, acl)
            if refusal is not None:
                raise Refusal(refusal.code, f"{refusal.message}: {_named(acl)}")
            if draft.is_there(acl) and not draft.granters(acl) and not resource.take_over:
                reason = f"a Kafka client has made {_named(acl)}; take it over to manage it"
                raise Denied(Outcome.CONFLICT, reason)
        new = sum(not draft.is_there(acl) for acl in come)
        old = sum(draft.granters(acl) == {resource.resource_id} for acl in gone)
        if new > old and draft.count + new - old > ACLS_MAX:
            message = f"A tenant has {ACLS_MAX} ACLs at most."
            raise Refusal(ErrorCode.POLICY_VIOLATION, message)
        return draft.replace(resource.resource_id, gone, come)

    def remove(self, owned: Declaration) -> Sequence[Change]:
        gone = acls_of_grants(owned.specification)
        return self._draft(owned.declared.tenant).replace(owned.resource_id, gone, ())

    def follow_ups(self, changes: Sequence[Change]) -> Sequence[Change]:
        return ()

    def _draft(self, tenant: str) -> _TenantDraft:
        draft = self._drafts.get(tenant)
        if draft is None:
            draft = self._drafts[tenant] = _TenantDraft(self._image, tenant)
        return draft


def _named(acl: Acl) -> str:
    """For people: the numbers are the protocol's."""
    pattern, entry = acl
    return (
        f"ACL of {entry.principal} from {entry.host} (operation {entry.operation}, permission "
        f"{entry.permission}) on '{pattern.name}' (type {pattern.resource_type}, pattern "
        f"{pattern.pattern_type})"
    )
