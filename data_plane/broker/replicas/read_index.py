"""Whether this broker still leads a partition, shown by those who would have to agree to another.

What a leader has committed is safe: without its followers it commits nothing. What it *answers*
from memory is not. One that was stopped for long and goes on while the metadata store is away has
an old image, and would tell of committed offsets that its successor has moved on meanwhile. So
before such an answer all others of the maximal ISR are asked for their leader epoch (Raft's read
index):

    OffsetFetch ─► asked: 2, 3 ─► 2: still epoch 7, 3: still epoch 7 ─► what is known here is true
                                  2: fenced, there is a newer one    ─► another broker leads
                                  no answer                          ─► asked again, for a while

Whoever succeeds a leader is a member of that ISR, and has the newer epoch before it commits
anything under it. So what a successor may have committed was committed after the question.

The question is a Fetch as of a consumer that reads at followers, in the leader's epoch and from the
end of its log, where there is nothing to read.

Invariants
- Only answers to questions that were asked after `confirm` was called count for it.
- With fewer in sync than min.insync.replicas the next leader may be none of them (KIP-966): then
  the metadata store must have answered within half a session timeout, and the image be as new.

Deliberately absent: commits, which need none of this (replica room).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from data_plane.broker.cell.cell_view import endpoint_of
from data_plane.broker.replicas.leader_probe import EpochAnswer, probe_epoch, read_epoch_answer
from data_plane.broker.request.peers import Peers
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.virtual_topics import shown_index
from data_plane.replica.fetch_session import API_KEY, API_VERSION
from data_plane.replica.partition import Partition

# Between two questions to a broker that could not say.
RETRY_MS_MIN: Final = 10
RETRY_MS_MAX: Final = 200

OnConfirmed = Callable[[bool], None]


class ReadIndex:
    """A component of a broker in a cell. `is_image_current(now_ms)`: whether the store has answered
    within half a session timeout, and the image is as new as that."""

    def __init__(
        self, services: Services, peers: Peers, is_image_current: Callable[[int], bool]
    ) -> None:
        """`peers` are of its own: behind a follower's long poll an answer would be late."""
        self.services = services
        self.peers = peers
        self.is_image_current = is_image_current
        # Asked for in this pass: they share their questions.
        self._next: dict[Partition, _Round] = {}
        self._open: dict[_Round, None] = {}
        services.image_listeners.append(self._image_changed)

    def start(self, now_ms: int) -> None:
        """Nothing runs by itself."""

    def tick(self, now_ms: int) -> None:
        """Deadlines are in the broker's timers."""

    def next_deadline_ms(self) -> int | None:
        return None

    def stop(self, now_ms: int) -> None:
        """Nothing is confirmed any more."""
        for one in list(self._open):
            one.finish(is_confirmed=False)

    def confirm(self, partition: Partition, deadline_ms: int, on_done: OnConfirmed) -> None:
        """Call `on_done` once, perhaps before this returns: with True when this broker led
        `partition` after the call, with False when it does not, or it cannot be shown until
        `deadline_ms`."""
        if not partition.role.counts_followers:
            on_done(partition.role.leads)
            return
        one = self._next.get(partition)
        if one is None:
            one = self._next[partition] = _Round(self, partition, deadline_ms)
            self._open[one] = None
            self.services.wakes.wake(one)
        one.callbacks.append(on_done)

    def begun(self, one: _Round) -> None:
        """Its questions are being asked: who comes from now on needs others."""
        if self._next.get(one.partition) is one:
            del self._next[one.partition]

    def finished(self, one: _Round) -> None:
        self.begun(one)
        del self._open[one]
        self.services.wakes.forget(one)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.brokers is not new.brokers:
            for node_id, broker in old.brokers.items():
                if endpoint_of(broker) != endpoint_of(new.brokers.get(node_id)):
                    self.peers.disconnect(node_id)
        for one in self._open:
            self.services.wakes.wake(one)


class _Round:
    """The questions about one partition, and who waits for what comes of them."""

    __slots__ = (
        "_asked",
        "_confirmed",
        "_is_over",
        "_leader_epoch",
        "_owner",
        "_pause_ms",
        "_retry",
        "_timeout",
        "callbacks",
        "partition",
    )

    def __init__(self, owner: ReadIndex, partition: Partition, deadline_ms: int) -> None:
        self.partition = partition
        self.callbacks: list[OnConfirmed] = []
        self._owner = owner
        self._leader_epoch = partition.leader_epoch
        self._confirmed: set[int] = set()
        # Without an answer yet.
        self._asked: set[int] = set()
        self._is_over = False
        self._pause_ms = RETRY_MS_MIN
        # Until it is due nobody is asked.
        self._retry: Timer | None = None
        self._timeout = owner.services.timers.schedule(
            deadline_ms, lambda now_ms: self.finish(is_confirmed=False)
        )

    def run(self, now_ms: int) -> None:
        """Ask who is to be asked; or it is decided."""
        if self._is_over:
            return
        self._owner.begun(self)
        partition, leadership = self.partition, self.partition.leadership
        if not partition.role.leads or partition.leader_epoch != self._leader_epoch:
            self.finish(is_confirmed=False)
            return
        members: frozenset[int] = frozenset()
        if leadership is not None:
            members = leadership.maximal_isr() - {leadership.node_id}
        if not members <= self._confirmed:
            if self._retry is None:
                for node_id in sorted(members - self._confirmed - self._asked):
                    self._ask(node_id)
        elif not partition.is_under_min_isr or self._owner.is_image_current(now_ms):
            self.finish(is_confirmed=True)
        else:
            self._retry_later(now_ms)

    def _ask(self, node_id: int) -> None:
        log = self.partition.log
        topic = self._owner.services.image.topics_by_id.get(log.topic_id)
        # Numbered as for a consumer.
        index = log.partition if topic is None else shown_index(topic, log.partition)
        key = (log.topic_id.bytes, index)
        body = probe_epoch(key, self._leader_epoch, log.log_end_offset)
        self._asked.add(node_id)
        self._owner.peers.send(
            node_id, API_KEY, API_VERSION, [body], partial(self._answered, node_id)
        )

    def _answered(self, node_id: int, body: memoryview | None, now_ms: int) -> None:
        if self._is_over:
            return
        self._asked.discard(node_id)
        answer = read_epoch_answer(body)
        if answer is EpochAnswer.NEWER:
            self.finish(is_confirmed=False)
        elif answer is EpochAnswer.SAME:
            self._confirmed.add(node_id)
            self._owner.services.wakes.wake(self)
        else:
            self._retry_later(now_ms)

    def _retry_later(self, now_ms: int) -> None:
        if self._retry is None:
            self._retry = self._owner.services.timers.schedule(
                now_ms + self._pause_ms, self._retry_now
            )
            self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def _retry_now(self, now_ms: int) -> None:
        self._retry = None
        self.run(now_ms)

    def finish(self, *, is_confirmed: bool) -> None:
        """Tell who waits."""
        if self._is_over:
            return
        self._is_over = True
        self._timeout.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._owner.finished(self)
        for on_done in self.callbacks:
            on_done(is_confirmed)
