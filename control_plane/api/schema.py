"""OpenAPI 3.1 of what is served: problems and headers that all operations have are added here."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from control_plane.api.fields import ProblemSerializer
from control_plane.api.problems import CONTENT_TYPE

_PROBLEMS = (400, 401, 402, 403, 404, 409, 412, 415, 422, 429)
_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="A retry with the same key gets the first answer, for an hour.",
)
_IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="Refused with 412 when the resource has another ETag.",
)


class RestSchema(AutoSchema):
    """Every operation may answer a problem; POST takes Idempotency-Key, changes take If-Match."""

    def get_override_parameters(self) -> list[Any]:
        parameters = list(super().get_override_parameters())
        action = getattr(self.view, "action", "")
        if getattr(getattr(self.view, action, None), "is_idempotent", False):
            parameters.append(_IDEMPOTENCY_KEY)
        if self.method == "PATCH":
            parameters.append(_IF_MATCH)
        return parameters

    def get_response_serializers(self) -> Any:
        responses: Any = super().get_response_serializers()
        if not isinstance(responses, dict):
            responses = {200: responses}
        return {
            **responses,
            **{
                (status, CONTENT_TYPE): OpenApiResponse(ProblemSerializer, "A problem.")
                for status in _PROBLEMS
            },
        }
