"""The Django app `usage`."""

from __future__ import annotations

from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "control_plane.usage"
    label = "usage"
