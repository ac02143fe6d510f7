"""The way from one metadata image to a later one, in steps that are little work each.

A commit may change thousands of partitions, and to follow it takes some microseconds for each: in
one go it would hold the broker's loop for too long. So the broker goes through images that lie in
between:

    image 7   ─► 7, some leaders given up ─► 7, topics deleted ─► 7, … ─► 7, the brokers ─► image 8

Each partition is in the state that it has in one of the two images. What is between them has the
version of the older one, for it is not the newer one yet. It is no image that the store ever had:
commits are decided on the newest known image (image_application.py), and files have whole ones.

Invariants
- Partitions that this broker leads no more come first; others wait for that.
- No topic is ever seen with fewer or more partitions than in one of the two images: where a record
  goes depends on their number.
- Brokers come last but for the version. Who has registered anew finds its replicas in the states
  of that registration.
- A tenant that goes is there until the last step: what it has goes before it.
- Every state that the newer image has in common with the older one stays the same object.

Deliberately absent: what an image means for logs and roles, and when the next step is due.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.tenants import Tenants
from data_plane.cell.topics_draft import TopicsDraft, changed_topics

# A role takes up to 40 µs.
CHANGES_PER_STEP_MAX: Final = 100
# Partitions that come or go with their topic, for each change of a role: they have no role yet, or
# are only closed.
PARTITIONS_PER_CHANGE: Final = 10


class _Kind(Enum):
    STATES = auto()
    # The topic's configurations, whether it is deleted, and the partitions that it has got.
    OUTLINE = auto()
    # A topic that is new, gone, or another one of the same name.
    TOPIC = auto()
    CONFIGS = auto()
    BROKERS = auto()


@dataclass(slots=True)
class _Part:
    kind: _Kind
    changes: int = 1
    tenant: str = ""
    name: str = ""
    # Of STATES: these partitions, from `done` on.
    indexes: list[int] | None = None
    done: int = 0


class ImageSteps:
    """The steps from `image` to `goal`. `next_step` is to be given what it returned last."""

    def __init__(
        self,
        image: MetadataImage,
        goal: MetadataImage,
        node_id: int,
        changes_max: int = CHANGES_PER_STEP_MAX,
    ) -> None:
        self.goal = goal
        self._changes_max = changes_max
        self._urgent: deque[_Part] = deque()
        self._parts: deque[_Part] = deque()
        self._whole_cost = 0
        self._tenants = _tenants_on_the_way(image.tenants, goal.tenants)
        if image.topics_by_tenant is not goal.topics_by_tenant:
            self._compare_topics(image, goal, node_id)
        if not image.configures_alike(goal, node_id):
            self._parts.append(_Part(_Kind.CONFIGS, changes_max))
            self._whole_cost += sum(len(topic.partitions) for topic in goal.topics_by_id.values())
        if image.brokers is not goal.brokers:
            self._parts.append(_Part(_Kind.BROKERS, changes_max))

    @property
    def fits_in_one(self) -> bool:
        """Whether `goal` is little work as it is."""
        return self._whole_cost <= self._changes_max

    @property
    def is_urgent(self) -> bool:
        """Whether the next step gives up leaders."""
        return bool(self._urgent)

    @property
    def is_last(self) -> bool:
        """Whether the next step makes it `goal`."""
        return not self._urgent and not self._parts

    def next_step(self, image: MetadataImage) -> MetadataImage:
        """The image that follows; equal to `goal` when this is the last step."""
        goal = self.goal
        if self.is_last:
            return replace(
                goal,
                brokers=image.brokers,
                topics_by_tenant=image.topics_by_tenant,
                topics_by_id=image.topics_by_id,
            )
        # What may be done, by whom, and how much of it, waits for no partition.
        image = replace(
            image,
            tenants=self._tenants,
            credentials=goal.credentials,
            decoy_key=goal.decoy_key,
            acls=goal.acls,
            client_quotas=goal.client_quotas,
        )
        topics = TopicsDraft(image)
        changes_left = self._changes_max
        while changes_left > 0 and (parts := self._urgent or self._parts):
            part = parts[0]
            if part.kind in (_Kind.CONFIGS, _Kind.BROKERS):
                if part.kind is _Kind.CONFIGS:
                    image = replace(image, configs=goal.configs)
                else:
                    image = replace(image, brokers=goal.brokers)
                changes_left -= part.changes
                parts.popleft()
                continue
            old = topics.get(part.tenant, part.name)
            new = goal.topic(part.tenant, part.name)
            if part.indexes is not None:
                assert old is not None
                assert new is not None
                indexes = part.indexes[part.done : part.done + changes_left]
                part.done += len(indexes)
                changes_left -= len(indexes)
                topic: TopicImage | None = _with_states(old, new, indexes)
                if part.done == len(part.indexes):
                    parts.popleft()
            else:
                topic = _with_outline(old, new) if part.kind is _Kind.OUTLINE else new
                changes_left -= part.changes
                parts.popleft()
            if old is not None and (topic is None or topic.topic_id != old.topic_id):
                topics.remove(old)
            if topic is not None:
                topics.put(topic)
        return replace(image, topics_by_tenant=topics.by_tenant, topics_by_id=topics.by_id)

    def _compare_topics(self, image: MetadataImage, goal: MetadataImage, node_id: int) -> None:
        gone, outlines, states, come = [], [], [], []
        for old, new in changed_topics(image, goal):
            key = (old.tenant, old.name)
            if new is None or new.topic_id != old.topic_id or _shrinks(old, new):
                count = len(old.partitions)
                self._whole_cost += count
                gone.append(_Part(_Kind.TOPIC, 1 + count // PARTITIONS_PER_CHANGE, *key))
                continue
            given_up, others = self._compare_states(old, new, node_id)
            if given_up:
                self._urgent.append(_Part(_Kind.STATES, 1, *key, given_up))
            if others:
                states.append(_Part(_Kind.STATES, 1, *key, others))
            count = len(new.partitions)
            if _outline(old) != _outline(new) or len(old.partitions) != count:
                self._whole_cost += count
                outlines.append(_Part(_Kind.OUTLINE, 1 + count // PARTITIONS_PER_CHANGE, *key))
        for topic, known in changed_topics(goal, image):
            if known is None:
                changes = 1 + len(topic.partitions) // PARTITIONS_PER_CHANGE
                self._whole_cost += changes
                come.append(_Part(_Kind.TOPIC, changes, topic.tenant, topic.name))
        self._parts += gone
        self._parts += outlines
        self._parts += states
        self._parts += come

    def _compare_states(
        self, old: TopicImage, new: TopicImage, node_id: int
    ) -> tuple[list[int], list[int]]:
        """Partitions that this broker leads no more, and others in another state."""
        given_up, others = [], []
        for index, (before, after) in enumerate(zip(old.partitions, new.partitions, strict=False)):
            if before is after:
                continue
            # An image that was read as a whole shares nothing, and would be followed as a whole.
            self._whole_cost += 1
            if before.leader == node_id != after.leader:
                given_up.append(index)
            elif before != after:
                others.append(index)
        return given_up, others


def _tenants_on_the_way(old: Tenants, new: Tenants) -> Tenants:
    """The new ones, and those that go, also where another one comes under the name: whoever looks
    after what a topic had asks for its tenant."""
    gone = {
        name: tenant
        for name, tenant in old.items()
        if name not in new or new[name].tenant_id != tenant.tenant_id
    }
    return {**new, **gone} if gone else new


def _shrinks(old: TopicImage, new: TopicImage) -> bool:
    """As after the recovery of a store that had lost its last commits."""
    return len(new.partitions) < len(old.partitions)


def _with_states(old: TopicImage, new: TopicImage, indexes: list[int]) -> TopicImage:
    partitions = list(old.partitions)
    for index in indexes:
        partitions[index] = new.partitions[index]
    return replace(old, partitions=tuple(partitions))


def _with_outline(old: TopicImage | None, new: TopicImage | None) -> TopicImage:
    assert old is not None
    assert new is not None
    added = new.partitions[len(old.partitions) :]
    return replace(
        old,
        partitions=old.partitions + added,
        configs=new.configs,
        deletion=new.deletion,
        pause=new.pause,
    )


def _outline(topic: TopicImage) -> tuple[object, ...]:
    return topic.configs, topic.deletion, topic.pause
