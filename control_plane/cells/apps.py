"""The Django app `cells`."""

from __future__ import annotations

from django.apps import AppConfig


class CellsConfig(AppConfig):
    name = "control_plane.cells"
    label = "cells"
