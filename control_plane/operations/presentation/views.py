"""Audit events and long-running operations by REST."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.facade import OPERATOR
from control_plane.api.pages import page_body, page_of
from control_plane.api.queries import PAGE_PARAMETERS, choice, text
from control_plane.api.views import TenantViewSet
from control_plane.operations.models import AuditEvent, Operation, OperationStatus
from control_plane.operations.presentation.serializers import (
    AuditEventPageSerializer,
    AuditEventSerializer,
    OperationPageSerializer,
    OperationSerializer,
)
from control_plane.tenancy.errors import NotFound


class AuditEventViewSet(TenantViewSet):
    """Who did what."""

    serializer_class = AuditEventSerializer
    actions: ClassVar = {"list": "audit.read"}

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("resource_id", str, description="What happened to this."),
            OpenApiParameter("actor_id", str, description="What this one did."),
            OpenApiParameter("action", str, description="As `topic.create`."),
        ],
        responses=AuditEventPageSerializer,
    )
    def list(self, request: Request, organization_id: str) -> Response:
        """Audit events, the newest first."""
        events = AuditEvent.objects.filter(organization_id=self.organization_id)
        for name in ("resource_id", "actor_id", "action"):
            if (value := text(request, name)) is not None:
                events = events.filter(**{name: value})
        page, cursor = page_of(request, events, newest_first=True)
        context = {"is_operator": self.caller.role == OPERATOR}
        shown = AuditEventSerializer(page, many=True, context=context).data
        return Response(page_body(shown, cursor))


class OperationViewSet(TenantViewSet):
    """What takes longer than a request."""

    serializer_class = OperationSerializer
    actions: ClassVar = {"list": "operation.read", "retrieve": "operation.read"}

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("status", str, enum=OperationStatus.values),
            OpenApiParameter("resource_id", str, description="What is done to this."),
        ],
        responses=OperationPageSerializer,
    )
    def list(self, request: Request, organization_id: str) -> Response:
        """Operations, the newest first: what was asked for, and takes longer than its request."""
        operations = Operation.objects.of(self.organization_id)
        if (status := choice(request, "status", OperationStatus.values)) is not None:
            operations = operations.filter(status=status)
        if (resource_id := text(request, "resource_id")) is not None:
            operations = operations.filter(resource_id=resource_id)
        page, cursor = page_of(request, operations, newest_first=True)
        return Response(page_body(OperationSerializer(page, many=True).data, cursor))

    @extend_schema(responses=OperationSerializer)
    def retrieve(self, request: Request, organization_id: str, operation_id: str) -> Response:
        """One operation."""
        operation = Operation.objects.of(self.organization_id).filter(id=operation_id).first()
        if operation is None:
            raise NotFound("There is no such operation.")
        return self.shown(operation)
