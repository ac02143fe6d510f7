"""What other apps use of messaging."""

from __future__ import annotations

from control_plane.messaging.logic import UNDELETE_DAYS, do_purge_due_topics
from control_plane.messaging.subscriptions import is_subscription

__all__ = ["UNDELETE_DAYS", "do_purge_due_topics", "is_subscription"]
