"""What background work may delete at the moment, and why not.

A log knows neither how old the settings are that it works by, nor whether the date is right. Who
does (broker/cell/deletion_guard.py) says so with each tick. What has been decided already
goes on: files of segments that have left their log, folders of partitions that were deleted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeletionPermit:
    """Reasons; "" for what is allowed.

    - `why_nothing`: why no record may be deleted at all, by retention or by compaction.
    - `why_not_by_date`: why none may be deleted, and nothing forgotten, because of what date it
      is. Retention by size goes on. Set wherever `why_nothing` is.
    """

    why_nothing: str = ""
    why_not_by_date: str = ""

    @classmethod
    def refused(cls, reason: str) -> DeletionPermit:
        """Nothing at all."""
        return cls(reason, reason)


PERMITTED = DeletionPermit()
