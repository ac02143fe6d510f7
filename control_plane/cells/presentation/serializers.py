"""Cells and their brokers as JSON, for operators."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.api.fields import StrictSerializer


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


class CellUpdateSerializer(StrictSerializer):
    is_accepting = serializers.BooleanField(required=False)
    tenants_max = serializers.IntegerField(min_value=0, max_value=10_000, required=False)
    partitions_max = serializers.IntegerField(min_value=0, max_value=10_000_000, required=False)


class CellPageSerializer(serializers.Serializer[Any]):
    items = CellSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
