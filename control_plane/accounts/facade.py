"""What other apps use of accounts."""

from __future__ import annotations

from control_plane.accounts.roles import OPERATOR, may, may_grant, refuse_to_grant

__all__ = ["OPERATOR", "may", "may_grant", "refuse_to_grant"]
