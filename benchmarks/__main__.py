"""`./tidewheel bench`: the comparison by default, `./tidewheel bench partitions` for the other."""

from __future__ import annotations

import sys

from benchmarks import compare, many_partitions

if len(sys.argv) > 1 and sys.argv[1] == "partitions":
    del sys.argv[1]
    many_partitions.main()
else:
    compare.main()
