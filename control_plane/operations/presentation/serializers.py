"""Audit events and long-running operations as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.operations.models import ActorKind, OperationStatus


class AuditEventSerializer(serializers.Serializer[Any]):
    """An event. Of an operator, others than operators see neither name nor address."""

    id = serializers.CharField()
    at = serializers.DateTimeField()
    actor_kind = serializers.ChoiceField(choices=ActorKind.choices)
    actor_id = serializers.CharField()
    actor_name = serializers.CharField()
    address = serializers.CharField(allow_null=True)
    action = serializers.CharField()
    resource_id = serializers.CharField()
    resource_name = serializers.CharField()
    changes = serializers.DictField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if instance.actor_kind == ActorKind.OPERATOR and not self.context["is_operator"]:
            shown |= {"actor_name": "", "address": None}
        return shown


class AuditEventPageSerializer(serializers.Serializer[Any]):
    items = AuditEventSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class OperationSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    kind = serializers.CharField()
    resource_id = serializers.CharField()
    status = serializers.ChoiceField(choices=OperationStatus.choices)
    result = serializers.DictField()
    error = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class OperationPageSerializer(serializers.Serializer[Any]):
    items = OperationSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
