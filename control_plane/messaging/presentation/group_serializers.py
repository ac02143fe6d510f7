"""Consumer groups as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import StrictSerializer
from control_plane.messaging.groups import POSITIONS, TARGETS_MAX
from control_plane.tenancy.models import NAME_CHARACTERS_MAX

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
GROUP_ID_CHARACTERS_MAX = 255


class GroupSummarySerializer(serializers.Serializer[Any]):
    """`state` and `type` are Kafka's words."""

    group_id = serializers.CharField()
    state = serializers.CharField()
    type = serializers.CharField()
    protocol_type = serializers.CharField()


class GroupPageSerializer(serializers.Serializer[Any]):
    """`is_complete` is false when a broker has not answered: its groups are missing."""

    items = GroupSummarySerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
    is_complete = serializers.BooleanField()


class AssignmentSerializer(serializers.Serializer[Any]):
    topic = serializers.CharField()
    partitions = serializers.ListField(child=serializers.IntegerField())


class GroupMemberSerializer(serializers.Serializer[Any]):
    member_id = serializers.CharField()
    instance_id = serializers.CharField()
    client_id = serializers.CharField()
    host = serializers.CharField()
    assigned = AssignmentSerializer(many=True)


class GroupOffsetSerializer(serializers.Serializer[Any]):
    """`lag` is null where the partition's end could not be found out."""

    topic = serializers.CharField()
    partition = serializers.IntegerField()
    committed_offset = serializers.IntegerField()
    end_offset = serializers.IntegerField(allow_null=True)
    lag = serializers.IntegerField(allow_null=True)
    metadata = serializers.CharField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        for name in ("end_offset", "lag"):
            if shown[name] < 0:
                shown[name] = None
        return shown


class GroupSerializer(serializers.Serializer[Any]):
    """A group. `lag` is the sum over all partitions with a committed offset; null when one is not
    known. `is_cut`: it has more partitions than are shown."""

    group_id = serializers.CharField(source="group.group_id")
    state = serializers.CharField(source="group.state")
    protocol_type = serializers.CharField(source="group.protocol_type")
    lag = serializers.SerializerMethodField()
    members = GroupMemberSerializer(many=True)
    offsets = GroupOffsetSerializer(many=True)
    is_cut = serializers.BooleanField()

    def get_lag(self, group: Any) -> int | None:
        lags = [offset.lag for offset in group.offsets]
        return None if group.is_cut or any(lag < 0 for lag in lags) else sum(lags)


class OffsetTargetSerializer(StrictSerializer):
    """Where to go on: one of `offset`, `timestamp` (the first message that is not older) and
    `position`."""

    topic = serializers.CharField(max_length=NAME_CHARACTERS_MAX, trim_whitespace=False)
    partition = serializers.IntegerField(min_value=0, max_value=INT32_MAX)
    offset = serializers.IntegerField(min_value=0, max_value=INT64_MAX, required=False)
    timestamp = serializers.DateTimeField(required=False)
    position = serializers.ChoiceField(choices=POSITIONS, required=False)

    def validate(self, attrs: Any) -> Any:
        if sum(name in attrs for name in ("offset", "timestamp", "position")) != 1:
            raise serializers.ValidationError("Give one of offset, timestamp and position.")
        return attrs


class OffsetResetSerializer(StrictSerializer):
    service_account_id = serializers.CharField(max_length=40, required=False)
    group_id = serializers.CharField(max_length=GROUP_ID_CHARACTERS_MAX, trim_whitespace=False)
    targets = serializers.ListField(
        child=OffsetTargetSerializer(), min_length=1, max_length=TARGETS_MAX
    )
    dry_run = serializers.BooleanField(default=False)

    def validate_targets(self, targets: Any) -> Any:
        if len({(target["topic"], target["partition"]) for target in targets}) != len(targets):
            raise serializers.ValidationError("A partition is there twice.")
        return targets


class MovedOffsetSerializer(serializers.Serializer[Any]):
    """From `committed_offset` to `offset`; null stands for none. `error`: why it was not done."""

    topic = serializers.CharField()
    partition = serializers.IntegerField()
    committed_offset = serializers.IntegerField(allow_null=True)
    offset = serializers.IntegerField(allow_null=True)
    error = serializers.CharField(allow_null=True)


class OffsetResetResultSerializer(serializers.Serializer[Any]):
    group_id = serializers.CharField()
    dry_run = serializers.BooleanField()
    items = MovedOffsetSerializer(many=True)
