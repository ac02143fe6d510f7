"""The Django app `access`."""

from __future__ import annotations

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "control_plane.access"
    label = "access"
