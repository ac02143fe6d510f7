"""The fixtures of this room that others have too."""

from __future__ import annotations

from tests.postgres_server import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
