"""What other apps use of usage."""

from __future__ import annotations

from control_plane.usage.logic import do_forget_names, use_now

__all__ = ["do_forget_names", "use_now"]
