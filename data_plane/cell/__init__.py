"""data_plane.cell: see docs/architecture.md."""
