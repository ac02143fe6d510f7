"""What a partition's leader goes by when it commits, and its log, from its topic's settings and its
image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from data_plane.cell.partition_state import effective_min_isr
from data_plane.log.config import INT64_MAX, LogConfig
from data_plane.replica.leadership import ReplicationSettings

if TYPE_CHECKING:
    from data_plane.cell.metadata import PartitionImage, TopicImage


class ReplicaConfig(Protocol):
    """The properties that replicas depend on. EffectiveConfig is one."""

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig: ...
    def get_int(self, name: str) -> int: ...
    def topic_value(self, name: str, overrides: Mapping[str, str]) -> object: ...


def replication_settings(
    config: ReplicaConfig, topic: TopicImage, image: PartitionImage
) -> ReplicationSettings:
    """The settings of the partition of `topic` that has `image`."""
    if len(image.replicas) == 1:
        return ReplicationSettings()
    lag_messages_max = config.topic_value("replica.lag.max.messages", topic.configs)
    assert isinstance(lag_messages_max, int)
    min_isr = effective_min_isr(image, min_insync_replicas(config, topic))
    if image.elr or image.last_known_elr:
        # Whoever put them there goes by a larger min.insync.replicas than this broker's own
        # start did; committing anything now would make them ineligible without saying so.
        min_isr = max(min_isr, len(image.isr) + 1)
    return ReplicationSettings(min_isr, lag_messages_max)


def log_settings(config: ReplicaConfig, topic: TopicImage, index: int) -> LogConfig:
    """The settings of a partition's log. In another state than active, of which this version knows
    none, nothing leaves it by retention or by compaction (and Partition takes no records in). So it
    is while its topic is deleted and can come back."""
    settings = config.log_config(topic.configs)
    pause = topic.pause
    if topic.partitions[index].is_active and not topic.is_kept_whole:
        if pause is None:
            return settings
        return replace(
            settings, retention_pause_ms=pause.length_ms, retention_resumed_ms=pause.ended_ms
        )
    return replace(
        settings,
        retention_ms=-1,
        retention_bytes=-1,
        min_compaction_lag_ms=INT64_MAX,
        max_compaction_lag_ms=INT64_MAX,
    )


def min_insync_replicas(config: ReplicaConfig, topic: TopicImage) -> int:
    """The topic's min.insync.replicas, whatever replicas it has."""
    value = config.topic_value("min.insync.replicas", topic.configs)
    assert isinstance(value, int)
    return value
