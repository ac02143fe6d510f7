"""Django over the run's Postgres: pytest-django makes a database of its own in it, and rolls back
what each test wrote."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.test")

from urllib.parse import urlsplit

import django
import pytest
from django.conf import settings

from stack.postgres import PostgresServer
from tests.postgres_server import postgres_server

django.setup()

__all__ = ["postgres_server"]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_server: PostgresServer) -> None:
    """Name the server before pytest-django makes its database there."""
    address = urlsplit(postgres_server.dsn)
    settings.DATABASES["default"] |= {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "control",
        "HOST": address.hostname,
        "PORT": str(address.port),
        "USER": address.username,
        "PASSWORD": address.password,
    }
