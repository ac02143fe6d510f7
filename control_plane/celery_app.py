"""The Celery application, which `python -m control_plane.work` runs.

Tasks are hints. What has to be done is in Postgres (accounts.Invitation, operations.OutboxEntry),
so the broker may be emptied at any time, and no task has an ETA or a countdown.
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.production")
app = Celery("control_plane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
