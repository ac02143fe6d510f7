"""A run whose worker has died goes on with what is left, and ends.

pytest-xdist's own scheduler by files puts all files of a dead worker back into its queue, also
those that are done, and the test that it died of. Who takes a file with nothing left in it is told
of no test, and waits for ever for the next one, since a worker runs a test only when it knows which
one comes after it; and the test would end one worker after the other. So here only what was not
run goes back, and workers get files until they have enough to do.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling
from xdist.workermanage import WorkerController

# A worker runs a test when it has the next one, or was told that there is none.
PENDING_MIN = 2


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def remove_node(self, node: WorkerController) -> str | None:
        """What the worker was running; None when it had nothing left."""
        workload = self.assigned_work.pop(node)
        crashed = None
        for scope, unit in workload.items():
            for test, is_done in unit.items():
                if not is_done and crashed is None:
                    crashed = test
                    # Its failure is told already: nobody runs it again.
                    unit[test] = True
            if not all(unit.values()):
                self.workqueue[scope] = unit
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Also for a worker that has come for a dead one: one file may be too little for it."""
        while True:
            super()._reschedule(node)
            if node.shutting_down or self._pending_of(self.assigned_work[node]) > PENDING_MIN:
                return


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None
