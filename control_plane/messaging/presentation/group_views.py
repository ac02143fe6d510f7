"""Consumer groups by REST, as the cell has them."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.idempotency import idempotent_call
from control_plane.api.pages import cursor_of, decoded_cursor, limit_of, page_body
from control_plane.api.queries import PAGE_PARAMETERS, text
from control_plane.messaging.callers import cell_of, refuse_if_suspended
from control_plane.messaging.groups import Target, do_reset_offsets, list_groups, show_group
from control_plane.messaging.presentation.group_serializers import (
    GroupPageSerializer,
    GroupSerializer,
    GroupSummarySerializer,
    MovedOffsetSerializer,
    OffsetResetResultSerializer,
    OffsetResetSerializer,
)
from control_plane.messaging.presentation.on_behalf import AS_ACCOUNT, OnBehalfViewSet


class GroupViewSet(OnBehalfViewSet):
    """Consumer groups of an organization, as a service account may see them."""

    serializer_class = GroupSerializer
    actions: ClassVar = {"list": "group.read", "retrieve": "group.read"}

    @extend_schema(parameters=[*PAGE_PARAMETERS, AS_ACCOUNT], responses=GroupPageSerializer)
    def list(self, request: Request, organization_id: str) -> Response:
        """Groups, by id."""
        caller = self.cell_caller(text(request, "service_account_id"))
        after = decoded_cursor(request) or ""
        page = list_groups(cell_of(self.organization_id), caller, limit_of(request), after)
        items = GroupSummarySerializer(page.groups, many=True).data
        body = page_body(items, cursor_of(page.last))
        return Response(body | {"is_complete": page.is_complete})

    @extend_schema(parameters=[AS_ACCOUNT], responses=GroupSerializer)
    def retrieve(self, request: Request, organization_id: str, group_id: str) -> Response:
        """One group: members, committed offsets and lag by partition."""
        caller = self.cell_caller(text(request, "service_account_id"))
        group = show_group(cell_of(self.organization_id), caller, group_id)
        return Response(GroupSerializer(group).data)


class OffsetResetViewSet(OnBehalfViewSet):
    """Other offsets for groups."""

    serializer_class = OffsetResetResultSerializer
    actions: ClassVar = {"create": "group.write"}

    @extend_schema(request=OffsetResetSerializer, responses={200: OffsetResetResultSerializer})
    @idempotent_call
    def create(self, request: Request, organization_id: str) -> Response:
        """Have a group go on elsewhere, all partitions or none. It is refused while the group has
        members; `dry_run` says what would change, and changes nothing."""
        body = self.body(OffsetResetSerializer)
        caller = self.cell_caller(body.get("service_account_id"))
        if not body["dry_run"]:
            refuse_if_suspended(self.caller.organization)

        moved = do_reset_offsets(
            self.caller.actor,
            self.organization_id,
            cell_of(self.organization_id),
            caller,
            body["group_id"],
            [Target(**target) for target in body["targets"]],
            dry_run=body["dry_run"],
        )
        items = MovedOffsetSerializer(moved, many=True).data
        shown = {"group_id": body["group_id"], "dry_run": body["dry_run"], "items": items}
        return Response(shown)
