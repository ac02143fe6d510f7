"""Pages by cursor: in the order of ids, which is that of making, so that nothing is passed over or
shown twice while others write, and the last page costs what the first does.

A cursor is opaque: today the last id of a page, in base 64.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

from django.db import models
from rest_framework.request import Request

from control_plane.tenancy.errors import Invalid
from control_plane.tenancy.ids import ID_CHARACTERS_MAX

LIMIT_DEFAULT = 50
LIMIT_MAX = 500
CURSOR_CHARACTERS_MAX = 2 * ID_CHARACTERS_MAX

ModelT = TypeVar("ModelT", bound=models.Model)


def page_of(
    request: Request, rows: models.QuerySet[ModelT], *, newest_first: bool = False
) -> tuple[list[ModelT], str | None]:
    """The rows of the page that is asked for, and the cursor of the next one, if there is one."""
    limit = _limit(request.query_params.get("limit"))
    cursor = request.query_params.get("cursor")
    if cursor:
        last = _decoded(cursor)
        rows = rows.filter(id__lt=last) if newest_first else rows.filter(id__gt=last)
    found = list(rows.order_by("-id" if newest_first else "id")[: limit + 1])
    if len(found) <= limit:
        return found, None
    return found[:limit], urlsafe_b64encode(str(found[limit - 1].pk).encode()).decode()


def page_body(items: Any, next_cursor: str | None) -> dict[str, Any]:
    """How every list is answered."""
    return {"items": items, "next_cursor": next_cursor}


def _limit(text: str | None) -> int:
    if text is None:
        return LIMIT_DEFAULT
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= LIMIT_MAX:
        raise Invalid(f"A limit is from 1 to {LIMIT_MAX}.", field="/limit")
    return int(text[:9])


def _decoded(cursor: str) -> str:
    try:
        if len(cursor) > CURSOR_CHARACTERS_MAX:
            raise ValueError
        last = urlsafe_b64decode(cursor.encode("ascii")).decode("ascii")
    except ValueError as error:
        raise Invalid("That is no cursor of ours.", field="/cursor") from error
    if not last.replace("_", "").isalnum():
        raise Invalid("That is no cursor of ours.", field="/cursor")
    return last
