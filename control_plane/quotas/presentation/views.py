"""A tenant's quota by REST."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.views import TenantViewSet
from control_plane.quotas.logic import do_set_quota, limits_of
from control_plane.quotas.models import TenantQuota
from control_plane.quotas.presentation.serializers import QuotaSerializer, QuotaUpdateSerializer
from control_plane.quotas.use import counted_use
from control_plane.usage.facade import use_now


class QuotaViewSet(TenantViewSet):
    """What the organization may use."""

    serializer_class = QuotaSerializer
    actions: ClassVar = {"list": "quota.read", "partial_update": "quota.write"}

    @extend_schema(responses=QuotaSerializer, operation_id="organizations_quota_retrieve")
    def list(self, request: Request, organization_id: str) -> Response:
        """Limits in force, the tenant's own, and what is used."""
        return self._shown(TenantQuota.objects.of(self.organization_id).get())

    @extend_schema(request=QuotaUpdateSerializer, responses=QuotaSerializer)
    def partial_update(self, request: Request, organization_id: str) -> Response:
        """Operators: limits of the tenant's own; null goes back to the plan's."""
        body = self.body(QuotaUpdateSerializer)
        quota = do_set_quota(
            self.caller.actor, self.organization_id, dict(body["spec"]), self.if_match
        )
        return self._shown(quota)

    def _shown(self, quota: TenantQuota) -> Response:
        plan = self.caller.organization.plan
        row: Any = quota
        row.plan = plan.name
        row.spec = quota.declared()
        row.limits = limits_of(plan, quota)
        row.used = counted_use(self.organization_id) | use_now(self.organization_id)
        return self.shown(row)
