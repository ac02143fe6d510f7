"""What a broker loads in order to log."""

from __future__ import annotations

import subprocess
import sys

from tests.broker_process import ROOT

# In a process of its own: the one that runs the tests has loaded all sorts of things.
LOAD_AND_LOG = """
import importlib.util, sys
from data_plane.server.logging_setup import make_logger

log = make_logger("INFO", "console", None, node_id=1)
try:
    1 / 0
except ZeroDivisionError:
    log.error("failed", exc_info=True)
print([name for name in sys.modules if name.split(".")[0] == "rich"])
print(importlib.util.find_spec("rich") is not None)
"""


def test_rich_is_not_loaded_and_stays_to_be_had() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_AND_LOG], check=True, capture_output=True, text=True, cwd=ROOT
    )
    loaded, is_there = done.stdout.splitlines()
    assert is_there == "True", "with no rich to be found this test shows nothing"
    assert loaded == "[]"
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback (most recent call last):" in done.stderr
