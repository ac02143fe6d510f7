"""data_plane.replica: see docs/architecture.md."""
