"""The blocking form of `tidewheel.admin.Admin`; see sync.py."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from tidewheel.admin import Admin as AsyncAdmin
from tidewheel.admin import OffsetTarget, PartitionLag, RetryPause
from tidewheel.message import TopicPartition
from tidewheel.subscriptions import Subscription
from tidewheel.transport.port import ClusterInfo, ConfigEntry, GroupInfo, TopicInfo

Call = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on the client's loop and waits for its result."""


class Admin:
    """As `tidewheel.Admin`, in blocking form."""

    def __init__(self, inner: AsyncAdmin, call: Call) -> None:
        self._inner = inner
        self._call = call

    def cluster(self) -> ClusterInfo:
        """Cluster id and brokers."""
        found: ClusterInfo = self._call(self._inner.cluster())
        return found

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name."""
        found: list[TopicInfo] = self._call(self._inner.topics(internal=internal))
        return found

    def describe_topic(self, name: str) -> TopicInfo:
        """Raises TopicNotFound."""
        found: TopicInfo = self._call(self._inner.describe_topic(name))
        return found

    def topic_exists(self, name: str) -> bool:
        """Whether there is such a topic."""
        return bool(self._call(self._inner.topic_exists(name)))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | bool] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Raises TopicExists (not with `exist_ok`), InvalidRequest."""
        self._call(
            self._inner.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                exist_ok=exist_ok,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Raises TopicNotFound."""
        self._call(self._inner.delete_topic(name))

    def create_partitions(self, name: str, total_count: int) -> None:
        """Grow a topic."""
        self._call(self._inner.create_partitions(name, total_count))

    def configs(self, name: str) -> list[ConfigEntry]:
        """All properties of a topic."""
        found: list[ConfigEntry] = self._call(self._inner.configs(name))
        return found

    def alter_configs(self, name: str, changes: Mapping[str, str | int | bool | None]) -> None:
        """Set properties; None takes one back to its default."""
        self._call(self._inner.alter_configs(name, changes))

    def broker_configs(self, broker_id: int) -> list[ConfigEntry]:
        """All properties of a running broker."""
        found: list[ConfigEntry] = self._call(self._inner.broker_configs(broker_id))
        return found

    def set_draining(self, broker_id: int, is_draining: bool = True) -> None:
        """Have the cell move all replicas off a broker, or stop doing so."""
        self._call(self._inner.set_draining(broker_id, is_draining))

    def create_subscription(self, name: str, source: str, filter: str = "") -> Subscription:
        """Make a topic that shows the messages of `source` whose tags match."""
        made: Subscription = self._call(self._inner.create_subscription(name, source, filter))
        return made

    def subscription(self, name: str) -> Subscription:
        """What a subscription reads."""
        found: Subscription = self._call(self._inner.subscription(name))
        return found

    def edit_subscription(self, name: str, filter: str) -> Subscription:
        """Another filter, for all who read it."""
        edited: Subscription = self._call(self._inner.edit_subscription(name, filter))
        return edited

    def retry_pauses(self, name: str) -> list[RetryPause]:
        """Of which partitions of a subscription retries pause."""
        found: list[RetryPause] = self._call(self._inner.retry_pauses(name))
        return found

    def offsets(
        self, topics: str | Sequence[str], at: OffsetTarget = "latest"
    ) -> dict[TopicPartition, int]:
        """Offsets of all partitions of topics."""
        found: dict[TopicPartition, int] = self._call(self._inner.offsets(topics, at))
        return found

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Forget all messages below the given offsets."""
        found: dict[TopicPartition, int] = self._call(self._inner.delete_records(before))
        return found

    def groups(self) -> list[str]:
        """Names of all consumer groups."""
        found: list[str] = self._call(self._inner.groups())
        return found

    def describe_group(self, group: str) -> GroupInfo:
        """Raises GroupNotFound."""
        found: GroupInfo = self._call(self._inner.describe_group(group))
        return found

    def delete_group(self, group: str) -> None:
        """Raises GroupNotEmpty, GroupNotFound."""
        self._call(self._inner.delete_group(group))

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group."""
        found: dict[TopicPartition, int] = self._call(self._inner.group_offsets(group))
        return found

    def lag(
        self, group: str, topics: Iterable[str] = (), *, seconds: bool = True
    ) -> list[PartitionLag]:
        """How far a group is behind, by partition."""
        found: list[PartitionLag] = self._call(self._inner.lag(group, topics, seconds=seconds))
        return found

    def reset_offsets(self, group: str, topic: str, to: OffsetTarget) -> dict[TopicPartition, int]:
        """Move a group without running members."""
        found: dict[TopicPartition, int] = self._call(self._inner.reset_offsets(group, topic, to))
        return found
