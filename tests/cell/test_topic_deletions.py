"""Deleted topics in images: they come back as they were, and pauses are as long as they lasted."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.cell.change_codec import decode_change, encode_change
from data_plane.cell.changes import (
    Change,
    CreateTopic,
    DeleteTopic,
    InvalidChange,
    UpdateFeature,
    apply_change,
    apply_changes,
)
from data_plane.cell.features import METADATA_VERSION, OPEN_LEVEL, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage, TopicImage, decode_image, encode_image
from data_plane.cell.topic_deletions import (
    UNDATED,
    ChangeDeletion,
    Deletion,
    Pause,
    dated,
    is_over,
    next_date_ms,
    undeleted,
)
from data_plane.log.config import LogConfig
from tests.cell.cell_images import ORDERS

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def kept() -> MetadataImage:
    """With a topic, at the level that can keep deleted ones."""
    changes: list[Change] = [
        UpdateFeature(METADATA_VERSION, TENANCY_LEVEL),
        CreateTopic("default", "orders", ORDERS, ((1,), (2,)), (("retention.ms", "5"),)),
    ]
    return apply_changes(MetadataImage("cluster"), changes)


def orders_of(image: MetadataImage) -> TopicImage:
    return image.topics_by_id[ORDERS]


def deleted(image: MetadataImage, deletion: Deletion) -> MetadataImage:
    return apply_change(image, ChangeDeletion(ORDERS, deletion, orders_of(image).pause))


def test_a_deleted_topic_stays_with_all_it_has_and_its_name_is_taken() -> None:
    image = kept()
    after = deleted(image, Deletion(100, WEEK_MS))
    topic, before = orders_of(after), orders_of(image)
    assert (topic.partitions, topic.configs) == (before.partitions, before.configs)
    assert after.topic("default", "orders") is topic
    with pytest.raises(InvalidChange, match="topic orders exists"):
        apply_change(after, CreateTopic("default", "orders", ORDERS, ((1,),)))
    back = orders_of(apply_change(after, undeleted(topic, 300)))
    assert back.deletion is None
    assert back.pause == Pause(100, 300)
    assert apply_change(after, DeleteTopic(ORDERS)).topics_by_id == {}


@pytest.mark.parametrize(
    ("deletion", "pause"),
    [
        (Deletion(100, WEEK_MS), None),
        (Deletion(UNDATED, 1), Pause(1, 2, 3)),
        (None, Pause(5, UNDATED)),
    ],
)
def test_stores_and_feeds_have_it_as_it_is(deletion: Deletion | None, pause: Pause | None) -> None:
    change = ChangeDeletion(ORDERS, deletion, pause)
    assert decode_change(encode_change(change, TENANCY_LEVEL)) == change
    image = apply_change(kept(), change)
    assert decode_image(encode_image(image)) == image
    assert image.metadata_level_needed() == TENANCY_LEVEL
    with pytest.raises(InvalidChange, match="no room"):
        apply_change(image, UpdateFeature(METADATA_VERSION, OPEN_LEVEL))


def test_brokers_of_before_are_told_nothing_of_it() -> None:
    image = apply_changes(
        MetadataImage("cluster"),
        [UpdateFeature(METADATA_VERSION, OPEN_LEVEL), CreateTopic("default", "o", ORDERS, ((1,),))],
    )
    with pytest.raises(InvalidChange, match="has no ChangeDeletion"):
        deleted(image, Deletion(100, 1))


def test_the_brokers_own_topics_cannot_be_kept() -> None:
    image = kept()
    topic = CreateTopic("default", "__consumer_offsets", UUID(int=9), ((1,),))
    image = apply_change(image, topic)
    with pytest.raises(InvalidChange, match="broker's own"):
        apply_change(image, ChangeDeletion(topic.topic_id, Deletion(1, 1), None))


# What happens to the topic, and how much later; with whether the date is vouched for then.
EVENTS = st.lists(
    st.tuples(st.sampled_from(["delete", "undelete", "look"]), st.integers(0, 50), st.booleans()),
    max_size=12,
)


@given(EVENTS)
def test_nobody_waits_shorter_than_it_is_said_whoever_vouches_when(
    events: list[tuple[str, int, bool]],
) -> None:
    """It is over no sooner than `undelete_ms` after the deletion, and what was there before is kept
    longer by all the time in which the topic was deleted."""
    image, date_ms, undelete_ms = kept(), 1_000, 40
    deleted_ms: int | None = None
    paused_ms = 0
    for kind, later_ms, is_vouched in events:
        date_ms += later_ms
        known_ms = date_ms if is_vouched else UNDATED
        topic = orders_of(image)
        if kind == "delete" and topic.deletion is None:
            deleted_ms = date_ms
            image = deleted(image, Deletion(known_ms, undelete_ms))
        elif kind == "undelete" and topic.deletion is not None:
            assert deleted_ms is not None
            paused_ms += date_ms - deleted_ms
            deleted_ms = None
            image = apply_change(image, undeleted(topic, known_ms))
        elif kind == "look" and is_vouched:
            if is_over(topic, date_ms, 1 << 60):
                assert deleted_ms is not None
                assert date_ms >= deleted_ms + undelete_ms
            change = dated(topic, date_ms)
            if change is not None:
                image = apply_change(image, change)
        topic = orders_of(image)
        assert topic.is_kept_whole is (next_date_ms(topic) is not None)
    pause = orders_of(image).pause
    if pause is not None and all(is_vouched for _, _, is_vouched in events):
        assert pause.length_ms == paused_ms


RETENTION_MS = 60


@given(EVENTS)
def test_no_record_goes_sooner_than_without_the_deletions_whoever_vouches_when(
    events: list[tuple[str, int, bool]],
) -> None:
    """A record is as old as the time in which its topic was there, or younger."""
    image, date_ms = kept(), 1_000
    # When each was appended, and for how long its topic has been deleted since.
    deleted_for_ms = {date_ms: 0}
    for kind, later_ms, is_vouched in events:
        date_ms += later_ms
        topic = orders_of(image)
        if topic.deletion is not None:
            for appended_ms in deleted_for_ms:
                deleted_for_ms[appended_ms] += later_ms
        else:
            deleted_for_ms.setdefault(date_ms, 0)
        known_ms = date_ms if is_vouched else UNDATED
        if kind == "delete" and topic.deletion is None:
            image = deleted(image, Deletion(known_ms, WEEK_MS))
        elif kind == "undelete" and topic.deletion is not None:
            image = apply_change(image, undeleted(topic, known_ms))
        elif kind == "look" and is_vouched and (change := dated(topic, date_ms)) is not None:
            image = apply_change(image, change)
    topic = orders_of(image)
    pause = topic.pause
    if topic.is_kept_whole or pause is None:
        return
    config = LogConfig(
        retention_ms=RETENTION_MS,
        retention_pause_ms=pause.length_ms,
        retention_resumed_ms=pause.ended_ms,
    )
    for appended_ms, length_ms in deleted_for_ms.items():
        last_ms = max(date_ms, appended_ms + length_ms + RETENTION_MS)
        if last_ms > date_ms:
            assert not config.is_expired(appended_ms, last_ms)
        # Nor is it kept for ever.
        assert config.is_expired(appended_ms, last_ms + date_ms + RETENTION_MS)


@pytest.mark.parametrize("is_dated_meanwhile", [False, True])
def test_after_a_pause_of_unknown_length_what_was_there_counts_as_new(
    is_dated_meanwhile: bool,
) -> None:
    image = deleted(kept(), Deletion(UNDATED, WEEK_MS))
    if is_dated_meanwhile:
        change = dated(orders_of(image), 5_000)
        assert change is not None
        image = apply_change(image, change)
        assert orders_of(image).deletion == Deletion(5_000, WEEK_MS)
    change = undeleted(orders_of(image), 6_000)
    assert decode_change(encode_change(change, TENANCY_LEVEL)) == change
    pause = orders_of(apply_change(image, change)).pause
    assert pause is not None
    assert (pause.is_over, pause.length_ms, pause.ended_ms) == (True, None, 6_000)
    config = LogConfig(
        retention_ms=300,
        retention_pause_ms=pause.length_ms,
        retention_resumed_ms=pause.ended_ms,
    )
    assert not config.is_expired(1, 6_300)
    assert config.is_expired(1, 6_301)
    assert config.is_expired(6_000, 6_301)
    # One more of known length does not make it known.
    image = deleted(apply_change(image, change), Deletion(6_100, WEEK_MS))
    pause = undeleted(orders_of(image), 6_200).pause
    assert pause is not None
    assert (pause.length_ms, pause.ended_ms) == (None, 6_200)


def test_retention_goes_on_after_a_pause_as_if_no_time_had_passed() -> None:
    # Deleted at 1,000 for 500 ms.
    config = LogConfig(retention_ms=300, retention_pause_ms=500, retention_resumed_ms=1_500)
    # A record of 900 was 100 ms old when the topic was deleted.
    assert not config.is_expired(900, 1_500 + 200)
    assert config.is_expired(900, 1_500 + 201)
    # A later one has had no pause.
    assert not config.is_expired(1_500, 1_800)
    assert config.is_expired(1_500, 1_801)
    assert not LogConfig(retention_ms=-1).is_expired(0, 1 << 60)
