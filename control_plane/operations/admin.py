"""Stuck resources, audit and operations in the operators' site."""

from __future__ import annotations

from django.contrib import admin

from control_plane.operations.models import AuditEvent, Operation, OutboxEntry
from control_plane.tenancy.operator_site import ShownOnly, StuckFilter


@admin.register(OutboxEntry)
class OutboxEntryAdmin(ShownOnly):
    list_display = (
        *("organization", "sequence", "kind", "resource_id", "generation"),
        *("attempts", "last_error", "not_before", "done_at"),
    )
    list_filter = (StuckFilter, "kind")
    list_select_related = ("organization",)
    search_fields = ("resource_id", "organization__slug")


@admin.register(AuditEvent)
class AuditEventAdmin(ShownOnly):
    list_display = ("at", "organization_id", "actor_kind", "actor_name", "action", "resource_name")
    list_filter = ("actor_kind",)
    search_fields = ("organization_id", "resource_id", "actor_id")


@admin.register(Operation)
class OperationAdmin(ShownOnly):
    list_display = ("organization", "kind", "status", "error", "created_at", "finished_at")
    list_filter = ("status", "kind")
    list_select_related = ("organization",)
