"""The base of all resources of a tenant: who asks, for which organization, and whether he may.

    class TopicViewSet(TenantViewSet):
        actions = {"list": "topic.read", "create": "topic.write", ...}

Invariants
- An organization that the caller does not belong to is not found, as one that does not exist.
- Every handler has its line in `actions`, whose right is a row of accounts/roles.py. One without is
  refused to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.viewsets import GenericViewSet

from control_plane.accounts.facade import OPERATOR, may
from control_plane.accounts.models import Membership, Organization, OrganizationState
from control_plane.api.authentication import KeyHolder, actor_of
from control_plane.api.rate_limits import RateLimitedView
from control_plane.operations.facade import Actor
from control_plane.tenancy.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and as what, in one organization."""

    actor: Actor
    organization: Organization
    role: str


class RestViewSet(RateLimitedView, GenericViewSet[Any]):
    """What all resources have: bodies that are checked, and If-Match."""

    def body(self, serializer_class: type[Serializer[Any]], *, partial: bool = False) -> Any:
        """The request's body, validated."""
        serializer = serializer_class(
            data=self.request.data, partial=partial, context=self.get_serializer_context()
        )
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    @property
    def if_match(self) -> str | None:
        return self.request.headers.get("If-Match")


class TenantViewSet(RestViewSet):
    """Resources below /organizations/<organization_id>/."""

    actions: ClassVar[Mapping[str, str]] = {}
    caller: Caller

    def initial(self, request: Request, *arguments: Any, **named: Any) -> None:
        super().initial(request, *arguments, **named)
        if self.action is None:
            # A method that nobody serves: DRF answers 405.
            return
        self.caller = caller_in(request, self.kwargs["organization_id"])
        right = self.actions.get(self.action)
        if right is None or not may(self.caller.role, right):
            raise Forbidden(f"Who is {self.caller.role} may not do this ({right}).")

    @property
    def organization_id(self) -> str:
        return self.caller.organization.id

    def shown(self, resource: Any, status: int = 200) -> Response:
        """The resource as the answer, with its ETag where it has one."""
        serializer = self.get_serializer_class()(resource)
        headers = {"ETag": resource.etag} if hasattr(resource, "etag") else None
        return Response(serializer.data, status=status, headers=headers)


def caller_in(request: Request, organization_id: str) -> Caller:
    """The caller's part in the organization. Raises Http404 where he has none."""
    user: Any = request.user
    if isinstance(user, KeyHolder):
        if user.key.organization_id != organization_id:
            raise Http404
        role = user.key.service_account.role
        return Caller(actor_of(request, role=role), user.key.organization, role)
    members = Membership.objects.of(organization_id).select_related("organization")
    membership = members.filter(user_id=user.pk).first()
    if membership is not None:
        if membership.organization.state == OrganizationState.DELETED:
            raise Http404
        actor = actor_of(request, role=membership.role)
        return Caller(actor, membership.organization, membership.role)
    if user.is_staff:
        organization = Organization.objects.filter(id=organization_id).first()
        if organization is not None:
            return Caller(actor_of(request, role=OPERATOR), organization, OPERATOR)
    raise Http404
