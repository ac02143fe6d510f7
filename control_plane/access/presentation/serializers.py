"""Service accounts, keys and grants as JSON. No secret but the one that was just made."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.access.logic import OVERLAP_MAX
from control_plane.access.models import GrantRole, PatternType, ResourceType, Scope
from control_plane.access.networks import NETWORKS_MAX
from control_plane.accounts.models import Role
from control_plane.api.fields import ResourceSerializer, StrictSerializer
from control_plane.tenancy.models import NAME_CHARACTERS_MAX


class ServiceAccountSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(read_only=True)
    name = serializers.CharField()
    description = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class ServiceAccountCreateSerializer(StrictSerializer):
    name = serializers.RegexField(r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=64)
    description = serializers.CharField(max_length=500, default="", allow_blank=True)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.VIEWER)


class ServiceAccountUpdateSerializer(StrictSerializer):
    description = serializers.CharField(max_length=500, required=False, allow_blank=True)
    role = serializers.ChoiceField(choices=Role.choices, required=False)


class ServiceAccountPageSerializer(serializers.Serializer[Any]):
    items = ServiceAccountSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class ApiKeySerializer(ResourceSerializer):
    """A key. `login` is its name for Kafka clients."""

    name = serializers.CharField()
    service_account_id = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))
    networks = serializers.ListField(child=serializers.CharField())
    login = serializers.SerializerMethodField()
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(read_only=True, allow_null=True)
    last_used_at = serializers.DateTimeField(read_only=True, allow_null=True)
    rotated_from_id = serializers.CharField(read_only=True, allow_null=True)

    def get_login(self, key: Any) -> str:
        return f"{key.id}@{key.organization.slug}"


class ApiKeyMadeSerializer(ApiKeySerializer):
    """A new key, with its secret for this once."""

    secret = serializers.CharField(read_only=True)


class ApiKeyCreateSerializer(StrictSerializer):
    service_account_id = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=64, default="", allow_blank=True)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.choices),
        min_length=1,
        max_length=len(Scope.values),
        default=lambda: [Scope.KAFKA.value],
    )
    networks = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, max_length=NETWORKS_MAX
    )
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)


class RotateSerializer(StrictSerializer):
    overlap_s = serializers.IntegerField(
        min_value=0, max_value=int(OVERLAP_MAX.total_seconds()), default=24 * 3600
    )


class ApiKeyPageSerializer(serializers.Serializer[Any]):
    items = ApiKeySerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class GrantSpecSerializer(StrictSerializer):
    service_account_id = serializers.CharField(max_length=40)
    role = serializers.ChoiceField(choices=GrantRole.choices)
    resource_type = serializers.ChoiceField(choices=ResourceType.choices)
    pattern_type = serializers.ChoiceField(choices=PatternType.choices, default=PatternType.LITERAL)
    resource_name = serializers.CharField(max_length=NAME_CHARACTERS_MAX)


class GrantCreateSerializer(StrictSerializer):
    spec = GrantSpecSerializer()


class GrantSerializer(ResourceSerializer):
    spec = GrantSpecSerializer(source="*")


class GrantPageSerializer(serializers.Serializer[Any]):
    items = GrantSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
