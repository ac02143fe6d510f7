"""Random faults, one after the other and on top of each other, for as long as the night allows.

A seed decides what happens; the machine's own timing varies it further. After each fault that has
been mended every partition must move again, and in the end all histories are held against the log.
TIDEWHEEL_SEED repeats a choice, TIDEWHEEL_FAULT_MINUTES says for how long.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import network as network_module
from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.load import IMPATIENT, Load
from tests.faults.network import Network

TOPIC = "orders"
PARTITIONS = 6
MINUTES = float(os.environ.get("TIDEWHEEL_FAULT_MINUTES", "30"))
MENDED_SECONDS_MAX = 90.0

Mend = Callable[[], None]


class Faults:
    """What can be done to a cell. Each fault returns how it is mended."""

    def __init__(self, cell: Cell, network: Network, chooser: random.Random) -> None:
        self._cell = cell
        self._network = network
        self._chooser = chooser

    def choose(self) -> tuple[str, Mend]:
        """Do one at random; its name, and how to mend it."""
        faults: list[Callable[[], tuple[str, Mend]]] = [
            self.kill_one,
            self.kill_two,
            self.stop_one,
            self.pause_one,
            self.isolate_one,
            self.cut_two,
            self.cut_from_store,
            self.delay_store,
            self.kill_store,
            self.stop_store_and_kill_one,
        ]
        return self._chooser.choice(faults)()

    def _one(self) -> int:
        return self._chooser.choice(self._cell.ids)

    def kill_one(self) -> tuple[str, Mend]:
        victim = self._one()
        self._cell.kill9(victim)
        return f"kill -9 of broker {victim}", lambda: self._start(victim)

    def kill_two(self) -> tuple[str, Mend]:
        victims = self._chooser.sample(self._cell.ids, 2)
        self._cell.kill9(*victims)
        return f"kill -9 of brokers {victims}", lambda: self._start(*victims)

    def stop_one(self) -> tuple[str, Mend]:
        victim = self._one()
        self._cell.stop(victim)
        return f"stop of broker {victim}", lambda: self._start(victim)

    def pause_one(self) -> tuple[str, Mend]:
        victim = self._one()
        self._cell.pause(victim)
        return f"SIGSTOP of broker {victim}", lambda: self._cell.resume(victim)

    def isolate_one(self) -> tuple[str, Mend]:
        victim = self._one()
        self._network.isolate(victim)
        return f"broker {victim} cut off", self._network.heal

    def cut_two(self) -> tuple[str, Mend]:
        one, other = self._chooser.sample(self._cell.ids, 2)
        both_ways = self._chooser.random() < 0.5
        self._network.cut(one, other, both_ways=both_ways)
        return f"cut {one}-{other}, both ways: {both_ways}", self._network.heal

    def cut_from_store(self) -> tuple[str, Mend]:
        victim = self._one()
        link = self._cell.store_links[victim]
        to_server, to_client = self._chooser.choice([(True, True), (True, False), (False, True)])
        link.cut(to_server=to_server, to_client=to_client)
        return f"broker {victim} cut off from Postgres", link.heal

    def delay_store(self) -> tuple[str, Mend]:
        victim = self._one()
        link = self._cell.store_links[victim]
        link.delay(self._chooser.choice([20, 200, 1000]))
        return f"Postgres is slow for broker {victim}", link.heal

    def kill_store(self) -> tuple[str, Mend]:
        self._cell.postgres.kill_now()
        return "kill -9 of Postgres", self._cell.postgres.start

    def stop_store_and_kill_one(self) -> tuple[str, Mend]:
        victim = self._one()
        self._cell.postgres.stop()
        self._cell.kill9(victim)

        def mend() -> None:
            # The broker first, half of the time: it starts from its own image then.
            steps: list[Mend] = [self._cell.postgres.start, lambda: self._start(victim)]
            self._chooser.shuffle(steps)
            for step in steps:
                step()

        return f"Postgres is away and broker {victim} is killed", mend

    def _start(self, *brokers: int) -> None:
        for broker_id in brokers:
            self._cell.start(broker_id)


@pytest.mark.nightly
@pytest.mark.timeout(int(MINUTES * 60) + 900)
def test_random_faults(tmp_path: Path, note_interruption: NoteInterruption) -> None:
    if reason := network_module.why_unavailable():
        pytest.skip(reason)
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    chooser = random.Random(seed)
    until = time.monotonic() + MINUTES * 60
    done = 0
    with Network(3) as network, Cell(tmp_path, network=network) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        faults = Faults(cell, network, chooser)
        with Load(cell.bootstrap, TOPIC, PARTITIONS, settings=IMPATIENT) as load:
            while time.monotonic() < until:
                cell.wait_until_in_sync(TOPIC)
                began = time.monotonic()
                what, mend = faults.choose()
                print(f"{done}: {what}", flush=True)
                time.sleep(chooser.choice([0.1, 1.0, 3.0, 6.0]))
                mend()
                load.run_until_every_partition_moves(MENDED_SECONDS_MAX)
                waits = load.interruptions(began, time.monotonic())
                note_interruption("random faults, until mended", [max(waits.values())])
                done += 1
            cell.wait_until_in_sync(TOPIC)
        load.check()
    assert done > MINUTES, "faults were done"
