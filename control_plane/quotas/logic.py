"""Limits: a tenant's own where it has one, else its plan's; and what is refused beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from control_plane.accounts.models import Organization, OrganizationState
from control_plane.operations.facade import (
    Actor,
    ResourceKind,
    record_audit,
    resources_made_by,
    tenant_write,
)
from control_plane.quotas.models import CELL_LIMITS, LIMITS, Plan, TenantQuota
from control_plane.tenancy.daily_limits import refuse_too_often
from control_plane.tenancy.errors import Invalid, NotFound, QuotaExceeded

MADE_IN_CELLS = ("topics", "api_keys", "grants")
MADE_A_DAY_TIMES = 5
"""A tenant makes as much as it may have so many times a day, or MADE_A_DAY_MIN."""
MADE_A_DAY_MIN = 100
LIMIT_MAX = 2**53
"""The cell is told limits as doubles; up to here they are exact."""


def default_plan() -> Plan:
    """The plan of who signs up. Raises NotFound where an operator has left none."""
    plan = Plan.objects.filter(is_default=True).first()
    if plan is None:
        raise NotFound("No plan is the default one. An operator has to choose one.")
    return plan


def limits_of(plan: Plan, quota: TenantQuota | None) -> dict[str, int]:
    """What applies, by the names in LIMITS."""
    limits: dict[str, int] = {}
    for name in LIMITS:
        own = getattr(quota, name) if quota is not None else None
        limits[name] = getattr(plan, name) if own is None else own
    return limits


def limits_in_force(organization: Organization) -> dict[str, int]:
    """What applies to the tenant."""
    quota = TenantQuota.objects.of(organization.id).first()
    return limits_of(organization.plan, quota)


def refuse_beyond(organization: Organization, limit: str, wanted: int) -> None:
    """Raise QuotaExceeded when the tenant would then have `wanted` of it. Call it inside its write,
    whose lock makes the count hold."""
    limits = limits_in_force(organization)
    allowed = limits[limit]
    if wanted > allowed:
        raise QuotaExceeded(
            f"{organization.slug} may have {allowed} {limit.replace('_', ' ')}, and this would "
            f"make {wanted}."
        )
    if limit in MADE_IN_CELLS:
        _refuse_more_today(organization, limits)


def refuse_more_today(organization: Organization) -> None:
    """Raise TooMany when the tenant has made so much in a day that no plan can mean it. A cell
    remembers all that it ever had, so what is deleted at once takes room as well, for good, and of
    all tenants of the cell. Call it inside its write."""
    _refuse_more_today(organization, limits_in_force(organization))


def _refuse_more_today(organization: Organization, limits: Mapping[str, int]) -> None:
    most = max(MADE_A_DAY_MIN, MADE_A_DAY_TIMES * sum(limits[name] for name in MADE_IN_CELLS))
    refuse_too_often(
        resources_made_by(organization.id),
        "at",
        most,
        f"{organization.slug} makes {most} topics, keys and grants a day at most.",
    )


def do_save_plan(actor: Actor, plan: Plan, *, is_new: bool) -> None:
    """Keep the plan as it is now. Each tenant for whom it changes what the cell keeps gets its
    quota declared anew, in the same transaction.

    The lock on the plan's row waits for tenants that are just being made with it, and makes later
    ones wait: none is left with the limits of before.
    """
    with transaction.atomic():
        before = None if is_new else Plan.objects.select_for_update().get(id=plan.id)
        plan.save()
        changes = {
            name: [getattr(before, name, None), getattr(plan, name)]
            for name in ("name", "is_default", *LIMITS)
            if getattr(before, name, None) != getattr(plan, name)
        }
        action = "plan.create" if is_new else "plan.update"
        record_audit(actor, "", action, plan.id, plan.name, changes)
        if before is not None and not changes.keys().isdisjoint(CELL_LIMITS):
            for organization_id in _served_by(plan):
                _declare_limits(actor, organization_id, before, plan)


def _served_by(plan: Plan) -> list[str]:
    """The tenants of the plan in one order, so that two such changes do not wait for each other."""
    tenants = Organization.objects.filter(plan=plan).exclude(state=OrganizationState.DELETED)
    return list(tenants.order_by("id").values_list("id", flat=True))


def _declare_limits(actor: Actor, organization_id: str, before: Plan, plan: Plan) -> None:
    try:
        with tenant_write(actor, organization_id, even_if_suspended=True) as write:
            quota = TenantQuota.objects.of(organization_id).get()
            old, new = limits_of(before, quota), limits_of(plan, quota)
            changes = {
                name: [old[name], new[name]] for name in CELL_LIMITS if old[name] != new[name]
            }
            if changes:
                quota.declare_again()
                quota.save()
                write.declare(ResourceKind.QUOTA, quota)
                write.audit("quota.update", quota.id, plan.name, changes)
            # Its own limits hold, so nothing is changed and nothing written down.
            write.is_audited = True
    except NotFound:
        # It was deleted in the meantime, and is told nothing more.
        return


def do_set_quota(
    actor: Actor,
    organization_id: str,
    limits: Mapping[str, int | None],
    if_match: str | None = None,
) -> TenantQuota:
    """Give the tenant limits of its own; None goes back to the plan's. An operator's."""
    with tenant_write(actor, organization_id, even_if_suspended=True) as write:
        quota = TenantQuota.objects.of(organization_id).get()
        quota.refuse_unless(if_match)
        changes: dict[str, Any] = {}
        for name, limit in limits.items():
            if name not in LIMITS:
                raise Invalid(f"There is no limit {name}.", field=f"/spec/{name}")
            if limit is not None and not 0 <= limit <= LIMIT_MAX:
                raise Invalid("A limit is from 0 to 2^53.", field=f"/spec/{name}")
            if getattr(quota, name) != limit:
                changes[name] = [getattr(quota, name), limit]
                setattr(quota, name, limit)
        if changes:
            quota.declare_again()
            quota.save()
            write.declare(ResourceKind.QUOTA, quota)
        write.audit("quota.update", quota.id, changes=changes)
    return quota
