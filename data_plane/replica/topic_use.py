"""What clients use of a topic on this broker, counted on the hot paths: numbers that only grow.

    append as leader      partition.use.bytes_in += …      one of a topic, shared by its partitions
    answer to a consumer  partition.use.bytes_out += …

Whoever wants to know what an interval has used keeps what the numbers were when it began; that may
be another thread, since nothing is ever set back.

Invariants
- What was counted stays while somebody samples, also when replicas, or the topic, are gone: the
  sampler lets go of it (`forget`). Where nobody samples it goes with the topic.
"""

from __future__ import annotations


class TopicUse:
    """Of one topic."""

    __slots__ = (
        "batches_in",
        "bytes_in",
        "bytes_out",
        "reads_out",
        "records_in",
        "tenant",
        "topic",
        "topic_id",
    )

    def __init__(self, tenant: str, topic: str, topic_id: bytes) -> None:
        self.tenant = tenant
        self.topic = topic
        self.topic_id = topic_id
        self.bytes_in = 0
        self.batches_in = 0
        self.records_in = 0
        self.bytes_out = 0
        self.reads_out = 0


class TopicUses:
    """All of a broker, by topic id."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, TopicUse] = {}
        self.is_sampled = False

    def of(self, tenant: str, topic: str, topic_id: bytes) -> TopicUse:
        use = self.by_id.get(topic_id)
        if use is None:
            use = self.by_id[topic_id] = TopicUse(tenant, topic, topic_id)
        return use

    def topic_deleted(self, topic_id: bytes) -> None:
        if not self.is_sampled:
            self.by_id.pop(topic_id, None)

    def forget(self, topic_id: bytes) -> None:
        """It is in a sample, and will not be used any more."""
        self.by_id.pop(topic_id, None)
