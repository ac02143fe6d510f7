"""Use by REST: series, and totals by topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.pages import cursor_of, decoded_cursor, limit_of, no_cursor, page_body
from control_plane.api.queries import PAGE_PARAMETERS, choice, text, time_of
from control_plane.api.views import TenantViewSet
from control_plane.tenancy.errors import Invalid
from control_plane.usage.logic import RESOLUTIONS, series_of, topics_between
from control_plane.usage.presentation.serializers import (
    TopicUsePageSerializer,
    TopicUseSerializer,
    UsagePageSerializer,
    UsageSerializer,
)

# What is shown when nobody says from when on.
SHOWN = {"10s": timedelta(hours=1), "minute": timedelta(days=1), "hour": timedelta(days=30)}
RANGE_PARAMETERS = [
    OpenApiParameter("from", datetime, description="Intervals that begin then or later."),
    OpenApiParameter("to", datetime, description="Intervals that begin before; now, if not given."),
]


class UsageViewSet(TenantViewSet):
    """What an organization has used."""

    serializer_class = UsageSerializer
    actions: ClassVar = {"list": "usage.read", "topics": "usage.read"}

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            *RANGE_PARAMETERS,
            OpenApiParameter("resolution", str, enum=list(RESOLUTIONS)),
            OpenApiParameter("topic", str, description="Of this topic alone, which is by hour."),
        ],
        responses=UsagePageSerializer,
    )
    def list(self, request: Request, organization_id: str) -> Response:
        """A series, in order, by hour if nothing else is said. Intervals without use are left
        out."""
        resolution = choice(request, "resolution", [*RESOLUTIONS]) or "hour"
        topic_name = text(request, "topic")
        if topic_name is not None and resolution != "hour":
            raise Invalid("Topics are counted by hour.", field="/resolution")
        start, end = _range_of(request, SHOWN[resolution])
        rows = series_of(self.organization_id, resolution, topic_name, start, end)
        limit = limit_of(request)
        after = decoded_cursor(request)
        if after is not None:
            rows = rows.filter(starts_at__gt=_time_in(after))
        found = [*rows[: limit + 1]]
        more = len(found) > limit
        last = str(int(found[limit - 1].starts_at.timestamp())) if more else None
        items = UsageSerializer(found[:limit], many=True).data
        return Response({"resolution": resolution} | page_body(items, cursor_of(last)))

    @extend_schema(
        parameters=[*PAGE_PARAMETERS, *RANGE_PARAMETERS], responses=TopicUsePageSerializer
    )
    @action(detail=False, methods=["get"])
    def topics(self, request: Request, organization_id: str) -> Response:
        """What each topic has used in whole hours, by name; in 30 days, if nothing else is said."""
        start, end = _range_of(request, SHOWN["hour"])
        rows = topics_between(self.organization_id, start, end)
        limit = limit_of(request)
        after = decoded_cursor(request)
        if after is not None:
            if not after.isprintable():
                raise no_cursor()
            rows = rows.filter(topic_name__gt=after)
        found = [*rows[: limit + 1]]
        last = found[limit - 1]["topic_name"] if len(found) > limit else None
        items = TopicUseSerializer(found[:limit], many=True).data
        return Response(page_body(items, cursor_of(last)))


def _range_of(request: Request, shown: timedelta) -> tuple[datetime, datetime]:
    end = time_of(request, "to") or timezone.now()
    try:
        return time_of(request, "from") or end - shown, end
    except OverflowError as error:
        raise Invalid("There was no such time.", field="/to") from error


def _time_in(cursor: str) -> datetime:
    try:
        return datetime.fromtimestamp(int(cursor), UTC)
    except (ValueError, OverflowError, OSError):
        raise no_cursor() from None
