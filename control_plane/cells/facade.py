"""What other apps use of cells."""

from __future__ import annotations

from control_plane.cells.logic import place, with_cells

__all__ = ["place", "with_cells"]
