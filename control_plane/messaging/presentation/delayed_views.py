"""Messages of a topic that wait until they are due, by REST."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from datetime import datetime
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.idempotency import idempotent_call
from control_plane.api.pages import cursor_of, decoded_cursor, limit_of, no_cursor, page_body
from control_plane.api.queries import PAGE_PARAMETERS, number, text, time_of
from control_plane.messaging.callers import cell_of, refuse_if_suspended
from control_plane.messaging.delayed import (
    COUNTS_MAX,
    PAGE_BYTES_MAX,
    count_delayed,
    do_cancel_delayed,
    list_delayed,
)
from control_plane.messaging.logic import find_topic
from control_plane.messaging.presentation.delayed_serializers import (
    CancelDelayedSerializer,
    CancelledSerializer,
    DelayedCountSerializer,
    DelayedMessageSerializer,
    DelayedPageSerializer,
    DelayedRefusalSerializer,
)
from control_plane.messaging.presentation.group_serializers import INT32_MAX, INT64_MAX
from control_plane.messaging.presentation.on_behalf import AS_ACCOUNT, OnBehalfViewSet
from control_plane.tenancy.errors import Invalid
from data_plane.contract import cell_operations_pb2 as messages

INTERVAL_S_MAX = 366 * 24 * 3600
_POSITION = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


class DelayedViewSet(OnBehalfViewSet):
    """Messages of a topic that wait until they are due."""

    serializer_class = DelayedPageSerializer
    actions: ClassVar = {
        "list": "message.read",
        "count": "message.read",
        "cancel": "message.write",
    }

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            AS_ACCOUNT,
            OpenApiParameter("partition", int, required=True),
            OpenApiParameter("from", datetime, description="Due at or after it."),
            OpenApiParameter("until", datetime, description="Due before it."),
            OpenApiParameter("filter", str, description="Over their tags, as of a subscription."),
            OpenApiParameter("value_bytes_max", int, description="Longer values are cut."),
        ],
        responses=DelayedPageSerializer,
    )
    def list(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Pending messages of a partition by the time when they are due: `limit` of them and 1 MiB
        at most."""
        topic = find_topic(self.organization_id, topic_id)
        selection = messages.DelayedSelection(
            topic=topic.name,
            partition=_partition(request),
            filter=text(request, "filter") or "",
            after=_after(decoded_cursor(request)),
        )
        _set_times(selection, time_of(request, "from"), time_of(request, "until"))
        wanted = messages.ListDelayedRequest(
            caller=self.cell_caller(text(request, "service_account_id")),
            selection=selection,
            messages_max=limit_of(request),
            bytes_max=PAGE_BYTES_MAX,
            value_bytes_max=number(request, "value_bytes_max", 1, PAGE_BYTES_MAX) or 0,
        )
        page = list_delayed(cell_of(self.organization_id), wanted)
        items = DelayedMessageSerializer(page.messages, many=True).data
        return Response(page_body(items, _next_cursor(page)))

    @extend_schema(
        parameters=[
            AS_ACCOUNT,
            OpenApiParameter("partition", int, required=True),
            OpenApiParameter("from", datetime, description="Where the first interval begins."),
            OpenApiParameter("interval_s", int, description="How long each is; 3600 by default."),
            OpenApiParameter("intervals", int, description="How many; none by default."),
        ],
        responses=DelayedCountSerializer,
    )
    @action(detail=False)
    def count(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """How many messages of a partition are pending: in all, and by the intervals in which they
        are due."""
        topic = find_topic(self.organization_id, topic_id)
        intervals = number(request, "intervals", 1, COUNTS_MAX) or 0
        interval_ms = 1000 * (number(request, "interval_s", 1, INTERVAL_S_MAX) or 3600)
        start = time_of(request, "from")
        if intervals and start is None:
            raise Invalid("Say where the first interval begins.", field="/from")
        from_ms = 0 if start is None else _ms(start)
        edges = range(from_ms, from_ms + (intervals + 1) * interval_ms, interval_ms)
        wanted = messages.CountDelayedRequest(
            caller=self.cell_caller(text(request, "service_account_id")),
            topic=topic.name,
            partition=_partition(request),
            edges_ms=edges if intervals else (),
        )
        found = count_delayed(cell_of(self.organization_id), wanted)
        shown = {
            "count": found.count,
            "counts": list(found.counts),
            "from_ms": from_ms,
            "uncertain": found.uncertain,
            "first_ms": found.first_ms if found.HasField("first_ms") else None,
        }
        return Response(shown)

    @extend_schema(request=CancelDelayedSerializer, responses=CancelledSerializer)
    @action(detail=False, methods=["post"])
    @idempotent_call
    def cancel(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Cancel pending messages of a partition that match: they are never delivered. Up to 2,000
        at a time; ask again with `next_cursor` while there is one. What was delivered meanwhile is
        named in `refused`. 503 with the code `outcome-unknown`: some may be cancelled."""
        topic = find_topic(self.organization_id, topic_id)
        body = self.body(CancelDelayedSerializer)
        caller = self.cell_caller(body.get("service_account_id"))
        refuse_if_suspended(self.caller.organization)
        selection = messages.DelayedSelection(
            topic=topic.name,
            partition=body["partition"],
            filter=body["filter"],
            after=_after(_decoded(body.get("cursor"))),
        )
        _set_times(selection, body.get("from_time"), body.get("until_time"))
        answer = do_cancel_delayed(
            self.caller.actor,
            self.organization_id,
            cell_of(self.organization_id),
            caller,
            topic,
            selection,
        )
        shown = {
            "cancelled": len(answer.cancelled),
            "refused": DelayedRefusalSerializer(answer.refused, many=True).data,
            "next_cursor": _next_cursor(answer),
        }
        return Response(shown)


def _partition(request: Request) -> int:
    partition = number(request, "partition", 0, INT32_MAX)
    if partition is None:
        raise Invalid("Say which partition.", field="/partition")
    return partition


def _set_times(
    selection: messages.DelayedSelection, start: datetime | None, end: datetime | None
) -> None:
    if start is not None:
        selection.from_ms = _ms(start)
    if end is not None:
        selection.until_ms = _ms(end)


def _after(last: str | None) -> messages.DelayedPosition | None:
    """Of a decoded cursor. Raises Invalid."""
    if last is None:
        return None
    match = _POSITION.fullmatch(last)
    if match is None:
        raise no_cursor()
    deliver_at_ms, offset = map(int, match.groups())
    return messages.DelayedPosition(deliver_at_ms=deliver_at_ms, offset=min(offset, INT64_MAX))


def _decoded(cursor: str | None) -> str | None:
    """Of one in a body. Raises Invalid."""
    if not cursor:
        return None
    try:
        return urlsafe_b64decode(cursor.encode("ascii")).decode()
    except ValueError as error:
        raise no_cursor() from error


def _next_cursor(answer: Any) -> str | None:
    if not answer.HasField("next"):
        return None
    return cursor_of(f"{answer.next.deliver_at_ms}:{answer.next.offset}")


def _ms(at: datetime) -> int:
    return max(0, round(at.timestamp() * 1000))
