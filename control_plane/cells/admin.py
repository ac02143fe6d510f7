"""Cells and brokers in the operators' site. Cells are made and changed here, with their audit."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from control_plane.cells.models import BrokerStatus, Cell, Placement
from control_plane.operations.facade import record_audit
from control_plane.tenancy.operator_site import OperatorPage, ShownOnly, operator_of


@admin.register(Cell)
class CellAdmin(OperatorPage):
    list_display = (
        *("name", "region", "is_accepting", "tenants_max", "partitions_max"),
        *("last_seen_at", "last_error"),
    )
    list_filter = ("is_accepting",)
    readonly_fields = ("id", "cluster_id", "metadata_version", "last_seen_at", "last_error")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        action = "cell.update" if change else "cell.create"
        changes = {name: str(form.cleaned_data[name]) for name in form.changed_data}
        record_audit(operator_of(request), "", action, obj.id, obj.name, changes)


@admin.register(BrokerStatus)
class BrokerStatusAdmin(ShownOnly):
    list_display = (
        *("cell", "node_id", "host", "port", "rack", "is_fenced", "is_draining"),
        *("partitions", "leaders", "seen_at"),
    )
    ordering = ("cell", "node_id")
    list_filter = ("cell", "is_fenced", "is_draining")
    list_select_related = ("cell",)


@admin.register(Placement)
class PlacementAdmin(ShownOnly):
    list_display = ("organization", "cell", "created_at")
    list_filter = ("cell",)
    list_select_related = ("organization", "cell")
    search_fields = ("organization__slug",)
