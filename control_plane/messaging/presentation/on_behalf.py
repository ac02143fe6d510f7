"""What views have in common that ask a cell on somebody's behalf."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter

from control_plane.api.authentication import KeyHolder
from control_plane.api.views import TenantViewSet
from control_plane.messaging.callers import account_of, caller_as
from data_plane.contract.cell_operations_pb2 import Caller

AS_ACCOUNT = OpenApiParameter(
    "service_account_id",
    str,
    description="The service account whose grants apply. A key stands for its own; people say it.",
)


class OnBehalfViewSet(TenantViewSet):
    """Views of what only the cell has."""

    def cell_caller(self, service_account_id: str | None) -> Caller:
        """On whose behalf the cell is asked. Raises NotFound, Forbidden, Invalid."""
        user: Any = self.request.user
        key = user.key if isinstance(user, KeyHolder) else None
        account = account_of(self.organization_id, self.caller.role, key, service_account_id)
        return caller_as(account, self.caller.organization.slug, self.caller.actor)
