"""As test_replication_model, with copies that turn out to be damaged: they are given up, cut and
filled again (broker/replicas/replica_repair.py), and the cell goes on counting on nobody in vain.

Fetches and ISR proposals of before are under way at every moment, images come late, processes end
between any two steps. What was acknowledged must be in every member of ISR and ELR all the time: a
copy that is cut while somebody may still take it for whole breaks that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from data_plane.cell.metadata import NO_LEADER
from data_plane.cell.partition_state import next_epochs, without_damaged
from data_plane.wire.errors import ErrorCode
from tests.replica.cell import Cell, Image, Node
from tests.replica.test_replication_model import NODES, Replication

NEVER = -1


@dataclass
class Damaged:
    """On the list of a disk. `fetched_epoch` is of the process with that broker epoch."""

    broker_epoch: int
    fetched_epoch: int


class Repair(Replication):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: dict[int, Damaged] = {}
        # Whose cut a thread may still be busy with.
        self.being_cut: set[int] = set()

    @rule(node_id=NODES)
    def find_damage(self, node_id: int) -> None:
        node = self.cell.nodes[node_id]
        if node.is_up and node_id not in self.damaged:
            self.damaged[node_id] = Damaged(node.broker_epoch, node.partition.leader_epoch)
            # It is not fetched any more, and late answers are not taken.
            stopped: Any = node
            stopped.ask = lambda: None
            stopped.take = lambda response: None

    def fetched_epoch(self, node: Node) -> int:
        """Another process has fetched nothing yet."""
        damaged = self.damaged[node.node_id]
        return damaged.fetched_epoch if damaged.broker_epoch == node.broker_epoch else NEVER

    @rule(node_id=NODES)
    def give_up(self, node_id: int) -> None:
        """What the broker decides on the newest image, as it is committed."""
        node, cell = self.cell.nodes[node_id], self.cell
        if node_id not in self.damaged or not node.is_up:
            return
        old = cell.state
        live = [one for one, broker in cell.image.brokers.items() if not broker.is_fenced]
        new = without_damaged(old, node_id, live, cell.min_insync_replicas)
        is_led = old.leader not in (node_id, NO_LEADER)
        is_fetched = is_led and old.leader_epoch <= self.fetched_epoch(node)
        if new is old and (not is_fetched or node_id in (*old.isr, *old.elr)):
            return
        new = next_epochs(old, new, is_fencing=is_fetched)
        cell.image = Image(cell.image.version + 1, new, cell.image.brokers)
        cell.elect()
        self.reached.add("given up")

    @rule(node_id=NODES, share=st.floats(0, 1))
    def cut(self, node_id: int, share: float) -> None:
        """By the image that this broker has seen."""
        node = self.cell.nodes[node_id]
        if node_id not in self.damaged or not node.is_up:
            return
        state = node.image.partition
        if (
            state.leader in (node_id, NO_LEADER)
            or node_id in (*state.isr, *state.elr)
            or state.leader_epoch <= self.fetched_epoch(node)
        ):
            return
        node.partition.drop_damaged(int(node.end * share))
        del self.damaged[node_id], node.ask, node.take
        self.being_cut.add(node_id)
        self.reached.add("cut")

    def was_repaired(self, node: Node) -> bool:
        """What it knows to be committed goes with its records, when the cut is done."""
        if node.node_id not in self.being_cut or node.cuts:
            return False
        self.being_cut.remove(node.node_id)
        return True


@pytest.mark.parametrize("is_fencing", [True, False])
def test_a_fetch_of_before_does_not_bring_a_damaged_copy_back(is_fencing: bool) -> None:
    """Why the commit begins a leader epoch: without that, its leader takes the copy in again, by a
    fetch that was under way, while it is being cut."""
    cell = Cell(3)
    leader, follower = cell.nodes[1], cell.nodes[2]
    leader.append()
    cell.catch_up(2, 3)
    request = follower.ask()
    assert request is not None
    old = cell.state
    new = next_epochs(old, without_damaged(old, 2, (1, 2, 3), 2), is_fencing=is_fencing)
    assert new.isr == (1, 3)
    cell.image = Image(cell.image.version + 1, new, cell.image.brokers)
    cell.deliver()
    error = leader.answer(request).error
    proposal = leader.partition.propose_isr(cell.now_ms, may_shrink=False)
    if is_fencing:
        assert error is ErrorCode.FENCED_LEADER_EPOCH
        assert proposal is None
    else:
        assert proposal is not None
        assert set(proposal.isr) == {1, 2, 3}


TestRepair = Repair.TestCase
TestRepair.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
