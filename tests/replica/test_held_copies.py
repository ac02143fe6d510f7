"""A replica that begins anew, or that is made, gets what its leader holds below the log start."""

from __future__ import annotations

import random

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.fold import StoredBatch
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch, decode_batch
from tests.log.test_folds import FREE, PIN, Pins
from tests.log.test_held_records import HeldOffsets
from tests.replica.cell import LAG_MS, Cell, Node

CONFIG = LogConfig(segment_bytes=400, retention_ms=-1, file_delete_delay_ms=0)


class ThinPins(Pins):
    """Holds just what is pinned. "free" with an offset frees that one."""

    def apply(self, batch: StoredBatch) -> None:
        for record in batch.records:
            value = bytes(record.value or b"")
            if value.startswith(PIN):
                self.offsets.append(record.offset)
            else:
                self.offsets = left_of(self.offsets, value)

    def freeze_held(self) -> HeldOffsets:  # type: ignore[override]
        return HeldOffsets(frozenset(self.offsets))


def left_of(pinned: list[int], value: bytes) -> list[int]:
    """What of these a record with `value` leaves pinned."""
    if not value.startswith(FREE):
        return pinned
    named = value.removeprefix(FREE)
    return [offset for offset in pinned if offset != int(named)] if named else []


def put(node: Node, *values: bytes) -> None:
    """Each in a batch of its own."""
    for value in values:
        batch = build_batch([NewRecord(node.cell.now_ms, None, value)])
        node.partition.append_as_leader(batch, 0, len(batch), now_ms=node.cell.now_ms)


def roll(node: Node) -> None:
    if node.partition.log.active.size:
        node.partition.log.roll()
    node.partition.log.flush()


def delete(node: Node, before_offset: int) -> None:
    """By order, and what nobody holds goes from the disk."""
    log = node.partition.log
    log.delete_records(before_offset)
    log.flush()
    log.apply_retention(node.cell.now_ms)
    log.delete_pending_segments()


def thin(node: Node) -> bool:
    """Leave of what readers do not see what is held. Whether that was due."""
    node.partition.log.flush()
    node.checkpoint()
    job = node.partition.log.thinning_job()
    if job is None:
        return False
    job.run()
    job.finish()
    return True


def pins(node: Node) -> list[int]:
    return node.partition.log.fold(Pins).offsets


def disk_start(node: Node) -> int:
    return node.partition.log.segments[0].base_offset


def values(node: Node) -> dict[int, bytes]:
    """Offset → value of all that is on the disk."""
    found: dict[int, bytes] = {}
    for base, _, data in node.batches(of_disk=True):
        assert base not in found, "a batch twice"
        for record in decode_batch(data, 0):
            found[record.offset] = bytes(record.value or b"")
    return found


def held_cell() -> Cell:
    """1 leads, with segments 0 old, 1..2 with a pin, 3..4 and an active one from 5 on; readers
    begin at 5. 3 is to begin with nothing."""
    cell = Cell(3, min_insync_replicas=1, config=CONFIG, isr=(1, 2), fold_factories=[ThinPins])
    one = cell.nodes[1]
    for segment in ((b"old",), (PIN, b"v"), (b"v", b"v")):
        put(one, *segment)
        cell.catch_up(2)
        roll(one)
    put(one, b"v")
    cell.catch_up(2)
    delete(one, 5)
    cell.catch_up(2)
    assert (disk_start(one), one.partition.log.log_start_offset) == (1, 5)
    return cell


def test_a_new_replica_gets_it_before_it_is_in_sync() -> None:
    cell = held_cell()
    one, three = cell.nodes[1], cell.nodes[3]
    request = three.ask()
    assert request is not None
    answer = one.answer(request)
    assert (answer.error, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
    three.take(answer)
    joined = []
    for _ in range(20):
        state = three.partition.fetch_state()
        cell.fetch(3)
        if one.partition.propose_isr(cell.now_ms, may_shrink=False) is not None:
            joined.append(state.fetch_offset)
            break
        log = three.partition.log
        assert log.log_start_offset == log.log_end_offset or log.log_end_offset > 5
    assert joined == [6]
    assert (pins(three), disk_start(three)) == ([1], 1)
    assert three.partition.log.log_start_offset == 5
    assert values(three) == values(one)


@pytest.mark.parametrize("follower", [2, 3])
def test_what_is_held_outlives_all_who_had_it_first(follower: int) -> None:
    cell = held_cell()
    one, node = cell.nodes[1], cell.nodes[follower]
    node.lose_disk()
    cell.register(follower, is_clean=False)
    cell.deliver()
    cell.catch_up(follower)
    cell.commit(isr=(1, follower))
    cell.lead(follower)
    assert pins(node) == [1]
    assert values(node)[1] == PIN
    roll(node)
    put(node, FREE)
    cell.catch_up(1)
    delete(node, 6)
    cell.catch_up(1)
    roll(one)
    delete(one, 6)
    assert (disk_start(node), disk_start(one)) == (6, 5)
    assert pins(node) == pins(one) == []


def test_a_replica_that_was_away_goes_on_below_the_log_start() -> None:
    """Its log ends within what is held: it need not begin anew."""
    cell = held_cell()
    one, two = cell.nodes[1], cell.nodes[2]
    cell.commit(isr=(1,))
    cell.deliver()
    put(one, PIN, b"v")
    cell.now_ms += LAG_MS + 1
    one.partition.review(cell.now_ms)
    roll(one)
    put(one, b"v")
    delete(one, 9)
    before = two.partition.log.begun_anew_count
    cell.catch_up(2)
    assert two.partition.log.begun_anew_count == before
    assert pins(two) == [1, 6]
    assert values(two).items() >= values(one).items()


@pytest.mark.parametrize("is_new", [False, True])
def test_who_has_a_record_hears_what_let_go_of_it(is_new: bool) -> None:
    """While 2 is away, or 3 amid its copy, a pin they have is freed and thinned away."""
    cell = held_cell()
    one = cell.nodes[1]
    put(one, PIN, b"v")
    cell.catch_up(2)
    roll(one)
    put(one, b"v")
    cell.catch_up(2)
    delete(one, 8)
    behind = cell.nodes[3 if is_new else 2]
    if is_new:
        while 6 not in pins(behind):
            cell.fetch(3)
    else:
        cell.commit(isr=(1,))
        cell.deliver()
    assert pins(behind) == [1, 6]
    put(one, FREE + b"6", b"v")
    if is_new:
        cell.catch_up(2)
    else:
        cell.now_ms += LAG_MS + 1
        one.partition.review(cell.now_ms)
    roll(one)
    put(one, b"v")
    if is_new:
        cell.catch_up(2)
    roll(one)
    end = one.partition.log.log_end_offset
    delete(one, end - 1)
    assert thin(one)
    assert 6 not in values(one)
    before = behind.partition.log.begun_anew_count
    cell.catch_up(behind.node_id)
    assert behind.partition.log.begun_anew_count == before
    assert pins(behind) == pins(one) == [1]


def test_gaps_of_offsets_are_copied() -> None:
    cell = held_cell()
    one, three = cell.nodes[1], cell.nodes[3]
    assert thin(one)
    assert sorted(values(one)) == [1, 5]
    cell.catch_up(3)
    assert values(three) == values(one)
    assert (pins(three), three.partition.log.log_start_offset, three.end) == ([1], 5, 6)
    # A cut below begins anew: what is missing there may have gone for what is cut.
    assert three.partition.log.cleaned_end == 6


def test_one_that_is_cut_amid_the_copy_begins_again_where_its_disk_does() -> None:
    """An unclean election: 2 leads, and has parted from 1 within what 3 has copied already."""
    cell = held_cell()
    three = cell.nodes[3]
    three.partition.restart_at(1, 0)
    cell.fetch(3)
    log = three.partition.log
    assert log.log_start_offset == log.log_end_offset == 3
    three.partition.truncate_for_divergence(0, 2)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    cell.catch_up(3)
    assert (pins(three), log.log_start_offset) == ([1], 5)


@pytest.mark.parametrize("how", ["kill", "power loss"])
def test_a_crash_amid_the_copy_goes_on_with_it(how: str) -> None:
    for stop_at in range(2, 7):
        cell = held_cell()
        one, three = cell.nodes[1], cell.nodes[3]
        while three.end < stop_at:
            cell.fetch(3)
        if how == "kill":
            three.stop()
        else:
            three.partition.log.flush()
            three.lose_power(random.Random(stop_at))
        cell.register(3, is_clean=False)
        cell.deliver()
        cell.catch_up(3)
        assert pins(three) == [1]
        assert values(three) == values(one)


def test_damage_in_what_is_held_is_filled_again_from_there() -> None:
    cell = held_cell()
    two = cell.nodes[2]
    roll(two)
    cell.commit(isr=(1,))
    cell.deliver()
    two.partition.drop_damaged(1)
    log = two.partition.log
    assert log.log_end_offset <= 1
    cell.catch_up(2)
    assert pins(two) == [1]
    assert values(two)[1] == PIN
    assert log.log_start_offset == 5


class HeldCopies:
    """Three brokers, their disks and crashes, beside a list of what is committed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cell = Cell(
            3,
            min_insync_replicas=1,
            config=LogConfig(segment_bytes=800, retention_ms=-1, file_delete_delay_ms=0),
            fold_factories=[ThinPins],
        )
        self.committed: list[bytes] = []
        self.begun_anew = self.thinned = self.copied_count = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()
        for node in self.cell.nodes.values():
            if not node.is_up:
                self.cell.register(node.node_id, is_clean=False)
        self.cell.elect()
        self.cell.deliver()
        leader = self.cell.leader
        self.cell.catch_up(*(one for one in self.cell.nodes if one != leader.node_id))
        self.join()
        self.check()
        assert set(self.cell.state.isr) == {1, 2, 3}
        for node in self.cell.nodes.values():
            assert pins(node) == pins(leader)

    @property
    def others(self) -> list[Node]:
        """Members of the ISR beside the leader, who are up."""
        leader = self.cell.state.leader
        return [self.cell.nodes[one] for one in self.cell.state.isr if one != leader]

    def step(self) -> None:
        rng, cell = self.rng, self.cell
        node = cell.nodes[rng.randrange(3) + 1]
        act = rng.random()
        if act < 0.3:
            for _ in range(rng.randrange(1, 5)):
                some, pin = b"v" * rng.randrange(1, 150), PIN + b"%d" % rng.randrange(99)
                free = FREE + b"%d" % rng.choice(pins(cell.leader) or [0])
                put(cell.leader, rng.choice((*[some, pin] * 10, *[free] * 5, FREE)))
        elif act < 0.6:
            self.fetch(node)
        elif act < 0.66:
            self.join()
        elif act < 0.72:
            if node.is_up:
                roll(node)
        elif act < 0.75:
            if node.is_up:
                node.checkpoint()
        elif act < 0.84:
            log = cell.leader.partition.log
            delete(cell.leader, rng.randrange(log.log_start_offset, log.high_watermark + 1))
        elif act < 0.88:
            if node.is_up:
                node.partition.log.apply_retention(cell.now_ms)
                if rng.random() < 0.5:
                    node.partition.log.delete_pending_segments()
        elif act < 0.93:
            self.thinned += node.is_up and thin(node)
        elif act < 0.95:
            if self.others:
                cell.commit(leader=rng.choice(self.others).node_id)
                cell.deliver()
        else:
            self.trouble(node)

    def fetch(self, node: Node) -> None:
        request = node.ask() if node.is_up else None
        if request is not None and self.cell.leader.node_id == node.partition.leader_id:
            before = node.partition.log.begun_anew_count
            node.take(self.cell.leader.answer(request, self.rng.choice((1, 2, 3))))
            log = node.partition.log
            self.begun_anew += log.begun_anew_count - before
            start = self.cell.leader.partition.log.log_start_offset
            self.copied_count += 0 < log.log_end_offset < start

    def join(self) -> None:
        leader = self.cell.leader
        proposal = leader.partition.propose_isr(self.cell.now_ms, may_shrink=False)
        if proposal is not None:
            assert self.cell.commit_proposal(leader, proposal)
            self.cell.deliver()

    def trouble(self, node: Node) -> None:
        """It ends, one way or the other, while another one has everything; or it is back."""
        cell, rng = self.cell, self.rng
        if node.is_up:
            if not set(cell.state.isr) - {node.node_id}:
                return
            rng.choice((node.stop, lambda: node.lose_power(rng), node.lose_disk))()
            isr = tuple(one for one in cell.state.isr if one != node.node_id)
            is_leader = cell.state.leader == node.node_id
            fenced = {node.node_id: cell.image.brokers[node.node_id]._replace(is_fenced=True)}
            cell.commit(isr=isr, leader=isr[0] if is_leader else None, brokers=fenced)
            cell.deliver()
        else:
            cell.register(node.node_id, is_clean=False)
            cell.deliver()

    def check(self) -> None:
        """Whoever may lead has all that a fold holds by what is committed."""
        leader = self.cell.leader
        stored = values(leader)
        for offset in range(len(self.committed), leader.partition.high_watermark):
            self.committed.append(stored[offset])
        held: list[int] = []
        for offset, value in enumerate(self.committed):
            held = left_of(held, value)
            if value.startswith(PIN):
                held.append(offset)
        for node_id in self.cell.state.isr:
            node = self.cell.nodes[node_id]
            found = values(node)
            for offset in held:
                assert found.get(offset) == self.committed[offset], f"{node_id} lacks {offset}"
            if node.end == len(self.committed):
                assert pins(node) == held, f"{node_id} holds more"


@pytest.mark.parametrize("group", range(8))
def test_whatever_happens_who_may_lead_has_all_that_is_held(group: int) -> None:
    worlds = [HeldCopies(seed) for seed in range(5 * group, 5 * group + 5)]
    for world in worlds:
        world.run(200)
    assert sum(world.begun_anew for world in worlds) > 5
    assert sum(world.thinned for world in worlds) > 1
    assert sum(world.copied_count for world in worlds) > 5
