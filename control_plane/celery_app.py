"""The Celery application, which `python -m control_plane.work` runs.

Tasks are hints. What has to be done is in Postgres (accounts.Invitation, operations.OutboxEntry),
so the broker may be emptied at any time, and no task has an ETA or a countdown. A task that was
taken is done with, whatever becomes of it: the next beat makes another one.
"""

from __future__ import annotations

import os

from celery import Celery

from control_plane.acknowledgements import use_hints

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.production")
use_hints()
app = Celery("control_plane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
