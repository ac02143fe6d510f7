"""Organizations, members and invitations as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.accounts.models import OrganizationState, Role
from control_plane.api.fields import LineField, ResourceSerializer, StrictSerializer


class CellSummarySerializer(serializers.Serializer[Any]):
    """What a tenant has to know of its cell: where its clients connect."""

    name = serializers.CharField()
    region = serializers.CharField()
    bootstrap_servers = serializers.CharField()


class OrganizationSerializer(ResourceSerializer):
    name = serializers.CharField()
    slug = serializers.CharField()
    state = serializers.ChoiceField(choices=OrganizationState.choices)
    state_reason = serializers.CharField()
    plan = serializers.CharField(source="plan.name")
    cell = CellSummarySerializer(allow_null=True)


class OrganizationCreateSerializer(StrictSerializer):
    name = LineField(max_length=120)
    slug = serializers.CharField(max_length=39)


class OrganizationUpdateSerializer(StrictSerializer):
    name = LineField(max_length=120, required=False)


class SuspendSerializer(StrictSerializer):
    reason = serializers.CharField(max_length=500)


class OrganizationPageSerializer(serializers.Serializer[Any]):
    items = OrganizationSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class MemberSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(read_only=True)
    email = serializers.CharField(source="user.email")
    name = serializers.CharField(source="user.name")
    role = serializers.ChoiceField(choices=Role.choices)
    created_at = serializers.DateTimeField()


class MemberUpdateSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=Role.choices)


class MemberPageSerializer(serializers.Serializer[Any]):
    items = MemberSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class InvitationSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(read_only=True)
    email = serializers.EmailField()
    role = serializers.ChoiceField(choices=Role.choices)
    expires_at = serializers.DateTimeField()
    accepted_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    mailed_at = serializers.DateTimeField(
        allow_null=True, help_text="When the mail was sent; null while it waits for that."
    )
    created_at = serializers.DateTimeField()


class InvitationCreateSerializer(StrictSerializer):
    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices)


class InvitationPageSerializer(serializers.Serializer[Any]):
    items = InvitationSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class AcceptSerializer(StrictSerializer):
    token = serializers.CharField(max_length=100)


class MeSerializer(serializers.Serializer[Any]):
    """Who asks. Of a key, `organization_id` is where it may act."""

    kind = serializers.ChoiceField(choices=["user", "api_key"])
    id = serializers.CharField()
    name = serializers.CharField()
    is_operator = serializers.BooleanField()
    organization_id = serializers.CharField(allow_null=True)
