"""Topics as JSON."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.api.fields import ResourceSerializer, StrictSerializer
from control_plane.messaging.logic import PARTITIONS_MAX, REPLICATION_FACTOR_MAX
from control_plane.messaging.models import ManagedBy
from control_plane.tenancy.models import NAME_CHARACTERS_MAX

BULK_MAX = 500


@extend_schema_field({"type": ["string", "number", "boolean"]})
class ConfigValueField(serializers.Field[Any, Any, Any, Any]):
    """Text, a number or a boolean; shown as text, as Kafka has it."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str | int | float | bool):
            raise serializers.ValidationError("A value is text, a number or a boolean.")
        return data

    def to_representation(self, value: Any) -> str:
        return str(value)


class TopicSpecSerializer(StrictSerializer):
    """What is declared. `configs` are Kafka's; those that are not named are the clients', or the
    defaults, which `observed` shows."""

    partitions = serializers.IntegerField(min_value=1, max_value=PARTITIONS_MAX, default=1)
    replication_factor = serializers.IntegerField(
        min_value=0, max_value=REPLICATION_FACTOR_MAX, default=0, help_text="0 is the cell's."
    )
    configs = serializers.DictField(child=ConfigValueField(), default=dict)


class TopicSpecChangeSerializer(StrictSerializer):
    """What may change. `configs` replaces all that were declared."""

    partitions = serializers.IntegerField(min_value=1, max_value=PARTITIONS_MAX, required=False)
    configs = serializers.DictField(child=ConfigValueField(), required=False)


class TopicSerializer(ResourceSerializer):
    """A topic."""

    name = serializers.CharField()
    managed_by = serializers.ChoiceField(choices=ManagedBy.choices)
    deletion_protection = serializers.BooleanField()
    spec = serializers.SerializerMethodField()
    observed = serializers.DictField(read_only=True)
    purge_after = serializers.DateTimeField(read_only=True, allow_null=True)

    def get_spec(self, topic: Any) -> dict[str, Any]:
        shown: dict[str, Any] = topic.spec()
        return shown


class TopicCreateSerializer(StrictSerializer):
    name = serializers.CharField(max_length=NAME_CHARACTERS_MAX)
    deletion_protection = serializers.BooleanField(default=False)
    spec = TopicSpecSerializer(default=dict)


class TopicUpdateSerializer(StrictSerializer):
    managed_by = serializers.ChoiceField(choices=ManagedBy.choices, required=False)
    deletion_protection = serializers.BooleanField(required=False)
    spec = TopicSpecChangeSerializer(required=False)


class TopicBulkSerializer(StrictSerializer):
    ids = serializers.ListField(
        child=serializers.CharField(max_length=40), required=False, max_length=BULK_MAX
    )
    names = serializers.ListField(
        child=serializers.CharField(max_length=NAME_CHARACTERS_MAX),
        required=False,
        max_length=BULK_MAX,
    )


class TopicPageSerializer(serializers.Serializer[Any]):
    items = TopicSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
