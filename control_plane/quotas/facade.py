"""What other apps use of quotas."""

from __future__ import annotations

from control_plane.quotas.logic import (
    default_plan,
    limits_in_force,
    limits_of,
    refuse_beyond,
    refuse_more_today,
)

__all__ = ["default_plan", "limits_in_force", "limits_of", "refuse_beyond", "refuse_more_today"]
