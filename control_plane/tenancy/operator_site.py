"""What the pages of the operators' site share: who has `is_staff` sees them all, without Django's
permissions. Rows of tenants are shown across tenants, and never changed there, since a change that
no `do_*` function makes would have neither audit nor outbox."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from control_plane.accounts.facade import OPERATOR
from control_plane.operations.facade import Actor, ActorKind
from control_plane.tenancy.models import TenantManager


class OperatorPage(ModelAdmin):
    """A page for operators, and for all of them. Nothing is deleted in the site."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_operator(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return is_operator(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ShownOnly(OperatorPage):
    """A page that shows rows, and changes none."""

    list_per_page = 50
    # What is newest; models have what is oldest first.
    ordering: tuple[str, ...] = ("-pk",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        manager = self.model._default_manager
        if isinstance(manager, TenantManager):
            return manager.across_tenants()
        return super().get_queryset(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
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


def is_operator(request: HttpRequest) -> bool:
    """Whether an operator asks."""
    user: Any = request.user
    return bool(user.is_active and user.is_staff)


def operator_of(request: HttpRequest) -> Actor:
    """Who acts in the site. Whether he is an operator still is asked again in each write."""
    user: Any = request.user
    address = request.META.get("REMOTE_ADDR") or None
    return Actor(ActorKind.OPERATOR, user.id, user.email, address, OPERATOR)


def unregister_pages_of_others() -> None:
    """Close what packages bring along: their pages change people past the audit."""
    for model, page in list(admin.site._registry.items()):
        if not isinstance(page, OperatorPage):
            admin.site.unregister(model)
