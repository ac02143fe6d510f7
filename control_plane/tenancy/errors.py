"""What a write is refused for: each has a code, words that a person can act on, and a status.

Presentation makes an RFC 9457 problem of it; `field` is a JSON pointer into the request.
"""

from __future__ import annotations

from typing import ClassVar


class Refused(Exception):
    """A write that is not done. Nothing has been changed."""

    code: ClassVar[str] = "refused"
    status: ClassVar[int] = 409
    # When it may be tried again, where that can help.
    retry_after_s: int | None = None

    def __init__(self, detail: str, *, field: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field


class Invalid(Refused):
    """A value that cannot be."""

    code = "invalid"
    status = 422


class NotFound(Refused):
    """No such thing in this tenant, whoever else may have one."""

    code = "not-found"
    status = 404


class Conflict(Refused):
    """The name is taken, or the thing is not in a state for this."""

    code = "conflict"


class Forbidden(Refused):
    """Who asks may not do this."""

    code = "forbidden"
    status = 403


class QuotaExceeded(Refused):
    """The tenant may not have more of it: a larger plan helps, and waiting does not."""

    code = "quota-exceeded"
    status = 402


class TenantSuspended(Refused):
    """The tenant may read, and change nothing."""

    code = "tenant-suspended"
    status = 403


class TooMany(Refused):
    """Too often of late: waiting helps."""

    code = "too-many"
    status = 429
    retry_after_s: int

    def __init__(self, detail: str, *, retry_after_s: int, field: str = "") -> None:
        super().__init__(detail, field=field)
        self.retry_after_s = retry_after_s


class StaleGeneration(Refused):
    """The thing is not what the caller has seen (If-Match): read it again."""

    code = "stale"
    status = 412


class CellDown(Refused):
    """The tenant's cell does not answer, or has no place for this just now. Nothing was done."""

    code = "cell-unavailable"
    status = 503
    retry_after_s = 5


class OutcomeUnknown(CellDown):
    """The cell was asked to do it, and did not say whether it has."""

    code = "outcome-unknown"
