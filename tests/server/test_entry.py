"""Entering a cell: what a starting process may do, and when it has to wait or give up."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from data_plane.cell.changes import AllocateProducerIds, ChangeBroker, CreateTopic
from data_plane.cell.features import METADATA_VERSION, SUPPORTED_FEATURES, features_of
from data_plane.cell.identity import IdentityMismatch
from data_plane.cell.metadata import BrokerImage, MetadataImage
from data_plane.cell.metadata_store import InMemoryMetadataStore, StoreUnavailable
from data_plane.cell.registration import RegistrationRefused
from data_plane.log.errors import DirectoryLocked
from data_plane.log.lanes import Lane
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.server.configuration import load_configuration
from data_plane.server.entry import (
    LOST_ANSWERS_MAX,
    Addresses,
    Entry,
    NodeIdTaken,
    enter_cell,
    producer_id_file,
)
from data_plane.server.ports import Ports
from tests.broker.doubles import QueueExecutor, RememberingLog
from tests.broker.member_player import Clock, FaultyStore

ADDRESSES = Addresses("clients.example", 1001, "brokers.example", 1002)


class Machine:
    """A disk and a way to the store; each `enter` is a new process."""

    # Not id(): of a machine that is gone another one may get it, and with it the same chance.
    _numbers = count(1)

    def __init__(
        self,
        store: InMemoryMetadataStore | None,
        clock: Clock,
        set: Mapping[str, str] | None = None,
    ) -> None:
        self._number = next(self._numbers)
        self.clock = clock
        self.store = None if store is None else FaultyStore(store)
        self.fs = SimFileSystem()
        # When it was booted, by the steady clock; None where nobody knows.
        self.booted_ms: int | None = None
        self.while_asleep: Callable[[], None] = lambda: None
        self.slept_ms = 0
        self._lives = 0
        self._attempts = 0
        flags = {"node.id": "1", "log.dirs": "/data", **(set or {})}
        self.settings = load_configuration(flags=[f"{key}={flags[key]}" for key in flags])

    def enter(self) -> Entry:
        self._lives += 1
        return self.enter_again()

    def enter_again(self) -> Entry:
        """Another attempt of the same process."""
        self._attempts += 1
        incarnation_id = f"{random.Random(f'{self._number} {self._lives}').getrandbits(128):032x}"
        return enter_cell(self.settings, self.ports(), ADDRESSES, incarnation_id)

    def ports(self) -> Ports:
        anything: Any = None
        executor = QueueExecutor()
        return Ports(
            fs=self.fs,
            executor=executor,
            maintenance_lanes=dict.fromkeys(Lane, executor),
            now_ms=lambda: self.clock.now_ms,
            ahead_ms=lambda: 0,
            booted_ms=self.booted_ms,
            random=random.Random(f"{self._number} {self._attempts}"),
            log=RememberingLog(),
            log_threshold=anything,
            make_peers=anything,
            measure_space=anything,
            shared_store=self.store,
            sleep_ms=self._sleep,
        )

    def _sleep(self, duration_ms: int) -> None:
        self.slept_ms += duration_ms
        self.clock.now_ms += duration_ms
        self.while_asleep()

    def live(self, *, is_clean: bool = False, is_killed: bool = False) -> BrokerImage:
        """A whole life of a process, which ends cleanly, by kill -9 or by a power loss; returns the
        broker as it was registered."""
        entry = self.enter()
        entry.logs.start(self.clock.now_ms)
        broker = entry.image.brokers[self.settings.node_id]
        epoch = broker.broker_epoch
        if is_clean:
            entry.logs.close(self.clock.now_ms, broker_epoch=epoch)
        elif is_killed:
            self.fs.process_death()
        else:
            self.fs.power_loss(random.Random(epoch))
        return broker


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> InMemoryMetadataStore:
    return InMemoryMetadataStore(MetadataImage("cluster"), lambda: clock.now_ms)


@pytest.fixture
def machine(store: InMemoryMetadataStore, clock: Clock) -> Machine:
    return Machine(store, clock)


def add_topic(store: InMemoryMetadataStore) -> None:
    image = store.read()
    store.apply([CreateTopic("default", "t", UUID(int=7), ((1, 2),))], image.version, "create")


def isr(store: InMemoryMetadataStore) -> tuple[int, ...]:
    return store.read().topics_of("default")["t"].partitions[0].isr


def unfence(store: InMemoryMetadataStore, node_id: int) -> None:
    from dataclasses import replace

    image = store.read()
    broker = replace(image.brokers[node_id], is_fenced=False)
    store.apply([ChangeBroker(broker)], image.version, f"unfence {image.version}")


def test_a_new_broker_is_registered_before_anything_else(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    entry = machine.enter()
    assert entry.is_current
    assert entry.image == store.read()
    broker = store.read().brokers[1]
    assert entry.broker == broker
    assert (broker.host, broker.port) == ("clients.example", 1001)
    assert (broker.inter_broker_host, broker.inter_broker_port) == ("brokers.example", 1002)
    assert broker.host_id == "clients.example"
    assert broker.is_fenced
    assert broker.broker_epoch == 1
    assert len(broker.incarnation_id.split(";")[0]) == 32
    assert broker.features == features_of(broker.incarnation_id) == SUPPORTED_FEATURES


def test_a_cell_that_has_finalized_what_this_broker_does_not_know_refuses_it(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    ahead = MetadataImage("cluster", features={METADATA_VERSION: 4})
    newer = InMemoryMetadataStore(ahead, lambda: clock.now_ms)
    machine = Machine(newer, clock)
    with pytest.raises(RegistrationRefused, match=r"metadata.version 4, .* upgrade this broker"):
        machine.enter()
    assert newer.read() is ahead
    # It has let go of the directories.
    machine.store = FaultyStore(store)
    machine.live(is_clean=True)


def test_each_life_has_an_incarnation_and_an_epoch_of_its_own(machine: Machine) -> None:
    first = machine.live(is_clean=True)
    second = machine.live(is_clean=True)
    assert first.incarnation_id != second.incarnation_id
    assert second.broker_epoch > first.broker_epoch


def test_a_clean_stop_keeps_the_broker_in_its_isr(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    add_topic(store)
    machine.live(is_clean=True)
    assert isr(store) == (2,), "nobody knows what a new disk has lost"
    store_back_in_isr(store)
    machine.live(is_clean=True)
    assert isr(store) == (2, 1)


def store_back_in_isr(store: InMemoryMetadataStore) -> None:
    from data_plane.cell.changes import ChangePartition
    from data_plane.cell.partition_state import next_epochs, with_isr

    image = store.read()
    old = image.topics_of("default")["t"].partitions[0]
    new = next_epochs(old, with_isr(old, (2, 1), 2))
    store.apply([ChangePartition(UUID(int=7), 0, new)], image.version, f"isr {image.version}")


def test_after_a_power_loss_the_broker_leaves_its_isr(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    add_topic(store)
    machine.live()
    store_back_in_isr(store)
    machine.live()
    assert isr(store) == (2,)


def test_a_killed_broker_stays_in_its_isr(machine: Machine, store: InMemoryMetadataStore) -> None:
    """The machine went on, and its page cache has everything that was acknowledged."""
    add_topic(store)
    machine.live(is_killed=True)
    store_back_in_isr(store)
    machine.live(is_killed=True)
    assert isr(store) == (2, 1)


def test_a_mark_of_an_older_life_vouches_for_nothing(
    machine: Machine, store: InMemoryMetadataStore, clock: Clock
) -> None:
    """The disk was copied, or put back from a backup, and another life came in between."""
    add_topic(store)
    machine.live(is_clean=True)
    Machine(store, clock).live(is_clean=True)
    store_back_in_isr(store)
    machine.live(is_clean=True)
    assert isr(store) == (2,)


def test_a_lost_answer_to_the_registration_is_understood(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    assert machine.store is not None
    machine.store.lost_replies = 1
    entry = machine.enter()
    assert entry.image.brokers[1].broker_epoch == 1
    assert store.read().version == 1


def test_a_process_whose_registration_is_never_answered_has_lost_nothing_when_it_tries_again(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    add_topic(store)
    machine.live(is_clean=True)
    store_back_in_isr(store)
    assert machine.store is not None
    machine.store.lost_replies = LOST_ANSWERS_MAX + 1
    with pytest.raises(StoreUnavailable):
        machine.enter()
    version = store.read().version
    slept_ms = machine.slept_ms
    entry = machine.enter_again()
    assert isr(store) == (2, 1)
    assert store.read().version == version
    assert entry.image.brokers[1].broker_epoch == version
    assert machine.slept_ms == slept_ms, "it does not wait for itself to be silent"


def test_others_may_commit_in_between(machine: Machine, store: InMemoryMetadataStore) -> None:
    assert machine.store is not None
    machine.store.before_apply = lambda: add_topic(store)
    entry = machine.enter()
    assert entry.image.version == 2
    assert entry.image.brokers[1].broker_epoch == 2


def test_a_disk_that_cannot_be_read_is_left_alone_and_known_to_the_registration(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    machine = Machine(store, clock, {"log.dirs": "/data,/more"})
    before = machine.live(is_clean=True)
    assert "clean-shutdown" in machine.fs.list_directory("/more")
    machine.fs.faults.append(Fault("read", "/more/meta.properties", errno.EIO))
    entry = machine.enter()
    assert [one.path for one in entry.logs.offline_directories()] == ["/more"]
    assert entry.clean_broker_epoch is None, "it may have lost something"
    assert entry.broker is not None
    assert entry.broker.broker_epoch > before.broker_epoch
    (failure,) = entry.logs.start(machine.clock.now_ms)
    assert failure.directory == "/more"
    assert "clean-shutdown" in machine.fs.list_directory("/more"), "nobody knows whose it is"
    assert entry.logs.has_unread_directories


# Without the store


def test_after_a_clean_stop_a_broker_may_begin_with_the_image_on_its_disk(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    before = machine.live(is_clean=True)
    assert machine.store is not None
    machine.store.is_down = True
    entry = machine.enter()
    assert not entry.is_current
    assert entry.clean_broker_epoch == before.broker_epoch
    assert entry.image.brokers[1] == before
    assert entry.broker is not None
    assert entry.broker.incarnation_id != before.incarnation_id


def test_after_a_power_loss_a_broker_waits_for_the_store(machine: Machine) -> None:
    machine.live()
    assert machine.store is not None
    machine.store.is_down = True
    with pytest.raises(StoreUnavailable, match="not clean"):
        machine.enter()
    machine.store.is_down = False
    assert machine.enter().is_current, "and has let go of its directories meanwhile"


def test_a_killed_broker_waits_for_the_store(machine: Machine) -> None:
    """It has lost nothing, but the image on its disk may be older than what it did last."""
    machine.live(is_killed=True)
    assert machine.store is not None
    machine.store.is_down = True
    with pytest.raises(StoreUnavailable, match="not clean"):
        machine.enter()


def test_a_new_broker_waits_for_the_store(machine: Machine) -> None:
    assert machine.store is not None
    machine.store.is_down = True
    with pytest.raises(StoreUnavailable):
        machine.enter()


def test_a_mark_of_another_life_than_that_of_the_image_does_not_let_it_begin(
    machine: Machine,
) -> None:
    entry = machine.enter()
    entry.logs.start(machine.clock.now_ms)
    entry.logs.close(machine.clock.now_ms, broker_epoch=99)
    assert machine.store is not None
    machine.store.is_down = True
    with pytest.raises(StoreUnavailable, match="not clean"):
        machine.enter()


# Numbers and directories that are taken


def test_a_number_that_somebody_renews_is_refused(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    running, late = Machine(store, clock), Machine(store, clock)
    broker = running.enter().image.brokers[1]
    unfence(store, 1)
    version = store.read().version

    def renew() -> None:
        store.heartbeat(1, broker.incarnation_id, 2000, wants_controller=True)

    late.while_asleep = renew
    with pytest.raises(NodeIdTaken, match=r"broker 1 .* running already, at clients.example:1001"):
        late.enter()
    assert late.slept_ms == late.settings.effective().get_int("broker.heartbeat.interval.ms")
    assert store.read().version == version, "the running one has noticed nothing"
    with pytest.raises(NodeIdTaken):
        late.enter()


def test_a_number_whose_broker_died_is_taken_over_after_its_session(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    Machine(store, clock).live(is_clean=False)
    unfence(store, 1)
    late = Machine(store, clock)
    late.enter()
    assert late.slept_ms == late.settings.effective().get_int("broker.session.timeout.ms")


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_next_life_on_the_same_disk_does_not_wait(
    machine: Machine, store: InMemoryMetadataStore, is_clean: bool
) -> None:
    machine.live(is_clean=is_clean)
    unfence(store, 1)
    machine.enter()
    assert machine.slept_ms == 0


def test_a_second_process_on_the_same_disk_registers_nothing(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    machine.enter()
    unfence(store, 1)
    version = store.read().version
    with pytest.raises(DirectoryLocked):
        machine.enter()
    assert store.read().version == version


def test_the_disk_of_a_broker_that_is_alone_does_not_join(
    store: InMemoryMetadataStore, clock: Clock
) -> None:
    alone = Machine(None, clock)
    alone.enter().store.close()
    member = Machine(store, clock)
    member.fs = alone.fs
    with pytest.raises(IdentityMismatch, match="cannot join a cell"):
        member.enter()
    assert store.read().version == 0


def test_the_disk_of_a_member_does_not_begin_alone(machine: Machine, clock: Clock) -> None:
    machine.live(is_clean=True)
    alone = Machine(None, clock)
    alone.fs = machine.fs
    with pytest.raises(IdentityMismatch, match=r"metadata\.store\.url"):
        alone.enter()


def test_the_store_of_another_cell_is_refused(store: InMemoryMetadataStore, clock: Clock) -> None:
    machine = Machine(store, clock, set={"cluster.id": "another"})
    with pytest.raises(IdentityMismatch, match=r"cluster\.id is another"):
        machine.enter()
    first = Machine(store, clock)
    first.live(is_clean=True)
    first.store = FaultyStore(
        InMemoryMetadataStore(MetadataImage("other cell"), lambda: clock.now_ms)
    )
    with pytest.raises(IdentityMismatch, match="other cell"):
        first.enter()


def test_the_image_is_on_disk_as_soon_as_the_broker_is_registered(
    machine: Machine, store: InMemoryMetadataStore
) -> None:
    store.apply([AllocateProducerIds(0, 5)], 0, "ids")
    machine.live(is_clean=True)
    assert machine.store is not None
    machine.store.is_down = True
    assert machine.enter().image == store.read()


def test_producer_ids_that_were_left_are_for_a_life_without_the_store(machine: Machine) -> None:
    ranges = ((7, 9), (1000, 2000))
    entry = machine.enter()
    entry.logs.start(machine.clock.now_ms)
    broker_epoch = entry.image.brokers[1].broker_epoch
    producer_id_file(machine.settings, machine.ports()).write(ranges, broker_epoch)
    entry.logs.close(machine.clock.now_ms, broker_epoch=broker_epoch)
    assert machine.store is not None
    machine.store.is_down = True
    alone = machine.enter()
    assert alone.kept_producer_ids == ranges
    alone.close(machine.clock.now_ms)
    assert machine.enter().kept_producer_ids == (), "nobody gets them twice"


def test_producer_ids_of_an_older_life_are_dropped(machine: Machine) -> None:
    broker = machine.live(is_clean=True)
    producer_id_file(machine.settings, machine.ports()).write(((7, 9),), broker.broker_epoch)
    entry = machine.enter()
    assert entry.kept_producer_ids == (), "the store gives new ones"
    entry.close(machine.clock.now_ms)
    machine.live(is_clean=True)
    assert machine.store is not None
    machine.store.is_down = True
    assert machine.enter().kept_producer_ids == ()
