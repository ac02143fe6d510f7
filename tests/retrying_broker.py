"""A broker whose retries are switched on, for tests: `python -m tests.retrying_broker`, with the
arguments of `data_plane.server`. Those of this version have them switched off."""

from __future__ import annotations

import sys
from dataclasses import replace

from data_plane.server.__main__ import main
from features.catalogue import FEATURES
from features.retry_dlq.feature import RETRY, RETRY_LEVELS

WITH_RETRIES = "tests.retrying_broker"

if __name__ == "__main__":
    sys.exit(
        main(
            sys.argv[1:],
            [replace(one, levels=RETRY_LEVELS) if one is RETRY else one for one in FEATURES],
        )
    )
