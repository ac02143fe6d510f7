"""Topics by REST."""

from __future__ import annotations

from typing import ClassVar

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.idempotency import idempotent
from control_plane.api.pages import page_body, page_of
from control_plane.api.queries import PAGE_PARAMETERS, choice, flag, text
from control_plane.api.schema import IF_MATCH
from control_plane.api.views import TenantViewSet
from control_plane.messaging.logic import (
    TopicSpec,
    do_change_owner,
    do_create_topic,
    do_delete_topic,
    do_undelete_topic,
    do_update_topic,
    find_plain_topic,
)
from control_plane.messaging.models import ManagedBy, Topic
from control_plane.messaging.presentation.serializers import (
    TopicBulkSerializer,
    TopicCreateSerializer,
    TopicPageSerializer,
    TopicSerializer,
    TopicUpdateSerializer,
)
from control_plane.messaging.subscriptions import IS_SUBSCRIPTION
from control_plane.tenancy.models import ResourceStatus


class TopicViewSet(TenantViewSet):
    """Topics of an organization."""

    serializer_class = TopicSerializer
    actions: ClassVar = {
        "list": "topic.read",
        "retrieve": "topic.read",
        "read": "topic.read",
        "create": "topic.write",
        "partial_update": "topic.write",
        "destroy": "topic.write",
        "undelete": "topic.write",
    }

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("name", str, description="Exactly this name."),
            OpenApiParameter("name_prefix", str, description="Names that begin so."),
            OpenApiParameter("status", str, enum=ResourceStatus.values),
            OpenApiParameter("managed_by", str, enum=ManagedBy.values),
            OpenApiParameter("deleted", bool, description="Those that can be had back."),
        ],
        responses=TopicPageSerializer,
    )
    def list(self, request: Request, organization_id: str) -> Response:
        """Topics, in the order of making. Subscriptions are listed by themselves."""
        topics = Topic.objects.of(self.organization_id).exclude(IS_SUBSCRIPTION)
        if (name := text(request, "name")) is not None:
            topics = topics.filter(name=name)
        if (prefix := text(request, "name_prefix")) is not None:
            topics = topics.filter(name__startswith=prefix)
        if (status := choice(request, "status", ResourceStatus.values)) is not None:
            topics = topics.filter(status=status)
        if (owner := choice(request, "managed_by", ManagedBy.values)) is not None:
            topics = topics.filter(managed_by=owner)
        if (deleted := flag(request, "deleted")) is not None:
            topics = topics.filter(purge_after__isnull=not deleted)
        page, cursor = page_of(request, topics)
        return Response(page_body(TopicSerializer(page, many=True).data, cursor))

    @extend_schema(request=TopicCreateSerializer, responses={201: TopicSerializer})
    @idempotent
    def create(self, request: Request, organization_id: str) -> Response:
        """Declare a topic."""
        body = self.body(TopicCreateSerializer)
        topic = do_create_topic(
            self.caller.actor,
            self.organization_id,
            body["name"],
            TopicSpec(**body["spec"]),
            deletion_protection=body["deletion_protection"],
        )
        return self.shown(topic, 201)

    @extend_schema(responses=TopicSerializer)
    def retrieve(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """One topic."""
        return self.shown(find_plain_topic(self.organization_id, topic_id))

    @extend_schema(request=TopicUpdateSerializer, responses=TopicSerializer)
    def partial_update(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Change what is given; If-Match refuses what would undo somebody else's change."""
        body = self.body(TopicUpdateSerializer, partial=True)
        find_plain_topic(self.organization_id, topic_id)
        if_match = self.if_match
        with transaction.atomic():
            topic = None
            if "managed_by" in body:
                topic = do_change_owner(
                    self.caller.actor,
                    self.organization_id,
                    topic_id,
                    ManagedBy(body["managed_by"]),
                    if_match,
                )
                if_match = None
            if topic is None or "spec" in body or "deletion_protection" in body:
                spec = body.get("spec", {})
                topic = do_update_topic(
                    self.caller.actor,
                    self.organization_id,
                    topic_id,
                    partitions=spec.get("partitions"),
                    configs=spec.get("configs"),
                    deletion_protection=body.get("deletion_protection"),
                    if_match=if_match,
                )
        return self.shown(topic)

    @extend_schema(
        parameters=[
            IF_MATCH,
            OpenApiParameter("purge", bool, description="At once, and for good."),
        ],
        request=None,
        responses={202: TopicSerializer},
    )
    def destroy(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Delete: it can be had back for seven days, or, with `purge`, not at all."""
        find_plain_topic(self.organization_id, topic_id)
        topic = do_delete_topic(
            self.caller.actor,
            self.organization_id,
            topic_id,
            if_match=self.if_match,
            purge=flag(request, "purge") or False,
        )
        return self.shown(topic, 202)

    @extend_schema(request=None, responses=TopicSerializer)
    @action(detail=True, methods=["post"])
    def undelete(self, request: Request, organization_id: str, topic_id: str) -> Response:
        """Have a deleted topic back."""
        find_plain_topic(self.organization_id, topic_id)
        return self.shown(do_undelete_topic(self.caller.actor, self.organization_id, topic_id))

    @extend_schema(request=TopicBulkSerializer, responses=TopicPageSerializer)
    @action(detail=False, methods=["post"])
    def read(self, request: Request, organization_id: str) -> Response:
        """Many topics at once, by id or name; what there is not is left out."""
        body = self.body(TopicBulkSerializer)
        topics = Topic.objects.of(self.organization_id).exclude(IS_SUBSCRIPTION)
        found = {
            topic.id: topic
            for topic in (
                *topics.filter(id__in=body.get("ids", [])),
                *topics.filter(name__in=body.get("names", [])),
            )
        }
        ordered = [found[topic_id] for topic_id in sorted(found)]
        return Response(page_body(TopicSerializer(ordered, many=True).data, None))
