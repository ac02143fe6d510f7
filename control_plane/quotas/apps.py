"""The Django app `quotas`."""

from __future__ import annotations

from django.apps import AppConfig


class QuotasConfig(AppConfig):
    name = "control_plane.quotas"
    label = "quotas"
