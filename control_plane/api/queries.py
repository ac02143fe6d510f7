"""Parameters of addresses: what cannot be is a 422 that names the parameter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from control_plane.api.pages import LIMIT_MAX
from control_plane.tenancy.errors import Invalid

TEXT_CHARACTERS_MAX = 300

PAGE_PARAMETERS = [
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}),
    OpenApiParameter("cursor", str, description="`next_cursor` of the page before."),
]


def text(request: Request, name: str) -> str | None:
    """A text, as it is."""
    value = request.query_params.get(name)
    if value is not None and (len(value) > TEXT_CHARACTERS_MAX or not value.isprintable()):
        raise Invalid(f"{name} is too long, or has characters that none has.", field=f"/{name}")
    return value


def choice(request: Request, name: str, allowed: Sequence[str]) -> str | None:
    """One of some words."""
    value = request.query_params.get(name)
    if value is not None and value not in allowed:
        raise Invalid(f"{name} is one of {', '.join(allowed)}.", field=f"/{name}")
    return value


def flag(request: Request, name: str) -> bool | None:
    """`true` or `false`."""
    value = choice(request, name, ("true", "false"))
    return None if value is None else value == "true"


def time_of(request: Request, name: str) -> datetime | None:
    """A time with its zone, as `2026-01-31T12:00:00Z`."""
    value = text(request, name)
    if value is None:
        return None
    try:
        parsed = parse_datetime(value)
        # In UTC: Postgres knows no zone that is more than 16 hours away.
        parsed = None if parsed is None or parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        parsed = None
    if parsed is None:
        raise Invalid(f"{name} is a time with its zone, as 2026-01-31T12:00:00Z.", field=f"/{name}")
    return parsed


def number(request: Request, name: str, low: int, high: int) -> int | None:
    """A whole number within bounds."""
    value = request.query_params.get(name)
    if value is None:
        return None
    try:
        # Longer ones are beyond all bounds, and cost.
        parsed = int(value[:30]) if value.isascii() else low - 1
    except ValueError:
        parsed = low - 1
    if not low <= parsed <= high:
        raise Invalid(f"{name} is from {low} to {high}.", field=f"/{name}")
    return parsed
