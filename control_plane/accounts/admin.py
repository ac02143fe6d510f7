"""Tenants and people in the operators' site: their health, suspending and resuming; no messages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest

from control_plane.accounts.logic import do_resume, do_suspend
from control_plane.accounts.models import Membership, Organization, User
from control_plane.operations.facade import record_audit
from control_plane.tenancy.errors import Refused
from control_plane.tenancy.operator_site import OperatorPage, ShownOnly, operator_of

SUSPENDED_BY_OPERATOR = "An operator has suspended it. Write to support."


@admin.register(Organization)
class OrganizationAdmin(ShownOnly):
    list_display = (
        *("slug", "name", "state", "plan", "status", "status_reason"),
        *("generation", "observed_generation", "created_at"),
    )
    list_filter = ("state", "status", "plan")
    list_select_related = ("plan",)
    search_fields = ("slug", "name", "id")
    actions = ("suspend", "resume")

    @admin.action(description="Suspend: reads go on, writes are refused")
    def suspend(self, request: HttpRequest, queryset: models.QuerySet[Organization]) -> None:
        for organization in queryset:
            try:
                do_suspend(operator_of(request), organization.id, SUSPENDED_BY_OPERATOR)
            except Refused as refusal:
                self.message_user(request, f"{organization}: {refusal}", messages.ERROR)

    @admin.action(description="Resume")
    def resume(self, request: HttpRequest, queryset: models.QuerySet[Organization]) -> None:
        for organization in queryset:
            try:
                do_resume(operator_of(request), organization.id)
            except Refused as refusal:
                self.message_user(request, f"{organization}: {refusal}", messages.ERROR)


@admin.register(User)
class UserAdmin(OperatorPage):
    # Neither the password nor the address.
    fields = ("name", "is_active", "is_staff")
    list_display = ("email", "name", "is_active", "is_staff", "date_joined", "last_login")
    list_filter = ("is_active", "is_staff")
    search_fields = ("email", "id")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Who could make operators could make himself one everywhere.
        return bool(getattr(request.user, "is_superuser", False))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        changes = {name: str(form.cleaned_data[name]) for name in form.changed_data}
        record_audit(operator_of(request), "", "user.update", obj.id, obj.email, changes)


@admin.register(Membership)
class MembershipAdmin(ShownOnly):
    list_display = ("organization", "user", "role", "created_at")
    list_filter = ("role",)
    list_select_related = ("organization", "user")
    search_fields = ("organization__slug", "user__email")
