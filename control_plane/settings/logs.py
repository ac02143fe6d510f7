"""Logs: one JSON object a line on standard output, as brokers write them; a traceback is a field.

Django by itself writes nothing but mails when DEBUG is off: a fault would be told to nobody.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """The standard library's records, in the brokers' words."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def logging_settings(level: str) -> dict[str, Any]:
    """For Django's LOGGING: everything from `level` on."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLines}},
        "handlers": {
            "stdout": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stdout",
                "formatter": "json",
            }
        },
        "root": {"handlers": ["stdout"], "level": level},
        "loggers": {
            # By itself it has handlers that mail.
            "django": {"handlers": [], "level": level, "propagate": True},
            # It would tell of each task three times, and there are some each second.
            "celery": {"level": "WARNING"},
        },
    }
