"""SIGSTOP for longer than the lease: a broker that sleeps, is replaced, and wakes up unaware.

When it wakes, it still believes in what it led. Whatever it does then must not be acknowledged,
and what it had not replicated must not be seen by anybody.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.load import IMPATIENT, Load

TOPIC = "orders"
PARTITIONS = 6
PAUSE_S = 5.0
"""More than twice broker.session.timeout.ms."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["a broker", "the controller"])
def test_a_broker_sleeps_through_its_lease(
    tmp_path: Path, note_interruption: NoteInterruption, role: str
) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS, settings=IMPATIENT) as load:
            for _ in range(3):
                cell.wait_until_in_sync(TOPIC)
                load.run_until_every_partition_moves()
                controller = cell.controller()
                is_wanted = role == "the controller"
                victim = next(i for i in cell.ids if (i == controller) == is_wanted)
                paused_at = time.monotonic()
                cell.pause(victim)
                try:
                    time.sleep(PAUSE_S)
                finally:
                    cell.resume(victim)
                load.run_until_every_partition_moves()
                waits = load.interruptions(paused_at, time.monotonic())
                note_interruption(f"SIGSTOP of {role} for {PAUSE_S:.0f} s", waits.values())
            cell.wait_until_in_sync(TOPIC)
        load.check()
