"""Stores that are not what they were, and `recover`, which makes a lost one anew."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from data_plane.cell import postgres_store
from data_plane.cell import recover as recovery
from data_plane.cell.changes import (
    AllocateProducerIds,
    Change,
    ChangePartition,
    CreateTopic,
    apply_changes,
)
from data_plane.cell.image_file import ImageFile
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import (
    StaleControllerEpoch,
    StoreUnavailable,
    StoreWentBack,
    VersionConflict,
)
from data_plane.cell.postgres_schema import CellRow, Lineage
from data_plane.cell.postgres_store import PostgresMetadataStore
from data_plane.cell.recover import (
    EPOCH_JUMP,
    PRODUCER_ID_JUMP,
    VERSION_JUMP,
    Candidate,
    CannotRecover,
    choose,
    jumped_ahead,
    plan_recovery,
    recover,
)
from data_plane.log.file_system import OsFileSystem
from tests.cell.test_postgres_store import wait_until, works
from tests.postgres_server import PostgresDatabase

ORDERS = CreateTopic("default", "orders", UUID(int=1), ((1, 2, 3), (2, 3, 1)))
LEASE_MS = 60_000

OpenStore = Callable[..., PostgresMetadataStore]


@pytest.fixture
def open_store(postgres: PostgresDatabase) -> Iterator[OpenStore]:
    with contextlib.ExitStack() as stack:

        def open_store(**options: Any) -> PostgresMetadataStore:
            return stack.enter_context(contextlib.closing(postgres.store(**options)))

        yield open_store


@pytest.fixture
def store(open_store: OpenStore) -> PostgresMetadataStore:
    """A store that has seen version 4, one topic and 30 producer ids."""
    store = open_store()
    image = store.apply([ORDERS], 0, "r0")
    for _ in range(3):
        image = allocate(store, image)
    return store


def allocate(store: PostgresMetadataStore, image: MetadataImage) -> MetadataImage:
    change = AllocateProducerIds(image.next_producer_id, 10)
    return store.apply([change], image.version, f"r{image.version}")


def candidate(store: PostgresMetadataStore, path: str = "image") -> Candidate:
    return Candidate(path, store.read(), store.identity)


def every_call(store: PostgresMetadataStore) -> list[Callable[[], object]]:
    version = store.read().version
    return [
        store.read,
        lambda: store.feed(version),
        lambda: store.apply([AllocateProducerIds(30, 10)], version, "after"),
        lambda: store.heartbeat(1, "a", LEASE_MS, wants_controller=True),
        lambda: store.wait(version, 10),
    ]


def expect_refusal(call: Callable[[], object], match: str) -> None:
    """The call is refused as it should be; a connection may have to be lost first."""

    def refused_or_unavailable() -> bool:
        with pytest.raises((StoreUnavailable, StoreWentBack)) as caught:
            call()
        return isinstance(caught.value, StoreWentBack) and match in str(caught.value)

    wait_until(refused_or_unavailable)


def restore_backup(postgres: PostgresDatabase, version: int) -> None:
    """What a restored backup looks like to brokers that stay connected."""
    postgres.execute("UPDATE cell SET seq = %s", version)
    postgres.execute("DELETE FROM commits WHERE seq > %s", version)


def test_a_restored_backup_is_refused_by_connections_that_never_broke(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    calls = every_call(store)
    for call in (calls[3], calls[4]):
        call()
    restore_backup(postgres, 2)
    # A second client would be at version 2: this one must not build on that.
    for call in calls:
        expect_refusal(call, "is at version 2 and has been at 4")
    assert postgres.execute("SELECT seq FROM cell") == [(2,)]


def test_a_decision_on_the_version_of_the_backup_is_not_committed_either(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    restore_backup(postgres, 2)
    with pytest.raises(StoreWentBack, match="is at version 2 and has been at 4"):
        store.apply([], 2, "on the backup")
    assert postgres.execute("SELECT seq FROM cell") == [(2,)]


def test_a_backup_of_just_the_version_that_a_broker_has_takes_nothing_from_it(
    postgres: PostgresDatabase, store: PostgresMetadataStore, open_store: OpenStore
) -> None:
    """Its heartbeat has seen the commit that the backup lacks; its image has not."""
    other = open_store()
    image = other.read()
    allocate(store, store.read())
    assert other.heartbeat(2, "b", LEASE_MS, wants_controller=False).version == image.version + 1
    restore_backup(postgres, image.version)
    with pytest.raises(StoreWentBack, match="is at version 4 and has been at 5"):
        other.apply([AllocateProducerIds(image.next_producer_id, 10)], image.version, "on it")
    assert postgres.execute("SELECT seq FROM cell") == [(image.version,)]


def test_a_restored_backup_is_refused_after_a_restart_of_the_broker(
    postgres: PostgresDatabase, store: PostgresMetadataStore, open_store: OpenStore
) -> None:
    seen = (store.read(), store.identity)
    restore_backup(postgres, 3)
    restarted = open_store(seen=seen)
    for call in every_call_of_a_new(restarted):
        expect_refusal(call, "is at version 3 and has been at 4")
    # A broker that has never seen it has nothing to compare.
    assert open_store().read().version == 3


def every_call_of_a_new(store: PostgresMetadataStore) -> list[Callable[[], object]]:
    return [
        store.read,
        lambda: store.feed(4),
        lambda: store.apply([AllocateProducerIds(20, 10)], 3, "after"),
        lambda: store.heartbeat(1, "a", LEASE_MS, wants_controller=True),
        lambda: store.wait(4, 10),
    ]


def test_an_emptied_store_is_refused_and_not_begun_anew(
    postgres: PostgresDatabase, store: PostgresMetadataStore, open_store: OpenStore
) -> None:
    calls = every_call(store)
    for call in (calls[3], calls[4]):
        call()
    seen = (store.read(), store.identity)
    postgres.execute(f"DROP SCHEMA {postgres.schema} CASCADE")
    for call in [*calls, *every_call_of_a_new(open_store(seen=seen))]:
        expect_refusal(call, "the metadata store is empty")
    found = postgres.execute(
        "SELECT count(*) FROM pg_namespace WHERE nspname = %s", postgres.schema
    )
    assert found == [(0,)]


@pytest.mark.parametrize("number", range(5))
def test_another_store_in_its_place_is_refused_by_every_call_and_not_written_to(
    postgres: PostgresDatabase, store: PostgresMetadataStore, number: int
) -> None:
    calls = every_call(store)
    for call in (calls[3], calls[4]):
        call()
    # At the same version: that alone would not tell.
    postgres.execute("UPDATE cell SET identity = gen_random_uuid()")
    expect_refusal(calls[number], "this broker has seen")
    assert postgres.execute("SELECT count(*) FROM commits") == [(4,)]
    assert postgres.execute("SELECT renewals FROM sessions") == [(1,)]


def test_a_backup_that_is_replaced_by_the_right_database_is_followed_again(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    commits = postgres.execute("SELECT seq, request_id, changes::text FROM commits WHERE seq > 2")
    restore_backup(postgres, 2)
    expect_refusal(store.read, "has been at 4")
    for seq, request_id, changes in commits:
        postgres.execute(
            "INSERT INTO commits (seq, request_id, changes) VALUES (%s, %s, %s)",
            seq,
            request_id,
            changes,
        )
    postgres.execute("UPDATE cell SET seq = 4")
    wait_until(lambda: not fails(store.read))
    assert allocate(store, store.read()).version == 5


def fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except (StoreUnavailable, StoreWentBack):
        return True
    return False


# --- recover ---


def test_a_lost_store_is_made_anew_and_running_brokers_follow_it(
    postgres: PostgresDatabase, store: PostgresMetadataStore, open_store: OpenStore
) -> None:
    store.heartbeat(1, "a", LEASE_MS, wants_controller=True)
    image, identity = store.read(), store.identity
    older = Candidate("older", apply_changes(MetadataImage("cluster"), [ORDERS]), identity)
    newest = candidate(store, "newest")
    # This commit reached no image file.
    allocate(store, image)
    stopped = (image, identity)
    postgres.execute(f"DROP SCHEMA {postgres.schema} CASCADE")
    result = recover(postgres.dsn, [older, newest], schema=postgres.schema)
    assert result.source is newest

    wait_until(lambda: not fails(store.read))
    recovered = store.read()
    assert recovered == result.image == jumped_ahead(image)
    assert store.identity != identity
    assert open_store().read() == open_store(seen=stopped).read() == recovered
    # Its lease and its epoch are gone with the old store, and no epoch comes again.
    with pytest.raises(StaleControllerEpoch):
        store.apply([], recovered.version, "zombie", controller_epoch=1)
    wait_until(lambda: works(lambda: store.heartbeat(1, "a", LEASE_MS, wants_controller=True)))
    lease = store.heartbeat(1, "a", LEASE_MS, wants_controller=True).controller
    assert lease is not None
    assert lease.is_ours
    assert lease.epoch > VERSION_JUMP
    assert allocate(store, recovered).version == recovered.version + 1


def test_a_decision_on_the_lost_store_is_refused_by_the_new_one(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    found = candidate(store)
    restore_backup(postgres, 2)
    recover(postgres.dsn, [found], schema=postgres.schema)
    # The connection did not even break.
    with pytest.raises(VersionConflict) as caught:
        allocate(store, found.image)
    assert caught.value.actual_version == 4 + VERSION_JUMP


def test_nothing_that_was_given_out_is_given_out_again() -> None:
    image = apply_changes(MetadataImage("cluster"), [ORDERS, AllocateProducerIds(0, 30)])
    jumped = jumped_ahead(image)
    assert jumped.version == image.version + VERSION_JUMP
    assert jumped.next_producer_id == 30 + PRODUCER_ID_JUMP
    for topic in (jumped.topics_of("default")["orders"], jumped.topics_by_id[UUID(int=1)]):
        for old, new in zip(
            image.topics_of("default")["orders"].partitions, topic.partitions, strict=True
        ):
            assert new.leader_epoch == old.leader_epoch + EPOCH_JUMP
            assert new.partition_epoch == old.partition_epoch + EPOCH_JUMP
            assert (new.replicas, new.isr, new.leader) == (old.replicas, old.isr, old.leader)
    # It is an image like any other.
    partition = jumped.topics_of("default")["orders"].partitions[0]
    successor = replace(
        partition, leader=2, leader_epoch=EPOCH_JUMP + 1, partition_epoch=EPOCH_JUMP + 1
    )
    apply_changes(jumped, [ChangePartition(UUID(int=1), 0, successor)])


def test_what_was_seen_stays_seen_whoever_hears_of_something_older_later() -> None:
    """Two threads have asked at 7; the one that was answered with 9 is heard first."""
    lineage = Lineage("cluster", "this", 7)
    lineage.saw(9, 7)
    lineage.saw(8, 7)
    assert lineage.version == 9
    with pytest.raises(StoreWentBack):
        lineage.saw(8, lineage.version)


def test_there_is_no_feed_beyond_what_the_store_has(store: PostgresMetadataStore) -> None:
    version = store.read().version
    assert store.feed(version) == []
    with pytest.raises(StoreWentBack):
        store.feed(version + 1)


def test_brokers_that_have_seen_the_store_that_is_thrown_away_follow_too() -> None:
    image = apply_changes(MetadataImage("cluster"), [ORDERS])
    present = CellRow(2, "other", ("grandparent",), "cluster", 3 * VERSION_JUMP)
    found = Candidate("image", image, "lost")
    planned = plan_recovery([found], present, replace_other=True)
    assert planned.image.version == present.version + VERSION_JUMP
    assert planned.ancestors == ("grandparent", "lost", "other")


def test_a_store_can_be_lost_and_recovered_again(
    postgres: PostgresDatabase, store: PostgresMetadataStore, open_store: OpenStore
) -> None:
    first_seen = (store.read(), store.identity)
    for _ in range(2):
        found = candidate(store)
        restore_backup(postgres, found.image.version - 1)
        recover(postgres.dsn, [found], schema=postgres.schema)
        wait_until(lambda: not fails(store.read))
        allocate(store, store.read())
    assert store.read().version == 4 + 2 * VERSION_JUMP + 2
    # Somebody who slept through both follows too.
    assert open_store(seen=first_seen).read() == store.read()


def test_the_backup_of_a_store_that_was_recovered_since_is_refused(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    old_identity, found = store.identity, candidate(store)
    restore_backup(postgres, 2)
    recover(postgres.dsn, [found], schema=postgres.schema)
    wait_until(lambda: not fails(store.read))
    postgres.execute("UPDATE cell SET identity = %s, ancestors = '{}'", old_identity)
    expect_refusal(store.read, f"has identity {old_identity}")


def test_recovering_beside_running_brokers_ends_in_no_deadlock(
    postgres: PostgresDatabase,
    store: PostgresMetadataStore,
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_store, "SNAPSHOT_EVERY_COMMITS", 1)
    is_over = threading.Event()
    warnings: list[str] = []

    def write(number: int) -> int:
        mine = open_store(on_warning=warnings.append)
        commits = 0
        while not is_over.is_set():
            mine.heartbeat(number, "a", LEASE_MS, wants_controller=True)
            image = mine.read()
            change = AllocateProducerIds(image.next_producer_id, 1)
            with contextlib.suppress(VersionConflict):
                mine.apply([change], image.version, f"{number}-{image.version}")
                commits += 1
        return commits

    with ThreadPoolExecutor() as threads:
        writers = [threads.submit(write, number) for number in range(3)]
        try:
            for _ in range(8):
                recover(
                    postgres.dsn, [candidate(store)], schema=postgres.schema, replace_other=True
                )
        finally:
            is_over.set()
        assert sum(writer.result(30) for writer in writers) > 0
    assert warnings == []
    assert store.read().version > 8 * VERSION_JUMP


def test_a_store_that_went_on_is_left_alone(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    found = candidate(store)
    with pytest.raises(CannotRecover, match="nothing is lost"):
        recover(postgres.dsn, [found], schema=postgres.schema)
    image = allocate(store, found.image)
    with pytest.raises(CannotRecover, match="at version 5, image at 4: nothing is lost"):
        recover(postgres.dsn, [found], schema=postgres.schema)
    assert store.read() == image
    assert store.identity == found.identity


def test_another_store_is_replaced_only_when_that_is_wanted(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    found = replace(candidate(store), identity="0a6b0c3e-0000-4000-8000-000000000000")
    with pytest.raises(CannotRecover, match="--replace throws the store away"):
        recover(postgres.dsn, [found], schema=postgres.schema)
    result = recover(postgres.dsn, [found], schema=postgres.schema, replace_other=True)
    # Its brokers follow as well.
    wait_until(lambda: not fails(store.read))
    assert store.read() == result.image


def test_nothing_of_the_store_that_is_replaced_lives_on_in_the_new_one(
    postgres: PostgresDatabase, store: PostgresMetadataStore, open_store: OpenStore
) -> None:
    lost_identity = "0a6b0c3e-0000-4000-8000-000000000000"
    found = replace(candidate(store), identity=lost_identity)
    # The other store goes on: with a controller, with members, with commits on top of this version.
    lease = store.heartbeat(1, "a", LEASE_MS, wants_controller=True).controller
    assert lease is not None
    allocate(store, allocate(store, store.read()))
    # It has had more controllers than versions, as after recoveries before.
    postgres.execute("UPDATE controller SET epoch = %s", 5 * VERSION_JUMP)
    result = recover(postgres.dsn, [found], schema=postgres.schema, replace_other=True)

    follower = open_store(seen=(found.image, lost_identity))
    assert follower.read() == result.image
    assert postgres.execute("SELECT count(*) FROM commits") == [(0,)]
    assert postgres.execute("SELECT count(*) FROM snapshots") == [(1,)]
    with pytest.raises(StaleControllerEpoch):
        follower.apply([], result.image.version, "zombie", controller_epoch=5 * VERSION_JUMP)
    heartbeat = follower.heartbeat(2, "b", LEASE_MS, wants_controller=True)
    assert set(heartbeat.sessions) == {2}
    assert heartbeat.controller is not None
    assert heartbeat.controller.is_ours


def test_a_commit_that_comes_while_a_store_is_recovered_is_not_lost(
    postgres: PostgresDatabase, store: PostgresMetadataStore
) -> None:
    found = candidate(store)
    restore_backup(postgres, found.image.version - 1)
    with postgres.connect(autocommit=False) as writer, ThreadPoolExecutor() as threads:
        writer.execute("UPDATE cell SET seq = %s", (found.image.version,))
        recovered = threads.submit(recover, postgres.dsn, [found], schema=postgres.schema)
        waits = (
            "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE NOT granted AND nspname = %s"
        )
        wait_until(lambda: postgres.execute(waits, postgres.schema) == [(1,)])
        writer.commit()
        with pytest.raises(CannotRecover, match="nothing is lost"):
            recovered.result(30)


def test_brokers_of_every_image_follow_the_new_store() -> None:
    image = apply_changes(MetadataImage("cluster"), [ORDERS])
    newer = apply_changes(image, [AllocateProducerIds(0, 1)])
    candidates = [
        Candidate("one", newer, "this"),
        Candidate("two", image, "before"),
        # A broker that has written its image before it had seen any store.
        Candidate("three", MetadataImage("cluster"), ""),
    ]
    assert plan_recovery(candidates, None).ancestors == ("before", "this")


def test_images_that_contradict_each_other_are_refused() -> None:
    image = apply_changes(MetadataImage("cluster"), [ORDERS])
    other: list[Change] = [AllocateProducerIds(0, 1)]
    one = Candidate("one", image, "x")
    same = Candidate("same", image, "x")
    newer = Candidate("newer", apply_changes(image, other), "x")
    different = Candidate("different", apply_changes(MetadataImage("cluster"), other), "x")
    elsewhere = Candidate("elsewhere", replace(image, cluster_id="other"), "x")
    assert choose([one, newer, same]) is newer
    with pytest.raises(CannotRecover, match="one and different hold different images of version 1"):
        choose([one, newer, different])
    with pytest.raises(CannotRecover, match="elsewhere belongs to cluster other"):
        choose([one, elsewhere, newer])
    with pytest.raises(CannotRecover, match="no image file"):
        choose([])


def test_the_command(
    postgres: PostgresDatabase,
    store: PostgresMetadataStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = ImageFile(OsFileSystem(), str(tmp_path))
    file.write(store.read(), store.identity)
    monkeypatch.setattr("sys.stdin", io.StringIO(postgres.dsn + "\n"))
    arguments = ["--dsn", "-", "--schema", postgres.schema, "--image", file.path]
    assert recovery.main(arguments) == 1
    assert "nothing is lost" in capsys.readouterr().err
    restore_backup(postgres, 1)
    arguments[1] = postgres.dsn
    assert recovery.main(arguments) == 0
    assert "1 topics with 2 partitions, 0 of them without a leader" in capsys.readouterr().out
    damaged = tmp_path / "damaged"
    damaged.write_bytes(Path(file.path).read_bytes()[:-1])
    missing = str(tmp_path / "missing")
    for path, says in (
        (str(damaged), f"{damaged}: the checksum does not match: the file is damaged"),
        (missing, f"{missing} cannot be read: No such file or directory"),
        (str(tmp_path), f"{tmp_path} cannot be read: Is a directory"),
    ):
        assert recovery.main([*arguments[:5], path]) == 1
        assert capsys.readouterr().err == f"Not recovered: {says}\n"
