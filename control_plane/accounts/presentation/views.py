"""Organizations, members and invitations by REST."""

from __future__ import annotations

from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.logic import (
    do_accept_invitation,
    do_change_role,
    do_create_organization,
    do_delete_organization,
    do_invite,
    do_remove_member,
    do_rename_organization,
    do_resume,
    do_revoke_invitation,
    do_suspend,
    find_member,
    organizations_of,
)
from control_plane.accounts.models import Invitation, Membership, Organization, User
from control_plane.accounts.presentation.serializers import (
    AcceptSerializer,
    InvitationCreateSerializer,
    InvitationPageSerializer,
    InvitationSerializer,
    MemberPageSerializer,
    MemberSerializer,
    MemberUpdateSerializer,
    MeSerializer,
    OrganizationCreateSerializer,
    OrganizationPageSerializer,
    OrganizationSerializer,
    OrganizationUpdateSerializer,
    SuspendSerializer,
)
from control_plane.api.authentication import KeyHolder, actor_of
from control_plane.api.idempotency import idempotent
from control_plane.api.pages import page_body, page_of
from control_plane.api.queries import PAGE_PARAMETERS
from control_plane.api.views import RestViewSet, TenantViewSet
from control_plane.cells.facade import with_cells
from control_plane.tenancy.errors import Forbidden


def person(request: Request) -> User:
    """The person who asks. Raises Forbidden for a key, which belongs to one organization."""
    user: Any = request.user
    if isinstance(user, KeyHolder):
        raise Forbidden("A key acts in its own organization; this needs a person.")
    assert isinstance(user, User)
    return user


def refuse_unverified(user: User) -> None:
    """Raise Forbidden for who has not shown that the address is his."""
    if not settings.REQUIRE_VERIFIED_EMAIL:
        return
    addresses = EmailAddress.objects.filter(user=user, email=user.email, verified=True)
    if not addresses.exists():
        raise Forbidden("Verify your address first: we have sent you a mail.")


class MeViewSet(RestViewSet):
    """Who asks."""

    serializer_class = MeSerializer

    @extend_schema(responses=MeSerializer, operation_id="me_retrieve")
    def list(self, request: Request) -> Response:
        """Who I am, and, with a key, in which organization."""
        user: Any = request.user
        if isinstance(user, KeyHolder):
            account = user.key.service_account
            return Response(
                {
                    "kind": "api_key",
                    "id": user.key.id,
                    "name": account.name,
                    "is_operator": False,
                    "organization_id": user.key.organization_id,
                }
            )
        return Response(
            {
                "kind": "user",
                "id": user.id,
                "name": user.email,
                "is_operator": user.is_staff,
                "organization_id": None,
            }
        )


class OrganizationsViewSet(RestViewSet):
    """The organizations of who asks."""

    serializer_class = OrganizationSerializer

    @extend_schema(parameters=PAGE_PARAMETERS, responses=OrganizationPageSerializer)
    def list(self, request: Request) -> Response:
        """Those that I belong to; for operators all of them."""
        page, cursor = page_of(request, _visible(request))
        shown = OrganizationSerializer(with_cells(page), many=True).data
        return Response(page_body(list(shown), cursor))

    @extend_schema(request=OrganizationCreateSerializer, responses={201: OrganizationSerializer})
    @idempotent
    def create(self, request: Request) -> Response:
        """Make an organization, of which I am the owner."""
        owner = person(request)
        refuse_unverified(owner)
        body = self.body(OrganizationCreateSerializer)
        made = do_create_organization(actor_of(request), owner, body["name"], body["slug"])
        with_cells([made])
        body = OrganizationSerializer(made).data
        return Response(body, status=201, headers={"ETag": made.etag})


class OrganizationViewSet(TenantViewSet):
    """One organization."""

    serializer_class = OrganizationSerializer
    actions: ClassVar = {
        "retrieve": "organization.read",
        "partial_update": "organization.update",
        "destroy": "organization.delete",
        "suspend": "organization.suspend",
        "resume": "organization.suspend",
    }

    @extend_schema(responses=OrganizationSerializer)
    def retrieve(self, request: Request, organization_id: str) -> Response:
        """One organization."""
        return self._shown(self.caller.organization)

    @extend_schema(request=OrganizationUpdateSerializer, responses=OrganizationSerializer)
    def partial_update(self, request: Request, organization_id: str) -> Response:
        """Another name. The slug stays."""
        body = self.body(OrganizationUpdateSerializer, partial=True)
        organization = do_rename_organization(
            self.caller.actor,
            organization_id,
            body.get("name"),
            self.if_match,
        )
        return self._shown(organization)

    @extend_schema(request=None, responses={202: OrganizationSerializer})
    def destroy(self, request: Request, organization_id: str) -> Response:
        """Nobody speaks for it any more, at once."""
        organization = do_delete_organization(self.caller.actor, organization_id)
        return self._shown(organization, 202)

    @extend_schema(request=SuspendSerializer, responses=OrganizationSerializer)
    @action(detail=False, methods=["post"])
    def suspend(self, request: Request, organization_id: str) -> Response:
        """Operators: reads go on, writes are refused with the reason."""
        body = self.body(SuspendSerializer)
        return self._shown(do_suspend(self.caller.actor, organization_id, body["reason"]))

    @extend_schema(request=None, responses=OrganizationSerializer)
    @action(detail=False, methods=["post"])
    def resume(self, request: Request, organization_id: str) -> Response:
        """Operators: everything goes on."""
        return self._shown(do_resume(self.caller.actor, organization_id))

    def _shown(self, organization: Organization, status: int = 200) -> Response:
        with_cells([organization])
        return self.shown(organization, status)


class MemberViewSet(TenantViewSet):
    """Who belongs to the organization."""

    serializer_class = MemberSerializer
    actions: ClassVar = {
        "list": "member.read",
        "retrieve": "member.read",
        "partial_update": "member.write",
        "destroy": "member.write",
    }

    @extend_schema(parameters=PAGE_PARAMETERS, responses=MemberPageSerializer)
    def list(self, request: Request, organization_id: str) -> Response:
        """Members, in the order of joining."""
        members = Membership.objects.of(self.organization_id).select_related("user")
        page, cursor = page_of(request, members)
        return Response(page_body(MemberSerializer(page, many=True).data, cursor))

    @extend_schema(responses=MemberSerializer)
    def retrieve(self, request: Request, organization_id: str, member_id: str) -> Response:
        """One member."""
        return self.shown(find_member(self.organization_id, member_id))

    @extend_schema(request=MemberUpdateSerializer, responses=MemberSerializer)
    def partial_update(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Another role, neither given nor taken by who has a lesser one."""
        body = self.body(MemberUpdateSerializer)
        member = do_change_role(
            self.caller.actor, self.organization_id, member_id, body["role"], self.caller.role
        )
        return self.shown(member)

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Somebody leaves. The last owner stays."""
        do_remove_member(self.caller.actor, self.organization_id, member_id, self.caller.role)
        return Response(status=204)


class InvitationViewSet(TenantViewSet):
    """Who may become a member. The token goes by mail to the address alone."""

    serializer_class = InvitationSerializer
    actions: ClassVar = {
        "list": "invitation.read",
        "create": "invitation.write",
        "destroy": "invitation.write",
    }

    @extend_schema(parameters=PAGE_PARAMETERS, responses=InvitationPageSerializer)
    def list(self, request: Request, organization_id: str) -> Response:
        """Invitations, in the order of making."""
        page, cursor = page_of(request, Invitation.objects.of(self.organization_id))
        return Response(page_body(InvitationSerializer(page, many=True).data, cursor))

    @extend_schema(request=InvitationCreateSerializer, responses={201: InvitationSerializer})
    @idempotent
    def create(self, request: Request, organization_id: str) -> Response:
        """Invite an address, which gets a mail. An open invitation of the same address ends."""
        body = self.body(InvitationCreateSerializer)
        user: Any = request.user
        invitation = do_invite(
            self.caller.actor,
            self.organization_id,
            body["email"],
            body["role"],
            self.caller.role,
            user if isinstance(user, User) else None,
        )
        return self.shown(invitation, 201)

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """The token is worth nothing any more."""
        do_revoke_invitation(self.caller.actor, self.organization_id, invitation_id)
        return Response(status=204)


class AcceptInvitationViewSet(RestViewSet):
    """What an invited person does."""

    serializer_class = MemberSerializer

    @extend_schema(
        request=AcceptSerializer,
        responses={201: MemberSerializer},
        operation_id="invitations_accept",
    )
    @idempotent
    def create(self, request: Request) -> Response:
        """Become a member, with the token from the mail."""
        user = person(request)
        refuse_unverified(user)
        body = self.body(AcceptSerializer)
        membership = do_accept_invitation(actor_of(request), user, body["token"])
        return Response(MemberSerializer(membership).data, status=201)


def _visible(request: Request) -> QuerySet[Organization]:
    user: Any = request.user
    if isinstance(user, KeyHolder):
        return Organization.objects.filter(id=user.key.organization_id).select_related("plan")
    if user.is_staff:
        return Organization.objects.select_related("plan")
    return organizations_of(user)
