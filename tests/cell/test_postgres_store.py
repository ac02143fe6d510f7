"""The metadata store in Postgres: races, lost replies, restarts, cut networks, snapshots."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from data_plane.cell import postgres_connection, postgres_schema, postgres_store
from data_plane.cell.change_codec import encode_changes
from data_plane.cell.changes import (
    AllocateProducerIds,
    Change,
    CreateTopic,
    UpdateFeature,
    apply_changes,
)
from data_plane.cell.features import METADATA_VERSION
from data_plane.cell.metadata import MetadataImage, decode_image
from data_plane.cell.metadata_store import (
    Commit,
    ControllerLease,
    FeedTruncated,
    InMemoryMetadataStore,
    StoreCorrupt,
    StoreTooNew,
    StoreUnavailable,
    VersionConflict,
)
from data_plane.cell.postgres_connection import BACKOFF_MAX_MS, PostgresLink
from data_plane.cell.postgres_schema import migrations
from data_plane.cell.postgres_store import PostgresMetadataStore
from tests.cell import first_reader
from tests.cell.cases import NEW_CELL, histories
from tests.cell.tcp_proxy import TcpProxy
from tests.postgres_server import PostgresDatabase, now_ms

ORDERS = CreateTopic("default", "orders", UUID(int=1), ((1,),))
PAY = CreateTopic("default", "pay", UUID(int=2), ((1,),))
LEASE_MS = 60_000
LONG_S = 30.0


@pytest.fixture
def open_store(postgres: PostgresDatabase) -> Iterator[Callable[..., PostgresMetadataStore]]:
    with contextlib.ExitStack() as stack:

        def open_store(**options: Any) -> PostgresMetadataStore:
            return stack.enter_context(contextlib.closing(postgres.store(**options)))

        yield open_store


OpenStore = Callable[..., PostgresMetadataStore]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


def allocate(store: PostgresMetadataStore, image: MetadataImage, name: str) -> MetadataImage:
    return store.apply([AllocateProducerIds(image.next_producer_id, 10)], image.version, name)


def fill(store: PostgresMetadataStore, count: int) -> MetadataImage:
    image = store.read()
    for _ in range(count):
        image = allocate(store, image, f"r{image.version}")
    return image


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waiting_for_a_lock(postgres: PostgresDatabase) -> bool:
    return bool(
        postgres.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'tidewheel'"
        )
    )


# --- the feed ---


def test_the_first_transaction_to_begin_commits_last_and_the_feed_has_no_hole(
    postgres: PostgresDatabase, open_store: OpenStore, threads: ThreadPoolExecutor
) -> None:
    """Somebody's transaction is slow between getting its number and its commit. Were numbers
    handed out by a sequence, the second commit would be visible as 2 before there is a 1."""
    reader, writer = open_store(), open_store()
    reader.read()
    writer.read()
    with postgres.connect(autocommit=False) as slow:
        slow.execute(
            "SELECT apply_commit(identity, 0, 'slow', NULL, %s) FROM cell",
            ('[["allocate_producer_ids",0,10]]',),
        )
        fast = threads.submit(writer.apply, [ORDERS], 0, "fast")
        wait_until(lambda: fast.done() or waiting_for_a_lock(postgres))
        # Readers are not held up, and see nothing of either.
        assert reader.feed(0) == []
        assert not fast.done()
        slow.commit()
    with pytest.raises(VersionConflict) as caught:
        fast.result(LONG_S)
    assert caught.value.actual_version == 1
    writer.apply([ORDERS], 1, "fast again")
    assert [(commit.version, commit.request_id) for commit in reader.feed(0)] == [
        (1, "slow"),
        (2, "fast again"),
    ]


def test_a_number_whose_transaction_is_rolled_back_is_used_again(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store()
    store.read()
    with postgres.connect(autocommit=False) as other:
        other.execute("SELECT apply_commit(identity, 0, 'no', NULL, '[]') FROM cell")
        other.rollback()
    assert store.apply([ORDERS], 0, "r1").version == 1
    assert [commit.request_id for commit in store.feed(0)] == ["r1"]


@given(history=histories(image=NEW_CELL))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_history_is_the_same_as_in_memory(
    postgres: PostgresDatabase, history: list[Change]
) -> None:
    database = PostgresDatabase(postgres.server)
    memory = InMemoryMetadataStore(NEW_CELL)
    with contextlib.closing(database.store()) as store:
        for version, change in enumerate(history):
            memory.apply([change], version, f"r{version}")
            assert store.apply([change], version, f"r{version}") == memory.read()
        assert store.feed(0) == memory.feed(0)
    with contextlib.closing(database.store()) as fresh:
        assert fresh.read() == memory.read()


def test_racing_writers_each_commit_every_change_once(
    open_store: OpenStore, threads: ThreadPoolExecutor
) -> None:
    barrier = threading.Barrier(4)

    def write(number: int) -> int:
        store = open_store()
        image, conflicts = store.read(), 0
        # All of them begin with the same version, and only one can be the first.
        barrier.wait(LONG_S)
        for index in range(25):
            while True:
                try:
                    image = allocate(store, image, f"{number}-{index}-{conflicts}")
                    break
                except VersionConflict:
                    conflicts += 1
                    image = store.read()
        return conflicts

    results = [threads.submit(write, number) for number in range(4)]
    conflicts = sum(result.result(LONG_S) for result in results)
    reader = open_store()
    assert (reader.read().version, reader.read().next_producer_id) == (100, 1000)
    feed = reader.feed(0)
    assert [commit.version for commit in feed] == list(range(1, 101))
    assert apply_all(NEW_CELL, feed) == reader.read()
    assert conflicts >= 3


def apply_all(image: MetadataImage, feed: list[Commit] | Any) -> MetadataImage:
    for commit in feed:
        image = apply_changes(image, commit.changes)
    return image


def test_a_snapshot_is_taken_and_the_feed_is_cut(
    postgres: PostgresDatabase, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "SNAPSHOT_EVERY_COMMITS", 4)
    monkeypatch.setattr(postgres_store, "FEED_COMMITS_KEPT", 3)
    store, behind = open_store(), open_store()
    behind.read()
    image = fill(store, 11)
    assert postgres.execute("SELECT seq FROM snapshots") == [(8,)]
    # Of the eight, three are kept for readers; the rest has come since.
    assert postgres.execute("SELECT min(seq), max(seq) FROM commits") == [(6, 11)]
    assert [commit.version for commit in behind.feed(5)] == [6, 7, 8, 9, 10, 11]
    with pytest.raises(FeedTruncated):
        behind.feed(4)
    assert behind.read() == image
    assert open_store().read() == image


def test_a_snapshot_that_fails_does_not_look_like_a_failed_commit(
    postgres: PostgresDatabase, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "SNAPSHOT_EVERY_COMMITS", 2)
    warnings: list[str] = []
    store = open_store(on_warning=warnings.append)
    store.read()
    postgres.execute("ALTER TABLE snapshots ADD CONSTRAINT small CHECK (seq < 2)")
    assert fill(store, 2).version == 2
    assert len(warnings) == 1
    assert "no snapshot of version 2" in warnings[0]
    postgres.execute("ALTER TABLE snapshots DROP CONSTRAINT small")
    image = fill(store, 2)
    assert postgres.execute("SELECT seq FROM snapshots") == [(4,)]
    assert open_store().read() == image


# --- lost replies and lost connections ---


def test_a_commit_whose_reply_was_lost_is_known_as_our_own(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    with TcpProxy(postgres.server.port) as proxy:
        store = open_store(dsn=proxy.dsn(postgres.dsn))
        store.read()
        proxy.lose_next_reply = True
        with pytest.raises(StoreUnavailable):
            allocate(store, NEW_CELL, "lost")
        assert proxy.lost == 1
        assert open_store().read().version == 1
        image = allocate(store, NEW_CELL, "lost")
        assert (image.version, image.next_producer_id) == (1, 10)
        assert allocate(store, image, "next").version == 2
        store.close()


def test_a_commit_whose_request_was_lost_is_made_when_asked_for_again(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store()
    store.read()
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'tidewheel'"
    )
    with pytest.raises(StoreUnavailable):
        store.apply([ORDERS], 0, "r1")
    assert open_store().read().version == 0
    assert store.apply([ORDERS], 0, "r1").version == 1


def test_a_restarted_database_is_found_again_with_everything_in_it(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store()
    image = fill(store, 3)
    beat = store.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    postgres.server.kill_now()
    calls: list[Callable[[], object]] = [
        store.read,
        lambda: store.feed(0),
        lambda: store.apply([ORDERS], 3, "r"),
        lambda: store.heartbeat(1, "a", LEASE_MS, wants_controller=True),
        lambda: store.wait(3, 10),
    ]
    for call in calls * 2:
        with pytest.raises(StoreUnavailable):
            call()
    postgres.server.start()
    wait_until(lambda: works(store.read))
    assert store.read() == image
    assert open_store().read() == image
    wait_until(lambda: works(lambda: store.heartbeat(1, "a", LEASE_MS, wants_controller=True)))
    again = store.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    assert again.controller == beat.controller
    assert store.apply([ORDERS], 3, "r").version == 4


def works(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreUnavailable:
        return False
    return True


def test_an_unreachable_database_is_tried_once_a_call_and_not_all_the_time(
    postgres: PostgresDatabase,
) -> None:
    clock = [0]
    attempts: list[int] = []

    def refuse(connection: object) -> None:
        attempts.append(clock[0])
        raise psycopg.OperationalError("no")

    returns: list[int] = []
    link = PostgresLink(
        postgres.dsn, "nowhere", lambda: clock[0], refuse, lambda: returns.append(clock[0]), 1000
    )
    for _ in range(5000):
        with pytest.raises(StoreUnavailable, match="opening the metadata store: no"):
            link.ensure()
        clock[0] += 1
    waits = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert waits == [100, 200, 400, 800, BACKOFF_MAX_MS, BACKOFF_MAX_MS, BACKOFF_MAX_MS]
    assert not returns


def test_what_one_connection_finds_out_the_others_need_not(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    """That the database is back: with the longest backoff, nobody waits for the end of his own."""
    clock, is_away = [0], True
    store = open_store(clock_ms=lambda: clock[0])
    connect = PostgresLink._connect
    attempts: list[PostgresLink] = []

    def try_to_connect(link: PostgresLink) -> Any:
        attempts.append(link)
        if is_away:
            raise StoreUnavailable("away")
        return connect(link)

    monkeypatch.setattr(PostgresLink, "_connect", try_to_connect)
    monkeypatch.setattr(postgres_connection, "BACKOFF_FIRST_MS", 600_000)
    monkeypatch.setattr(postgres_connection, "BACKOFF_MAX_MS", 600_000)
    with pytest.raises(StoreUnavailable, match="away"):
        store.heartbeat(1, "a", LEASE_MS, wants_controller=False)
    clock[0] = 300_000
    with pytest.raises(StoreUnavailable, match="away"):
        store.apply([ORDERS], 0, "r1")
    waiting = threads.submit(works, lambda: store.wait(0, 60_000))
    # One that has not begun by the time the database is back would wait for news from it.
    wait_until(lambda: store._waiter in attempts)
    with pytest.raises(StoreUnavailable, match="away"):
        store.wait(0, 1)
    is_away = False
    # Nobody has found out yet.
    with pytest.raises(StoreUnavailable, match="away"):
        store.apply([ORDERS], 0, "r1")
    clock[0] = 600_000
    store.heartbeat(1, "a", LEASE_MS, wants_controller=False)
    waiting.result(10)
    assert store.apply([ORDERS], 0, "r1").version == 1
    assert store.wait(0, 1)


def test_a_silent_network_is_noticed_within_the_time_that_was_given(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    with TcpProxy(postgres.server.port) as proxy:
        store = open_store(dsn=proxy.dsn(postgres.dsn), reply_timeout_ms=600)
        store.read()
        store.heartbeat(1, "a", LEASE_MS, wants_controller=False)
        with proxy.silent():
            started = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.apply([ORDERS], 0, "r1")
            # A heartbeat whose answer is later than its lease is worth nothing.
            with pytest.raises(StoreUnavailable):
                store.heartbeat(1, "a", 300, wants_controller=False)
            assert 0.8 < time.monotonic() - started < 2.5
            # A new connection is not made either, and not waited for.
            with pytest.raises(StoreUnavailable):
                store.apply([ORDERS], 0, "r1")
            assert time.monotonic() - started < 6
        wait_until(lambda: works(lambda: store.apply([ORDERS], 0, "r1")))
        assert store.read().version == 1
        store.close()


def test_a_paused_server_is_noticed_and_nobody_waits_for_it_for_long(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store(reply_timeout_ms=400)
    store.read()
    started = time.monotonic()
    with postgres.paused():
        with pytest.raises(StoreUnavailable):
            store.apply([ORDERS], 0, "r1")
        assert time.monotonic() - started < 2
    wait_until(lambda: works(lambda: store.apply([ORDERS], 0, "r1")))
    assert store.read().version == 1


def test_a_broker_starts_with_what_it_has_seen_while_the_database_is_down(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store()
    image = fill(store, 2)
    seen = (image, store.identity)
    fill(store, 1)
    postgres.server.stop()
    try:
        later = open_store(seen=seen)
        assert later.identity == store.identity
        with pytest.raises(StoreUnavailable):
            later.read()
    finally:
        postgres.server.start()
    wait_until(lambda: works(later.read))
    assert later.read().version == 3
    # It went on from the image that it had, not from the beginning.
    postgres.execute("DELETE FROM commits WHERE seq <= 2")
    assert open_store(seen=seen).read() == later.read()


# --- leases ---


def test_a_lease_ends_by_the_clock_of_the_store_and_not_before(open_store: OpenStore) -> None:
    one, two = open_store(), open_store()
    two.heartbeat(2, "b", LEASE_MS, wants_controller=False)
    lease_ms = 700
    sent = time.monotonic()
    one.heartbeat(1, "a", lease_ms, wants_controller=True)

    def taken_over() -> bool:
        lease = two.heartbeat(2, "b", lease_ms, wants_controller=True).controller
        return lease is not None and lease.is_ours

    wait_until(taken_over)
    # The holder counts from before it sent, so it never believes in it for longer.
    assert time.monotonic() - sent >= lease_ms / 1000


def test_a_heartbeat_brings_the_server_s_date(open_store: OpenStore) -> None:
    store = open_store()
    before_ms = time.time_ns() // 1_000_000
    beat = store.heartbeat(1, "a", 60_000, wants_controller=False)
    assert before_ms <= beat.store_ms <= time.time_ns() // 1_000_000


def test_leases_run_from_when_they_are_written_not_from_when_the_transaction_began(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    open_store().read()
    with postgres.connect(autocommit=False) as slow:
        slow.execute("SELECT pg_sleep(0.5)")
        slow.execute(
            "SELECT heartbeat(identity, 1, 'a', interval '1 min', true) FROM cell"
        ).fetchone()
        for table in ("controller", "sessions"):
            # By now some of the lease may have passed; before it, half a second of the transaction.
            row = slow.execute(
                f"SELECT extract(epoch FROM expires_at - now()),"
                f" extract(epoch FROM expires_at - clock_timestamp()) FROM {table}".encode()
            ).fetchone()
            assert row is not None
            since_begin_s, left_s = map(float, row)
            assert since_begin_s >= 60.5
            assert left_s <= 60


def test_taking_the_lease_waits_for_the_disk_and_renewing_it_does_not(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    """An epoch that a crash forgot would be given out twice. A renewal that waits for a disk that
    others keep busy may take longer than the lease lasts."""
    open_store().read()

    def waits(node_id: int, incarnation: str, *, wants_controller: bool) -> bool:
        with postgres.connect(autocommit=False) as connection:
            connection.execute(
                "SELECT heartbeat(identity, %s, %s, interval '1 min', %s) FROM cell",
                (node_id, incarnation, wants_controller),
            ).fetchone()
            (setting,) = connection.execute("SHOW synchronous_commit").fetchone() or ("",)
            connection.commit()
            return bool(setting == "on")

    assert waits(1, "a", wants_controller=True)
    assert not waits(1, "a", wants_controller=True)
    assert not waits(2, "b", wants_controller=True)  # in vain
    assert not waits(2, "b", wants_controller=False)
    assert not waits(1, "its next life", wants_controller=True)  # in vain, too
    postgres.execute("UPDATE controller SET expires_at = '-infinity'")
    assert waits(2, "b", wants_controller=True)
    assert not waits(2, "b", wants_controller=True)
    assert waits(2, "b", wants_controller=False)
    assert waits(2, "b", wants_controller=True)


def test_of_many_that_want_to_be_controller_at_once_one_is(
    postgres: PostgresDatabase, open_store: OpenStore, threads: ThreadPoolExecutor
) -> None:
    stores = [open_store() for _ in range(6)]
    for store in stores:
        store.read()
    for epoch in range(1, 6):
        postgres.execute("UPDATE controller SET expires_at = '-infinity'")
        barrier = threading.Barrier(len(stores))

        def beat(number: int, epoch: int = epoch, start: threading.Barrier = barrier) -> bool:
            start.wait(LONG_S)
            lease = (
                stores[number]
                .heartbeat(number, f"{number}-{epoch}", LEASE_MS, wants_controller=True)
                .controller
            )
            assert lease is not None
            assert lease.epoch == epoch
            return lease.is_ours

        results: list[Future[bool]] = [threads.submit(beat, n) for n in range(len(stores))]
        assert sum(result.result(LONG_S) for result in results) == 1


def test_heartbeats_do_not_wait_for_a_slow_commit(
    postgres: PostgresDatabase, open_store: OpenStore, threads: ThreadPoolExecutor
) -> None:
    store = open_store()
    store.read()
    store.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    with postgres.connect(autocommit=False) as slow:
        slow.execute("SELECT FROM cell FOR UPDATE")
        commit = threads.submit(store.apply, [ORDERS], 0, "r1")
        wait_until(lambda: waiting_for_a_lock(postgres))
        beats = [store.heartbeat(1, "a", LEASE_MS, wants_controller=True) for _ in range(3)]
        assert [beat.sessions[1].renewals for beat in beats] == [2, 3, 4]
        assert not store.wait(0, 50)
        assert not commit.done()
        slow.rollback()
    assert commit.result(LONG_S).version == 1


def test_a_lock_that_is_never_let_go_of_fails_the_commit_in_bounded_time(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store(reply_timeout_ms=800)
    store.read()
    with postgres.connect(autocommit=False) as stuck:
        stuck.execute("SELECT FROM cell FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            store.apply([ORDERS], 0, "r1")
        stuck.rollback()
    assert store.apply([ORDERS], 0, "r1").version == 1


# --- waiting ---


def test_a_waiting_broker_is_told_of_a_commit(
    open_store: OpenStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "POLL_INTERVAL_MS", 60_000)
    waiter, writer = open_store(), open_store()
    assert not waiter.wait(0, 50)
    writer.read()
    for version in range(3):
        waiting = threads.submit(waiter.wait, version, 60_000)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        started = time.monotonic()
        fill(writer, 1)
        assert waiting.result(LONG_S)
        assert time.monotonic() - started < 5


def test_a_commit_whose_notification_was_lost_is_found_by_looking(
    postgres: PostgresDatabase,
    open_store: OpenStore,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_store, "POLL_INTERVAL_MS", 100)
    waiter = open_store()
    waiter.read()
    waiting = threads.submit(waiter.wait, 0, 60_000)
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    postgres.execute("UPDATE cell SET seq = 1")
    assert waiting.result(5)


def test_closing_ends_a_wait(
    open_store: OpenStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "POLL_INTERVAL_MS", 60_000)
    store = open_store()
    store.read()
    waiting = threads.submit(store.wait, 0, 60_000)
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    started = time.monotonic()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        waiting.result(LONG_S)
    assert time.monotonic() - started < 2
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read()


def test_a_loop_around_wait_does_not_spin_while_the_database_is_down(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    with TcpProxy(postgres.server.port) as proxy:
        dsn = proxy.dsn(postgres.dsn)
    store = open_store(dsn=dsn)
    deadline, calls = now_ms() + 1500, 0
    while now_ms() < deadline:
        with pytest.raises(StoreUnavailable):
            store.wait(0, 1000)
        calls += 1
    assert 2 <= calls <= 12


# --- the schema ---


def test_brokers_that_start_together_make_one_store(
    postgres: PostgresDatabase, open_store: OpenStore, threads: ThreadPoolExecutor
) -> None:
    stores = [open_store() for _ in range(6)]
    barrier = threading.Barrier(len(stores))

    def start(store: PostgresMetadataStore) -> str:
        barrier.wait(LONG_S)
        store.read()
        return store.identity

    assert len(set(threads.map(start, stores))) == 1
    numbers = [(number,) for number, _ in migrations()]
    assert postgres.execute("SELECT version FROM schema_version ORDER BY version") == numbers


def test_a_store_of_an_older_version_is_brought_up_to_date(
    postgres: PostgresDatabase, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(postgres_schema, "migrations", lambda: migrations()[:1])
        old = open_store()
        image = fill(old, 3)

    def old_heartbeat() -> tuple[object, ...]:
        """As brokers of that version ask."""
        return postgres.execute(
            "SELECT lease_node_id, lease_incarnation_id, lease_epoch"
            " FROM heartbeat(%s, 1, 'a', interval '1 min', true)",
            old.identity,
        )[0]

    lease = old_heartbeat()
    assert lease == (1, "a", 1)
    new = open_store()
    assert new.read() == image
    beat = new.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    assert beat.controller == ControllerLease(1, "a", 1, is_ours=True)
    assert old_heartbeat() == lease
    assert old.apply([ORDERS], 3, "r").version == 4
    assert len(postgres.execute("SELECT version FROM schema_version")) == len(migrations())


def test_a_user_who_may_only_read_and_write_can_use_a_store_that_is_there(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    open_store().read()
    role = f"plain_{random.randrange(10**9)}"
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    postgres.execute(f"GRANT USAGE ON SCHEMA {postgres.schema} TO {role}")
    postgres.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {postgres.schema} TO {role}"
    )
    dsn = f"postgresql://{role}:secret@127.0.0.1:{postgres.server.port}/postgres"
    store = open_store(dsn=dsn)
    assert store.apply([ORDERS], 0, "r1").version == 1
    store.heartbeat(1, "a", LEASE_MS, wants_controller=True)


def test_the_store_of_a_newer_version_is_refused(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    open_store().read()
    postgres.execute("INSERT INTO schema_version (version) VALUES (9999)")
    with pytest.raises(StoreTooNew, match=r"made by a newer Tidewheel.*upgrade this broker"):
        open_store().read()


def test_a_schema_to_which_a_newer_version_has_only_added_is_used(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    known = migrations()[-1][0]
    open_store().read()
    postgres.execute("INSERT INTO schema_version (version) VALUES (9999)")
    postgres.execute(f"COMMENT ON TABLE schema_version IS 'usable from {known}'")
    assert open_store().apply([ORDERS], 0, "r1").version == 1
    postgres.execute(f"COMMENT ON TABLE schema_version IS 'usable from {known + 1}'")
    with pytest.raises(StoreTooNew, match="made by a newer Tidewheel"):
        open_store().read()


def stored(postgres: PostgresDatabase) -> tuple[int, str, list[str]]:
    """The newest snapshot, and the commits after it, as they are stored."""
    ((version, image),) = postgres.execute(
        "SELECT seq, image::text FROM snapshots ORDER BY seq DESC LIMIT 1"
    )
    rows = postgres.execute(f"SELECT changes::text FROM commits WHERE seq > {version} ORDER BY seq")
    return version, image, [row[0] for row in rows]


def test_levels_in_postgres(postgres: PostgresDatabase, open_store: OpenStore) -> None:
    """A new store begins at the newest level. After a downgrade a version that knows no levels can
    read all of it, even when the answer to the commit was lost, and the upgrade comes back."""
    store = open_store()
    assert store.read().metadata_level == 3
    lower, higher = (UpdateFeature(METADATA_VERSION, level) for level in (1, 3))
    store.apply([ORDERS], 0, "r1")
    with postgres.connect() as other:
        other.execute(
            "SELECT apply_commit(identity, 1, 'lost', NULL, %s) FROM cell",
            (json.dumps(encode_changes([lower], 3)),),
        )
    assert store.apply([lower], 1, "lost").metadata_level == 1
    store.apply([PAY], 2, "r3")
    version, image, changes = stored(postgres)
    assert version == 2
    assert first_reader.read_image(image.encode())["topics"].keys() == {"orders"}
    assert [first_reader.read_change(item)[0] for item in json.loads(changes[0])] == [
        "create_topic"
    ]
    assert len(changes) == 1
    assert open_store().read() == store.read()
    assert store.apply([higher], 3, "r4").metadata_level == 3
    assert stored(postgres)[::2] == (4, [])
    assert open_store().read() == store.read()


def test_rows_of_before_there_were_levels(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    written = json.loads(Path(__file__).with_name("written_at_level_1.json").read_text())
    open_store(cluster_id=written["cluster_id"]).read()
    version, snapshot = written["snapshot"]
    with postgres.connect() as other:
        other.execute("UPDATE cell SET seq = %s", (written["commits"][-1][0],))
        other.execute("UPDATE snapshots SET seq = %s, image = %s::json", (version, snapshot))
        for seq, request_id, epoch, changes in written["commits"]:
            other.execute(
                "INSERT INTO commits (seq, request_id, controller_epoch, changes)"
                " VALUES (%s, %s, %s, %s::json)",
                (seq, request_id, epoch, json.dumps(changes)),
            )
    store = open_store(cluster_id=written["cluster_id"])
    image = store.read()
    assert image == decode_image(written["image"].encode())
    image = store.apply([PAY], image.version, "new")
    assert (image.metadata_level, stored(postgres)[0]) == (1, version)


def test_a_commit_of_a_newer_version_says_what_to_do(
    postgres: PostgresDatabase, open_store: OpenStore
) -> None:
    store = open_store()
    store.read()
    with postgres.connect() as other:
        other.execute(
            "SELECT apply_commit(identity, 0, 'new', NULL, %s) FROM cell",
            ('[["merge_topics",1]]',),
        )
    with pytest.raises(StoreTooNew, match=r"commit 1 .*'merge_topics'.*upgrade this broker"):
        store.feed(0)


def test_the_store_of_another_cluster_is_refused(open_store: OpenStore) -> None:
    open_store().read()
    with pytest.raises(StoreCorrupt, match="of cluster cluster, this broker belongs to"):
        open_store(cluster_id="other").read()


def test_an_address_that_makes_no_sense_is_refused_without_showing_the_password() -> None:
    with pytest.raises(ValueError, match="not one that Postgres knows") as caught:
        PostgresMetadataStore("postgresql://u:secret@h:port?x=y", "cluster", now_ms)
    assert "secret" not in str(caught.value)
    for schema in ("", "Upper", 'a"; DROP', "a" * 60):
        with pytest.raises(ValueError, match="no name for a schema"):
            PostgresMetadataStore("postgresql://h/", "cluster", now_ms, schema=schema)
