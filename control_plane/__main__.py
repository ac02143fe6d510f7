"""`python -m control_plane COMMAND`: Django's management commands with this room's settings."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.development")
    execute_from_command_line(["python -m control_plane", *sys.argv[1:]])


if __name__ == "__main__":
    main()
