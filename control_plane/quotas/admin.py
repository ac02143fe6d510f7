"""Plans in the operators' site."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from control_plane.quotas.logic import do_save_plan
from control_plane.quotas.models import Plan, TenantQuota
from control_plane.tenancy.operator_site import ShownOnly, operator_of


@admin.register(Plan)
class PlanAdmin(ModelAdmin):
    list_display = ("name", "is_default", "topics", "partitions", "storage_bytes")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        do_save_plan(operator_of(request), obj, is_new=not change)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(TenantQuota)
class TenantQuotaAdmin(ShownOnly):
    list_display = ("organization", "status", "generation", "observed_generation", "updated_at")
    list_filter = ("status",)
    list_select_related = ("organization",)
    search_fields = ("organization__slug",)
