"""Pages by cursor: in the order of ids, which is that of making, so that nothing is passed over or
shown twice while others write, and the last page costs what the first does.

A cursor is opaque: today the last id of a page, or what else it is in the order of, in base 64.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

from django.db import models
from rest_framework.request import Request

from control_plane.tenancy.errors import Invalid
from control_plane.tenancy.ids import ID_CHARACTERS_MAX

LIMIT_DEFAULT = 50
LIMIT_MAX = 500
CURSOR_CHARACTERS_MAX = 1500

ModelT = TypeVar("ModelT", bound=models.Model)


def page_of(
    request: Request, rows: models.QuerySet[ModelT], *, newest_first: bool = False
) -> tuple[list[ModelT], str | None]:
    """The rows of the page that is asked for, and the cursor of the next one, if there is one."""
    limit = limit_of(request)
    last = decoded_cursor(request)
    if last is not None:
        if len(last) > ID_CHARACTERS_MAX or not re.fullmatch(r"\w+", last, re.ASCII):
            raise no_cursor()
        rows = rows.filter(id__lt=last) if newest_first else rows.filter(id__gt=last)
    found = list(rows.order_by("-id" if newest_first else "id")[: limit + 1])
    if len(found) <= limit:
        return found, None
    return found[:limit], cursor_of(str(found[limit - 1].pk))


def page_body(items: Any, next_cursor: str | None) -> dict[str, Any]:
    """How every list is answered."""
    return {"items": items, "next_cursor": next_cursor}


def limit_of(request: Request) -> int:
    """How many are asked for. Raises Invalid."""
    text = request.query_params.get("limit")
    if text is None:
        return LIMIT_DEFAULT
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= LIMIT_MAX:
        raise Invalid(f"A limit is from 1 to {LIMIT_MAX}.", field="/limit")
    return int(text[:9])


def cursor_of(last: str | None) -> str | None:
    """What shows where the next page begins; None when there is none."""
    return None if last is None else urlsafe_b64encode(last.encode()).decode()


def no_cursor() -> Invalid:
    """For a cursor that was made elsewhere."""
    return Invalid("That is no cursor of ours.", field="/cursor")


def decoded_cursor(request: Request) -> str | None:
    """The last one of the page before, as the caller says; None on the first page. Raises
    Invalid."""
    cursor = request.query_params.get("cursor")
    if not cursor:
        return None
    try:
        if len(cursor) > CURSOR_CHARACTERS_MAX:
            raise ValueError
        return urlsafe_b64decode(cursor.encode("ascii")).decode()
    except ValueError as error:
        raise no_cursor() from error
