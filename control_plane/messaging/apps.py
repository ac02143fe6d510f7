"""The Django app `messaging`."""

from __future__ import annotations

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    name = "control_plane.messaging"
    label = "messaging"
