"""Structured logs, to stderr or to a file: one JSON object a line, or lines for people.

Only the composition root imports this; everything else gets a logger handed in.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, TextIO

import structlog


def make_logger(level: str, log_format: str, path: Path | None, **fields: Any) -> Any:
    """A logger for events of at least `level`, with `fields` in each; `log_format` is "json" or
    "console", `path` None is stderr."""
    stream: TextIO = sys.stderr
    if path is not None:
        stream = path.open("a", encoding="utf-8", buffering=1)
    renderer: Any = structlog.processors.JSONRenderer(default=str)
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty())
    return structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        cache_logger_on_first_use=True,
    ).bind(**fields)
