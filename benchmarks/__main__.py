"""`./tidewheel bench`: single brokers compared by default; `bench cell` compares cells of three,
`bench secure` compares brokers whose clients log in within TLS, `bench partitions` measures many
partitions, `bench calls` counts function calls, `bench reconnects` has thousands of clients log in
at once, `bench neighbours` has one tenant disturb another, `bench subscriptions` measures filters
and their index, `bench selective` compares readers of one record in a hundred, `bench delays`
measures delayed messages, `bench retries` messages that come back, `bench redrives` dead letters
that are put back, `bench control-plane` the stack with its control plane."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from benchmarks import (
    calls,
    cell,
    compare,
    control_plane,
    delays,
    many_partitions,
    neighbours,
    reconnects,
    redrives,
    retries,
    secure,
    selective,
    subscriptions,
)

OTHERS = {
    "calls": calls.main,
    "cell": cell.main,
    "control-plane": control_plane.main,
    "delays": delays.main,
    "partitions": many_partitions.main,
    "neighbours": neighbours.main,
    "reconnects": reconnects.main,
    "redrives": redrives.main,
    "retries": retries.main,
    "secure": secure.main,
    "selective": selective.main,
    "subscriptions": subscriptions.main,
}


def end(number: int, _frame: FrameType | None) -> None:
    """Leave by the usual way, which stops the brokers: they would run beside the next benchmark."""
    raise SystemExit(128 + number)


signal.signal(signal.SIGTERM, end)
if len(sys.argv) > 1 and sys.argv[1] in OTHERS:
    OTHERS[sys.argv.pop(1)]()
else:
    compare.main()
