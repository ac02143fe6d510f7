"""What other apps use of cells."""

from __future__ import annotations

from control_plane.cells.logic import do_register_cell, place, with_cells

__all__ = ["do_register_cell", "place", "with_cells"]
