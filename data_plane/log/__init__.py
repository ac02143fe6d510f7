"""data_plane.log: see docs/architecture.md."""
