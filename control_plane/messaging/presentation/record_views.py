"""Messages of a topic by REST: a few to look at, a few to send. For tools, not for streaming."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.idempotency import idempotent_call
from control_plane.api.pages import limit_of
from control_plane.api.queries import PAGE_PARAMETERS, number, text, time_of
from control_plane.messaging.callers import cell_of, refuse_if_suspended
from control_plane.messaging.logic import find_topic
from control_plane.messaging.presentation.group_serializers import INT32_MAX, INT64_MAX
from control_plane.messaging.presentation.on_behalf import AS_ACCOUNT, OnBehalfViewSet
from control_plane.messaging.presentation.record_serializers import (
    ProducedSerializer,
    ProduceSerializer,
    RecordsSerializer,
)
from control_plane.messaging.records import PEEK_BYTES_MAX, do_produce, peek
from control_plane.messaging.subscriptions import HEADERS
from control_plane.tenancy.errors import Invalid
from data_plane.contract import cell_operations_pb2 as messages

_STARTS = ("offset", "timestamp", "last")


class RecordViewSet(OnBehalfViewSet):
    """Messages of a topic."""

    serializer_class = RecordsSerializer
    actions: ClassVar = {"list": "message.read", "create": "message.write"}

    @extend_schema(
        parameters=[
            PAGE_PARAMETERS[0],
            AS_ACCOUNT,
            OpenApiParameter("partition", int, required=True),
            OpenApiParameter("offset", int, description="From this offset on."),
            OpenApiParameter(
                "timestamp", datetime, description="From the first one that is not older."
            ),
            OpenApiParameter("last", int, description="So many before the end."),
            OpenApiParameter("value_bytes_max", int, description="Longer values are cut."),
        ],
        responses=RecordsSerializer,
    )
    def list(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Messages of a partition, from the beginning if nothing else is said: `limit` of them and
        1 MiB at most."""
        topic = find_topic(self.organization_id, topic_id)
        caller = self.cell_caller(text(request, "service_account_id"))
        partition = number(request, "partition", 0, INT32_MAX)
        if partition is None:
            raise Invalid("Say which partition.", field="/partition")
        if sum(name in request.query_params for name in _STARTS) > 1:
            raise Invalid("Give one of offset, timestamp and last.", field="/offset")
        wanted = messages.PeekRequest(
            caller=caller,
            topic=topic.name,
            partition=partition,
            records_max=limit_of(request),
            bytes_max=PEEK_BYTES_MAX,
            value_bytes_max=number(request, "value_bytes_max", 1, PEEK_BYTES_MAX) or 0,
        )
        if (offset := number(request, "offset", 0, INT64_MAX)) is not None:
            wanted.offset = offset
        if (last := number(request, "last", 0, INT64_MAX)) is not None:
            wanted.last = last
        if (timestamp := time_of(request, "timestamp")) is not None:
            wanted.timestamp_ms = _ms(timestamp)
        return Response(RecordsSerializer(peek(cell_of(self.organization_id), wanted)).data)

    @extend_schema(request=ProduceSerializer, responses={201: ProducedSerializer})
    @idempotent_call
    def create(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Append up to 100 messages of 1 MiB together to a partition, in one batch. 503 with the
        code `outcome-unknown`: they may have been appended."""
        topic = find_topic(self.organization_id, topic_id)
        body = self.body(ProduceSerializer)
        caller = self.cell_caller(body.get("service_account_id"))
        refuse_if_suspended(self.caller.organization)
        if topic.configs.get(HEADERS) != "true" and any(map(_is_delayed, body["messages"])):
            words = f"{topic.name} delays nothing: it was made without {HEADERS}=true."
            raise Invalid(words, field="/messages")
        records = [_record(taken) for taken in body["messages"]]

        answer = do_produce(
            self.caller.actor,
            self.organization_id,
            cell_of(self.organization_id),
            caller,
            topic,
            body["partition"],
            records,
        )
        shown = {"partition": body["partition"], "base_offset": answer.base_offset}
        return Response(shown | {"messages": len(records)}, status=201)


def _is_delayed(taken: dict[str, Any]) -> bool:
    return "delay" in taken or "deliver_at" in taken


def _record(taken: dict[str, Any]) -> messages.Record:
    record = messages.Record(key=taken["key"], value=taken["value"])
    if "timestamp" in taken:
        record.timestamp_ms = _ms(taken["timestamp"])
    for header in taken["headers"]:
        record.headers.add(key=header["key"], value=header["value"])
    if "delay" in taken:
        record.headers.add(key="tw-delay", value=taken["delay"].encode())
    if "deliver_at" in taken:
        record.headers.add(key="tw-deliver-at", value=b"%d" % _ms(taken["deliver_at"]))
    return record


def _ms(at: datetime) -> int:
    return max(0, round(at.timestamp() * 1000))
