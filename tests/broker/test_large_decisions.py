"""What the controller decides on very many partitions: not in a turn of its loop."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.cell import controller as controller_module
from data_plane.cell.changes import (
    AlterConfigs,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    apply_change,
)
from data_plane.cell.controller import Controller
from data_plane.cell.metadata import ResourceType
from data_plane.cell.partition_state import next_epochs
from data_plane.cell.settings import ControllerSettings
from tests.broker.counted_turns import CountedTurns
from tests.broker.test_membership import SESSION_MS, STEP_MS, Cell, CellMember

COUNT = 600
TOPIC = UUID(int=7)
# Of functions, in one turn. What a commit does to the image is proportional to it, too; it takes a
# fifth of the decision.
CALLS_MAX = 12 * COUNT


class LargeCell(Cell):
    """Three brokers, and partitions on all of them. `turns` are those of the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = CountedTurns()
        self.pass_time(2_000)
        image = self.store.read()
        replicas = [tuple(1 + (index + k) % 3 for k in range(3)) for index in range(COUNT)]
        change = CreateTopic(
            "default", "t", TOPIC, tuple(replicas), (("min.insync.replicas", "1"),)
        )
        self.store.apply([change], image.version, "create")
        self.pass_time(500)

    @property
    def controller(self) -> CellMember:
        return next(each for each in self.members if each.membership.is_controller)

    def leaders(self) -> set[int]:
        return {each.leader for each in self.store.read().topics_of("default")["t"].partitions}

    def count_for(self, duration_ms: int) -> None:
        """Let time pass; count what the controller does on its loop, worker threads apart."""
        controller = self.controller
        for _ in range(duration_ms // STEP_MS):
            self.clock.now_ms += STEP_MS
            for member in self.members:
                if not member.is_running:
                    continue
                if member is not controller:
                    member.services.tick(self.clock.now_ms)
                    member.run_jobs()
                    continue
                self.turns.take(lambda: controller.services.tick(self.clock.now_ms))
                while controller.executor.queue:
                    self.run_one(controller)

    def run_one(self, member: CellMember) -> None:
        work, on_done = member.executor.queue.popleft()
        result, error = None, None
        try:
            result = work()
        except Exception as failure:
            error = failure
        self.turns.take(lambda: on_done(result, error))


@pytest.fixture
def cell() -> LargeCell:
    return LargeCell()


def test_a_death_is_decided_off_the_loop(cell: LargeCell) -> None:
    assert COUNT > controller_module.DECIDED_AT_ONCE_MAX
    assert cell.leaders() == {1, 2, 3}
    controller = cell.controller
    victim = next(each for each in cell.members if each is not controller)
    victim.kill()
    cell.count_for(3 * SESSION_MS)
    assert victim.services.node_id not in cell.leaders()
    assert not any(
        victim.services.node_id in each.isr
        for each in cell.store.read().topics_of("default")["t"].partitions
    )
    assert max(cell.turns.calls_counts) <= CALLS_MAX


def a_plan(cell: LargeCell, controller: Controller) -> int:
    """Have broker 3 seen dead, and decided on; how many partitions that changes."""
    image = cell.controller.services.newest_image
    others = [each.services.node_id for each in cell.members if each is not cell.controller]
    situation = controller._situation
    observed = replace(
        situation.observed,
        dead=frozenset(
            (broker.node_id, broker.incarnation_id)
            for broker in image.brokers.values()
            if broker.node_id == others[0]
        ),
        alive=frozenset(each for each in situation.observed.alive if each[0] != others[0]),
    )
    controller._situation = replace(situation, observed=observed)
    plan = controller_module.Plan(image, controller._situation, cell.clock.now_ms)
    assert plan.is_large
    changes = controller.take(plan, plan.make())
    return sum(isinstance(each, ChangePartition) for each in changes)


def test_a_plan_is_true_for_what_nobody_has_changed_since(cell: LargeCell) -> None:
    controller = cell.controller.membership.controller
    count = a_plan(cell, controller)
    assert count == COUNT
    image = cell.controller.services.newest_image
    assert len(controller.decide(image)) == COUNT + 1
    old = image.topics_of("default")["t"].partitions[5]
    other = next_epochs(old, replace(old, isr=old.isr[:2]))
    changed = apply_change(image, ChangePartition(TOPIC, 5, other))
    kept = controller.decide(changed)
    assert [each.index for each in kept if isinstance(each, ChangePartition)] == [
        index for index in range(COUNT) if index != 5
    ]


@pytest.mark.parametrize("what", ["brokers", "configs", "topic", "situation", "settings"])
def test_a_plan_is_void_when_what_it_went_by_has_changed(cell: LargeCell, what: str) -> None:
    controller = cell.controller.membership.controller
    a_plan(cell, controller)
    image = cell.controller.services.newest_image
    match what:
        case "brokers":
            broker = image.brokers[cell.controller.services.node_id]
            image = apply_change(image, ChangeBroker(replace(broker, is_draining=True)))
        case "configs":
            values = (("broker.drain", "true"),)
            image = apply_change(image, AlterConfigs("default", ResourceType.BROKER, "1", values))
        case "topic":
            values = (("min.insync.replicas", "2"),)
            image = apply_change(image, AlterConfigs("default", ResourceType.TOPIC, "t", values))
        case "situation":
            situation = controller._situation
            seen = replace(situation.observed, dead=frozenset())
            controller._situation = replace(situation, observed=seen)
        case "settings":
            settings = ControllerSettings(session_timeout_ms=SESSION_MS, min_insync_replicas=3)
            controller._situation = replace(controller._situation, settings=settings)
    changes = controller.decide(image)
    assert not any(isinstance(each, ChangePartition) for each in changes)
    if what != "topic":
        assert not changes
