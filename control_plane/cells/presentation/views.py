"""Cells by REST: for operators, and to nobody else."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.facade import OPERATOR
from control_plane.api.authentication import actor_of
from control_plane.api.idempotency import idempotent
from control_plane.api.pages import page_body, page_of
from control_plane.api.queries import PAGE_PARAMETERS
from control_plane.api.views import RestViewSet
from control_plane.cells.logic import do_create_cell, do_update_cell
from control_plane.cells.models import Cell
from control_plane.cells.presentation.serializers import (
    CellCreateSerializer,
    CellPageSerializer,
    CellSerializer,
    CellUpdateSerializer,
)
from control_plane.tenancy.errors import NotFound


class CellViewSet(RestViewSet):
    """Cells: the clusters that tenants live in."""

    serializer_class = CellSerializer
    permission_classes = (IsAdminUser,)

    @extend_schema(parameters=PAGE_PARAMETERS, responses=CellPageSerializer)
    def list(self, request: Request) -> Response:
        """Cells with their brokers."""
        page, cursor = page_of(request, Cell.objects.prefetch_related("brokers"))
        return Response(page_body(list(CellSerializer(page, many=True).data), cursor))

    @extend_schema(request=CellCreateSerializer, responses={201: CellSerializer})
    @idempotent
    def create(self, request: Request) -> Response:
        """Add a cell, which takes tenants from now on."""
        body = self.body(CellCreateSerializer)
        cell = do_create_cell(actor_of(request, role=OPERATOR), body)
        return Response(CellSerializer(cell).data, status=201)

    @extend_schema(responses=CellSerializer)
    def retrieve(self, request: Request, cell_id: str) -> Response:
        """One cell."""
        return self._shown(cell_id)

    @extend_schema(request=CellUpdateSerializer, responses=CellSerializer)
    def partial_update(self, request: Request, cell_id: str) -> Response:
        """Drain it of newcomers, or change how many it takes and where it is."""
        body = self.body(CellUpdateSerializer, partial=True)
        do_update_cell(actor_of(request, role=OPERATOR), cell_id, body)
        return self._shown(cell_id)

    def _shown(self, cell_id: str) -> Response:
        cell = Cell.objects.prefetch_related("brokers").filter(id=cell_id).first()
        if cell is None:
            raise NotFound("There is no such cell.")
        return Response(CellSerializer(cell).data)
