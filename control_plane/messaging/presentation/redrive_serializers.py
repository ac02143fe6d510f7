"""Dead letters that are put back or purged, as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import StrictSerializer
from control_plane.messaging.presentation.delayed_serializers import FILTER_CHARACTERS_MAX
from control_plane.messaging.presentation.group_serializers import INT32_MAX, INT64_MAX

NAMED_MAX = 1_000
ID_CHARACTERS_MAX = 64
REASON_CHARACTERS_MAX = 1_024
EXCEPTION_CHARACTERS_MAX = 256
TOPIC_CHARACTERS_MAX = 249
RATE_MAX = 1_000_000


class DeadLetterSelectionSerializer(StrictSerializer):
    """Which dead letters: all conditions that are given hold. An empty one is refused; `all` stands
    alone. Times are those of their deaths, `reason` is a part of the reason."""

    filter = serializers.CharField(
        max_length=FILTER_CHARACTERS_MAX, required=False, default="", allow_blank=True
    )
    from_time = serializers.DateTimeField(required=False)
    until_time = serializers.DateTimeField(required=False)
    from_offset = serializers.IntegerField(min_value=0, max_value=INT64_MAX, required=False)
    until_offset = serializers.IntegerField(min_value=0, max_value=INT64_MAX, required=False)
    offsets = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=INT64_MAX),
        max_length=NAMED_MAX,
        required=False,
        default=list,
    )
    message_ids = serializers.ListField(
        child=serializers.CharField(max_length=ID_CHARACTERS_MAX),
        max_length=NAMED_MAX,
        required=False,
        default=list,
    )
    reason = serializers.CharField(
        max_length=REASON_CHARACTERS_MAX, required=False, default="", allow_blank=True
    )
    exception = serializers.CharField(
        max_length=EXCEPTION_CHARACTERS_MAX, required=False, default="", allow_blank=True
    )
    all = serializers.BooleanField(required=False, default=False)
    again = serializers.BooleanField(required=False, default=False)


class BeginRedriveSerializer(StrictSerializer):
    """Of a partition. Without `target_topic` each letter goes back to the subscription that it came
    from. The same `operation_id` once more is the same operation."""

    service_account_id = serializers.CharField(max_length=40, required=False)
    partition = serializers.IntegerField(min_value=0, max_value=INT32_MAX)
    operation_id = serializers.CharField(max_length=ID_CHARACTERS_MAX)
    purge = serializers.BooleanField(required=False, default=False)
    selection = DeadLetterSelectionSerializer()
    target_topic = serializers.CharField(
        max_length=TOPIC_CHARACTERS_MAX, required=False, default="", allow_blank=True
    )
    rate_max = serializers.IntegerField(min_value=0, max_value=RATE_MAX, required=False, default=0)


class ChangeRedriveSerializer(StrictSerializer):
    """What becomes of an operation."""

    service_account_id = serializers.CharField(max_length=40, required=False)
    partition = serializers.IntegerField(min_value=0, max_value=INT32_MAX)
    operation_id = serializers.CharField(max_length=ID_CHARACTERS_MAX)
    wish = serializers.ChoiceField(choices=("pause", "resume", "cancel"))


class RedriveSerializer(serializers.Serializer[Any]):
    """An operation on dead letters. It looks at the offsets from `first_offset` to before
    `end_offset`, and has got to `next_offset`. Of the letters that it has looked at, `moved` were
    redriven or purged; others matched and stay where they are, since they were redriven too often
    (`over_limit`) or no subscription is known for them (`no_origin`)."""

    operation_id = serializers.CharField(source="id")
    purge = serializers.BooleanField(source="is_purge")
    status = serializers.CharField()
    target_topic = serializers.CharField()
    rate_max = serializers.IntegerField()
    principal = serializers.CharField()
    first_offset = serializers.IntegerField()
    next_offset = serializers.IntegerField()
    end_offset = serializers.IntegerField()
    looked = serializers.IntegerField()
    moved = serializers.IntegerField()
    over_limit = serializers.IntegerField()
    no_origin = serializers.IntegerField()
    begun_ms = serializers.IntegerField()
    ended_ms = serializers.IntegerField()
    held = serializers.CharField()


class RedrivesSerializer(serializers.Serializer[Any]):
    """Those under way, and the last ones that are over, in the order in which they began."""

    items = RedriveSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class RedrivenSerializer(serializers.Serializer[Any]):
    """Offsets of letters that were redriven or purged. Ask again from `until_offset`."""

    redriven = serializers.ListField(child=serializers.IntegerField())
    purged = serializers.ListField(child=serializers.IntegerField())
    until_offset = serializers.IntegerField()
