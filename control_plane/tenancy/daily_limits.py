"""How often something may be done in 24 hours, counted in rows that are there anyway.

It is a brake on abuse and no quota of a plan: it needs no cache, and outlives one. Who holds no
lock while he counts may pass it by as many as ask at once.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from control_plane.tenancy.errors import TooMany

DAY = timedelta(days=1)


def refuse_too_often(rows: QuerySet[Any], made_at: str, most: int, detail: str) -> None:
    """Raise TooMany when `most` of the rows were made in the last 24 hours; `made_at` is the field
    that says when. It tells when the first of them is a day old."""
    now = timezone.now()
    newest = rows.filter(**{f"{made_at}__gt": now - DAY}).order_by(f"-{made_at}")
    oldest = newest.values_list(made_at, flat=True)[most - 1 : most].first() if most else now
    if oldest is not None:
        wait = oldest + DAY - now
        raise TooMany(detail, retry_after_s=math.ceil(wait.total_seconds()))
