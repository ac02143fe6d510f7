"""Following the store: order, holes, outages, and the copy on disk."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from data_plane.broker.cell.metadata_follower import POLL_INTERVAL_MS
from data_plane.cell.changes import AllocateProducerIds
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import FEED_COMMITS_KEPT, Commit
from tests.broker.member_player import Member


@pytest.fixture
def member() -> Member:
    member = Member()
    member.services.components.append(member.follower)
    member.services.start(member.now_ms())
    member.services.tick(member.now_ms())
    member.run_jobs()
    return member


def commit_elsewhere(member: Member, count: int = 1) -> None:
    for _ in range(count):
        image = member.cell_store.read()
        change = AllocateProducerIds(image.next_producer_id, 1)
        member.cell_store.apply([change], image.version, f"elsewhere {image.version}")


def events(member: Member) -> list[str]:
    return [event for _, event, _ in member.log.events]


def test_commits_of_others_are_applied_in_one_step(member: Member) -> None:
    """What lies between is over, and nobody may act on it."""
    commit_elsewhere(member, 3)
    member.follower.request_update()
    member.run_jobs()
    assert member.partitions.versions == [3]
    assert member.image == member.cell_store.read()


def test_without_a_poke_the_follower_asks_by_itself(member: Member) -> None:
    commit_elsewhere(member)
    member.pass_time(POLL_INTERVAL_MS + 10)
    assert member.image.version == 1


def test_who_hears_of_the_store_need_not_ask(member: Member) -> None:
    before = member.store.feeds
    member.follower.note_store_version(0, member.now_ms())
    for _ in range(8):
        member.pass_time(POLL_INTERVAL_MS - 10)
        member.follower.note_store_version(0, member.now_ms())
    assert member.store.feeds == before
    commit_elsewhere(member)
    member.follower.note_store_version(1, member.now_ms())
    member.run_jobs()
    assert member.store.feeds == before + 1
    assert member.image.version == 1
    commit_elsewhere(member)
    member.pass_time(POLL_INTERVAL_MS + 10)
    assert member.image.version == 2, "the last that was heard is some time ago"


def test_a_poke_while_it_asks_is_not_lost(member: Member) -> None:
    member.follower.request_update()
    assert len(member.executor.queue) == 1
    # The question is answered, and then something is committed and told.
    work, on_done = member.executor.queue.popleft()
    answer = work()
    commit_elsewhere(member)
    member.follower.request_update()
    member.follower.request_update()
    assert not member.executor.queue, "one question at a time"
    on_done(answer, None)
    member.run_jobs()
    assert member.image.version == 1


def test_a_feed_that_does_not_reach_back_is_replaced_by_the_image(member: Member) -> None:
    commit_elsewhere(member, FEED_COMMITS_KEPT + 2)
    member.follower.request_update()
    member.run_jobs()
    assert member.partitions.versions == [FEED_COMMITS_KEPT + 2]
    assert member.image == member.cell_store.read()


def test_a_feed_with_a_hole_is_not_believed(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_elsewhere(member, 3)
    whole = member.cell_store.feed

    def holey(after_version: int) -> Sequence[Commit]:
        return [commit for commit in whole(after_version) if commit.version != 2]

    monkeypatch.setattr(member.cell_store, "feed", holey)
    member.follower.request_update()
    member.run_jobs()
    assert member.partitions.versions == [3]
    assert member.image == member.cell_store.read()


def test_late_news_do_not_take_the_image_back(member: Member) -> None:
    commit_elsewhere(member, 2)
    member.follower.request_update()
    work, on_done = member.executor.queue.popleft()
    old_news = work()
    commit_elsewhere(member)
    member.services.apply_image(member.cell_store.read(), member.now_ms())
    on_done(old_news, None)
    assert member.image.version == 3
    assert member.partitions.versions == [3]


def test_an_outage_is_logged_once_and_ends(member: Member) -> None:
    member.store.is_down = True
    commit_elsewhere(member)
    feeds_before = member.store.feeds
    member.pass_time(10_000, 50)
    assert events(member) == ["metadata_store_unavailable"]
    assert member.follower.is_store_down
    assert member.store.feeds == feeds_before
    member.store.is_down = False
    member.pass_time(2_100, 50)
    assert events(member) == ["metadata_store_unavailable", "metadata_store_back"]
    assert member.image.version == 1
    assert member.follower.outages_count == 1


def test_pokes_do_not_hammer_a_store_that_is_away(member: Member) -> None:
    member.store.is_down = True
    member.follower.request_update()
    asked = 0
    for _ in range(1000):
        member.follower.request_update()
        if member.executor.queue:
            asked += 1
            member.executor.run_one()
    member.pass_time(60_000, 50)
    assert asked < 1001
    assert events(member) == ["metadata_store_unavailable"]


def test_the_file_follows_the_image_off_the_loop(member: Member) -> None:
    files = len(member.files)
    commit_elsewhere(member)
    member.follower.request_update()
    member.run_jobs()
    assert len(member.files) == files
    member.pass_time(1_100)
    assert member.files[-1] == member.image
    files = len(member.files)
    member.pass_time(10_000, 100)
    assert len(member.files) == files, "nothing new, nothing written"


def test_what_came_while_the_file_was_written_is_written_next(member: Member) -> None:
    member.pass_time(2_000)
    commit_elsewhere(member)
    member.follower.request_update()
    member.run_jobs()
    files = len(member.files)
    while not member.executor.queue:
        member.clock.now_ms += 100
        member.follower.tick(member.now_ms())
    commit_elsewhere(member)
    member.services.apply_image(member.cell_store.read(), member.now_ms())
    member.run_jobs()
    assert [image.version for image in member.files[files:]] == [member.image.version - 1]
    member.pass_time(1_100, 100)
    assert [image.version for image in member.files[files + 1 :]] == [member.image.version]


def test_the_file_is_written_at_most_so_often(member: Member) -> None:
    member.pass_time(2_000)
    files = len(member.files)
    for _ in range(50):
        commit_elsewhere(member)
        member.follower.request_update()
        member.pass_time(100)
    assert 4 <= len(member.files) - files <= 6


def test_a_file_that_takes_long_is_written_more_rarely(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(image: MetadataImage) -> None:
        member.clock.now_ms += 500
        member.files.append(image)

    monkeypatch.setattr(member.follower, "_write_file", slow)
    for _ in range(150):
        commit_elsewhere(member)
        member.follower.request_update()
        member.pass_time(100)
    assert len(member.files) <= 4


def test_at_the_end_the_file_has_the_newest_image(member: Member) -> None:
    commit_elsewhere(member)
    member.follower.request_update()
    member.run_jobs()
    member.services.stop(member.now_ms())
    member.follower.write_now()
    assert member.files[-1].version == 1
    files = len(member.files)
    member.follower.write_now()
    assert len(member.files) == files
    member.follower.request_update()
    member.services.tick(member.now_ms() + 100_000)
    assert not member.executor.queue, "a stopped follower asks nothing"
