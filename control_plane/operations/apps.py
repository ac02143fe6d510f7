"""The Django app `operations`."""

from __future__ import annotations

from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "control_plane.operations"
    label = "operations"
