"""Deleted topics that can come back: which ones, until when, and what is said of them.

    tidewheel.undelete.ms    of the topic, else of its tenant, else of the brokers; 0: gone at once

While a topic is kept, its data, configurations, ACLs and committed offsets stay, and count as
storage. For clients it does not exist; only its name is taken. An operator may bring it back or
have it purged at once; purging in time is topic_purges.py's.

Deliberately absent: what a deletion is (data_plane/cell/topic_deletions.py).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from data_plane.broker.config.validation import effective_config
from data_plane.broker.request.namespaces import Held, Topics
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, DeleteTopic
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.topic_deletions import UNDATED, ChangeDeletion, Deletion, undeleted
from data_plane.cell.virtual_topics import source_name, source_of
from data_plane.wire.errors import ErrorCode

UNDELETE_MS: Final = "tidewheel.undelete.ms"


def refuse_if_reserved(topics: Topics, name: str) -> None:
    """No topic is made under the name of one that can come back. Raises Refusal."""
    topic = topics.taken().get(name)
    if topic is None or topic.deletion is None:
        return
    purge_ms = topic.deletion.purge_ms
    if purge_ms == UNDATED:
        until = f"for {topic.deletion.undelete_ms} ms from when the cell knows the date"
    else:
        until = f"until {date_text(purge_ms)}"
    raise Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"Topic '{name}' was deleted and can be brought back; its name is reserved {until}.",
    )


def date_text(date_ms: int) -> str:
    """A date as people write it, in UTC, to the second: 2026-12-04T09:30:00Z."""
    return datetime.fromtimestamp(date_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class KeptTopics:
    """Decisions about them, each on the image that it is committed to."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def undelete_ms(self, image: MetadataImage, topic: TopicImage) -> int:
        """For how long a topic can come back; 0 when it cannot."""
        if topic.internal:
            return 0
        if UNDELETE_MS not in topic.configs:
            tenant = image.tenant(topic.tenant)
            text = "" if tenant is None else tenant.settings.get(UNDELETE_MS, "")
            # Checked by whoever sets it. One that is no number counts as none.
            if text.isdecimal():
                return int(text)
        value = effective_config(self._services).topic_value(UNDELETE_MS, topic.configs)
        assert isinstance(value, int)
        return value

    def deletion(self, image: MetadataImage, topic: TopicImage) -> Change:
        """What deletes a topic. Raises Refusal."""
        if topic.deletion is not None:
            # Only operators find it by its name.
            raise Refusal(ErrorCode.POLICY_VIOLATION, f"Topic '{topic}' is deleted already.")
        undelete_ms = self.undelete_ms(image, topic)
        if undelete_ms == 0:
            return DeleteTopic.of(topic)
        if image.metadata_level < TENANCY_LEVEL:
            # Other brokers would serve it, and forget that it was deleted.
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"Topic '{topic.name}' has {UNDELETE_MS}={undelete_ms}, and the cell is at "
                f"{METADATA_VERSION} {image.metadata_level}: it can keep deleted topics from "
                f"{TENANCY_LEVEL} on. Upgrade it, or set {UNDELETE_MS}=0 and delete for good.",
            )
        deletion = Deletion(self._vouched_ms(), undelete_ms)
        return ChangeDeletion(topic.topic_id, deletion, topic.pause)

    def undeletion(self, image: MetadataImage, tenant: str, name: str) -> Change:
        """What brings a deleted topic back. Raises Refusal."""
        topic = _deleted_topic(image, tenant, name)
        source = source_name(topic)
        if source and source_of(image, topic) is None:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"Topic '{name}' reads from topic '{source}', which is deleted: it comes back once "
                "that has, and not at all when that is gone for good.",
            )
        return undeleted(topic, self._vouched_ms())

    def purge(self, image: MetadataImage, tenant: str, name: str) -> Change:
        """What deletes a deleted topic for good, now: an order, whatever date it is. Raises
        Refusal."""
        return DeleteTopic.of(_deleted_topic(image, tenant, name))

    def _vouched_ms(self) -> int:
        services = self._services
        offset_ms = services.wall_clock.vouched_offset_ms
        return UNDATED if offset_ms is None else services.metadata.now_ms() + offset_ms


def _deleted_topic(image: MetadataImage, tenant: str, name: str) -> TopicImage:
    topic = Topics(Held(image), tenant).taken().get(name)
    if topic is None or topic.deletion is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no deleted topic '{name}' that could come back.",
        )
    return topic
