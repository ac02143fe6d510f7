"""OpenAPI 3.1 of what is served: problems and headers that all operations have are added here."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from control_plane.api.fields import ResourceSerializer
from control_plane.api.problems import CONTENT_TYPE, TITLES

_PROBLEMS = (400, 401, 402, 403, 404, 405, 409, 412, 415, 422, 429, 503)
_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="A retry with the same key gets the first answer, for an hour.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="Refused with 412 when the resource has another ETag.",
)


class RestSchema(AutoSchema):
    """POST takes Idempotency-Key where that works; PATCH takes If-Match for what has an ETag. A
    DELETE that does names IF_MATCH itself."""

    def _is_list_view(self, serializer: Any = None) -> bool:
        # Lists are objects with `items` here, whose serializers say so themselves. Without a
        # serializer it is asked for the operation's name.
        return serializer is None and bool(super()._is_list_view())

    def get_override_parameters(self) -> list[Any]:
        parameters = list(super().get_override_parameters())
        action = getattr(self.view, "action", "")
        if getattr(getattr(self.view, action, None), "is_idempotent", False):
            parameters.append(_IDEMPOTENCY_KEY)
        shown = getattr(self.view, "serializer_class", None) or object
        if self.method == "PATCH" and issubclass(shown, ResourceSerializer):
            parameters.append(IF_MATCH)
        return parameters


def add_problems(
    result: dict[str, Any], generator: Any, request: Any, public: bool
) -> dict[str, Any]:
    """Every operation may answer a problem, which is said here once (POSTPROCESSING_HOOKS)."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for methods in result["paths"].values():
        for operation in methods.values():
            for status in _PROBLEMS:
                answer = {"description": TITLES[status], "content": content}
                operation["responses"].setdefault(str(status), answer)
            for answer in operation["responses"].values():
                answer["description"] = answer.get("description") or "Done"
    return result


_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457, with a code for programs and the fields that are wrong.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "A JSON pointer (RFC 6901)."},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
