"""How severe an event must be to be written: set at the start, changed while the broker runs.

Kafka's clients see it as the configuration of the broker's one logger, `root`. A change lasts until
the next start, as in Kafka.
"""

from __future__ import annotations

from data_plane.broker.request.refusal import Refusal
from data_plane.wire.errors import ErrorCode

ROOT_LOGGER = "root"

# Kafka's names, with the severities of the standard library.
SEVERITIES = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
_BY_METHOD = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}


class LogThreshold:
    """The threshold of all loggers of this process."""

    def __init__(self, level: str = "INFO") -> None:
        self.set(level)

    @property
    def level(self) -> str:
        """One of SEVERITIES."""
        return self._level

    def set(self, level: str) -> None:
        self._severity = SEVERITIES[level]
        self._level = level

    def lets_pass(self, method: str) -> bool:
        """Whether an event logged with this method (`info`, `warning`, …) is written."""
        return _BY_METHOD.get(method, SEVERITIES["FATAL"]) >= self._severity


def check_level(logger: str, level: str) -> None:
    """Raises Refusal, in Kafka's words."""
    if logger != ROOT_LOGGER:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist!")
    if level not in SEVERITIES:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(SEVERITIES))}",
        )
