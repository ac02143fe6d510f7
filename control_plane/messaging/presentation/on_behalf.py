"""What views have in common that ask a cell on somebody's behalf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from control_plane.api.authentication import KeyHolder
from control_plane.api.problems import refused
from control_plane.api.views import TenantViewSet
from control_plane.messaging.callers import account_of, caller_as
from control_plane.tenancy.errors import OutcomeUnknown
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


def unless_unknown(answer: Callable[[], Response]) -> Response:
    """The answer; where it is not known what was done, a problem that does not undo its audit event
    (an exception would, in a request with an Idempotency-Key)."""
    try:
        return answer()
    except OutcomeUnknown as unknown:
        return refused(unknown)
