"""Every error of REST is an RFC 9457 problem (`application/problem+json`) that names the field.

`code` is for programs and does not change; `detail` is for people; `errors` lists the fields, each
by a JSON pointer into the request. What is not expected is a bug: it becomes a plain 500, and its
traceback goes to the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.defaults import page_not_found, server_error
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from control_plane.tenancy.errors import Refused

CONTENT_TYPE = "application/problem+json"
ERRORS_MAX = 100
API = "/api/"

TITLES = {
    400: "The request cannot be read",
    401: "Who are you?",
    402: "More than the tenant may have",
    403: "Not allowed",
    404: "Not found",
    405: "No such method here",
    406: "No such form",
    409: "In conflict with what there is",
    412: "Changed since it was read",
    415: "No such media type",
    422: "The request cannot be",
    429: "Too many requests",
    503: "Not now",
}


def problem(
    status: int,
    code: str,
    detail: str,
    errors: list[dict[str, str]] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    body: dict[str, Any] = {
        "type": f"urn:tidewheel:problem:{code}",
        "title": TITLES.get(status, "Failed"),
        "status": status,
        "code": code,
        "detail": _readable(detail),
    }
    if errors:
        body["errors"] = [
            {name: _readable(text) for name, text in error.items()} for error in errors[:ERRORS_MAX]
        ]
    return Response(body, status=status, headers=headers, content_type=CONTENT_TYPE)


def refused(error: Refused) -> Response:
    """What is refused, as a response."""
    errors = [{"pointer": error.field, "detail": error.detail}] if error.field else None
    wait = error.retry_after_s
    headers = None if wait is None else {"Retry-After": str(wait)}
    return problem(error.status, error.code, error.detail, errors, headers)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The response for `error`; None for a bug. DRF calls it (EXCEPTION_HANDLER)."""
    response = _response_for(error)
    if response is not None:
        set_rollback()
    return response


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """For addresses that nobody serves: below /api/ a problem, elsewhere a page."""
    if not request.path.startswith(API):
        return page_not_found(request, exception)
    return _as_http(problem(404, "not-found", "There is no such address."))


def failed(request: HttpRequest) -> HttpResponse:
    """A bug, of which nothing is told but that it is one."""
    if not request.path.startswith(API):
        return server_error(request)
    detail = "This is a fault of ours, and has been written down."
    return _as_http(problem(500, "internal", detail))


def _as_http(response: Response) -> HttpResponse:
    body = json.dumps(response.data)
    return HttpResponse(body, status=response.status_code, content_type=CONTENT_TYPE)


def _response_for(error: Exception) -> Response | None:
    if isinstance(error, Refused):
        return refused(error)
    if isinstance(error, Http404):
        return problem(404, "not-found", "There is no such thing.")
    if isinstance(error, PermissionDenied):
        return problem(403, "forbidden", "You may not do this.")
    if isinstance(error, exceptions.ValidationError):
        errors = list(_fields(error.detail, ""))
        first = errors[0]
        where = f"{first['pointer']}: " if first["pointer"] else ""
        return problem(422, "invalid", f"{where}{first['detail']}", errors)
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    return None


def _of_framework(error: exceptions.APIException) -> Response:
    headers: dict[str, str] = {}
    # What DRF hangs on its exceptions for their headers.
    wait, challenge = getattr(error, "wait", None), getattr(error, "auth_header", None)
    if wait is not None:
        headers["Retry-After"] = str(max(1, int(wait)))
    if challenge:
        headers["WWW-Authenticate"] = str(challenge)
    code = str(error.default_code).replace("_", "-")
    return problem(error.status_code, code, str(error.detail), headers=headers)


def _readable(text: str) -> str:
    """The text with half characters escaped: JSON lets a request have them, UTF-8 no answer."""
    return text.encode(errors="backslashreplace").decode()


def _fields(detail: Any, pointer: str) -> Iterator[dict[str, str]]:
    if isinstance(detail, dict):
        for name, below in detail.items():
            escaped = str(name).replace("~", "~0").replace("/", "~1")
            yield from _fields(below, pointer if name == "" else f"{pointer}/{escaped}")
    elif isinstance(detail, list):
        for index, below in enumerate(detail):
            is_message = not isinstance(below, dict | list)
            yield from _fields(below, pointer if is_message else f"{pointer}/{index}")
    else:
        yield {"pointer": pointer, "detail": str(detail)}
