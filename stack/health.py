"""What the brokers of a stack say of themselves at /healthz, and in words for people.

An answer that does not come in time is no verdict: the broker may hang, or have very much to do.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from stack.folder import BrokerState

HEALTH_TIMEOUT_S: Final = 2.0


def _health(port: int) -> dict[str, Any] | None:
    """What a broker says of itself at /healthz; None when it does not answer in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        found = json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return found if isinstance(found, dict) else None


def healths(brokers: Sequence[BrokerState]) -> dict[int, dict[str, Any] | None]:
    """What each broker says of itself; all are asked at once, since some may hang."""
    asked = [broker for broker in brokers if broker.metrics_port]
    if not asked:
        return {}
    with ThreadPoolExecutor(len(asked)) as threads:
        answers = threads.map(_health, [broker.metrics_port for broker in asked])
        return {broker.broker_id: answer for broker, answer in zip(asked, answers, strict=True)}


def health_lines(health: dict[str, Any] | None) -> list[str]:
    """What somebody has to do about a broker; nothing when it is well."""
    if health is None:
        return ["no answer from its /healthz: it hangs, or has very much to do"]
    lines = []
    for one in health.get("offline_log_directories", ()):
        lines.append(f"{health['status']}: {one['directory']} is offline: {one['reason']}")
        lines.append(one["what_to_do"])
    return lines
