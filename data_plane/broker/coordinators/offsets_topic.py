"""`__consumer_offsets`: which properties say how it is made and written.

Deliberately absent: what is done with it (internal_topic.py), and what its records mean
(data_plane.groups).
"""

from __future__ import annotations

from typing import Final

from data_plane.broker.coordinators.internal_topic import InternalTopicSettings
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME

OFFSETS_TOPIC: Final = InternalTopicSettings(
    name=GROUP_METADATA_TOPIC_NAME,
    partitions_property="offsets.topic.num.partitions",
    replication_factor_property="offsets.topic.replication.factor",
    segment_bytes_property="offsets.topic.segment.bytes",
    codec_property="offsets.topic.compression.codec",
    timeout_property="offsets.commit.timeout.ms",
)
