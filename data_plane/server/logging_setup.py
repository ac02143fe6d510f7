"""Structured logs, to stderr or to a file: one JSON object a line, or lines for people.

Only the composition root imports this; everything else gets a logger handed in. `THRESHOLD` is one
for the whole process, as its output is; clients may change it while the broker runs.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, TextIO

import structlog

from data_plane.broker.log_threshold import LogThreshold

THRESHOLD = LogThreshold()


def _drop_below_threshold(_: Any, method: str, event: Any) -> Any:
    if THRESHOLD.lets_pass(method):
        return event
    raise structlog.DropEvent


def make_logger(level: str, log_format: str, path: Path | None, **fields: Any) -> Any:
    """A logger for events of at least `level`, with `fields` in each; `log_format` is "json" or
    "console", `path` None is stderr."""
    THRESHOLD.set(level)
    stream: TextIO = sys.stderr
    if path is not None:
        stream = path.open("a", encoding="utf-8", buffering=1)
    renderers: list[Any] = [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str),
    ]
    if log_format == "console":
        renderers = [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            _drop_below_threshold,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        cache_logger_on_first_use=True,
    ).bind(**fields)
