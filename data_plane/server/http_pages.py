"""The pages of the HTTP port, /metrics and /healthz: as responses, and what the first one shows of
the process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from data_plane.log.log_directory import LogDirectory
from data_plane.server.health import health
from data_plane.server.http import HttpResponse
from data_plane.server.loop_watch import LoopCollector, LoopWatch

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from data_plane.server.listener import Listener


def starting_page() -> HttpResponse:
    """Of a broker that has nothing to tell yet."""
    return HttpResponse("503 Service Unavailable", "text/plain", b"starting\n")


def metrics_page(registry: CollectorRegistry) -> HttpResponse:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return HttpResponse("200 OK", CONTENT_TYPE_LATEST, generate_latest(registry))


def health_page(
    *, is_ready: bool, directories: Sequence[LogDirectory], why_no_deletion: str
) -> HttpResponse:
    is_healthy, content = health(
        is_ready=is_ready, directories=directories, why_no_deletion=why_no_deletion
    )
    body = (json.dumps(content) + "\n").encode()
    code = "200 OK" if is_healthy else "503 Service Unavailable"
    return HttpResponse(code, "application/json", body)


def add_process_metrics(
    registry: CollectorRegistry,
    listener: Listener,
    file_jobs: Callable[[], int],
    watch: LoopWatch,
) -> None:
    """What the page shows of the process, besides what the broker counts."""
    from data_plane.server.process_metrics import ProcessCollector

    registry.register(ProcessCollector(listener, file_jobs))
    registry.register(LoopCollector(watch))
