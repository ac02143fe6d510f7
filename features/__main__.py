"""A broker with all features: `python -m features`, with the arguments of `data_plane.server`."""

from __future__ import annotations

import sys

from data_plane.server.__main__ import main
from features.catalogue import FEATURES

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], FEATURES))
