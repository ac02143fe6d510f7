"""The contract of the metadata store, on every adapter."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from data_plane.cell.changes import AllocateProducerIds, CreateTopic, DeleteTopic, InvalidChange
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import (
    FEED_COMMITS_KEPT,
    Commit,
    CommitHistory,
    FeedTruncated,
    InMemoryMetadataStore,
    MetadataStore,
    VersionConflict,
)
from data_plane.log.sim_file_system import SimFileSystem

ORDERS = CreateTopic("orders", UUID(int=1), ((1,),))
PAY = CreateTopic("pay", UUID(int=2), ((1,),))


def local_store() -> MetadataStore:
    fs = SimFileSystem()
    fs.make_directory("/data")
    return LocalMetadataStore(fs, "/data", "cluster")


def memory_store() -> MetadataStore:
    return InMemoryMetadataStore(MetadataImage("cluster"))


@pytest.fixture(params=[local_store, memory_store])
def store(request: pytest.FixtureRequest) -> MetadataStore:
    make: Callable[[], MetadataStore] = request.param
    return make()


def test_a_commit_is_read_back(store: MetadataStore) -> None:
    image = store.apply([ORDERS, PAY], 0, "r1")
    assert image.version == 1
    assert sorted(image.topics_by_name) == ["orders", "pay"]
    assert store.read() == image


def test_a_decision_on_an_old_image_is_refused_and_nothing_happens(store: MetadataStore) -> None:
    store.apply([ORDERS], 0, "r1")
    with pytest.raises(VersionConflict) as caught:
        store.apply([PAY], 0, "r2")
    assert (caught.value.expected_version, caught.value.actual_version) == (0, 1)
    assert sorted(store.read().topics_by_name) == ["orders"]


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
