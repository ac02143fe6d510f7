"""On whose behalf a cell is asked: as a service account, whose grants the cell goes by.

A key stands for its own account, and only if it is accepted by Kafka clients, too: what is read and
written here is what a client would read and write. A person names an account of a role that
he has himself.
"""

from __future__ import annotations

from control_plane.access.models import ApiKey, Scope, ServiceAccount
from control_plane.accounts.facade import may_grant
from control_plane.accounts.models import Organization, OrganizationState
from control_plane.cells.models import Cell, Placement
from control_plane.operations.facade import Actor
from control_plane.tenancy.errors import CellDown, Forbidden, Invalid, NotFound, TenantSuspended
from data_plane.contract.cell_operations_pb2 import Caller

FIELD = "/service_account_id"


def account_of(
    organization_id: str, role: str, key: ApiKey | None, service_account_id: str | None
) -> ServiceAccount:
    """The account that who has this role, and this key if it is a program, may ask as. Raises
    NotFound, Forbidden, Invalid."""
    accounts = ServiceAccount.objects.of(organization_id).filter(deleted_at=None)
    if service_account_id is None:
        if key is None:
            raise Invalid(
                "Say which service account this is done as: its id (--as at the command line).",
                field=FIELD,
            )
        service_account_id = key.service_account_id
    account = accounts.filter(id=service_account_id).first()
    if account is None:
        raise NotFound("There is no such service account.", field=FIELD)
    if key is None:
        if not may_grant(role, account.role):
            raise Forbidden(f"The role {role} may make no keys of {account.name}.", field=FIELD)
        return account
    if account.id != key.service_account_id:
        raise Forbidden("A key stands for its own service account.", field=FIELD)
    if Scope.KAFKA not in key.scopes:
        raise Forbidden("This key has not the scope `kafka`, so its messages are not for it.")
    return account


def caller_as(account: ServiceAccount, slug: str, actor: Actor) -> Caller:
    """As the cell is told. Grants with addresses are compared with that of who asks."""
    return Caller(tenant=slug, principal=f"User:{account.id}", host=actor.address or "")


def refuse_if_suspended(organization: Organization) -> None:
    """Raise TenantSuspended for who may read, and change nothing."""
    if organization.state == OrganizationState.SUSPENDED:
        raise TenantSuspended(f"{organization.slug} is suspended: {organization.state_reason}")


def cell_of(organization_id: str) -> Cell:
    """Where the tenant lives. Raises CellDown while that is nowhere."""
    placement = Placement.objects.of(organization_id).select_related("cell").first()
    if placement is None:
        raise CellDown("The organization waits for a cell.")
    return placement.cell
