"""Members of a cell: registration, heartbeats, the controller's lease, leaving."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.broker.cell.broker_lifecycle import Membership
from data_plane.broker.cell.controlled_shutdown import ControlledShutdown
from data_plane.broker.request.wall_clock import WallClock
from data_plane.cell.changes import (
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    UnregisterBroker,
    UpdateFeature,
)
from data_plane.cell.controller import Controller
from data_plane.cell.features import METADATA_VERSION, SUPPORTED_FEATURES
from data_plane.cell.metadata import BrokerImage, MetadataImage, PartitionImage
from data_plane.cell.metadata_store import InMemoryMetadataStore
from data_plane.cell.registration import decide_registration
from data_plane.cell.settings import ControllerSettings
from tests.broker.member_player import Clock, Member

HEARTBEAT_MS = 300
SESSION_MS = 1500
# Of the controller.
CONTROLLER_HEARTBEAT_MS = 200
LEASE_MS = 800
STEP_MS = 10


def broker_image(node_id: int, life: int = 1) -> BrokerImage:
    return BrokerImage(
        node_id,
        f"host-{node_id}",
        9092,
        inter_broker_host=f"host-{node_id}",
        inter_broker_port=9093,
        host_id=f"host-{node_id}",
        incarnation_id=f"{node_id}-{life}",
        is_fenced=True,
    )


def register(
    store: InMemoryMetadataStore, node_id: int, life: int = 1, clean_epoch: int | None = None
) -> MetadataImage:
    """What a starting process does before anything else."""
    image = store.read()
    broker = broker_image(node_id, life)
    changes = decide_registration(image, broker, clean_epoch, ControllerSettings())
    return store.apply(changes, image.version, f"register {node_id} {life} {image.version}")


class CellMember(Member):
    """A broker with all of its membership."""

    def __init__(
        self,
        store: InMemoryMetadataStore,
        clock: Clock,
        node_id: int,
        *,
        life: int = 1,
        image: MetadataImage | None = None,
        clean_epoch: int | None = None,
    ) -> None:
        super().__init__(store, clock, node_id=node_id, image=image)
        self.membership = Membership(
            self.services,
            self.now_ms,
            self.follower,
            Controller(ControllerSettings(session_timeout_ms=SESSION_MS)),
            broker_image(node_id, life),
            clean_epoch,
        )
        self.superseded: list[str] = []
        self.membership.on_superseded = self.superseded.append
        self.services.components += [self.follower, self.membership]
        self.is_running = False

    def start(self) -> None:
        self.is_running = True
        self.services.start(self.now_ms())

    def kill(self) -> None:
        self.is_running = False

    @property
    def me(self) -> BrokerImage:
        return self.image.brokers[self.services.node_id]

    def events(self, name: str) -> int:
        return sum(event == name for _, event, _ in self.log.events)


class Cell:
    """Several brokers, one store, one clock."""

    def __init__(self, count: int = 3) -> None:
        self.clock = Clock()
        self.store = InMemoryMetadataStore(MetadataImage("cluster"), lambda: self.clock.now_ms)
        self.members: list[CellMember] = []
        for node_id in range(1, count + 1):
            self.start(node_id)

    def start(self, node_id: int, life: int = 1, clean_epoch: int | None = None) -> CellMember:
        register(self.store, node_id, life, clean_epoch)
        member = CellMember(self.store, self.clock, node_id, life=life, clean_epoch=clean_epoch)
        member.start()
        self.members.append(member)
        return member

    def pass_time(self, ms: int, step_ms: int = STEP_MS) -> None:
        for _ in range(ms // step_ms):
            self.clock.now_ms += step_ms
            for member in self.members:
                if member.is_running:
                    member.services.tick(self.clock.now_ms)
                    member.run_jobs()

    def controllers(self) -> list[int]:
        return [
            member.services.node_id
            for member in self.members
            if member.is_running and member.membership.is_controller
        ]

    def renewals(self) -> dict[int, int]:
        """How often each session was renewed, by node id."""
        sessions = self.store.heartbeat(9, "x", 1, wants_controller=False).sessions
        return {node_id: session.renewals for node_id, session in sessions.items()}

    def create_topic(self, *replicas: int) -> None:
        image = self.store.read()
        change = CreateTopic(
            "default", "t", UUID(int=7), (replicas,), (("min.insync.replicas", "1"),)
        )
        self.store.apply([change], image.version, "create")

    def partition(self) -> PartitionImage:
        return self.store.read().topics_of("default")["t"].partitions[0]


@pytest.fixture
def cell() -> Cell:
    cell = Cell()
    cell.pass_time(2_000)
    return cell


def test_registered_brokers_are_let_in_and_one_is_controller(cell: Cell) -> None:
    assert cell.controllers() == [1]
    for member in cell.members:
        assert member.membership.is_active
        assert member.image == cell.store.read()
        assert member.events("unfenced") == 1


def test_heartbeats_go_on_at_their_interval_and_never_overlap(cell: Cell) -> None:
    member = cell.members[0]
    cell.pass_time(1_000)
    before = cell.renewals()
    cell.pass_time(12_000)
    after = cell.renewals()
    assert [after[node_id] - before[node_id] for node_id in (1, 2, 3)] == [60, 40, 40]
    # One that hangs is waited for.
    cell.clock.now_ms += HEARTBEAT_MS
    member.services.tick(cell.clock.now_ms)
    waiting = len(member.executor.queue)
    for _ in range(10):
        cell.clock.now_ms += HEARTBEAT_MS
        member.services.tick(cell.clock.now_ms)
    assert sum("heartbeat" in work.__qualname__ for work, _ in member.executor.queue) == 1
    assert waiting


def test_a_new_broker_is_let_in_soon() -> None:
    """Two looks of the controller, not two intervals later."""
    cell = Cell()
    cell.pass_time(HEARTBEAT_MS // 2)
    assert all(member.membership.is_active for member in cell.members)
    cell.pass_time(5_000)
    before = cell.renewals()
    late = cell.start(4)
    for member in cell.members:
        member.follower.request_update()
    cell.pass_time(HEARTBEAT_MS // 2)
    assert late.membership.is_active
    cell.pass_time(10_000 - HEARTBEAT_MS // 2)
    after = cell.renewals()
    hurried = SESSION_MS // (HEARTBEAT_MS // 5)
    assert after[1] - before[1] <= 50 + hurried, "the hurry ends"
    assert after[2] - before[2] <= 34, "and does not concern the others"


def test_an_image_is_current_while_nobody_can_have_been_called_dead_behind_its_back(
    cell: Cell,
) -> None:
    member = cell.members[1]
    assert member.membership.is_image_current(cell.clock.now_ms)
    member.store.is_down = True
    cell.pass_time(SESSION_MS // 2 - HEARTBEAT_MS)
    assert member.membership.is_image_current(cell.clock.now_ms)
    cell.pass_time(HEARTBEAT_MS)
    assert not member.membership.is_image_current(cell.clock.now_ms)
    member.store.is_down = False
    cell.pass_time(HEARTBEAT_MS)
    assert member.membership.is_image_current(cell.clock.now_ms)


def test_an_image_is_old_when_a_heartbeat_has_told_of_a_newer_one(cell: Cell) -> None:
    member = cell.members[1]
    cell.create_topic(2, 1, 3)
    cell.clock.now_ms += HEARTBEAT_MS
    member.services.tick(cell.clock.now_ms)
    # The heartbeat is answered; the feed is read later.
    while "heartbeat" not in member.executor.queue[0][0].__qualname__:
        member.executor.queue.rotate()
    member.executor.run_one()
    assert member.image.version < cell.store.read().version
    assert not member.membership.is_image_current(cell.clock.now_ms)
    member.run_jobs()
    assert member.image == cell.store.read()
    assert member.membership.is_image_current(cell.clock.now_ms)


def test_the_store_vouches_for_an_image_with_each_heartbeat_that_has_its_version(
    cell: Cell,
) -> None:
    member = cell.members[1]

    def doubt() -> str:
        return member.membership.image_doubt(cell.clock.now_ms)

    assert doubt() == ""
    member.store.is_down = True
    cell.pass_time(SESSION_MS - HEARTBEAT_MS)
    assert doubt() == ""
    cell.pass_time(2 * HEARTBEAT_MS)
    assert doubt() == f"the metadata store has not vouched for the image in {SESSION_MS} ms"
    member.store.is_down = False
    cell.pass_time(HEARTBEAT_MS)
    assert doubt() == ""
    # News that are known and not read yet: it is the last version that was vouched for.
    cell.create_topic(2, 1, 3)
    for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
        cell.clock.now_ms += HEARTBEAT_MS
        member.services.tick(cell.clock.now_ms)
        for _ in range(len(member.executor.queue)):
            if "heartbeat" in member.executor.queue[0][0].__qualname__:
                member.executor.run_one()
            else:
                member.executor.queue.rotate()
    assert doubt() != ""
    member.run_jobs()
    assert doubt() == ""


def test_heartbeats_bring_the_store_s_clock(cell: Cell) -> None:
    member = cell.members[1]
    clock = WallClock(1000, 10_000, follows_store=True, has_past=False)
    member.services.wall_clock = clock
    clock.observe(cell.clock.now_ms, cell.clock.now_ms + 70)
    assert clock.doubt
    cell.pass_time(HEARTBEAT_MS)
    assert clock.doubt == ""
    assert clock.store_offset is not None
    assert clock.store_offset.ahead_ms == 70


def test_an_answer_that_was_held_up_makes_no_image_current(cell: Cell) -> None:
    """It says what the store knew when it was asked; since then this broker may have died there."""
    member = cell.members[1]
    cell.clock.now_ms += HEARTBEAT_MS
    member.services.tick(cell.clock.now_ms)
    cell.clock.now_ms += SESSION_MS // 2
    member.run_jobs()
    assert member.image == cell.store.read()
    assert not member.membership.is_image_current(cell.clock.now_ms)
    cell.pass_time(HEARTBEAT_MS)
    assert member.membership.is_image_current(cell.clock.now_ms)


def test_a_dead_brokers_leaders_move_after_its_session(cell: Cell) -> None:
    cell.create_topic(2, 1, 3)
    cell.members[1].kill()
    cell.pass_time(SESSION_MS - 600)
    assert cell.partition().leader == 2
    cell.pass_time(1_200)
    assert cell.partition().leader == 1
    assert cell.partition().isr == (1, 3)
    assert cell.store.read().brokers[2].is_fenced


@pytest.mark.parametrize("phase_ms", range(0, 600, 50))
def test_a_death_is_seen_when_the_session_is_over_and_no_heartbeat_later(
    cell: Cell, phase_ms: int
) -> None:
    cell.create_topic(2, 1, 3)
    cell.pass_time(phase_ms)
    seen = cell.renewals()[2]
    while cell.renewals()[2] == seen:
        cell.pass_time(STEP_MS)
    cell.members[1].kill()
    # The controller saw that last renewal one of its own heartbeats later at most.
    cell.pass_time(SESSION_MS - STEP_MS)
    assert cell.partition().leader == 2
    cell.pass_time(CONTROLLER_HEARTBEAT_MS + 2 * STEP_MS)
    assert cell.partition().leader == 1


@pytest.mark.parametrize("phase_ms", range(0, 600, 50))
def test_another_broker_takes_over_when_the_controller_dies(cell: Cell, phase_ms: int) -> None:
    cell.create_topic(1, 2, 3)
    cell.pass_time(phase_ms)
    seen = cell.renewals()[1]
    while cell.renewals()[1] == seen:
        cell.pass_time(STEP_MS)
    renewed_ms = cell.clock.now_ms
    cell.members[0].kill()
    # The others look often towards the end of the lease.
    for _ in range((LEASE_MS + HEARTBEAT_MS // 5) // STEP_MS):
        cell.pass_time(STEP_MS)
        if controllers := cell.controllers():
            break
    assert controllers in ([2], [3])
    cell.pass_time(SESSION_MS - STEP_MS - (cell.clock.now_ms - renewed_ms))
    assert cell.partition().leader == 1, "nobody has watched for long enough"
    # The new controller saw that last renewal one of its own heartbeats later at most, and has
    # counted from there.
    cell.pass_time(HEARTBEAT_MS + 2 * STEP_MS)
    assert cell.partition().leader in (2, 3)


def test_a_broker_that_has_just_started_expires_nobody_when_it_takes_over(cell: Cell) -> None:
    cell.create_topic(1, 2, 3)
    cell.members[0].kill()
    cell.pass_time(LEASE_MS - CONTROLLER_HEARTBEAT_MS - STEP_MS)
    for member in cell.members[1:]:
        member.kill()
    started_ms = cell.clock.now_ms
    late = cell.start(4)
    while not late.membership.is_controller:
        cell.pass_time(STEP_MS)
    cell.pass_time(SESSION_MS - STEP_MS - (cell.clock.now_ms - started_ms))
    assert not any(broker.is_fenced for broker in cell.store.read().brokers.values())
    cell.pass_time(HEARTBEAT_MS)
    fenced = [i for i, broker in cell.store.read().brokers.items() if broker.is_fenced]
    assert fenced == [1, 2, 3]


def test_a_controller_that_is_late_is_watched_closely_and_no_longer(cell: Cell) -> None:
    controller, other = cell.members[0], cell.members[1]
    before = cell.renewals()[2]
    controller.is_running = False
    cell.pass_time(LEASE_MS - CONTROLLER_HEARTBEAT_MS - STEP_MS)
    assert cell.renewals()[2] - before > 2, "it looks more often"
    controller.is_running = True
    cell.pass_time(HEARTBEAT_MS)
    assert cell.controllers() == [1]
    before = cell.renewals()[2]
    cell.pass_time(10 * HEARTBEAT_MS)
    assert cell.renewals()[2] - before == 10
    # Who does not reach the store has nothing to watch.
    controller.is_running = False
    cell.pass_time(LEASE_MS - CONTROLLER_HEARTBEAT_MS - STEP_MS)
    other.store.is_down = True
    missed = other.membership.missed_heartbeats_count
    cell.pass_time(10 * HEARTBEAT_MS)
    assert other.membership.missed_heartbeats_count - missed <= 11


def test_the_lease_counts_from_before_the_heartbeat_was_sent(cell: Cell) -> None:
    member = cell.members[0]
    cell.pass_time(HEARTBEAT_MS)
    while member.membership.next_deadline_ms() != cell.clock.now_ms:
        cell.clock.now_ms += 1
    member.services.tick(cell.clock.now_ms)
    assert len(member.executor.queue) == 1
    # The answer takes almost the whole lease; what is left of it is short.
    cell.clock.now_ms += LEASE_MS - 1
    member.run_jobs()
    assert member.membership.is_controller
    cell.clock.now_ms += 1
    member.services.tick(cell.clock.now_ms)
    assert not member.membership.is_controller
    assert member.log.events[-1][2] == {"reason": "the lease has run out"}


def test_an_answer_later_than_the_lease_is_worth_nothing(cell: Cell) -> None:
    member = cell.members[0]
    cell.clock.now_ms += HEARTBEAT_MS
    member.services.tick(cell.clock.now_ms)
    cell.clock.now_ms += LEASE_MS
    member.run_jobs()
    assert not member.membership.is_controller


def test_a_cut_off_controller_stands_down_before_another_stands_up(cell: Cell) -> None:
    first = cell.members[0]
    first.store.is_down = True
    for _ in range(600):
        cell.pass_time(10)
        assert len(cell.controllers()) <= 1
    assert cell.controllers() != [1]
    assert first.events("heartbeat_missed") == 1
    first.store.is_down = False
    cell.pass_time(1_000)
    assert first.events("heartbeats_again") == 1
    assert not first.membership.is_controller


def test_a_controller_that_was_paused_decides_nothing_any_more(cell: Cell) -> None:
    """SIGSTOP for longer than the lease, right after it had decided something."""
    cell.create_topic(2, 1, 3)
    cell.members[0].follower.request_update()
    cell.members[0].run_jobs()
    paused, victim = cell.members[0], cell.members[1]
    paused.is_running = False
    cell.pass_time(6_000)
    epochs = cell.store.heartbeat(9, "x", 1, wants_controller=False).controller
    assert epochs is not None
    assert epochs.epoch == 2
    version = cell.store.read().version
    paused.is_running = True
    victim.is_running = True
    paused.services.tick(cell.clock.now_ms)
    assert not paused.membership.is_controller
    paused.run_jobs()
    assert cell.store.read().version == version


def test_nobody_dies_of_an_outage_of_the_store(cell: Cell) -> None:
    cell.create_topic(2, 1, 3)
    cell.pass_time(1_000)
    for member in cell.members:
        member.store.is_down = True
    cell.pass_time(60_000, 50)
    assert cell.controllers() == []
    for member in cell.members:
        assert member.membership.is_active, "it goes on by the image that it has"
        member.store.is_down = False
    cell.pass_time(5_000)
    assert len(cell.controllers()) == 1
    assert cell.partition().leader == 2
    assert cell.partition().isr == (2, 1, 3)
    assert all(member.membership.is_active for member in cell.members)


def test_a_broker_fenced_by_mistake_goes_on_and_is_let_in_again(cell: Cell) -> None:
    member = cell.members[1]
    member.store.is_down = True
    cell.pass_time(4_000)
    assert cell.store.read().brokers[2].is_fenced
    assert member.membership.is_active, "it does not know yet"
    member.store.is_down = False
    cell.pass_time(3_000)
    assert member.membership.is_active
    assert not member.superseded
    assert (member.events("fenced"), member.events("unfenced")) in ((1, 2), (0, 1))


def test_a_broker_whose_number_was_taken_says_so_once_and_is_no_controller(cell: Cell) -> None:
    first = cell.members[0]
    register(cell.store, 1, life=2)
    cell.pass_time(3_000)
    assert first.superseded == ["another process has registered under its number"]
    assert not first.membership.is_controller
    assert first.membership.broker_epoch_at_stop is None
    assert cell.store.read().brokers[1].incarnation_id == "1-2"


def test_a_broker_that_was_unregistered_ends(cell: Cell) -> None:
    member = cell.members[2]
    image = cell.store.read()
    epoch = image.brokers[3].broker_epoch
    cell.store.apply([UnregisterBroker(3, epoch)], image.version, "gone")
    cell.pass_time(1_000)
    assert member.superseded == ["its number is not registered any more"]


# Beginning without the store


def begun_alone(cell: Cell, clean_epoch: int | None = None) -> CellMember:
    """Broker 3 in its second life, from the image on its disk, while the store is away for it."""
    last = cell.members[2]
    last.kill()
    clean_epoch = last.me.broker_epoch if clean_epoch is None else clean_epoch
    member = CellMember(
        cell.store, cell.clock, 3, life=2, image=last.image, clean_epoch=clean_epoch
    )
    member.store.is_down = True
    cell.members.append(member)
    member.start()
    return member


def test_a_broker_that_began_alone_registers_when_the_store_is_back(cell: Cell) -> None:
    cell.create_topic(1, 2, 3)
    cell.pass_time(1_000)
    member = begun_alone(cell)
    epoch_before = member.me.broker_epoch
    cell.pass_time(1_000)
    assert not member.membership.is_registered
    assert member.membership.broker_epoch_at_stop == epoch_before
    member.store.is_down = False
    cell.pass_time(4_000)
    assert member.membership.is_active
    assert member.me.incarnation_id == "3-2"
    assert member.membership.broker_epoch_at_stop == member.me.broker_epoch > epoch_before
    assert cell.partition().isr == (1, 2, 3), "its last stop was clean"
    assert member.events("registered") == 1
    assert member.directories.broker_epochs == [member.me.broker_epoch]
    assert not member.superseded


def test_a_broker_that_began_alone_does_not_take_its_number_back(cell: Cell) -> None:
    member = begun_alone(cell)
    cell.pass_time(500)
    register(cell.store, 3, life=9)
    member.store.is_down = False
    cell.pass_time(2_000)
    assert len(member.superseded) == 1
    assert cell.store.read().brokers[3].incarnation_id == "3-9"


def test_a_broker_that_began_alone_ends_when_it_does_not_know_what_was_finalized(
    cell: Cell,
) -> None:
    member = begun_alone(cell)
    cell.pass_time(500)
    image = cell.store.read()
    changes: list[Change] = [
        ChangeBroker(replace(broker, features=SUPPORTED_FEATURES))
        for broker in image.brokers.values()
    ]
    changes.append(UpdateFeature(METADATA_VERSION, 2))
    cell.store.apply(changes, image.version, "upgraded")
    member.store.is_down = False
    cell.pass_time(2_000)
    (reason,) = member.superseded
    assert "broker 3 cannot register: the cell is at metadata.version 2" in reason
    assert cell.store.read().brokers[3].incarnation_id != "3-2"


def test_an_unregistered_broker_is_no_controller() -> None:
    cell = Cell(0)
    register(cell.store, 1)
    member = CellMember(cell.store, cell.clock, 1, life=2, clean_epoch=1)
    cell.members.append(member)
    member.start()
    member.services.tick(cell.clock.now_ms)
    while "heartbeat" not in member.executor.queue[0][0].__qualname__:
        member.executor.queue.rotate(1)
    member.executor.run_one()
    assert not member.membership.is_controller
    cell.pass_time(1_500)
    assert member.membership.is_controller


# Leaving


def leave(member: CellMember) -> list[str | None]:
    results: list[str | None] = []
    ControlledShutdown(member.services, member.membership, results.append).begin(member.now_ms())
    member.run_jobs()
    return results


def test_a_lease_is_given_back_also_while_a_heartbeat_is_under_way(cell: Cell) -> None:
    """That one wants the lease, and its answer is none to the wish to give it back."""
    controller = cell.members[0]
    while not controller.executor.queue:
        cell.clock.now_ms += STEP_MS
        controller.services.tick(cell.clock.now_ms)
    released: list[int] = []
    controller.membership.release_control(lambda: released.append(1))
    controller.executor.run_one()
    assert not released
    controller.run_jobs()
    assert released == [1]
    heartbeat = cell.store.heartbeat(2, "2-1", 1_000, wants_controller=True)
    assert heartbeat.controller is not None
    assert heartbeat.controller.is_ours, "it is free at once"


def test_leaders_are_handed_over_before_a_broker_goes(cell: Cell) -> None:
    cell.create_topic(2, 1, 3)
    cell.pass_time(1_000)
    results = leave(cell.members[1])
    assert results == []
    cell.pass_time(1_000)
    assert results == [None]
    assert cell.partition().leader == 1
    assert cell.partition().isr == (1, 3)
    gone = cell.store.read().brokers[2]
    assert gone.is_fenced
    assert gone.in_controlled_shutdown
    assert cell.members[1].membership.broker_epoch_at_stop == gone.broker_epoch
    cell.pass_time(3_000)
    assert cell.store.read().brokers[2].is_fenced, "nobody lets it in again"


def test_a_controller_that_goes_hands_over_its_leaders_and_its_lease(cell: Cell) -> None:
    cell.create_topic(1, 2, 3)
    cell.pass_time(1_000)
    results = leave(cell.members[0])
    cell.pass_time(600)
    assert results == [None]
    assert cell.partition().leader == 2
    cell.pass_time(HEARTBEAT_MS + 20)
    (controller,) = cell.controllers()
    assert controller in (2, 3), "without waiting for a lease to end"


def test_a_broker_that_holds_the_only_replica_does_not_wait(cell: Cell) -> None:
    cell.create_topic(2)
    cell.pass_time(1_000)
    results = leave(cell.members[1])
    cell.pass_time(300)
    assert results == [None]


def test_a_departure_takes_a_bounded_time(cell: Cell) -> None:
    cell.create_topic(2, 1, 3)
    cell.pass_time(1_000)
    for member in cell.members:
        if member is not cell.members[1]:
            # Alive for the store, deaf for the cell: nobody decides.
            member.store.is_down = True
    results = leave(cell.members[1])
    cell.members[1].store.is_down = True
    cell.pass_time(9_900, 50)
    assert results == []
    cell.pass_time(200)
    assert results == ["not done in controlled.shutdown.timeout.ms"]


def test_without_the_store_a_broker_goes_at_once(cell: Cell) -> None:
    member = cell.members[1]
    member.store.is_down = True
    cell.pass_time(1_000)
    assert leave(member) == ["the metadata store cannot be reached"]
    assert member.membership.broker_epoch_at_stop == member.me.broker_epoch


def test_the_next_life_of_a_clean_stop_is_back_in_the_isr_soon(cell: Cell) -> None:
    """Fenced and out of the ISR, but not thrown out of the ELR, nor suspected."""
    cell.create_topic(2, 1, 3)
    cell.pass_time(1_000)
    member = cell.members[1]
    results = leave(member)
    cell.pass_time(1_000)
    assert results == [None]
    member.services.stop(cell.clock.now_ms)
    member.kill()
    again = cell.start(2, life=2, clean_epoch=member.membership.broker_epoch_at_stop)
    cell.pass_time(2_000)
    assert again.membership.is_active
    assert not again.me.in_controlled_shutdown


def test_a_stopped_broker_sends_nothing(cell: Cell) -> None:
    member = cell.members[0]
    member.services.stop(cell.clock.now_ms)
    renewals = cell.store.heartbeat(9, "x", 1, wants_controller=False).sessions[1].renewals
    cell.pass_time(3_000)
    assert not member.membership.is_controller
    now = cell.store.heartbeat(9, "x", 1, wants_controller=False).sessions[1].renewals
    assert now == renewals
    assert member.membership.next_deadline_ms() is None


def test_a_fence_from_an_old_epoch_does_not_touch_the_next_life(cell: Cell) -> None:
    """ChangeBroker names the broker epoch, so a late fence of a departing process is refused."""
    member = cell.members[1]
    old = member.me
    register(cell.store, 2, life=2)
    cell.pass_time(100)
    outcome = member.write(ChangeBroker(replace(old, is_fenced=True)))
    member.run_jobs()
    assert outcome.error is not None


def test_what_the_controller_commits_names_its_epoch(cell: Cell) -> None:
    cell.create_topic(2, 1, 3)
    cell.members[1].kill()
    cell.pass_time(4_000)
    decided = [
        epoch
        for _, changes, epoch in cell.members[0].store.applied
        if any(isinstance(change, ChangeBroker | ChangePartition) for change in changes)
    ]
    assert len(decided) >= 2
    assert set(decided) == {1}


def test_a_controller_whose_epoch_is_over_learns_it_from_the_store(cell: Cell) -> None:
    """It was slow, and another broker has the lease: its decision does not happen."""
    first = cell.members[0]
    cell.create_topic(2, 1, 3)
    cell.members[1].kill()
    cell.pass_time(1_500)
    # Only the store's clock runs on; then somebody else takes the lease.
    cell.clock.now_ms += 4_000
    cell.store.heartbeat(9, "x", 60_000, wants_controller=True)
    cell.clock.now_ms -= 4_000
    cell.pass_time(1_500)
    assert first.membership.controller.epoch is None
    assert cell.partition().leader == 2


def test_what_was_decided_before_an_outage_is_not_committed_after_it(cell: Cell) -> None:
    """A broker was dead for the controller when the store went away, and is back with the store."""
    controller, victim, third = cell.members
    victim.kill()
    # Nobody else judges meanwhile.
    third.kill()
    controller.store.before_apply = lambda: setattr(controller.store, "is_down", True)
    cell.pass_time(3_000)
    assert controller.store.is_down
    assert not cell.store.read().brokers[2].is_fenced
    victim.store.is_down = True
    victim.is_running = True
    cell.pass_time(1_000)
    controller.store.is_down = victim.store.is_down = False
    applied = len(controller.store.applied)
    cell.pass_time(1_900)
    assert not any(
        isinstance(change, ChangeBroker) and change.broker.node_id == 2 and change.broker.is_fenced
        for _, changes, _ in controller.store.applied[applied:]
        for change in changes
    )


def test_a_departure_does_not_announce_the_next_life(cell: Cell) -> None:
    """Another process has taken the number just before."""
    member = cell.members[1]
    next_life: list[MetadataImage] = []
    member.store.before_apply = lambda: next_life.append(register(cell.store, 2, life=2))
    leave(member)
    cell.pass_time(1_000)
    assert next_life
    now = cell.store.read().brokers[2]
    assert now.incarnation_id == "2-2"
    assert not now.in_controlled_shutdown
