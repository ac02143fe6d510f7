"""The Django app `accounts`."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "control_plane.accounts"
    label = "accounts"
