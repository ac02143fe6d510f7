"""What other apps use of cells."""

from __future__ import annotations

from control_plane.cells.logic import place

__all__ = ["place"]
