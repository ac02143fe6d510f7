"""data_plane.server: see docs/architecture.md."""
