"""Messages as JSON. Bytes are shown in base 64 and, where they are UTF-8, as text, and are taken in
either form."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.api.fields import StrictSerializer
from control_plane.messaging.presentation.group_serializers import INT32_MAX
from control_plane.messaging.records import PRODUCE_RECORDS_MAX

HEADERS_MAX = 100
HEADER_CHARACTERS_MAX = 1_000

_SHOWN = {
    "type": ["object", "null"],
    "required": ["base64", "text"],
    "properties": {"base64": {"type": "string"}, "text": {"type": ["string", "null"]}},
}
_TAKEN = {
    "type": ["object", "null"],
    "description": "One of both.",
    "properties": {"base64": {"type": "string"}, "text": {"type": "string"}},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}


def shown_bytes(data: bytes | None) -> dict[str, Any] | None:
    """In base 64, and as text where it is UTF-8."""
    if data is None:
        return None
    try:
        text: str | None = data.decode()
    except UnicodeDecodeError:
        text = None
    return {"base64": b64encode(data).decode(), "text": text}


@extend_schema_field(_SHOWN)
class ShownBytesField(serializers.Field[Any, Any, Any, Any]):
    """Of a record's key or value, or of a header's."""

    def get_attribute(self, instance: Any) -> Any:
        # None would be taken for an attribute that is not there.
        return instance if instance.HasField(self.field_name) else self

    def to_representation(self, value: Any) -> Any:
        return None if value is self else shown_bytes(getattr(value, str(self.field_name)))


@extend_schema_field(_TAKEN)
class TakenBytesField(serializers.Field[Any, Any, Any, Any]):
    """`{"text": …}` or `{"base64": …}`."""

    def to_internal_value(self, data: Any) -> bytes:
        if not isinstance(data, dict) or len(data) != 1:
            raise serializers.ValidationError("Give one of text and base64.")
        ((form, value),) = data.items()
        if form not in ("text", "base64") or not isinstance(value, str):
            raise serializers.ValidationError("Give text or base64, which is a string.")
        try:
            return value.encode() if form == "text" else b64decode(value, validate=True)
        except ValueError as error:
            words = "is no Unicode text" if form == "text" else "is not base 64"
            raise serializers.ValidationError(f"This {words}.") from error

    def to_representation(self, value: Any) -> Any:
        return shown_bytes(value)


class ShownHeaderSerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    value = ShownBytesField()


class RecordSerializer(serializers.Serializer[Any]):
    """A message. `is_cut`: of key, value and headers some is left out; `value_bytes` is how large
    the value is."""

    offset = serializers.IntegerField()
    timestamp_ms = serializers.IntegerField()
    key = ShownBytesField()
    value = ShownBytesField()
    headers = ShownHeaderSerializer(many=True)
    is_cut = serializers.BooleanField()
    value_bytes = serializers.IntegerField()


class RecordsSerializer(serializers.Serializer[Any]):
    """`next_offset` is where to go on; `end_offset` is where consumers' reading ends."""

    items = RecordSerializer(many=True, source="records")
    next_offset = serializers.IntegerField()
    log_start_offset = serializers.IntegerField()
    end_offset = serializers.IntegerField()


class TakenHeaderSerializer(StrictSerializer):
    key = serializers.CharField(
        max_length=HEADER_CHARACTERS_MAX, allow_blank=True, trim_whitespace=False
    )
    value = TakenBytesField(allow_null=True)


class TakenRecordSerializer(StrictSerializer):
    """A message; without `timestamp` it is of now. With `delay` (`1500ms`, `30s`, `10m`, `2h` or
    `45d`) or `deliver_at`, in a topic with `tidewheel.headers`, it is delivered then and not seen
    before."""

    key = TakenBytesField(allow_null=True, default=None)
    value = TakenBytesField(allow_null=True)
    headers = serializers.ListField(
        child=TakenHeaderSerializer(), default=list, max_length=HEADERS_MAX
    )
    timestamp = serializers.DateTimeField(required=False)
    delay = serializers.RegexField(r"^[0-9]{1,15}(ms|s|m|h|d)\Z", required=False)
    deliver_at = serializers.DateTimeField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "delay" in attrs and "deliver_at" in attrs:
            raise serializers.ValidationError("Give one of delay and deliver_at.")
        return attrs


class ProduceSerializer(StrictSerializer):
    service_account_id = serializers.CharField(max_length=40, required=False)
    partition = serializers.IntegerField(min_value=0, max_value=INT32_MAX)
    messages = serializers.ListField(
        child=TakenRecordSerializer(), min_length=1, max_length=PRODUCE_RECORDS_MAX
    )


class ProducedSerializer(serializers.Serializer[Any]):
    """Where the messages are: the first one at `base_offset`, the others behind it."""

    partition = serializers.IntegerField()
    base_offset = serializers.IntegerField()
    messages = serializers.IntegerField()
