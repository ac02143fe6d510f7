"""Plans in the operators' site."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from control_plane.quotas.logic import do_save_plan
from control_plane.quotas.models import Plan, TenantQuota
from control_plane.tenancy.errors import Forbidden
from control_plane.tenancy.operator_site import OperatorPage, ShownOnly, operator_of


@admin.register(Plan)
class PlanAdmin(OperatorPage):
    list_display = ("name", "is_default", "topics", "partitions", "storage_bytes")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        try:
            do_save_plan(operator_of(request), obj, is_new=not change)
        except Forbidden as refusal:
            raise PermissionDenied(refusal.detail) from refusal


@admin.register(TenantQuota)
class TenantQuotaAdmin(ShownOnly):
    list_display = ("organization", "status", "generation", "observed_generation", "updated_at")
    list_filter = ("status",)
    list_select_related = ("organization",)
    search_fields = ("organization__slug",)
