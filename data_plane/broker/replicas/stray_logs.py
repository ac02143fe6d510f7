"""Logs that a start finds on the disk and the metadata image does not give to this broker.

The crash came between the metadata commit of their deletion and the deletion itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.log.errors import LogDirFailure

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage
    from data_plane.log.manager import LogManager


def delete_strays(
    logs: LogManager, image: MetadataImage, node_id: int, now_ms: int
) -> list[tuple[UUID, int]]:
    """Delete stray logs; returns topic id and index of those that were deleted.

    Only with an image that the store has just vouched for: an older one, from a broker's own
    disk, does not name what was created since."""
    strays = [
        (topic_id, index)
        for topic_id, index in list(logs.partition_ids())
        if not _is_hosted(image, node_id, topic_id, index)
    ]
    deleted = []
    for topic_id, index in strays:
        # What is on a disk that has failed since waits for the start that has it back.
        with contextlib.suppress(LogDirFailure):
            logs.delete(topic_id, index, now_ms)
            deleted.append((topic_id, index))
    return deleted


def _is_hosted(image: MetadataImage, node_id: int, topic_id: UUID, index: int) -> bool:
    topic = image.topics_by_id.get(topic_id)
    return (
        topic is not None
        and index < len(topic.partitions)
        and node_id in topic.partitions[index].replicas
    )
