"""Structured logs, to stderr or to a file: one JSON object a line, or lines for people.

Only the composition root imports this; everything else gets a logger handed in. `THRESHOLD` is one
for the whole process, as its output is; clients may change it while the broker runs.

Where rich happens to be installed, structlog would load it at once, for tracebacks in colours: a
seventh of a broker's start and 3 MiB. It is not to find it; what is logged looks the same
everywhere then, too.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from data_plane.broker.admin.log_threshold import LogThreshold


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Nobody's import finds the module `name`, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # what the import system looks for
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    import structlog

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
