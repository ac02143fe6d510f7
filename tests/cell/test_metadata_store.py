"""The contract of the metadata store, on every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from data_plane.cell.changes import (
    AllocateProducerIds,
    AlterConfigs,
    Change,
    CreateTopic,
    DeleteTopic,
    InvalidChange,
)
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.metadata_store import (
    FEED_COMMITS_KEPT,
    FEED_PARTS_KEPT,
    BrokerSession,
    Commit,
    CommitHistory,
    ControllerLease,
    FeedTruncated,
    Heartbeat,
    InMemoryMetadataStore,
    MetadataStore,
    StaleControllerEpoch,
    VersionConflict,
)
from data_plane.log.sim_file_system import SimFileSystem
from tests.postgres_server import PostgresDatabase

ORDERS = CreateTopic("default", "orders", UUID(int=1), ((1,),))
PAY = CreateTopic("default", "pay", UUID(int=2), ((1,),))
LEASE_MS = 60_000


@dataclass
class Cell:
    """One adapter under test."""

    # A new client of the store. The ones in memory are all the same.
    client: Callable[[], MetadataStore]
    # Let the store's clock go on, as far as leases are concerned.
    pass_ms: Callable[[int], None]


def local_cell() -> Cell:
    fs = SimFileSystem()
    fs.make_directory("/data")
    store = LocalMetadataStore(fs, "/data", "cluster")
    return Cell(lambda: store, lambda ms: None)


def memory_cell() -> Cell:
    clock = [0]
    store = InMemoryMetadataStore(MetadataImage("cluster"), lambda: clock[0])

    def pass_ms(duration_ms: int) -> None:
        clock[0] += duration_ms

    return Cell(lambda: store, pass_ms)


@pytest.fixture
def postgres_cell(postgres: PostgresDatabase) -> Iterator[Cell]:
    clients = []

    def client() -> MetadataStore:
        clients.append(postgres.store())
        return clients[-1]

    def pass_ms(duration_ms: int) -> None:
        for table in ("controller", "sessions"):
            postgres.execute(
                f"UPDATE {table} SET expires_at = expires_at - %s * interval '1 ms'", duration_ms
            )

    yield Cell(client, pass_ms)
    for each in clients:
        each.close()


def make_cell(kind: str, request: pytest.FixtureRequest) -> Cell:
    if kind == "postgres":
        cell: Cell = request.getfixturevalue("postgres_cell")
        return cell
    return local_cell() if kind == "local" else memory_cell()


@pytest.fixture(params=["local", "memory", "postgres"])
def store(request: pytest.FixtureRequest) -> MetadataStore:
    return make_cell(request.param, request).client()


@pytest.fixture(params=["memory", "postgres"])
def shared(request: pytest.FixtureRequest) -> Cell:
    return make_cell(request.param, request)


def test_a_commit_is_read_back(store: MetadataStore) -> None:
    image = store.apply([ORDERS, PAY], 0, "r1")
    assert image.version == 1
    assert sorted(image.topics_of("default")) == ["orders", "pay"]
    assert store.read() == image


def test_a_decision_on_an_old_image_is_refused_and_nothing_happens(store: MetadataStore) -> None:
    store.apply([ORDERS], 0, "r1")
    with pytest.raises(VersionConflict) as caught:
        store.apply([PAY], 0, "r2")
    assert (caught.value.expected_version, caught.value.actual_version) == (0, 1)
    assert sorted(store.read().topics_of("default")) == ["orders"]
    assert [commit.request_id for commit in store.feed(0)] == ["r1"]


def test_a_request_is_committed_once_however_often_it_is_sent(store: MetadataStore) -> None:
    store.apply([AllocateProducerIds(0, 1000)], 0, "lost answer")
    store.apply([ORDERS], 1, "r2")
    image = store.apply([AllocateProducerIds(0, 1000)], 0, "lost answer")
    assert image == store.read()
    assert (image.version, image.next_producer_id) == (2, 1000)


def test_a_change_that_does_not_fit_commits_nothing(store: MetadataStore) -> None:
    with pytest.raises(InvalidChange):
        store.apply([ORDERS, DeleteTopic(UUID(int=9))], 0, "r1")
    assert store.read().version == 0
    assert store.apply([ORDERS], 0, "r1").version == 1


def test_any_text_comes_back_as_it_was(store: MetadataStore) -> None:
    text = "\0 \ud800 ü \\u0000 %s \" ' \n"
    change = AlterConfigs("default", ResourceType.GROUP, text, ((text, text),))
    image = store.apply([change], 0, text.replace("\0", "").replace("\ud800", ""))
    assert image.config_of("default", ResourceType.GROUP, text) == {text: text}
    assert store.feed(0)[0].changes == (change,)


def test_the_feed_is_every_commit_in_order(store: MetadataStore) -> None:
    store.apply([ORDERS], 0, "r1")
    store.apply([PAY, DeleteTopic(UUID(int=1))], 1, "r2")
    assert list(store.feed(0)) == [
        Commit(1, "r1", (ORDERS,)),
        Commit(2, "r2", (PAY, DeleteTopic(UUID(int=1)))),
    ]
    assert [commit.version for commit in store.feed(1)] == [2]
    assert list(store.feed(2)) == []


def test_the_feed_says_when_it_does_not_reach_back_far_enough() -> None:
    history = CommitHistory(0)
    for version in range(1, FEED_COMMITS_KEPT + 2):
        history.record(Commit(version, f"r{version}", ()))
    assert len(history.after(1)) == FEED_COMMITS_KEPT
    with pytest.raises(FeedTruncated):
        history.after(0)


LARGE_TOPIC = CreateTopic("default", "wide", UUID(int=3), ((1,),) * (FEED_PARTS_KEPT // 4))
LARGE_SETTING = AlterConfigs(
    "default",
    ResourceType.TOPIC,
    "orders",
    (("leader.replication.throttled.replicas", "x" * 3_300_000),),
)


@pytest.mark.parametrize("change", [LARGE_TOPIC, LARGE_SETTING], ids=["topic", "setting"])
def test_the_feed_keeps_fewer_commits_where_these_are_large(change: Change) -> None:
    history = CommitHistory(0)
    for version in range(1, 11):
        history.record(Commit(version, f"r{version}", (change,)))
    assert [commit.version for commit in history.after(7)] == [8, 9, 10]
    with pytest.raises(FeedTruncated):
        history.after(6)
    # One that is larger than everything that may be kept is kept until the next one.
    history.record(Commit(11, "r11", (change,) * 5))
    assert [commit.version for commit in history.after(10)] == [11]
    history.record(Commit(12, "r12", (ORDERS,)))
    assert [commit.version for commit in history.after(11)] == [12]
    for version in range(13, 20):
        history.record(Commit(version, f"r{version}", (ORDERS,)))
    assert len(history.after(11)) == 8


def test_a_store_of_one_broker_makes_it_the_controller() -> None:
    store = local_cell().client()
    assert not store.is_shared
    assert store.heartbeat(1, "a", LEASE_MS, wants_controller=False) == Heartbeat(
        0, None, {1: BrokerSession(1, "a", 1)}
    )
    beat = store.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    assert beat == Heartbeat(0, ControllerLease(1, "a", 1, True), {1: BrokerSession(1, "a", 2)})
    with pytest.raises(StaleControllerEpoch):
        store.apply([ORDERS], 0, "r1", controller_epoch=2)
    store.apply([ORDERS], 0, "r2", controller_epoch=1)
    assert list(store.feed(0)) == [Commit(1, "r2", (ORDERS,), 1)]


def test_waiting_is_over_at_once_when_there_is_something(store: MetadataStore) -> None:
    assert not store.wait(0, 0)
    store.apply([ORDERS], 0, "r1")
    assert store.wait(0, 60_000)
    assert not store.wait(1, 0)


def test_clients_of_one_store_see_each_others_commits(shared: Cell) -> None:
    one, two = shared.client(), shared.client()
    assert one.is_shared
    image = one.apply([ORDERS], 0, "r1")
    assert two.feed(0) == [Commit(1, "r1", (ORDERS,))]
    with pytest.raises(VersionConflict):
        two.apply([PAY], 0, "r2")
    assert two.read() == image
    image = two.apply([PAY], 1, "r3")
    # The first has not read it yet: it decides on what it was handed.
    assert one.apply([DeleteTopic(UUID(int=2))], 2, "r4").topics_of("default").keys() == {"orders"}
    assert one.identity == two.identity != ""


def test_a_request_id_is_known_to_whoever_asks(shared: Cell) -> None:
    image = shared.client().apply([ORDERS], 0, "mine")
    assert shared.client().apply([ORDERS], 0, "mine") == image
    assert shared.client().read().version == 1


def test_a_heartbeat_renews_one_session_and_shows_all(shared: Cell) -> None:
    one, two = shared.client(), shared.client()
    one.heartbeat(1, "a", LEASE_MS, wants_controller=False)
    two.heartbeat(2, "b", LEASE_MS, wants_controller=False)
    beat = one.heartbeat(1, "a", LEASE_MS, wants_controller=False)
    assert beat.sessions == {1: BrokerSession(1, "a", 2), 2: BrokerSession(2, "b", 1)}
    assert (beat.version, beat.controller) == (0, None)
    one.apply([ORDERS], 0, "r1")
    assert two.heartbeat(2, "b", LEASE_MS, wants_controller=False).version == 1


def test_renewals_go_on_over_a_restart_and_an_expired_session_is_still_shown(shared: Cell) -> None:
    one, two = shared.client(), shared.client()
    one.heartbeat(1, "before", LEASE_MS, wants_controller=False)
    one.heartbeat(1, "before", LEASE_MS, wants_controller=False)
    shared.pass_ms(10 * LEASE_MS)
    beat = two.heartbeat(2, "b", LEASE_MS, wants_controller=False)
    assert beat.sessions[1] == BrokerSession(1, "before", 2)
    beat = one.heartbeat(1, "after", LEASE_MS, wants_controller=False)
    assert beat.sessions[1] == BrokerSession(1, "after", 3)


def test_one_broker_holds_the_controller_lease_until_it_expires(shared: Cell) -> None:
    one, two = shared.client(), shared.client()
    beat = one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "a", 1, True)
    beat = two.heartbeat(2, "b", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "a", 1, False)
    shared.pass_ms(LEASE_MS - 1000)
    # Renewed: the same epoch, a whole lease from now.
    assert one.heartbeat(1, "a", LEASE_MS, wants_controller=True).controller == ControllerLease(
        1, "a", 1, True
    )
    shared.pass_ms(LEASE_MS - 1000)
    beat = two.heartbeat(2, "b", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "a", 1, False)
    shared.pass_ms(1000)
    # Who does not want it sees that nobody has it.
    assert two.heartbeat(2, "b", LEASE_MS, wants_controller=False).controller is None
    beat = two.heartbeat(2, "b", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(2, "b", 2, True)
    beat = one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(2, "b", 2, False)


def test_a_clock_that_was_set_back_keeps_nobody_from_the_lease_for_longer_than_one(
    shared: Cell,
) -> None:
    """Its holder has died, or nobody would be kept from anything."""
    one, two = shared.client(), shared.client()
    one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    shared.pass_ms(-3_600_000)
    # Not sooner either: the store must not believe in a lease for less long than its holder.
    for _ in range(2):
        beat = two.heartbeat(2, "b", LEASE_MS // 2, wants_controller=True)
        assert beat.controller == ControllerLease(1, "a", 1, False)
        shared.pass_ms(LEASE_MS // 2 - 1000)
    shared.pass_ms(2000)
    beat = two.heartbeat(2, "b", LEASE_MS // 2, wants_controller=True)
    assert beat.controller == ControllerLease(2, "b", 2, True)


def test_a_heartbeat_brings_the_store_s_date() -> None:
    clock = [5_000]
    store = InMemoryMetadataStore(MetadataImage("cluster"), lambda: clock[0])
    assert store.heartbeat(1, "a", LEASE_MS, wants_controller=False).store_ms == 5_000
    clock[0] = 2_000
    assert store.heartbeat(1, "a", LEASE_MS, wants_controller=False).store_ms == 2_000


def test_a_restarted_broker_is_not_the_controller_that_it_was(shared: Cell) -> None:
    one = shared.client()
    one.heartbeat(1, "before", LEASE_MS, wants_controller=True)
    beat = one.heartbeat(1, "after", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "before", 1, False)
    shared.pass_ms(LEASE_MS)
    beat = one.heartbeat(1, "after", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "after", 2, True)


def test_a_lease_that_expired_and_that_nobody_took_is_renewed(shared: Cell) -> None:
    one = shared.client()
    one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    shared.pass_ms(2 * LEASE_MS)
    beat = one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "a", 1, True)


def test_the_controller_may_give_up_its_lease_and_its_epoch_with_it(shared: Cell) -> None:
    one, two = shared.client(), shared.client()
    one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    two.heartbeat(2, "b", LEASE_MS, wants_controller=False)
    one.apply([ORDERS], 0, "r1", controller_epoch=1)
    assert one.heartbeat(1, "a", LEASE_MS, wants_controller=False).controller is None
    with pytest.raises(StaleControllerEpoch):
        one.apply([PAY], 1, "r2", controller_epoch=1)
    beat = two.heartbeat(2, "b", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(2, "b", 2, True)


def test_a_controller_whose_epoch_is_over_commits_nothing(shared: Cell) -> None:
    one, two = shared.client(), shared.client()
    one.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    one.apply([ORDERS], 0, "r1", controller_epoch=1)
    shared.pass_ms(LEASE_MS)
    # Expired, and nobody came: nobody can have decided otherwise.
    one.apply([PAY], 1, "r2", controller_epoch=1)
    two.heartbeat(2, "b", LEASE_MS, wants_controller=True)
    with pytest.raises(StaleControllerEpoch) as caught:
        one.apply([DeleteTopic(UUID(int=1))], 2, "r3", controller_epoch=1)
    assert (caught.value.epoch, caught.value.current_epoch) == (1, 2)
    assert two.read().version == 2
    # What it had committed is still known as its own, and other commits need no epoch.
    assert one.apply([PAY], 1, "r2", controller_epoch=1).version == 2
    one.apply([DeleteTopic(UUID(int=1))], 2, "r4")
    two.apply([DeleteTopic(UUID(int=2))], 3, "r5", controller_epoch=2)
    epochs = [commit.controller_epoch for commit in one.feed(0)]
    assert epochs == [1, 1, None, 2]


def test_an_epoch_that_never_was_is_refused(shared: Cell) -> None:
    with pytest.raises(StaleControllerEpoch):
        shared.client().apply([ORDERS], 0, "r1", controller_epoch=0)
    with pytest.raises(StaleControllerEpoch):
        shared.client().apply([ORDERS], 0, "r1", controller_epoch=7)
