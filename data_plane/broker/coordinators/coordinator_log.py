"""A coordinator's state and the internal topic that is the truth of it: what every coordinator
needs, whatever it coordinates.

    image ─► led here in a new epoch ─► all of it committed ─► read and folded in a thread ─► load
             led here no more ─────────────────────────────────────────────────────────────► unload
    append ─► written, replicated ─► settled, in order, with the time

A `StateMachine` is a pure fold of records with requests on top: consumer groups are one
(groups.py), transactions and others can be. It hears of its shards, one for each partition that
this broker leads, and has its records appended; nothing else reaches it from here.

Invariants
- A shard is loaded when all that its partition held as leading began is committed: what a client is
  told of it survives the next failover, too.
- Nothing is appended in another epoch than the one that was loaded.
- Between `start_loading` and `unload` of a shard there is at most one `load`. A partition that was
  led in another epoch in between is unloaded and loaded anew.
- Appends that the log takes settle in their order, and never within the call that asks for them.
- A topic that was deleted and made anew is another one: nothing of the one before reaches the state
  that `begin_anew` begins.
- At most LOADS_AT_ONCE_MAX partitions are being read at any time.

Deliberately absent: what is coordinated, and who may ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from data_plane.broker.coordinators.internal_topic import (
    InternalTopic,
    LoggedBatch,
    PartitionReader,
    Producer,
)
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage
from data_plane.log.errors import LogError
from data_plane.wire.control_batches import EndTransactionMarker
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord

# Folding holds the interpreter: more threads would fold no faster, and the loop would have to wait
# for each of them in turn.
LOADS_AT_ONCE_MAX: Final = 1
# A partition that could not be read is read again after so long, and each time after twice as long
# until the maximum: what kept it from being opened may be over within moments, such as a want of
# descriptors, or later, such as a full disk beside another one.
LOAD_RETRY_MS_MIN: Final = 1000
LOAD_RETRY_MS_MAX: Final = 30_000

FoldedT = TypeVar("FoldedT")
OnSettled = Callable[[ErrorCode, int], None]


class StateMachine(Protocol[FoldedT]):
    """What is coordinated, in shards. All calls come on the loop but `fold`."""

    # For the log: "groups".
    kind: str

    def fold(self, batches: Iterator[LoggedBatch]) -> FoldedT:
        """The state that a partition's log comes to. In a worker thread: it touches nothing but
        `batches`, and what it makes is nobody else's."""

    def start_loading(self, partition: int, epoch: int) -> bool:
        """The partition is led here in `epoch`, and about to be read. False when it is known
        already."""

    def load(self, partition: int, epoch: int, folded: FoldedT, now_ms: int) -> None:
        """Go on from what was folded."""

    def load_failed(self, partition: int, epoch: int) -> None:
        """It could not be read: nobody coordinates it, for now."""

    def unload(self, partition: int, now_ms: int) -> None:
        """It is led here no more, or not in that epoch. Who waits is sent elsewhere."""

    def begin_anew(self) -> None:
        """The topic is another one. All shards have been unloaded."""


class CoordinatorLog(Generic[FoldedT]):
    """One coordinator's. Its owner is a component, and passes `start`, `tick` and `stop` on."""

    def __init__(
        self, services: Services, topic: InternalTopic, machine: StateMachine[FoldedT]
    ) -> None:
        self._services = services
        self.topic = topic
        self._machine = machine
        # The time of the last call; for what is called back without one. Its owner sets it, too.
        self.now_ms = 0
        self._settled: deque[tuple[OnSettled, ErrorCode]] = deque()
        self._to_load: deque[tuple[int, int]] = deque()
        self._loading_count = 0
        # Of partitions that could not be read: how long to wait when that happens again.
        self._load_pauses_ms: dict[int, int] = {}
        self._led: dict[int, int] = {}
        self._topic_id = topic.topic_id()
        # Counts the topics of this name.
        self._generation = 0
        services.image_listeners.append(self._image_changed)

    @property
    def led(self) -> Mapping[int, int]:
        """Partitions that are loaded or being loaded, with their leader epochs."""
        return self._led

    # For the owner

    def start(self, now_ms: int) -> None:
        """Begin to follow the image."""
        self.now_ms = now_ms
        self._follow_leadership()

    def stop(self, now_ms: int) -> None:
        """Let go of all partitions."""
        self.now_ms = now_ms
        self._to_load.clear()
        for partition in list(self._led):
            self._unload(partition)

    # Writing

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[NewRecord],
        now_ms: int,
        on_settled: OnSettled,
        producer: Producer | None = None,
    ) -> None:
        """Append one batch, within the producer's transaction if there is one. `on_settled` is
        called once, when the present pass ends or later, unless the topic is another one by
        then."""
        done = partial(self._append_done, self._generation, on_settled)
        self.topic.append(partition, epoch, records, now_ms, done, producer)

    def append_marker(
        self,
        partition: int,
        epoch: int,
        marker: EndTransactionMarker,
        producer: Producer,
        now_ms: int,
        on_settled: OnSettled,
    ) -> None:
        """As `append`: the end of the producer's transaction in this partition."""
        done = partial(self._append_done, self._generation, on_settled)
        self.topic.append_marker(partition, epoch, marker, producer, now_ms, done)

    def _append_done(self, generation: int, on_settled: OnSettled, error: ErrorCode) -> None:
        """It may be so within the call that asks, or when a sync has finished; in both cases it is
        looked at when the present pass ends, with its time."""
        if generation == self._generation:
            self._settled.append((on_settled, error))
            self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Tell which appends have settled, and load what is committed (see WakeQueue)."""
        self.now_ms = now_ms
        while self._settled:
            on_settled, error = self._settled.popleft()
            on_settled(error, now_ms)
        self._load_next()

    # Reading

    def confirm(
        self,
        partitions: Iterable[int],
        now_ms: int,
        on_done: Callable[[frozenset[int]], None],
    ) -> None:
        """Make sure that what is known here is still true: `on_done` is called once, perhaps
        before this returns, with those of `partitions` that it is certain this broker led after
        the call, in the epoch that it leads them in now. It finds the time in `now_ms`."""
        self.now_ms = max(self.now_ms, now_ms)
        generation = self._generation
        asked = {partition: self._led[partition] for partition in partitions}
        waiting = set(asked)
        confirmed: set[int] = set()

        def finish() -> None:
            # What was loaded meanwhile is another epoch's, of which nobody has asked.
            on_done(
                frozenset(
                    partition
                    for partition in confirmed
                    if generation == self._generation
                    and self._led.get(partition) == asked[partition]
                )
            )

        def answered(partition: int, is_confirmed: bool) -> None:
            if is_confirmed:
                confirmed.add(partition)
            waiting.discard(partition)
            if not waiting:
                finish()

        if not waiting:
            finish()
        for partition, epoch in asked.items():
            self.topic.confirm_leading(partition, epoch, now_ms, partial(answered, partition))

    # Leadership

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        self.now_ms = now_ms
        self._follow_leadership()

    def _follow_leadership(self) -> None:
        topic_id = self.topic.topic_id()
        is_another = topic_id not in (None, self._topic_id)
        led = dict(self.topic.led_partitions())
        for partition, epoch in list(self._led.items()):
            if is_another or led.get(partition) != epoch:
                self._unload(partition)
        if is_another:
            # Partitions, leaders and epochs may be those of the one before, of which something may
            # still be read or written.
            self._topic_id = topic_id
            self._generation += 1
            self._to_load.clear()
            self._settled.clear()
            self._machine.begin_anew()
        for partition, epoch in led.items():
            if partition not in self._led and self._machine.start_loading(partition, epoch):
                self._led[partition] = epoch
                self._load_when_committed(partition, epoch)
        self._load_next()

    def _load_when_committed(self, partition: int, epoch: int) -> None:
        on_done = partial(self._committed, self._generation, partition, epoch)
        self.topic.when_committed(partition, on_done)

    def _committed(self, generation: int, partition: int, epoch: int, error: ErrorCode) -> None:
        """What a new leader has beyond the high watermark may still be lost with it."""
        if not self._is_led(generation, partition, epoch):
            return
        if error is ErrorCode.NONE:
            self._to_load.append((partition, epoch))
            self._services.wakes.wake(self)
        elif error is ErrorCode.KAFKA_STORAGE_ERROR:
            # Other errors come with an image that ends leading, and this follows it.
            self._load_failed(partition, epoch, error.name)

    def _is_led(self, generation: int, partition: int, epoch: int) -> bool:
        """Whether it still is, in that epoch of that topic."""
        return generation == self._generation and self._led.get(partition) == epoch

    def _unload(self, partition: int) -> None:
        del self._led[partition]
        self._load_pauses_ms.pop(partition, None)
        self._machine.unload(partition, self.now_ms)

    # Loading

    def _load_next(self) -> None:
        while self._to_load and self._loading_count < LOADS_AT_ONCE_MAX:
            partition, epoch = self._to_load.popleft()
            if self._led.get(partition) != epoch:
                continue
            try:
                reader = self.topic.reader(partition)
            except LogError as error:
                self._load_failed(partition, epoch, error)
                continue
            if reader is None:
                # As in a topic just made: no thread is needed to find nothing, and the clients
                # that are about to ask need not be put off.
                self._load(partition, epoch, self._machine.fold(iter(())))
                continue
            self._loading_count += 1
            self._services.executor.submit(
                partial(self._read_and_fold, reader),
                partial(self._loaded, self._generation, partition, epoch),
            )

    def _read_and_fold(self, reader: PartitionReader) -> tuple[FoldedT]:
        """In a worker thread."""
        return (self._machine.fold(reader()),)

    def _loaded(
        self,
        generation: int,
        partition: int,
        epoch: int,
        result: tuple[FoldedT] | None,
        error: BaseException | None,
    ) -> None:
        self._loading_count -= 1
        if self._is_led(generation, partition, epoch):
            if result is None:
                self._load_failed(partition, epoch, error)
            else:
                self._load(partition, epoch, result[0])
        self._load_next()

    def _load(self, partition: int, epoch: int, folded: FoldedT) -> None:
        self._load_pauses_ms.pop(partition, None)
        self._machine.load(partition, epoch, folded, self.now_ms)

    def _load_failed(self, partition: int, epoch: int, error: object) -> None:
        kind = self._machine.kind
        self._machine.load_failed(partition, epoch)
        self._services.log.error(f"{kind}_not_loaded", partition=partition, error=repr(error))
        again = partial(self._load_again, self._generation, partition, epoch)
        pause_ms = self._load_pauses_ms.get(partition, LOAD_RETRY_MS_MIN)
        self._load_pauses_ms[partition] = min(2 * pause_ms, LOAD_RETRY_MS_MAX)
        self._services.timers.schedule(self.now_ms + pause_ms, again)

    def _load_again(self, generation: int, partition: int, epoch: int, now_ms: int) -> None:
        """Nobody else coordinates this as long as this broker leads."""
        if not self._is_led(generation, partition, epoch):
            return
        if self._machine.start_loading(partition, epoch):
            self.now_ms = now_ms
            self._load_when_committed(partition, epoch)
