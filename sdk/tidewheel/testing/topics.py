"""The topics of a broker in memory: those with records, and subscriptions over them.

    orders       partitions 0, 1          lists of records
    orders.pay   partitions 0, 1, 2, 3    0 and 2: the records of 0 and 1 whose tags match;
                                          1 and 3: what was nacked (retries.py)

As with a real broker a subscription shows the records under the offsets that they have in its
source, with gaps where others are, and a reader moves on over what does not match.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tidewheel.filters import Filter
from tidewheel.message import Message, TopicPartition
from tidewheel.retry_policy import DEFAULT_POLICY, POLICY_PROPERTIES, RetryPolicy, policy_of
from tidewheel.testing.delayed import DelayedMessages
from tidewheel.testing.retries import RetryLog


@dataclass(slots=True)
class MemoryTopic:
    """One topic; `logs[p]` holds the records of partition p, from `start_offsets[p]` on, and
    `delayed[p]` which of them are hidden."""

    name: str
    logs: list[list[Message]]
    start_offsets: list[int]
    configs: dict[str, str]
    delayed: defaultdict[int, DelayedMessages] = field(
        default_factory=lambda: defaultdict(DelayedMessages)
    )

    @property
    def partitions_count(self) -> int:
        """How many there are."""
        return len(self.logs)

    def start_offset(self, partition: int) -> int:
        """The first offset that is kept."""
        return self.start_offsets[partition]

    def end_offset(self, partition: int) -> int:
        """The next offset to be written."""
        return self.start_offsets[partition] + len(self.logs[partition])

    def read(
        self, partition: int, position: int, messages_max: int
    ) -> tuple[Sequence[Message], int]:
        """Records from an offset of the log on, and where a reader goes on: behind what it saw, and
        what is hidden."""
        index = position - self.start_offsets[partition]
        if not self.delayed[partition].hides_any:
            found = self.logs[partition][index : index + messages_max]
            return found, position + len(found)
        shown: list[Message] = []
        for message in self.logs[partition][index:]:
            if len(shown) == messages_max:
                break
            position += 1
            if not self.delayed[partition].hides(message.offset):
                shown.append(message)
        return shown, position


class MemorySubscription:
    """A topic over another one. `configs` has the filter and the policy of retries, which may be
    edited. `now_ms` says what time it is; `send_dead` takes its dead letters."""

    def __init__(
        self,
        name: str,
        source: MemoryTopic,
        configs: dict[str, str],
        wanted: Filter,
        now_ms: Callable[[], int],
        send_dead: Callable[[MemorySubscription, Message], None],
    ) -> None:
        self.name = name
        self.source = source
        self.configs = configs
        self.filter = wanted
        self._now_ms = now_ms
        self._send_dead = send_dead
        self._retries: dict[int, RetryLog] = {}

    @property
    def policy(self) -> RetryPolicy:
        """By which nacked messages come back. Raises ConfigurationError for bad `configs`."""
        return policy_of(self.configs)

    @property
    def next_due_ms(self) -> int | None:
        """When the next message comes back, if any does."""
        due = [one.next_due_ms for one in self._retries.values()]
        return min((one for one in due if one is not None), default=None)

    def nack(self, sent: Message, share: float) -> None:
        """Take what a client has sent to an odd partition. Raises InvalidRequest."""
        self._retry_log(sent.partition).append(sent, self.policy, share, self._now_ms())

    def take_back(self, pair: int, redriven: Message) -> None:
        """Take what is put back of its dead letters, which is seen at once."""
        self._retry_log(2 * pair + 1).take_back(redriven, self._now_ms())

    def _retry_log(self, partition: int) -> RetryLog:
        pair = partition // 2
        if pair not in self._retries:
            self._retries[pair] = RetryLog(
                self.name, pair, self.source, lambda dead: self._send_dead(self, dead)
            )
        return self._retries[pair]

    @property
    def partitions_count(self) -> int:
        """Two for each of the source's."""
        return 2 * self.source.partitions_count

    def start_offset(self, partition: int) -> int:
        """The source's; odd partitions keep all."""
        return 0 if partition % 2 else self.source.start_offset(partition // 2)

    def end_offset(self, partition: int) -> int:
        """The source's, or the retry partition's."""
        if partition % 2:
            return self._retry_log(partition).end_offset(self._now_ms())
        return self.source.end_offset(partition // 2)

    def read(
        self, partition: int, position: int, messages_max: int
    ) -> tuple[Sequence[Message], int]:
        """Matching records from an offset on, and where a reader goes on: behind what it saw."""
        if partition % 2:
            return self._retry_log(partition).read(position, messages_max, self._now_ms())
        found: list[Message] = []
        index = position - self.source.start_offset(partition // 2)
        for message in self.source.logs[partition // 2][index:]:
            if len(found) == messages_max:
                break
            position += 1
            is_hidden = self.source.delayed[partition // 2].hides(message.offset)
            if not is_hidden and self.filter.matches(message.tags):
                found.append(
                    Message(
                        self.name,
                        partition,
                        message.offset,
                        message.timestamp_ms,
                        message.key,
                        message.value,
                        message.headers,
                    )
                )
        return found, position


AnyTopic = MemoryTopic | MemorySubscription


def listed_configs(topic: AnyTopic) -> dict[str, str]:
    """What was set, and of subscriptions the policy of retries: there are no other defaults."""
    if not isinstance(topic, MemorySubscription):
        return topic.configs
    defaults = {key: DEFAULT_POLICY.configs().get(key, "") for key in POLICY_PROPERTIES}
    return defaults | topic.configs


def first_at(topic: AnyTopic, partition: TopicPartition, time_ms: int) -> int:
    """The offset of the first record at or after a time; the end when there is none."""
    position, end = topic.start_offset(partition.partition), topic.end_offset(partition.partition)
    for message in topic.read(partition.partition, position, end - position)[0]:
        if message.timestamp_ms >= time_ms:
            return message.offset
    return end


def count_shown(
    positions: Iterable[tuple[AnyTopic, TopicPartition, int]],
) -> dict[TopicPartition, tuple[int, int]]:
    """How many records subscriptions show from each offset on, and the timestamp of the first."""
    found = {}
    for topic, partition, offset in positions:
        if isinstance(topic, MemorySubscription):
            position = max(offset, topic.start_offset(partition.partition))
            messages_max = max(topic.end_offset(partition.partition) - position, 0)
            messages, _ = topic.read(partition.partition, position, messages_max)
            found[partition] = len(messages), messages[0].timestamp_ms if messages else -1
    return found
