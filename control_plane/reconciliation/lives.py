"""What time brings: tenants that waited for room get a cell, deleted topics and tenants go for good
when their time is over, and what is done is forgotten.

All of it is asked of rows, so rounds may be missed, repeated, and go on at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from control_plane.accounts.models import Organization, OrganizationState
from control_plane.cells.facade import place
from control_plane.cells.models import Placement
from control_plane.messaging.facade import do_purge_due_topics
from control_plane.messaging.models import Topic
from control_plane.operations.facade import SYSTEM, ResourceKind, TenantWrite
from control_plane.operations.models import (
    TENANT_ERASED,
    AuditEvent,
    IdempotentAnswer,
    Operation,
    OutboxEntry,
)
from control_plane.reconciliation.erasure import erase
from control_plane.tenancy.errors import NotFound

# An id that an entry names was this database's own: adoption asks that.
DONE_ENTRIES_KEPT: Final = timedelta(days=30)
OPERATIONS_KEPT: Final = timedelta(days=30)
# The audit of a tenant, after all else of it is gone.
ERASED_AUDIT_KEPT: Final = timedelta(days=365)
ROWS_FORGOTTEN_MAX: Final = 10_000
TENANTS_MAX: Final = 100


def go_on_with_lives() -> None:
    place_waiting()
    purge_topics()
    purge_tenants()
    forget()


def place_waiting() -> int:
    """Give those a cell that found no room; how many got one."""
    placed = 0
    without = Organization.objects.exclude(
        id__in=Placement.objects.across_tenants().values("organization_id")
    ).exclude(state=OrganizationState.DELETED)
    for organization_id in without.order_by("id").values_list("id", flat=True)[:TENANTS_MAX]:
        with transaction.atomic():
            organization = Organization.objects.select_for_update().get(id=organization_id)
            if organization.state == OrganizationState.DELETED:
                continue
            if place(organization) is None:
                return placed
            organization.status_reason = ""
            organization.save(update_fields=["status_reason"])
            write = TenantWrite(SYSTEM, organization)
            write.audit("organization.place", organization.id, organization.slug)
            placed += 1
    return placed


def purge_topics() -> None:
    """Those whose time is over."""
    due = Topic.objects.across_tenants().filter(purge_after__lte=timezone.now(), deleted_at=None)
    for organization_id in due.values_list("organization_id", flat=True).distinct():
        try:
            do_purge_due_topics(SYSTEM, organization_id)
        except NotFound:
            # They go with their tenant, which was deleted.
            continue


def purge_tenants() -> None:
    """Those whose grace is over: their cells are told to delete them, with all they have."""
    due = Organization.objects.filter(
        state=OrganizationState.DELETED, purge_after__lte=timezone.now(), deleted_at=None
    )
    for organization_id in due.values_list("id", flat=True):
        with transaction.atomic():
            organization = Organization.objects.select_for_update().get(id=organization_id)
            if organization.deleted_at is not None:
                continue
            if not Placement.objects.of(organization_id).exists():
                # No cell has ever heard of it.
                erase(organization)
                continue
            organization.deleted_at = timezone.now()
            organization.declare_again()
            organization.save()
            write = TenantWrite(SYSTEM, organization)
            write.audit("organization.purge", organization.id, organization.slug)
            write.declare(ResourceKind.TENANT, organization)
            write.finish()


def forget() -> None:
    """What nobody asks for any more."""
    now = timezone.now()
    done = OutboxEntry.objects.across_tenants().filter(done_at__lte=now - DONE_ENTRIES_KEPT)
    oldest = list(done.order_by("done_at").values_list("id", flat=True)[:ROWS_FORGOTTEN_MAX])
    OutboxEntry.objects.across_tenants().filter(id__in=oldest).delete()
    over = Operation.objects.across_tenants().filter(finished_at__lte=now - OPERATIONS_KEPT)
    finished = list(over.order_by("finished_at").values_list("id", flat=True)[:ROWS_FORGOTTEN_MAX])
    Operation.objects.across_tenants().filter(id__in=finished).delete()
    IdempotentAnswer.objects.filter(expires_at__lte=now).delete()
    erased = AuditEvent.objects.filter(action=TENANT_ERASED, at__lte=now - ERASED_AUDIT_KEPT)
    gone = list(erased.order_by("at").values_list("organization_id", flat=True)[:TENANTS_MAX])
    AuditEvent.objects.filter(organization_id__in=gone).delete()
