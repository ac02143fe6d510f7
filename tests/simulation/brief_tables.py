"""Tables that are compacted and forget, too: what retention and crashes do to a cleaner at work.

    planned ── run: the map of keys, rewritten segments ──────────── finish: swapped in
                    retention drops the first segments ──┘  │
                    a truncation, a kill, the power ────────┘

In these cells the cleaner takes its time, so that a job's outcome comes to a log that has changed
since the job was planned. What holds is said in compacted.py and retention.py: no key comes back
whose newest record was a tombstone, or lay below what retention has dropped.
"""

from __future__ import annotations

PROPERTIES = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "200",
}
CLEANING_MS_MEAN = 300
