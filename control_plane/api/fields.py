"""Serializers that take what they know and refuse the rest, so that no misspelt or foreign field is
silently passed over."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class StrictSerializer(serializers.Serializer[Any]):
    """A request's body; unknown fields are refused by name."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            writable = {name for name, field in self.fields.items() if not field.read_only}
            unknown = [name for name in data if name not in writable]
            if unknown:
                raise serializers.ValidationError(
                    {str(name): ["There is no such field here."] for name in unknown}
                )
        return super().to_internal_value(data)


class LineField(serializers.CharField):
    """One line of text, as it can stand in the subject of a mail."""

    def to_internal_value(self, data: Any) -> str:
        value: str = super().to_internal_value(data)
        if not value.isprintable():
            raise serializers.ValidationError("It is one line, without control characters.")
        return value


class StatusSerializer(serializers.Serializer[Any]):
    """Where the cell is with what was declared."""

    state = serializers.CharField(source="status", read_only=True)
    reason = serializers.CharField(source="status_reason", read_only=True)
    generation = serializers.IntegerField(read_only=True)
    observed_generation = serializers.IntegerField(read_only=True)


class ResourceSerializer(serializers.Serializer[Any]):
    """What every resource that is declared shows."""

    id = serializers.CharField(read_only=True)
    status = StatusSerializer(source="*", read_only=True)
    etag = serializers.CharField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)
