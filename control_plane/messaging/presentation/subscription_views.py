"""Subscriptions by REST."""

from __future__ import annotations

from typing import ClassVar

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.api.idempotency import idempotent
from control_plane.api.pages import page_body, page_of
from control_plane.api.queries import PAGE_PARAMETERS, flag, text
from control_plane.api.schema import IF_MATCH
from control_plane.api.views import TenantViewSet
from control_plane.messaging.logic import (
    do_change_owner,
    do_create_subscription,
    do_delete_topic,
    do_undelete_topic,
    do_update_subscription,
    find_subscription,
)
from control_plane.messaging.models import ManagedBy
from control_plane.messaging.presentation.subscription_serializers import (
    SubscriptionCreateSerializer,
    SubscriptionPageSerializer,
    SubscriptionSerializer,
    SubscriptionUpdateSerializer,
)
from control_plane.messaging.subscriptions import subscriptions_of


class SubscriptionViewSet(TenantViewSet):
    """Subscriptions of an organization."""

    serializer_class = SubscriptionSerializer
    actions: ClassVar = {
        "list": "subscription.read",
        "retrieve": "subscription.read",
        "create": "subscription.write",
        "partial_update": "subscription.write",
        "destroy": "subscription.write",
        "undelete": "subscription.write",
    }

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("name", str, description="Exactly this name."),
            OpenApiParameter("source", str, description="Those of this topic."),
            OpenApiParameter("deleted", bool, description="Those that can be had back."),
        ],
        responses=SubscriptionPageSerializer,
    )
    def list(self, request: Request, organization_id: str) -> Response:
        """Subscriptions, in the order of making."""
        rows = subscriptions_of(self.organization_id, text(request, "source"))
        if (name := text(request, "name")) is not None:
            rows = rows.filter(name=name)
        if (deleted := flag(request, "deleted")) is not None:
            rows = rows.filter(purge_after__isnull=not deleted)
        page, cursor = page_of(request, rows)
        return Response(page_body(SubscriptionSerializer(page, many=True).data, cursor))

    @extend_schema(request=SubscriptionCreateSerializer, responses={201: SubscriptionSerializer})
    @idempotent
    def create(self, request: Request, organization_id: str) -> Response:
        """Declare a subscription over a topic with tags."""
        body = self.body(SubscriptionCreateSerializer)
        subscription = do_create_subscription(
            self.caller.actor,
            self.organization_id,
            body["name"],
            body["spec"]["source"],
            body["spec"]["filter"],
            deletion_protection=body["deletion_protection"],
        )
        return self.shown(subscription, 201)

    @extend_schema(responses=SubscriptionSerializer)
    def retrieve(self, request: Request, organization_id: str, subscription_id: str) -> Response:
        """One subscription."""
        return self.shown(find_subscription(self.organization_id, subscription_id))

    @extend_schema(request=SubscriptionUpdateSerializer, responses=SubscriptionSerializer)
    def partial_update(
        self, request: Request, organization_id: str, subscription_id: str
    ) -> Response:
        """Change what is given. Another filter holds from the next fetch on; offsets stay."""
        body = self.body(SubscriptionUpdateSerializer, partial=True)
        subscription = find_subscription(self.organization_id, subscription_id)
        who = (self.caller.actor, self.organization_id, subscription_id)
        if_match = self.if_match
        with transaction.atomic():
            if "managed_by" in body:
                owner = ManagedBy(body["managed_by"])
                subscription = do_change_owner(*who, owner, if_match)
                if_match = None
            if "managed_by" not in body or len(body) > 1:
                subscription = do_update_subscription(
                    *who,
                    filter_text=body.get("spec", {}).get("filter"),
                    deletion_protection=body.get("deletion_protection"),
                    if_match=if_match,
                )
        return self.shown(subscription)

    @extend_schema(
        parameters=[IF_MATCH, OpenApiParameter("purge", bool, description="For good.")],
        request=None,
        responses={202: SubscriptionSerializer},
    )
    def destroy(self, request: Request, organization_id: str, subscription_id: str) -> Response:
        """Delete: it can be had back for seven days, or, with `purge`, not at all."""
        find_subscription(self.organization_id, subscription_id)
        deleted = do_delete_topic(
            self.caller.actor,
            self.organization_id,
            subscription_id,
            if_match=self.if_match,
            purge=flag(request, "purge") or False,
        )
        return self.shown(deleted, 202)

    @extend_schema(request=None, responses=SubscriptionSerializer)
    @action(detail=True, methods=["post"])
    def undelete(self, request: Request, organization_id: str, subscription_id: str) -> Response:
        """Have a deleted subscription back."""
        find_subscription(self.organization_id, subscription_id)
        subscription = do_undelete_topic(self.caller.actor, self.organization_id, subscription_id)
        return self.shown(subscription)
