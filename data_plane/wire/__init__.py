"""data_plane.wire: see docs/architecture.md."""
