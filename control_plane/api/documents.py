"""The schema and the page that shows it, for everybody.

The schema that is served is the copy in version control: it is what the views promise, by a check,
and takes a second to make from them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.http import HttpResponse
from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

from control_plane.api.rate_limits import RateLimitedView

SCHEMA_PATH = Path(__file__).parent / "openapi.json"
CONTENT_TYPE = "application/vnd.oai.openapi+json"


class SchemaView(RateLimitedView):
    """`openapi.json`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    # It is no operation of the schema itself.
    schema = None

    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(_schema(), content_type=CONTENT_TYPE)


class DocumentsView(RateLimitedView, SpectacularSwaggerView):
    """The page."""


@cache
def _schema() -> bytes:
    return SCHEMA_PATH.read_bytes()
