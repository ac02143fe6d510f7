"""`./tidewheel bench`: single brokers compared by default; `bench cell` compares cells of three,
`bench partitions` measures many partitions."""

from __future__ import annotations

import sys

from benchmarks import cell, compare, many_partitions

OTHERS = {"cell": cell.main, "partitions": many_partitions.main}

if len(sys.argv) > 1 and sys.argv[1] in OTHERS:
    OTHERS[sys.argv.pop(1)]()
else:
    compare.main()
