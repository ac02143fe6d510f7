"""data_plane.broker: see docs/architecture.md."""
