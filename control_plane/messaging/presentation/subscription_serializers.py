"""Subscriptions as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import ResourceSerializer, StrictSerializer
from control_plane.messaging.models import ManagedBy
from control_plane.messaging.subscriptions import FILTER, SOURCE
from control_plane.tenancy.models import NAME_CHARACTERS_MAX

FILTER_CHARACTERS_MAX = 4096


class FilterField(serializers.CharField):
    """Which messages are read, by their tags: `checkout or refund`. Empty: all of them."""

    def __init__(self, **options: Any) -> None:
        fixed = {"max_length": FILTER_CHARACTERS_MAX, "allow_blank": True}
        super().__init__(**options | fixed, trim_whitespace=False)


class SubscriptionSpecSerializer(StrictSerializer):
    """`source` is a topic's name, and stays."""

    source: Any = serializers.CharField(max_length=NAME_CHARACTERS_MAX)
    filter = FilterField(default="")


class SubscriptionSpecChangeSerializer(StrictSerializer):
    filter = FilterField(required=False)


class SubscriptionSerializer(ResourceSerializer):
    """A subscription: a topic over another one."""

    name = serializers.CharField()
    managed_by = serializers.ChoiceField(choices=ManagedBy.choices)
    deletion_protection = serializers.BooleanField()
    spec = serializers.SerializerMethodField()
    observed = serializers.DictField(read_only=True)
    purge_after = serializers.DateTimeField(read_only=True, allow_null=True)

    def get_spec(self, topic: Any) -> dict[str, str]:
        return {"source": topic.configs[SOURCE], "filter": topic.configs.get(FILTER, "")}


class SubscriptionCreateSerializer(StrictSerializer):
    name = serializers.CharField(max_length=NAME_CHARACTERS_MAX)
    deletion_protection = serializers.BooleanField(default=False)
    spec = SubscriptionSpecSerializer()


class SubscriptionUpdateSerializer(StrictSerializer):
    managed_by = serializers.ChoiceField(choices=ManagedBy.choices, required=False)
    deletion_protection = serializers.BooleanField(required=False)
    spec = SubscriptionSpecChangeSerializer(required=False)


class SubscriptionPageSerializer(serializers.Serializer[Any]):
    items = SubscriptionSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
