"""Topics in the operators' site: where the cell is with them, and no messages."""

from __future__ import annotations

from django.contrib import admin

from control_plane.messaging.models import Topic
from control_plane.tenancy.operator_site import ShownOnly


@admin.register(Topic)
class TopicAdmin(ShownOnly):
    list_display = (
        *("name", "organization", "status", "status_reason", "managed_by"),
        *("partitions", "generation", "observed_generation", "updated_at"),
    )
    list_filter = ("status", "managed_by")
    list_select_related = ("organization",)
    search_fields = ("name", "id", "organization__slug")
