"""Cuts in the network: one broker from the rest, from everybody, from Postgres; one way and both.

The brokers live in network namespaces, where iptables throws their packets away: connections stay
open and nobody is told, as when a switch fails. Clients are impatient here: with librdkafka's own
time-outs they alone would wait for half a minute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import network as network_module
from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.load import IMPATIENT, Load
from tests.faults.network import Network

TOPIC = "orders"
PARTITIONS = 6
CUT_S = 6.0

needs_namespaces = pytest.mark.skipif(
    bool(network_module.why_unavailable()), reason=network_module.why_unavailable() or "available"
)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


def others(cell: Cell, broker_id: int) -> list[int]:
    return [i for i in cell.ids if i != broker_id]


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["from everybody", "from the other brokers", "one way"])
def test_a_broker_is_cut_off(
    tmp_path: Path, network: Network, note_interruption: NoteInterruption, how: str
) -> None:
    with Cell(tmp_path, network=network) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS, settings=IMPATIENT) as load:
            for victim in cell.ids[:2]:
                cell.wait_until_in_sync(TOPIC)
                load.run_until_every_partition_moves()
                cut_at = time.monotonic()
                if how == "from everybody":
                    network.isolate(victim)
                else:
                    for other in others(cell, victim):
                        network.cut(victim, other, both_ways=how != "one way")
                time.sleep(CUT_S)
                network.heal()
                load.run_until_every_partition_moves(60)
                waits = load.interruptions(cut_at, time.monotonic())
                note_interruption(f"cut {how} for {CUT_S:.0f} s", waits.values())
            cell.wait_until_in_sync(TOPIC)
        load.check()


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_slow_link_is_no_fault(tmp_path: Path, network: Network) -> None:
    with Cell(tmp_path, network=network) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS, settings=IMPATIENT) as load:
            cell.wait_until_in_sync(TOPIC)
            network.slow_down(1, kbit_per_s=2000)
            load.run_until_acknowledged(1000, 60)
            network.heal()
            cell.wait_until_in_sync(TOPIC)
        load.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["both ways", "answers only", "requests only", "reset"])
def test_a_broker_is_cut_off_from_postgres(
    tmp_path: Path, note_interruption: NoteInterruption, how: str
) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS, settings=IMPATIENT) as load:
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
            victim = cell.controller()
            link = cell.store_links[victim]
            cut_at = time.monotonic()
            if how == "reset":
                link.drop()
            else:
                link.cut(to_server=how != "answers only", to_client=how != "requests only")
            cell.wait_for(lambda: cell.controller() != victim, "another controller")
            time.sleep(CUT_S)
            link.heal()
            load.run_until_every_partition_moves(60)
            waits = load.interruptions(cut_at, time.monotonic())
            note_interruption("controller cut off from Postgres", waits.values())
            cell.wait_until_in_sync(TOPIC)
        load.check()


def test_packets_between_namespaces_can_be_thrown_away() -> None:
    if reason := network_module.why_unavailable():
        pytest.skip(reason)
    with Network(2) as network:
        assert network_module.can_connect(network, 1, 2)
        network.cut(1, 2, both_ways=False)
        assert not network_module.can_connect(network, 1, 2)
        network.heal()
        network.isolate(2)
        assert not network_module.can_connect(network, 1, 2)
        network.heal()
        network.slow_down(1, kbit_per_s=100)
        assert network_module.can_connect(network, 1, 2)
        network.heal()
