"""What commits are told as: things made, changed or deleted, by whom, and none forgotten."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.cell.change_events import (
    SILENT,
    ChangeEvent,
    EventChange,
    EventKind,
    events_of,
    events_of_feed,
)
from data_plane.cell import changes as all_changes
from data_plane.cell.authors import KAFKA_SOURCE, Author, NameAuthor
from data_plane.cell.changes import (
    AddPartitions,
    AlterConfigs,
    Change,
    CreateTopic,
    DeleteTopic,
    apply_changes,
)
from data_plane.cell.credentials import Credential, DeleteCredential, PutCredential, ScramVerifier
from data_plane.cell.declarations import API_OWNER, Declaration, Declared, PutDeclaration
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.metadata_store import Commit, InMemoryMetadataStore
from data_plane.cell.tenants import DeleteTenant, PutTenant, TenantImage
from tests.broker.member_player import Clock, Member, topic
from tests.cell.cases import NEW_CELL, histories

ALICE = Author(KAFKA_SOURCE, "default", "User:alice")
BOB = Author(KAFKA_SOURCE, "default", "User:bob")
ORDERS = UUID(int=1)
ACME = TenantImage("acme", "acme-1")
VERIFIER = ScramVerifier(b"salt", b"k" * 32, b"s" * 32, 4096)
ALICES = Credential("alice@acme", "acme", "alice", {"SCRAM-SHA-256": VERIFIER})


def told(image: MetadataImage, *changes: Change) -> list[ChangeEvent]:
    after = apply_changes(image, changes)
    return events_of(after.version, changes, after)


def test_a_declared_topic_is_one_event_with_its_resource_and_who_did_it() -> None:
    thing = Declared("topic", "default", "orders")
    (event,) = told(
        NEW_CELL,
        NameAuthor(ALICE),
        topic("orders", 1),
        PutDeclaration(Declaration("top_1", 3, thing, API_OWNER, "{}")),
    )
    assert (event.kind, event.change) == (EventKind.TOPIC, EventChange.MADE)
    assert (event.tenant, event.name, event.topic_id) == ("default", "orders", ORDERS)
    assert event.author == ALICE
    assert event.resource == ("top_1", 3, API_OWNER)


def test_topics_of_the_broker_itself_are_no_events() -> None:
    assert told(NEW_CELL, topic("__consumer_offsets", 1)) == []


def test_a_deletion_names_what_is_gone_and_growth_is_named_by_the_image_or_by_the_deletion() -> (
    None
):
    image = apply_changes(NEW_CELL, [topic("orders", 1)])
    grow = AddPartitions(ORDERS, ((1,),))
    gone = DeleteTopic.of(image.topics_by_id[ORDERS])
    (grown,) = told(image, grow)
    assert (grown.change, grown.name) == (EventChange.CHANGED, "orders")
    commits = [Commit(2, "grow", (grow,)), Commit(3, "delete", (gone,))]
    after = apply_changes(apply_changes(image, [grow]), [gone])
    events = events_of_feed(commits, after)
    assert [(event.change, event.name, event.version) for event in events] == [
        (EventChange.CHANGED, "orders", 2),
        (EventChange.DELETED, "orders", 3),
    ]


def test_a_topic_that_is_made_anew_in_the_commit_of_its_deletion_is_another_one() -> None:
    """Two callers' changes may share a commit."""
    image = apply_changes(NEW_CELL, [topic("orders", 1)])
    one, two = UUID(int=1), UUID(int=2)
    grow, gone = AddPartitions(one, ((1,),)), DeleteTopic.of(image.topics_by_id[one])
    changes: list[Change] = [
        NameAuthor(ALICE),
        grow,
        gone,
        NameAuthor(BOB),
        topic("orders", 2),
        AlterConfigs("default", ResourceType.TOPIC, "orders", (("retention.ms", "1"),)),
    ]
    events = told(image, *changes)
    assert [(event.change, event.name, event.topic_id, event.author) for event in events] == [
        (EventChange.DELETED, "orders", one, ALICE),
        (EventChange.MADE, "orders", two, BOB),
    ]


def test_deletions_without_names_are_told_one_by_one() -> None:
    """As at metadata.version 1."""
    image = apply_changes(NEW_CELL, [topic("orders", 1), topic("pay", 2)])
    events = told(image, DeleteTopic(UUID(int=1)), DeleteTopic(UUID(int=2)))
    assert [(event.change, event.topic_id) for event in events] == [
        (EventChange.DELETED, UUID(int=1)),
        (EventChange.DELETED, UUID(int=2)),
    ]


def test_a_declared_credential_that_is_deleted_is_one_event() -> None:
    declaration = Declaration(
        "r1", 1, Declared("credential", "acme", "alice@acme"), API_OWNER, "{}"
    )
    gone = replace(declaration, generation=2, specification="", is_deleted=True)
    image = apply_changes(
        NEW_CELL, [PutTenant(ACME), PutCredential(ALICES), PutDeclaration(declaration)]
    )
    deletion: list[Change] = [PutDeclaration(gone), DeleteCredential("alice@acme")]
    for changes in permutations(deletion):
        (event,) = told(image, *changes)
        assert (event.kind, event.change) == (EventKind.CREDENTIAL, EventChange.DELETED)
        assert (event.tenant, event.name) == ("acme", "alice@acme")
        assert event.resource == ("r1", 2, API_OWNER)


def test_what_is_deleted_and_made_anew_in_a_commit_is_there_for_who_follows() -> None:
    image = apply_changes(NEW_CELL, [PutTenant(ACME), PutCredential(ALICES)])
    login = (EventKind.CREDENTIAL, ALICES.login)
    events = told(image, DeleteCredential(ALICES.login), PutCredential(ALICES))
    assert [(event.kind, event.name, event.change) for event in events] == [
        (*login, EventChange.DELETED),
        (*login, EventChange.CHANGED),
    ]
    image = apply_changes(NEW_CELL, [PutTenant(ACME)])
    events = told(image, DeleteTenant("acme"), PutTenant(replace(ACME, cluster_id="other")))
    assert [(event.tenant, event.change) for event in events] == [
        ("acme", EventChange.DELETED),
        ("acme", EventChange.MADE),
    ]


def just(change: Change, image: MetadataImage) -> list[Change]:
    return [change]


def members(union: object) -> set[type]:
    found: set[type] = set()
    for each in get_args(union):
        found |= members(each) if get_args(each) else {each}
    return found


@given(histories(size_max=40, image=NEW_CELL), st.data())
def test_all_that_is_not_silent_is_told(changes: list[Change], data: st.DataObject) -> None:
    """Whoever follows knows which topics there are, in whatever pieces he is told."""
    image = NEW_CELL
    commits = []
    live: list[ChangeEvent] = []
    while changes:
        count = data.draw(st.integers(1, min(5, len(changes))))
        together, changes = changes[:count], changes[count:]
        image = apply_changes(image, together)
        commits.append(Commit(image.version, f"r{image.version}", tuple(together)))
        events = events_of(image.version, together, image)
        assert not events or not all(isinstance(change, SILENT) for change in together)
        assert all(event.version == image.version for event in events)
        told_ids = {event.topic_id for event in events if event.change is not EventChange.CHANGED}
        for change in together:
            if isinstance(change, CreateTopic):
                assert (change.topic_id in told_ids) != change.name.startswith("__")
        live += events
    known: dict[UUID, str] = {}
    for event in live:
        if event.kind is EventKind.TOPIC and event.change is EventChange.MADE:
            assert event.topic_id is not None
            assert event.name not in known.values(), "whose name it was is gone before"
            known[event.topic_id] = event.name
        elif event.kind is EventKind.TOPIC and event.change is EventChange.DELETED:
            assert event.topic_id is not None
            known.pop(event.topic_id, None)
    there = {item.topic_id: item.name for item in image.topics_by_id.values() if not item.internal}
    assert known == there
    # Read from the store later, it is the same, apart from what the image no longer tells.
    later = events_of_feed(commits, image)
    assert [(event.version, event.kind, event.topic_id) for event in later] == [
        (event.version, event.kind, event.topic_id) for event in live
    ]


KINDS = sorted(members(all_changes.Change), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_change_is_told_or_named_as_silent(kind: type) -> None:
    """A new kind has to say which: in `_Collected.add`, or in SILENT."""
    assert kind.__name__ in events_of.__globals__, f"not known there: {kind.__name__}"


@given(st.lists(st.sampled_from([ALICE, BOB, None]), min_size=1, max_size=8))
def test_changes_of_one_commit_are_their_authors(authors: list[Author | None]) -> None:
    clock = Clock()
    member = Member(InMemoryMetadataStore(NEW_CELL, lambda: clock.now_ms), clock)
    heard: list[ChangeEvent] = []

    def listen(image: MetadataImage, changes: object) -> None:
        assert isinstance(changes, list | tuple)
        heard.extend(events_of(image.version, changes, image))

    member.services.commits.listeners.append(listen)
    for number, author in enumerate(authors, 1):
        change = topic(f"t{number}", number)
        member.services.metadata.write(partial(just, change), lambda error: None, author=author)
    member.run_jobs()
    # Tenants take turns, so not in the order in which they have asked.
    assert len(heard) == len(authors)
    assert {event.name: event.author for event in heard} == {
        f"t{number}": author for number, author in enumerate(authors, 1)
    }
    # Whoever reads the store is told the same.
    feed = events_of_feed(member.cell_store.feed(0), member.image)
    assert feed == heard
