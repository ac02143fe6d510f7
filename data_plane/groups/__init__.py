"""data_plane.groups: see docs/architecture.md."""
