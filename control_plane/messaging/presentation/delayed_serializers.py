"""Messages that wait until they are due, as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import StrictSerializer
from control_plane.messaging.presentation.group_serializers import INT32_MAX
from control_plane.messaging.presentation.record_serializers import RecordSerializer

FILTER_CHARACTERS_MAX = 4_096
CURSOR_CHARACTERS_MAX = 200


class DelayedMessageSerializer(serializers.Serializer[Any]):
    """A message that is hidden until `deliver_at_ms`. Its record is what was produced: `offset` is
    what commands name, and its header `tw-deliver-at` the time that it had at first."""

    deliver_at_ms = serializers.IntegerField()
    record = RecordSerializer()


class DelayedPageSerializer(serializers.Serializer[Any]):
    """By time. There may be fewer than asked for, although there are more."""

    items = DelayedMessageSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class DelayedCountSerializer(serializers.Serializer[Any]):
    """`count` of all; `counts` by intervals, the first of which begins at `from_ms`. Up to
    `uncertain` of those counted may be delivered already."""

    count = serializers.IntegerField()
    counts = serializers.ListField(child=serializers.IntegerField())
    from_ms = serializers.IntegerField()
    uncertain = serializers.IntegerField()
    first_ms = serializers.IntegerField(allow_null=True)


class CancelDelayedSerializer(StrictSerializer):
    """Those of a partition that are due in [from, until) and whose tags match."""

    service_account_id = serializers.CharField(max_length=40, required=False)
    partition = serializers.IntegerField(min_value=0, max_value=INT32_MAX)
    filter = serializers.CharField(
        max_length=FILTER_CHARACTERS_MAX, required=False, default="", allow_blank=True
    )
    from_time = serializers.DateTimeField(required=False)
    until_time = serializers.DateTimeField(required=False)
    cursor = serializers.CharField(max_length=CURSOR_CHARACTERS_MAX, required=False)


class DelayedRefusalSerializer(serializers.Serializer[Any]):
    offset = serializers.IntegerField()
    reason = serializers.CharField()


class CancelledSerializer(serializers.Serializer[Any]):
    """How many were cancelled and will never be delivered; those that were too late. With
    `next_cursor` there are more to look at: ask again with it."""

    cancelled = serializers.IntegerField()
    refused = DelayedRefusalSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
