"""Plans and quotas as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import ResourceSerializer, StrictSerializer
from control_plane.quotas.logic import LIMIT_MAX
from control_plane.quotas.models import LIMITS


def _limit_fields(**options: Any) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    return {name: serializers.IntegerField(**options) for name in LIMITS}


LimitsSerializer = type(
    "LimitsSerializer", (serializers.Serializer,), _limit_fields(read_only=True)
)
OwnLimitsSerializer = type(
    "OwnLimitsSerializer",
    (StrictSerializer,),
    _limit_fields(min_value=0, max_value=LIMIT_MAX, allow_null=True, required=False),
)


class QuotaSerializer(ResourceSerializer):
    """`spec` is the tenant's own; `limits` are in force, from the plan where there is no own one;
    `used` is how much there is of what is counted here, and what the cell has measured: rates of
    the last whole minute, storage and connections at its end."""

    plan = serializers.CharField()
    spec = OwnLimitsSerializer()
    limits = LimitsSerializer()
    used = serializers.DictField(child=serializers.IntegerField())


class QuotaUpdateSerializer(StrictSerializer):
    spec = OwnLimitsSerializer()
