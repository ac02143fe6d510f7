"""Use as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class UsageSerializer(serializers.Serializer[Any]):
    """An interval. Of a topic there are no requests, throttling and connections: they are 0."""

    starts_at = serializers.DateTimeField()
    produce_bytes = serializers.IntegerField()
    produce_records = serializers.IntegerField()
    fetch_bytes = serializers.IntegerField()
    requests = serializers.IntegerField(default=0)
    throttled_ms = serializers.IntegerField(default=0)
    storage_bytes = serializers.IntegerField()
    connections = serializers.IntegerField(default=0)


class UsagePageSerializer(serializers.Serializer[Any]):
    resolution = serializers.CharField()
    items = UsageSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class TopicUseSerializer(serializers.Serializer[Any]):
    """What a topic has used in all of the hours that were asked for."""

    topic = serializers.CharField(source="topic_name")
    produce_bytes = serializers.IntegerField()
    produce_records = serializers.IntegerField()
    fetch_bytes = serializers.IntegerField()


class TopicUsePageSerializer(serializers.Serializer[Any]):
    items = TopicUseSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
