"""Projections for tests, plugged in as a feature will be: by the names of topics.

    even-of.SOURCE      partition p shows the records of SOURCE's partition p with even offsets
    kept-of.SOURCE      …, those with the key `keep`
    doubled-of.SOURCE   partition 2p shows all of SOURCE's partition p; 2p + 1 is a plain partition

A topic of such a name is made like any other; its own logs stay empty.

`python -m tests.projections …` runs a broker with them.
"""

from __future__ import annotations

import sys
from uuid import UUID

from data_plane.broker.fetch.projection import (
    ProjectedPartition,
    Projection,
    SourceBatch,
    UnindexedProjection,
)
from data_plane.broker.services import Services
from data_plane.server.__main__ import main
from data_plane.server.features import Feature
from data_plane.wire.kernel import list_keys

KEEP = b"keep"
EVEN, KEPT, DOUBLED = "even-of.", "kept-of.", "doubled-of."


class EvenOffsets(UnindexedProjection):
    """Drops odd offsets."""

    def select(self, batch: SourceBatch) -> bytes | bool:
        header = batch.header
        if header.base_offset == header.last_offset:
            return header.base_offset % 2 == 0
        records, start, end = batch.records()
        return bytes(
            (header.base_offset + key[0] + 1) % 2
            for key in list_keys(records, start, end, header.record_count)
        )


class KeptKeys(UnindexedProjection):
    """Drops what has not the key `keep`."""

    def select(self, batch: SourceBatch) -> bytes | bool:
        records, start, end = batch.records()
        keep = bytes(
            key[1] == KEEP for key in list_keys(records, start, end, batch.header.record_count)
        )
        if any(keep):
            return True if all(keep) else keep
        return False


class Everything(UnindexedProjection):
    """Drops nothing."""

    def select(self, batch: SourceBatch) -> bool:
        return True


class NamedProjections:
    """The provider. Finds what the image names; counts how often it is asked."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.projections: dict[str, Projection] = {
            EVEN: EvenOffsets(),
            KEPT: KeptKeys(),
            DOUBLED: Everything(),
        }
        self.projected: dict[tuple[str, str, int], ProjectedPartition] = {}
        self.asked_count = 0

    def find(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> ProjectedPartition | None:
        self.asked_count += 1
        image = self._services.image
        if not topic:
            topic_image = image.topics_by_id.get(UUID(bytes=topic_id))
            if topic_image is None:
                return None
            topic = topic_image.name
        found = self.projected.get((tenant, topic, index))
        if found is not None:
            # Also of a source that is gone.
            return found
        prefix, dot, source_name = topic.partition(".")
        projection = self.projections.get(prefix + dot)
        source = image.topic(tenant, source_name)
        if projection is None or source is None:
            return None
        if prefix + dot == DOUBLED:
            if index % 2:
                return None
            source_index = index // 2
        else:
            source_index = index
        found = ProjectedPartition(source.topic_id.bytes, source_index, projection)
        self.projected[tenant, topic, index] = found
        return found


def plug_in(services: Services) -> None:
    services.projections.register(NamedProjections(services))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], [Feature(plug_in=plug_in)]))
