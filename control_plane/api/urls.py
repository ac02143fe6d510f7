"""Addresses of REST, below /api/v1/. Ids are matched by their form: what cannot be one is 404."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.urls import URLPattern, path, register_converter

from control_plane.access.presentation.views import (
    ApiKeyViewSet,
    GrantViewSet,
    ServiceAccountViewSet,
)
from control_plane.accounts.presentation.views import (
    AcceptInvitationViewSet,
    InvitationViewSet,
    MemberViewSet,
    MeViewSet,
    OrganizationsViewSet,
    OrganizationViewSet,
)
from control_plane.api.documents import DocumentsView, SchemaView
from control_plane.cells.presentation.views import CellViewSet
from control_plane.messaging.presentation.delayed_views import DelayedViewSet
from control_plane.messaging.presentation.group_views import GroupViewSet, OffsetResetViewSet
from control_plane.messaging.presentation.record_views import RecordViewSet
from control_plane.messaging.presentation.redrive_views import RedriveViewSet
from control_plane.messaging.presentation.subscription_views import SubscriptionViewSet
from control_plane.messaging.presentation.views import TopicViewSet
from control_plane.operations.presentation.views import AuditEventViewSet, OperationViewSet
from control_plane.quotas.presentation.views import QuotaViewSet
from control_plane.tenancy.ids import ALPHABET, CHARACTERS
from control_plane.usage.presentation.views import UsageViewSet


class IdConverter:
    """`top_` and 26 characters; of which kind says the view, by finding it or not."""

    regex = f"[a-z]{{1,8}}_[{ALPHABET}]{{{CHARACTERS}}}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(IdConverter, "id")

COLLECTION: dict[str, Any] = {"get": "list", "post": "create"}
ONE: dict[str, Any] = {"get": "retrieve", "patch": "partial_update", "delete": "destroy"}
ORGANIZATION = "organizations/<id:organization_id>/"


def _served(view: Any, methods: Mapping[str, str]) -> dict[str, Any]:
    return {method: handler for method, handler in methods.items() if hasattr(view, handler)}


def _resource(name: str, view: Any, key: str, *, under: str = ORGANIZATION) -> list[URLPattern]:
    """A collection and its members, with the methods that the view has."""
    patterns = [path(f"{under}{name}", view.as_view(_served(view, COLLECTION)))]
    one = _served(view, ONE)
    if one:
        patterns.append(path(f"{under}{name}/<id:{key}>", view.as_view(one)))
    return patterns


def _post(address: str, view: Any, handler: str) -> URLPattern:
    served: URLPattern = path(f"{ORGANIZATION}{address}", view.as_view({"post": handler}))
    return served


urlpatterns = [
    path("openapi.json", SchemaView.as_view(), name="schema"),
    path("docs", DocumentsView.as_view(url_name="schema"), name="docs"),
    path("me", MeViewSet.as_view({"get": "list"})),
    path("invitations/accept", AcceptInvitationViewSet.as_view({"post": "create"})),
    path("organizations", OrganizationsViewSet.as_view(COLLECTION)),
    path("organizations/<id:organization_id>", OrganizationViewSet.as_view(ONE)),
    _post("suspend", OrganizationViewSet, "suspend"),
    _post("resume", OrganizationViewSet, "resume"),
    *_resource("members", MemberViewSet, "member_id"),
    *_resource("invitations", InvitationViewSet, "invitation_id"),
    *_resource("service-accounts", ServiceAccountViewSet, "service_account_id"),
    *_resource("api-keys", ApiKeyViewSet, "api_key_id"),
    _post("api-keys/<id:api_key_id>/rotate", ApiKeyViewSet, "rotate"),
    *_resource("grants", GrantViewSet, "grant_id"),
    *_resource("topics", TopicViewSet, "topic_id"),
    _post("topics/read", TopicViewSet, "read"),
    _post("topics/<id:topic_id>/undelete", TopicViewSet, "undelete"),
    *_resource("topics/<id:topic_id>/messages", RecordViewSet, "offset"),
    *_resource("topics/<id:topic_id>/delayed", DelayedViewSet, "offset"),
    path(
        f"{ORGANIZATION}topics/<id:topic_id>/delayed/count",
        DelayedViewSet.as_view({"get": "count"}),
    ),
    _post("topics/<id:topic_id>/delayed/cancel", DelayedViewSet, "cancel"),
    *_resource("topics/<id:topic_id>/redrives", RedriveViewSet, "operation_id"),
    path(
        f"{ORGANIZATION}topics/<id:topic_id>/redrives/redriven",
        RedriveViewSet.as_view({"get": "redriven"}),
    ),
    _post("topics/<id:topic_id>/redrives/change", RedriveViewSet, "change"),
    *_resource("subscriptions", SubscriptionViewSet, "subscription_id"),
    _post("subscriptions/<id:subscription_id>/undelete", SubscriptionViewSet, "undelete"),
    path(f"{ORGANIZATION}groups", GroupViewSet.as_view({"get": "list"})),
    # A group's id may have anything in it.
    path(f"{ORGANIZATION}groups/<path:group_id>", GroupViewSet.as_view({"get": "retrieve"})),
    _post("offset-resets", OffsetResetViewSet, "create"),
    path(
        f"{ORGANIZATION}quota",
        QuotaViewSet.as_view({"get": "list", "patch": "partial_update"}),
    ),
    path(f"{ORGANIZATION}usage", UsageViewSet.as_view({"get": "list"})),
    path(f"{ORGANIZATION}usage/topics", UsageViewSet.as_view({"get": "topics"})),
    *_resource("audit-events", AuditEventViewSet, "audit_event_id"),
    *_resource("operations", OperationViewSet, "operation_id"),
    *_resource("cells", CellViewSet, "cell_id", under=""),
]
