"""What the pages of the operators' site share: rows of tenants are shown across tenants, and never
changed there, since a change that no `do_*` function makes would have neither audit nor outbox."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from control_plane.operations.facade import Actor, ActorKind
from control_plane.tenancy.models import TenantManager


class ShownOnly(ModelAdmin):
    """A page that shows rows, and changes none."""

    list_per_page = 50
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        manager = self.model._default_manager
        if isinstance(manager, TenantManager):
            return manager.across_tenants().order_by("-pk")
        return super().get_queryset(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class StuckFilter(admin.SimpleListFilter):
    """What has been tried and is not done."""

    title = "state"
    parameter_name = "stuck"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("stuck", "Tried, and not done"), ("pending", "Not done")]

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Any]
    ) -> models.QuerySet[Any]:
        if self.value() == "stuck":
            return queryset.filter(done_at=None, attempts__gt=0)
        if self.value() == "pending":
            return queryset.filter(done_at=None)
        return queryset


def operator_of(request: HttpRequest) -> Actor:
    """Who acts in the site."""
    user: Any = request.user
    return Actor(ActorKind.OPERATOR, user.id, user.email, request.META.get("REMOTE_ADDR") or None)
