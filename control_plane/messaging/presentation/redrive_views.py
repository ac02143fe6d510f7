"""Dead letters of a topic that are put back or purged, by REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.idempotency import idempotent_call
from control_plane.api.queries import number, text
from control_plane.messaging.callers import cell_of, refuse_if_suspended
from control_plane.messaging.logic import find_topic
from control_plane.messaging.presentation.group_serializers import INT32_MAX, INT64_MAX
from control_plane.messaging.presentation.on_behalf import AS_ACCOUNT, OnBehalfViewSet
from control_plane.messaging.presentation.redrive_serializers import (
    BeginRedriveSerializer,
    ChangeRedriveSerializer,
    RedrivenSerializer,
    RedriveSerializer,
    RedrivesSerializer,
)
from control_plane.messaging.redrives import (
    WISHES,
    do_begin_redrive,
    do_change_redrive,
    list_redriven,
    list_redrives,
)
from control_plane.tenancy.errors import Invalid
from data_plane.contract import cell_operations_pb2 as messages

_PARTITION = OpenApiParameter("partition", int, required=True)


class RedriveViewSet(OnBehalfViewSet):
    """Operations that put dead letters back, or purge them."""

    serializer_class = RedrivesSerializer
    actions: ClassVar = {
        "list": "message.read",
        "redriven": "message.read",
        "create": "message.write",
        "change": "message.write",
    }

    @extend_schema(parameters=[AS_ACCOUNT, _PARTITION], responses=RedrivesSerializer)
    def list(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """The operations of a partition: those under way, and the last twenty that are over."""
        topic = find_topic(self.organization_id, topic_id)
        wanted = messages.ListRedrivesRequest(
            caller=self.cell_caller(text(request, "service_account_id")),
            topic=topic.name,
            partition=_partition(request),
        )
        found = list_redrives(cell_of(self.organization_id), wanted)
        items = RedriveSerializer(found.redrives, many=True).data
        return Response({"items": items, "next_cursor": None})

    @extend_schema(
        parameters=[
            AS_ACCOUNT,
            _PARTITION,
            OpenApiParameter("from_offset", int, description="0 by default."),
            OpenApiParameter("until_offset", int, description="Up to before it."),
        ],
        responses=RedrivenSerializer,
    )
    @action(detail=False)
    def redriven(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Which dead letters of a partition were redriven, and which were purged: of up to 100,000
        offsets at a time."""
        topic = find_topic(self.organization_id, topic_id)
        from_offset = number(request, "from_offset", 0, INT64_MAX) or 0
        until_offset = number(request, "until_offset", 0, INT64_MAX)
        if until_offset is None:
            until_offset = INT64_MAX
        if until_offset < from_offset:
            raise Invalid("The last offset comes before the first.", field="/until_offset")
        wanted = messages.ListRedrivenRequest(
            caller=self.cell_caller(text(request, "service_account_id")),
            topic=topic.name,
            partition=_partition(request),
            from_offset=from_offset,
            until_offset=until_offset,
        )
        found = list_redriven(cell_of(self.organization_id), wanted)
        return Response(RedrivenSerializer(found).data)

    @extend_schema(request=BeginRedriveSerializer, responses={201: RedriveSerializer})
    @idempotent_call
    def create(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Begin to put dead letters of a partition back, or to purge them. The cell goes on by
        itself; one operation of a partition is under way at a time. 503 with the code
        `outcome-unknown`: it may have begun; ask again with the same `operation_id`."""
        topic = find_topic(self.organization_id, topic_id)
        body = self.body(BeginRedriveSerializer)
        if body["purge"] and body["target_topic"]:
            raise Invalid("What is purged goes nowhere.", field="/target_topic")
        caller = self.cell_caller(body.get("service_account_id"))
        refuse_if_suspended(self.caller.organization)
        wanted = messages.BeginRedriveRequest(
            caller=caller,
            topic=topic.name,
            partition=body["partition"],
            id=body["operation_id"],
            is_purge=body["purge"],
            selection=_selection(body["selection"]),
            target_topic=body["target_topic"],
            rate_max=body["rate_max"],
        )
        begun = do_begin_redrive(
            self.caller.actor,
            self.organization_id,
            cell_of(self.organization_id),
            topic,
            wanted,
        )
        return Response(RedriveSerializer(begun).data, status=201)

    @extend_schema(request=ChangeRedriveSerializer, responses=RedriveSerializer)
    @action(detail=False, methods=["post"])
    @idempotent_call
    def change(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Pause, resume or cancel an operation. What is on its way arrives first."""
        topic = find_topic(self.organization_id, topic_id)
        body = self.body(ChangeRedriveSerializer)
        caller = self.cell_caller(body.get("service_account_id"))
        refuse_if_suspended(self.caller.organization)
        wanted = messages.ChangeRedriveRequest(
            caller=caller,
            topic=topic.name,
            partition=body["partition"],
            id=body["operation_id"],
            wish=WISHES[body["wish"]],
        )
        changed = do_change_redrive(
            self.caller.actor,
            self.organization_id,
            cell_of(self.organization_id),
            topic,
            wanted,
            body["wish"],
        )
        return Response(RedriveSerializer(changed).data)


def _partition(request: Request) -> int:
    partition = number(request, "partition", 0, INT32_MAX)
    if partition is None:
        raise Invalid("Say which partition.", field="/partition")
    return partition


def _selection(body: dict[str, Any]) -> messages.DeadLetterSelection:
    return messages.DeadLetterSelection(
        filter=body["filter"],
        from_ms=_ms(body.get("from_time")),
        until_ms=_ms(body.get("until_time")),
        from_offset=body.get("from_offset"),
        until_offset=body.get("until_offset"),
        offsets=body["offsets"],
        ids=body["message_ids"],
        reason=body["reason"],
        exception=body["exception"],
        all=body["all"],
        again=body["again"],
    )


def _ms(at: datetime | None) -> int | None:
    return None if at is None else max(0, round(at.timestamp() * 1000))
