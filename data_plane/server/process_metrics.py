"""Connections, bytes, memory and processor time, for /metrics."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from data_plane.server.listener import Listener

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessCollector(Collector):
    """Reads everything when a scraper asks."""

    def __init__(self, listener: Listener, file_jobs: Callable[[], int]) -> None:
        self._listener = listener
        self._file_jobs = file_jobs

    def collect(self) -> Iterable[Metric]:
        listener = self._listener
        usage = resource.getrusage(resource.RUSAGE_SELF)
        for name, documentation, gauge in (
            ("tidewheel_connections", "Client connections.", len(listener.connections)),
            (
                "tidewheel_half_frame_bytes",
                "Memory of frames that have not arrived completely.",
                listener.memory.half_frames_bytes,
            ),
            (
                "tidewheel_unsent_bytes",
                "Answers that slow clients have not read.",
                listener.unsent.used,
            ),
            ("tidewheel_file_jobs", "File work waiting or running.", self._file_jobs()),
            ("process_resident_memory_bytes", "Resident memory.", _resident_bytes()),
            ("process_open_fds", "Open descriptors.", len(os.listdir("/proc/self/fd"))),
        ):
            yield GaugeMetricFamily(name, documentation, value=gauge)
        for name, documentation, total in (
            ("tidewheel_received_bytes", "Bytes received.", listener.bytes_in),
            ("tidewheel_sent_bytes", "Bytes of answers.", listener.bytes_out),
            ("tidewheel_connections_accepted", "Accepted.", listener.accepted_count),
            (
                "tidewheel_connections_closed_for_cause",
                "Closed for malformed frames, limits or deadlines.",
                listener.closed_for_cause_count,
            ),
            ("tidewheel_tls_handshakes", "TLS handshakes of clients.", listener.handshakes_count),
            (
                "tidewheel_failed_tls_handshakes",
                "TLS handshakes that a client could not finish.",
                listener.failed_handshakes_count,
            ),
            ("process_cpu_seconds", "Processor time.", usage.ru_utime + usage.ru_stime),
        ):
            yield CounterMetricFamily(name, documentation, value=float(total))


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * _PAGE_BYTES
