"""For how long a deletion was watched is never more than the time since it was made."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.topics.deletion_watches import (
    LOOKED_AT_MAX,
    STEP_MS_MIN,
    DeletionWatches,
)
from data_plane.cell.metadata import TopicImage
from data_plane.cell.topic_deletions import UNDATED, Deletion, noted, undeleted

TOPIC = TopicImage("default", "orders", UUID(int=7), ())
UNDELETE_MS = 10 * STEP_MS_MIN
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["delete", "undelete", "note", "restart", "see"]),
        st.integers(0, 2 * STEP_MS_MIN),
        st.integers(0, 1),
    ),
    max_size=30,
)


@given(STEPS)
def test_nobody_says_more_than_the_time_since_the_deletion(
    steps: list[tuple[str, int, int]],
) -> None:
    """Two brokers see the image late, at different times or not at all, note and restart; and no
    clock says anything."""
    now_ms, topic = 1_000, TOPIC
    deleted_ms: int | None = None
    brokers = [DeletionWatches(), DeletionWatches()]
    for kind, later_ms, which in steps:
        now_ms += later_ms
        if kind == "delete" and topic.deletion is None:
            # All at the same date: the clock stands.
            topic, deleted_ms = replace(topic, deletion=Deletion(5, UNDELETE_MS)), now_ms
        elif kind == "undelete" and topic.deletion is not None:
            pause = undeleted(topic, 5).pause
            assert pause is not None
            pause = pause._replace(earlier_ms=pause.earlier_ms + 1)
            topic, deleted_ms = replace(topic, deletion=None, pause=pause), None
        elif kind == "note" and topic.topic_id in brokers[which].to_be_noted(now_ms):
            change = noted(topic, brokers[which].watched_ms(topic, now_ms))
            if change is not None:
                topic = replace(topic, deletion=change.deletion)
        elif kind == "restart":
            brokers[which] = DeletionWatches()
            brokers[which].see(topic, now_ms)
        elif kind == "see":
            brokers[which].see(topic, now_ms)
        since_ms = 0 if deleted_ms is None else now_ms - deleted_ms
        for broker in brokers:
            assert broker.watched_ms(topic, now_ms) <= since_ms


def test_a_note_is_worth_a_commit_after_a_while_and_until_all_is_noted() -> None:
    watches = DeletionWatches()
    topic = replace(TOPIC, deletion=Deletion(5, UNDELETE_MS))
    watches.see(topic, 0)
    assert list(watches.to_be_noted(STEP_MS_MIN - 1)) == []
    assert list(watches.to_be_noted(STEP_MS_MIN)) == [topic.topic_id]
    change = noted(topic, watches.watched_ms(topic, STEP_MS_MIN))
    assert change is not None
    assert change.deletion == Deletion(5, UNDELETE_MS, STEP_MS_MIN)
    watches.see(replace(topic, deletion=change.deletion), STEP_MS_MIN)
    assert list(watches.to_be_noted(STEP_MS_MIN + 1)) == []
    assert watches.left_ms(topic.topic_id, STEP_MS_MIN) == UNDELETE_MS - STEP_MS_MIN
    watches.see(replace(topic, deletion=Deletion(5, UNDELETE_MS, UNDELETE_MS)), STEP_MS_MIN)
    assert list(watches.to_be_noted(100 * STEP_MS_MIN)) == []
    watches.see(replace(topic, deletion=Deletion(UNDATED, UNDELETE_MS)), 0)
    assert list(watches.to_be_noted(100 * STEP_MS_MIN)) == []


def test_all_have_their_turn_a_few_at_a_time() -> None:
    watches = DeletionWatches()
    count = 2 * LOOKED_AT_MAX + 1
    for number in range(count):
        deletion = Deletion(5, UNDELETE_MS)
        watches.see(replace(TOPIC, topic_id=UUID(int=number), deletion=deletion), 0)
    looks = [list(watches.to_be_noted(STEP_MS_MIN)) for _ in range(3)]
    assert [len(look) for look in looks] == [LOOKED_AT_MAX] * 3
    assert len({topic_id for look in looks for topic_id in look}) == count
