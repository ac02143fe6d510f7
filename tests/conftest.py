"""What every test run has: the run's own plugins and the Hypothesis profiles.

The level of the run (everyday, all, nightly) arrives in TIDEWHEEL_TEST_LEVEL; `./tidewheel test`
sets it, plain pytest is everyday.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.plugins.rooms",
    "tests.plugins.leftovers",
    "tests.plugins.serial",
    "tests.plugins.interruptions",
    "tests.plugins.watchdog",
    "tests.plugins.clients",
    "tests.plugins.scheduling",
]

# A shared machine is slow at times; that is no property of the code, so no deadline per example.
settings.register_profile(
    "everyday", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("all", settings.get_profile("everyday"), max_examples=300)
settings.register_profile("nightly", settings.get_profile("everyday"), max_examples=10_000)
# A shell that runs the tests in its background has them ignore interrupts, and their children
# would inherit that: tests that interrupt a child would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.load_profile(os.environ.get("TIDEWHEEL_TEST_LEVEL", "everyday"))
