"""Service accounts, keys and grants by REST."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.logic import (
    do_create_grant,
    do_create_key,
    do_create_service_account,
    do_delete_grant,
    do_delete_service_account,
    do_revoke_key,
    do_rotate_key,
    do_update_service_account,
    find_grant,
    find_key,
    find_service_account,
)
from control_plane.access.models import ApiKey, Grant, ServiceAccount
from control_plane.access.presentation.serializers import (
    ApiKeyCreateSerializer,
    ApiKeyMadeSerializer,
    ApiKeyPageSerializer,
    ApiKeySerializer,
    GrantCreateSerializer,
    GrantPageSerializer,
    GrantSerializer,
    RotateSerializer,
    ServiceAccountCreateSerializer,
    ServiceAccountPageSerializer,
    ServiceAccountSerializer,
    ServiceAccountUpdateSerializer,
)
from control_plane.api.idempotency import idempotent
from control_plane.api.pages import page_body, page_of
from control_plane.api.queries import PAGE_PARAMETERS, text
from control_plane.api.views import TenantViewSet

OF_ACCOUNT = OpenApiParameter("service_account_id", str, description="Of this account only.")


class ServiceAccountViewSet(TenantViewSet):
    """Programs that act for an organization."""

    serializer_class = ServiceAccountSerializer
    actions: ClassVar = {
        "list": "service_account.read",
        "retrieve": "service_account.read",
        "create": "service_account.write",
        "partial_update": "service_account.write",
        "destroy": "service_account.write",
    }

    @extend_schema(parameters=PAGE_PARAMETERS, responses=ServiceAccountPageSerializer)
    def list(self, request: Request, organization_id: str) -> Response:
        """Service accounts, in the order of making."""
        accounts = ServiceAccount.objects.of(self.organization_id).filter(deleted_at=None)
        page, cursor = page_of(request, accounts)
        return Response(page_body(ServiceAccountSerializer(page, many=True).data, cursor))

    @extend_schema(
        request=ServiceAccountCreateSerializer, responses={201: ServiceAccountSerializer}
    )
    @idempotent
    def create(self, request: Request, organization_id: str) -> Response:
        """Make one. Its role is at most the caller's."""
        body = self.body(ServiceAccountCreateSerializer)
        account = do_create_service_account(
            self.caller.actor, self.organization_id, **body, by_role=self.caller.role
        )
        return self.shown(account, 201)

    @extend_schema(responses=ServiceAccountSerializer)
    def retrieve(self, request: Request, organization_id: str, service_account_id: str) -> Response:
        """One service account."""
        return self.shown(find_service_account(self.organization_id, service_account_id))

    @extend_schema(request=ServiceAccountUpdateSerializer, responses=ServiceAccountSerializer)
    def partial_update(
        self, request: Request, organization_id: str, service_account_id: str
    ) -> Response:
        """Change what is given."""
        body = self.body(ServiceAccountUpdateSerializer, partial=True)
        account = do_update_service_account(
            self.caller.actor,
            self.organization_id,
            service_account_id,
            body,
            by_role=self.caller.role,
        )
        return self.shown(account)

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, organization_id: str, service_account_id: str) -> Response:
        """Delete it with its keys and grants."""
        do_delete_service_account(
            self.caller.actor, self.organization_id, service_account_id, self.caller.role
        )
        return Response(status=204)


class ApiKeyViewSet(TenantViewSet):
    """Secrets of service accounts."""

    serializer_class = ApiKeySerializer
    actions: ClassVar = {
        "list": "api_key.read",
        "retrieve": "api_key.read",
        "create": "api_key.write",
        "destroy": "api_key.write",
        "rotate": "api_key.write",
    }

    @extend_schema(parameters=[*PAGE_PARAMETERS, OF_ACCOUNT], responses=ApiKeyPageSerializer)
    def list(self, request: Request, organization_id: str) -> Response:
        """Keys, in the order of making, those that have ended included."""
        keys = ApiKey.objects.of(self.organization_id).select_related("organization")
        if (account_id := text(request, "service_account_id")) is not None:
            keys = keys.filter(service_account_id=account_id)
        page, cursor = page_of(request, keys)
        return Response(page_body(ApiKeySerializer(page, many=True).data, cursor))

    @extend_schema(request=ApiKeyCreateSerializer, responses={201: ApiKeyMadeSerializer})
    @idempotent
    def create(self, request: Request, organization_id: str) -> Response:
        """Make a key. The answer has its secret; a retry with the same Idempotency-Key has it
        again for an hour, and nothing else ever."""
        body = self.body(ApiKeyCreateSerializer)
        account_id = body.pop("service_account_id")
        made = do_create_key(
            self.caller.actor, self.organization_id, account_id, self.caller.role, **body
        )
        return self._with_secret(*made)

    @extend_schema(responses=ApiKeySerializer)
    def retrieve(self, request: Request, organization_id: str, api_key_id: str) -> Response:
        """One key."""
        return self.shown(find_key(self.organization_id, api_key_id))

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, organization_id: str, api_key_id: str) -> Response:
        """Revoke it. Asked again, it is revoked already."""
        do_revoke_key(self.caller.actor, self.organization_id, api_key_id, self.caller.role)
        return Response(status=204)

    @extend_schema(request=RotateSerializer, responses={201: ApiKeyMadeSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def rotate(self, request: Request, organization_id: str, api_key_id: str) -> Response:
        """A new key like this one, which ends when the overlap is over."""
        body = self.body(RotateSerializer)
        overlap = timedelta(seconds=body["overlap_s"])
        made = do_rotate_key(
            self.caller.actor, self.organization_id, api_key_id, self.caller.role, overlap
        )
        return self._with_secret(*made)

    def _with_secret(self, key: ApiKey, secret: str) -> Response:
        body = dict(ApiKeySerializer(key).data) | {"secret": secret}
        headers = {"ETag": key.etag, "Cache-Control": "no-store"}
        return Response(body, status=201, headers=headers)


class GrantViewSet(TenantViewSet):
    """What service accounts may do with Kafka clients."""

    serializer_class = GrantSerializer
    actions: ClassVar = {
        "list": "grant.read",
        "retrieve": "grant.read",
        "create": "grant.write",
        "destroy": "grant.write",
    }

    @extend_schema(parameters=[*PAGE_PARAMETERS, OF_ACCOUNT], responses=GrantPageSerializer)
    def list(self, request: Request, organization_id: str) -> Response:
        """Grants, in the order of making."""
        grants = Grant.objects.of(self.organization_id)
        if (account_id := text(request, "service_account_id")) is not None:
            grants = grants.filter(service_account_id=account_id)
        page, cursor = page_of(request, grants)
        return Response(page_body(GrantSerializer(page, many=True).data, cursor))

    @extend_schema(request=GrantCreateSerializer, responses={201: GrantSerializer})
    @idempotent
    def create(self, request: Request, organization_id: str) -> Response:
        """Allow something."""
        spec = self.body(GrantCreateSerializer)["spec"]
        account_id = spec.pop("service_account_id")
        grant = do_create_grant(self.caller.actor, self.organization_id, account_id, **spec)
        return self.shown(grant, 201)

    @extend_schema(responses=GrantSerializer)
    def retrieve(self, request: Request, organization_id: str, grant_id: str) -> Response:
        """One grant."""
        return self.shown(find_grant(self.organization_id, grant_id))

    @extend_schema(request=None, responses={202: GrantSerializer})
    def destroy(self, request: Request, organization_id: str, grant_id: str) -> Response:
        """Take it back."""
        grant = do_delete_grant(self.caller.actor, self.organization_id, grant_id)
        return self.shown(grant, 202)
