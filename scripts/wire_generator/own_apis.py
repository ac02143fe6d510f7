"""APIs of Tidewheel's own, which Kafka does not have: what kio cannot tell.

Their keys are far from Kafka's. Brokers name them in ApiVersions to clients that say that they are
Tidewheel's (api_versions.py), so no other client meets a key that it does not know.
"""

from __future__ import annotations

from typing import Final

from scripts.wire_generator.entity_types import TEXT, TOPIC
from scripts.wire_generator.model import Api, Field, Message, Struct, VersionRange

FIRST_OWN_KEY: Final = 20_000
_ONLY: Final = VersionRange(0, 0)


def _field(
    name: str, kind: str, default: object = 0, entity: str | None = None, *, is_array: bool = False
) -> Field:
    nullable = _ONLY if default is None else None
    default = "empty" if is_array else default
    return Field(name, kind, is_array, None, _ONLY, nullable, None, default, True, entity)


def _structs(name: str, struct: str) -> Field:
    return Field(name, "struct", True, struct, _ONLY, None, None, "empty", True, None)


def _message(module: str, name: str, *structs: Struct) -> Message:
    return Message(module, name, FIRST_OWN_KEY, _ONLY, 0, structs)


_REQUEST: Final = Struct(
    "DescribeDelayedRequest",
    _ONLY,
    (
        _field("topic", "string", "", TOPIC),
        _field("partition", "int32"),
        _field("from_ms", "int64", -1),
        _field("until_ms", "int64", -1),
        _field("filter", "string", "", TEXT),
        _field("after_deliver_at_ms", "int64", -1),
        _field("after_offset", "int64", -1),
        _field("is_to_cancel", "bool", False),
        _field("messages_max", "int32"),
        _field("bytes_max", "int32"),
        _field("value_bytes_max", "int32"),
        _field("edges_ms", "int64", is_array=True),
    ),
)
_RESPONSE: Final = (
    Struct("DelayedHeader", _ONLY, (_field("key", "bytes", b""), _field("value", "bytes", None))),
    Struct(
        "DelayedMessage",
        _ONLY,
        (
            _field("deliver_at_ms", "int64"),
            _field("offset", "int64"),
            _field("timestamp_ms", "int64"),
            _field("value_bytes", "int32"),
            _field("is_cut", "bool", False),
            _field("key", "bytes", None),
            _field("value", "bytes", None),
            _structs("headers", "DelayedHeader"),
        ),
    ),
    Struct(
        "DescribeDelayedResponse",
        _ONLY,
        (
            _field("throttle_time_ms", "int32"),
            _field("error_code", "int16"),
            _field("error_message", "string", None, TEXT),
            _field("pending_count", "int64"),
            _field("uncertain_count", "int64"),
            _field("first_ms", "int64", -1),
            _field("counts", "int64", is_array=True),
            _structs("messages", "DelayedMessage"),
            _field("offsets", "int64", is_array=True),
            _field("next_deliver_at_ms", "int64", -1),
            _field("next_offset", "int64", -1),
        ),
    ),
)

OWN_APIS: Final = (
    Api(
        FIRST_OWN_KEY,
        "DescribeDelayed",
        _message("describe_delayed_request", "DescribeDelayedRequest", _REQUEST),
        _message("describe_delayed_response", "DescribeDelayedResponse", *_RESPONSE),
    ),
)
OWN_MESSAGES: Final = tuple(one for api in OWN_APIS for one in (api.request, api.response))
