"""Who may do what in an organization: one table, from action to the roles that may;
tests/control_plane walks it. Cells are for operators alone (IsAdminUser).

Operators are not members. They see health and set limits, and neither read nor write messages.
"""

from __future__ import annotations

from typing import Final

from control_plane.accounts.models import Role
from control_plane.tenancy.errors import Forbidden

OPERATOR: Final = "operator"

# From the most to the least: whoever grants a role has it, or one before it.
RANKS: Final = (Role.OWNER, Role.ADMIN, Role.DEVELOPER, Role.VIEWER)

_OWNER = frozenset({Role.OWNER.value})
_ADMINS = frozenset({*_OWNER, Role.ADMIN.value})
_DEVELOPERS = frozenset({*_ADMINS, Role.DEVELOPER.value})
_MEMBERS = frozenset({*_DEVELOPERS, Role.VIEWER.value})
_OPERATORS = frozenset({OPERATOR})

ALLOWED: Final[dict[str, frozenset[str]]] = {
    "organization.read": _MEMBERS | _OPERATORS,
    "organization.update": _ADMINS,
    "organization.suspend": _OPERATORS,
    "organization.delete": _OWNER,
    "member.read": _MEMBERS | _OPERATORS,
    "member.write": _ADMINS,
    "invitation.read": _ADMINS,
    "invitation.write": _ADMINS,
    "service_account.read": _MEMBERS,
    "service_account.write": _DEVELOPERS,
    "api_key.read": _MEMBERS,
    "api_key.write": _DEVELOPERS,
    "grant.read": _MEMBERS,
    "grant.write": _DEVELOPERS,
    "topic.read": _MEMBERS | _OPERATORS,
    "topic.write": _DEVELOPERS,
    "message.read": _DEVELOPERS,
    "message.write": _DEVELOPERS,
    "group.read": _MEMBERS,
    "group.write": _DEVELOPERS,
    "subscription.read": _MEMBERS | _OPERATORS,
    "subscription.write": _DEVELOPERS,
    "quota.read": _MEMBERS | _OPERATORS,
    "quota.write": _OPERATORS,
    "audit.read": _ADMINS | _OPERATORS,
    "operation.read": _MEMBERS | _OPERATORS,
    "usage.read": _MEMBERS | _OPERATORS,
}


def may(role: str, action: str) -> bool:
    """Whether a role (or OPERATOR) may do this. An action that is not in the table is a bug."""
    return role in ALLOWED[action]


def refuse_to_grant(role: str, granted: str, *, field: str = "") -> None:
    """Raise Forbidden for who grants, or takes away, more than he has. `field` is where the request
    names what is granted."""
    if not may_grant(role, granted):
        raise Forbidden(f"The role {role} may not grant {granted}.", field=field)


def may_grant(role: str, granted: str) -> bool:
    """Whether who has `role` may make somebody `granted`: nobody grants rights that he lacks."""
    return RANKS.index(Role(role)) <= RANKS.index(Role(granted))
