"""Whether cells have what was declared, compared now and then: whatever an outbox has not told, or
a cell has lost, is told again.

    digest of the cell = digest over the rows      all is as declared
    else                                           List, and compare one by one

Digests differ for long where operators declare things of their own; so it is remembered which pair
of digests has been compared, and the next comparison waits for another one.

Invariants
- Nothing in the cell is changed here: what is to be repaired is due in the outbox.
- What is on its way (an entry is open, or the generation is not observed) is no drift.
- What the cell will never take (it is failed, and no entry is open) is not told again.
- What clients own is not compared.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Model
from django.utils import timezone

from control_plane.access.models import ApiKey, Scope
from control_plane.accounts.models import Organization
from control_plane.cells.connections import cell_admin
from control_plane.cells.models import Cell, CellProgress, Placement
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.operations.facade import SYSTEM, TenantWrite
from control_plane.operations.models import OutboxEntry, ResourceKind
from control_plane.reconciliation.back_offs import READING, ask, cells_that_answer
from control_plane.reconciliation.following import give_back_lease, take_in_all, take_lease
from control_plane.reconciliation.listing import pages_of
from control_plane.reconciliation.sending import is_deleted
from control_plane.reconciliation.specifications import resource_of
from control_plane.reconciliation.tenant_round import MODELS
from control_plane.tenancy.models import DeclaredModel, ResourceStatus
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.digests import digests_of

log = logging.getLogger(__name__)

LEASE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Expected:
    """A row that the cell was told of, as the cell should have it; None: not any more."""

    kind: ResourceKind
    organization_id: str
    row: DeclaredModel
    resource: messages.Resource | None


def repair_cells() -> int:
    """Compare all cells that answer; how many resources are told again."""
    repaired = 0
    for cell in cells_that_answer(READING):
        repaired += ask(cell, partial(repair, cell)) or 0
    return repaired


def repair(cell: Cell, *, even_if_compared: bool = False) -> int:
    """Compare one; how many resources are told again. Raises CellError."""
    with cell_admin(cell) as admin:
        digest = admin.Digest(messages.DigestRequest())
    expected = list(_expected(cell))
    ours = digests_of([each.resource for each in expected if each.resource is not None])
    if {each.kind: each.digest for each in digest.kinds if each.resources} == ours:
        return 0
    compared = hashlib.sha256(digest.digest)
    for kind, value in sorted(ours.items()):
        compared.update(bytes([kind]) + value)
    name = compared.hexdigest()
    progress = CellProgress.objects.filter(cell=cell)
    if progress.filter(compared_digests=name).exists() and not even_if_compared:
        return 0
    repaired = _compare(cell, expected)
    lease = take_lease(cell, LEASE_S)
    if lease is not None:
        # What was declared before this database was restored is adopted, too.
        try:
            take_in_all(cell, lease)
        finally:
            give_back_lease(lease)
    is_settled = lease is not None and not repaired
    progress.update(compared_digests=name if is_settled else "", compared_at=timezone.now())
    return repaired


def _compare(cell: Cell, expected: list[_Expected]) -> int:
    there: dict[str, messages.Resource] = {}
    with cell_admin(cell) as admin:
        for page in pages_of(admin):
            for item in page.items:
                if item.resource.resource_id:
                    there[item.resource.resource_id] = item.resource
    by_tenant: dict[str, list[_Expected]] = {}
    for each in expected:
        if not _is_as_declared(each, there):
            by_tenant.setdefault(each.organization_id, []).append(each)
    return sum(_tell_again(*drifted) for drifted in by_tenant.items())


def _is_as_declared(expected: _Expected, there: dict[str, messages.Resource]) -> bool:
    wanted = expected.resource
    if wanted is None:
        return expected.row.pk not in there
    found = there.get(wanted.resource_id)
    if found is None or found.generation != wanted.generation:
        return False
    if wanted.HasField("credential"):
        # Their verifiers are shown to nobody.
        wanted, bare = messages.Resource(), wanted
        wanted.CopyFrom(bare)
        del wanted.credential.verifiers[:]
        del found.credential.verifiers[:]
    return digests_of([found]) == digests_of([wanted])


def _expected(cell: Cell) -> Iterator[_Expected]:
    """What was told and confirmed, of all tenants in the cell, but what is being told just now."""
    placed = Placement.objects.across_tenants().filter(cell=cell).values("organization_id")
    tenants = Organization.objects.filter(id__in=placed).select_related("plan")
    organizations = {each.id: each for each in tenants}
    open_entries = OutboxEntry.objects.across_tenants().filter(done_at=None)
    told_now = set(
        open_entries.filter(organization_id__in=organizations).values_list("resource_id", flat=True)
    )
    for organization in organizations.values():
        is_told = organization.observed_generation == organization.generation
        is_over = (
            organization.status == ResourceStatus.FAILED or organization.deleted_at is not None
        )
        if is_told and organization.id not in told_now and not is_over:
            resource = resource_of(organization, organization)
            yield _Expected(ResourceKind.TENANT, organization.id, organization, resource)
    for kind, model in MODELS.items():
        rows = (
            model.objects.across_tenants()
            .filter(organization_id__in=organizations, observed_generation=F("generation"))
            .exclude(status=ResourceStatus.FAILED)
        )
        if model is ApiKey:
            rows = rows.filter(scopes__contains=[Scope.KAFKA])
        if model is Topic:
            rows = rows.exclude(managed_by=ManagedBy.CLIENT).filter(purge_after=None)
        for row in rows.iterator():
            organization = organizations[row.organization_id]
            if row.pk not in told_now and organization.deleted_at is None:
                wanted = None if is_deleted(row) else resource_of(organization, row)
                yield _Expected(kind, organization.id, row, wanted)


def _tell_again(organization_id: str, drifted: list[_Expected]) -> int:
    """Have the outbox tell it, unless it has changed since."""
    told = 0
    with transaction.atomic():
        organization = (
            Organization.objects.select_for_update(of=("self",)).filter(id=organization_id).first()
        )
        if organization is None:
            return 0
        write = TenantWrite(SYSTEM, organization)
        for each in drifted:
            model: type[Model] = type(each.row)
            rows: Any = (
                Organization.objects if model is Organization else model.objects.of(organization_id)  # type: ignore[attr-defined]
            )
            unchanged = rows.filter(pk=each.row.pk, generation=each.row.generation)
            if not unchanged.update(status=ResourceStatus.UPDATING):
                continue
            write.declare(each.kind, each.row)
            told += 1
        if told:
            ids = [each.row.pk for each in drifted]
            log.warning("%s: %d resources are told again", organization.slug, told)
            write.audit("reconcile.repair", organization_id, organization.slug, {"ids": ids[:100]})
            write.finish()
    return told
