"""Whatever happens in whatever order: nothing acknowledged is lost, replicas agree.

Hypothesis plays producers, fetches whose steps come apart, logs that threads cut, crashes with and
without loss of power, late images (so that several brokers lead at a time), ISR changes with lost
answers of the store, and elections from ISR and ELR. After every step:

- every record that was acknowledged to acks=all is in every replica of the ISR and of the ELR that
  is up, at its offset;
- two replicas hold the same bytes below the lower of their high watermarks;
- the high watermark of a running replica never moves back, and never passes its log end;
- whoever leads in the newest epoch is in the ISR.

The cell loses no data by itself as long as its disks do not: power is lost only while another
replica that has everything is left, as min.insync.replicas=2 promises.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from data_plane.cell.metadata import NO_LEADER
from data_plane.log.config import LogConfig
from data_plane.replica.leadership import IsrProposal
from data_plane.wire.errors import ErrorCode
from tests.replica.cell import LAG_MS, Cell, Node, Request, Response

NODES = st.integers(1, 3)


class Replication(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: dict[int, bytes] = {}
        self.requests: list[Request] = []
        self.responses: list[tuple[int, Response]] = []
        self.proposals: list[tuple[Node, IsrProposal]] = []
        self.seen: dict[int, int] = {}
        self.reached: set[str] = set()

    @initialize(fsync=st.booleans())
    def begin(self, fsync: bool) -> None:
        self.cell = Cell(
            3,
            config=LogConfig(
                segment_bytes=700,
                index_interval_bytes=100,
                retention_ms=-1,
                file_delete_delay_ms=0,
                durability_fsync=fsync,
            ),
            cutting=(2, 3),
        )

    # Producing

    @rule(count=st.integers(1, 3))
    def produce(self, count: int) -> None:
        """At the leader."""
        if self.cell.state.leader != NO_LEADER:
            self.produce_at(self.cell.state.leader, count)

    @rule(node_id=NODES, count=st.integers(1, 3))
    def produce_at(self, node_id: int, count: int) -> None:
        """With acks=all, at whoever takes himself for the leader."""
        node = self.cell.nodes[node_id]
        if not node.is_up or not node.partition.is_leader or node.partition.is_under_min_isr:
            return
        log = node.partition.log
        base = log.log_end_offset

        def done(_: int, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                data = next(data for offset, _, data in node.batches() if offset == base)
                assert self.acknowledged.setdefault(base, data) == data
                self.reached.add("acknowledged")

        node.append(done, count)

    # Fetching, step by step

    @rule(node_id=NODES)
    def ask(self, node_id: int) -> None:
        node = self.cell.nodes[node_id]
        request = node.ask() if node.is_up else None
        if request is not None and len(self.requests) < 10:
            self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), is_repeated=st.booleans())
    def answer(self, data: Any, is_repeated: bool) -> None:
        """Some request arrives at some broker; perhaps it will arrive again."""
        number = data.draw(st.integers(0, len(self.requests) - 1))
        request = self.requests[number]
        if not is_repeated:
            del self.requests[number]
        leaders = [
            node
            for node in self.cell.up()
            if node.node_id != request.node_id and node.partition.is_leader
        ]
        if leaders and len(self.responses) < 10:
            leader = data.draw(st.sampled_from(leaders))
            self.responses.append((request.node_id, leader.answer(request)))

    @precondition(lambda self: self.responses)
    @rule(data=st.data())
    def take(self, data: Any) -> None:
        node_id, response = self.responses.pop(data.draw(st.integers(0, len(self.responses) - 1)))
        node = self.cell.nodes[node_id]
        if node.is_up and node.broker_epoch == response.request.broker_epoch:
            before = node.end
            node.take(response)
            if node.end < before:
                self.reached.add("truncated")

    @rule(node_id=NODES, times=st.integers(1, 3))
    def fetch(self, node_id: int, times: int) -> None:
        """All three steps at once."""
        node = self.cell.nodes[node_id]
        for _ in range(times):
            request = node.ask() if node.is_up else None
            if request is None:
                return
            leader = self.cell.nodes[node.partition.leader_id]
            if leader.is_up:
                before = node.end
                node.take(leader.answer(request))
                if node.end < before:
                    self.reached.add("truncated")

    @rule(rounds=st.integers(1, 4), skipped=st.sampled_from([0, 0, 1, 2, 3]))
    def run(self, rounds: int, skipped: int) -> None:
        """The usual: everybody who is up, but perhaps one, sees the image, fetches, syncs."""
        for node in self.cell.up():
            if node.node_id != skipped:
                node.deliver()
        for _ in range(rounds):
            for node_id in (1, 2, 3):
                if node_id != skipped:
                    self.fetch(node_id, 1)
                    self.sync(node_id)
                    self.cut_by_thread(node_id)
                    self.cut_by_thread(node_id)
        leader = self.cell.nodes.get(self.cell.state.leader)
        if leader is not None and leader.is_up and not self.proposals:
            self.propose(leader.node_id, may_shrink=skipped != 0)

    @rule(node_id=NODES)
    def sync(self, node_id: int) -> None:
        node = self.cell.nodes[node_id]
        if node.is_up and node.syncs:
            node.sync()

    @rule(node_id=NODES)
    def cut_by_thread(self, node_id: int) -> None:
        node = self.cell.nodes[node_id]
        if node.is_up and node.cuts:
            before = node.end
            node.cut()
            if node.end < before:
                self.reached.add("cut by a thread")

    # ISR

    @rule(ms=st.sampled_from([1, LAG_MS // 2, LAG_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.cell.now_ms += ms

    @rule(node_id=NODES, may_shrink=st.booleans())
    def propose(self, node_id: int, may_shrink: bool) -> None:
        node = self.cell.nodes[node_id]
        if not node.is_up:
            return
        proposal = node.partition.propose_isr(self.cell.now_ms, may_shrink=may_shrink)
        if proposal is not None:
            self.proposals.append((node, proposal))

    @precondition(lambda self: self.proposals)
    @rule(is_answer_lost=st.booleans())
    def commit_proposal(self, is_answer_lost: bool) -> None:
        node, proposal = self.proposals.pop(0)
        before = self.cell.state.isr
        is_taken = self.cell.commit_proposal(node, proposal)
        if is_taken:
            self.reached.add("shrunk" if len(self.cell.state.isr) < len(before) else "expanded")
        if not is_answer_lost and node.is_up:
            node.deliver()
            if not is_taken:
                node.partition.isr_refused(proposal.partition_epoch, self.cell.now_ms)

    @rule(node_id=NODES)
    def deliver(self, node_id: int) -> None:
        if self.cell.nodes[node_id].is_up:
            self.cell.nodes[node_id].deliver()

    # Failures

    @rule(
        kind=st.sampled_from(["fence", "stop", "power", "move"]),
        node_id=NODES,
        seed=st.integers(0, 1000),
    )
    def trouble(self, kind: str, node_id: int, seed: int) -> None:
        """One thing goes wrong, or is moved for good reasons."""
        node, state = self.cell.nodes[node_id], self.cell.state
        is_fenced = self.cell.image.brokers[node_id].is_fenced
        if kind == "fence" and not is_fenced:
            # The controller takes it for dead, rightly or not.
            self.cell.fence(node_id)
        elif kind == "stop" and node.is_up:
            node.stop()
            self.seen.pop(node_id, None)
        elif kind == "power" and node.is_up and {*state.isr, *state.elr} - {node_id}:
            node.lose_power(random.Random(seed))
            self.seen.pop(node_id, None)
            # It is out of everything before another one may go.
            self.cell.register(node_id, is_clean=False)
            self.cell.elect()
        elif kind == "move" and node_id in state.isr and not is_fenced:
            if state.leader in (node_id, NO_LEADER):
                return
            self.cell.commit(leader=node_id)
        else:
            return
        self.reached.add(kind)

    @rule(node_id=NODES, is_clean=st.booleans())
    def recover(self, node_id: int, is_clean: bool) -> None:
        """Start again; or be heard of again, having been taken for dead wrongly."""
        broker = self.cell.image.brokers[node_id]
        node = self.cell.nodes[node_id]
        if not node.is_up:
            # It was stopped with its disk whole. Where nobody else has everything it has to say so:
            # the longest log, which the broker's controller would look for, is none of this model.
            state = self.cell.state
            is_last = {*state.isr, *state.elr} <= {node_id}
            self.cell.register(node_id, is_clean=is_clean or is_last)
        elif broker.is_fenced and node.broker_epoch == broker.broker_epoch:
            self.cell.commit(brokers={node_id: broker._replace(is_fenced=False)})
        self.cell.elect()

    @rule(node_id=NODES)
    def checkpoint(self, node_id: int) -> None:
        if self.cell.nodes[node_id].is_up:
            self.cell.nodes[node_id].checkpoint()

    # What always holds

    def was_repaired(self, node: Node) -> bool:
        """Whether committed records have just been taken out of its log, to be fetched again."""
        return False

    @invariant()
    def acknowledged_records_are_where_leaders_come_from(self) -> None:
        if not hasattr(self, "cell"):
            return
        state = self.cell.state
        for node_id in (*state.isr, *state.elr):
            node = self.cell.nodes[node_id]
            if not node.is_up:
                continue
            held = {base: data for base, _, data in node.batches()}
            for base, data in self.acknowledged.items():
                assert held.get(base) == data, f"{node_id} lacks {base}"

    @invariant()
    def replicas_agree_below_the_high_watermark(self) -> None:
        if not hasattr(self, "cell"):
            return
        nodes = self.cell.up()
        for node in nodes:
            partition = node.partition
            assert partition.high_watermark <= partition.log.log_end_offset
            assert partition.high_watermark == partition.log.high_watermark
            before = 0 if self.was_repaired(node) else self.seen.get(node.node_id, 0)
            assert partition.high_watermark >= before
            self.seen[node.node_id] = partition.high_watermark
        held = {node.node_id: node.batches() for node in nodes}
        for one in nodes:
            for other in nodes:
                end = min(one.partition.high_watermark, other.partition.high_watermark)
                first = [entry for entry in held[one.node_id] if entry[0] < end]
                second = [entry for entry in held[other.node_id] if entry[0] < end]
                assert first == second

    @invariant()
    def the_leader_is_in_the_isr(self) -> None:
        if hasattr(self, "cell") and self.cell.state.leader != NO_LEADER:
            assert self.cell.state.leader in self.cell.state.isr


TestReplication = Replication.TestCase
TestReplication.settings = settings(
    max_examples=120,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
