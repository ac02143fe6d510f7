"""The Django app `reconciliation`. It has no tables of its own."""

from __future__ import annotations

from django.apps import AppConfig


class ReconciliationConfig(AppConfig):
    name = "control_plane.reconciliation"
    label = "reconciliation"

    def ready(self) -> None:
        """Workers listen for hints from when they are ready."""
        from control_plane.reconciliation import hints

        hints.connect()
