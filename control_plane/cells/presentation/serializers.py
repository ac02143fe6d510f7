"""Cells and their brokers as JSON, for operators."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import StrictSerializer

ENDPOINTS_MAX = 100
ENDPOINT_CHARACTERS_MAX = 255
ENDPOINT_PATTERN = r"^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+):[0-9]{1,5}$"


class BrokerSerializer(serializers.Serializer[Any]):
    node_id = serializers.IntegerField()
    host = serializers.CharField()
    port = serializers.IntegerField()
    rack = serializers.CharField()
    is_fenced = serializers.BooleanField()
    is_draining = serializers.BooleanField()
    partitions = serializers.IntegerField()
    leaders = serializers.IntegerField()
    seen_at = serializers.DateTimeField()


class CellSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    region = serializers.CharField()
    admin_endpoints = serializers.ListField(child=serializers.CharField())
    bootstrap_servers = serializers.CharField()
    is_accepting = serializers.BooleanField()
    tenants_max = serializers.IntegerField()
    partitions_max = serializers.IntegerField()
    cluster_id = serializers.CharField()
    last_seen_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()
    brokers = BrokerSerializer(many=True, source="brokers.all")


class EndpointField(serializers.RegexField):
    """`host:port`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(ENDPOINT_PATTERN, max_length=ENDPOINT_CHARACTERS_MAX, **options)


class CellUpdateSerializer(StrictSerializer):
    """`admin_endpoints`: `host:port` of the brokers' CellAdmin, all of them. `bootstrap_servers`:
    what clients of Kafka are told."""

    region = serializers.CharField(max_length=64, allow_blank=True, required=False)
    admin_endpoints = serializers.ListField(
        child=EndpointField(), min_length=1, max_length=ENDPOINTS_MAX, required=False
    )
    bootstrap_servers = serializers.CharField(max_length=1000, required=False)
    is_accepting = serializers.BooleanField(required=False)
    tenants_max = serializers.IntegerField(min_value=0, max_value=10_000, required=False)
    partitions_max = serializers.IntegerField(min_value=0, max_value=10_000_000, required=False)


class CellCreateSerializer(CellUpdateSerializer):
    name = serializers.SlugField(max_length=64)
    admin_endpoints = serializers.ListField(
        child=EndpointField(), min_length=1, max_length=ENDPOINTS_MAX
    )
    bootstrap_servers = serializers.CharField(max_length=1000)


class CellPageSerializer(serializers.Serializer[Any]):
    items = CellSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
