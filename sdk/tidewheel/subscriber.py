"""Runs one handler over one subscription: concurrency, key order, commits, errors, draining.

Messages are fetched ahead into a bounded buffer and handled by up to `concurrency` tasks on the
application's loop. Messages of equal keys are handled one at a time, in order (see `lanes`);
what is committed is the longest finished prefix of each partition (see `watermark`).

Invariants
- commit="after": an offset is committed only when every message below it is done, that is,
  handled, nacked, or skipped by the error policy (handling.py). commit="before": a message's
  offset is committed before its handler starts.
- Partitions revoked: waiting messages are dropped, running handlers are awaited (up to the drain
  time-out), and only then is the partition given up. Partitions lost: nothing of them is
  committed any more, whatever their handlers still do.
- At most `buffer_max` messages wait; a partition whose first message does not get done holds at
  most TRACKED_OFFSETS_MAX offsets. Beyond either, partitions are paused while the membership
  lives on.
- A key whose message is to be handled again later (key_order.py) keeps no worker waiting. Of one
  partition at most `buffer_max` messages wait for that, or are behind those that do, and no more
  offsets than above; beyond either that partition alone is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Hashable, Sequence
from typing import Any, Final

from tidewheel.client import Client
from tidewheel.errors import CommitFailed, ConfigurationError, HandlerFailed
from tidewheel.gate import Gate
from tidewheel.handling import Handling, Turn
from tidewheel.key_order import Again, KeyOrder
from tidewheel.killers import Killers, Line
from tidewheel.lanes import KeyLanes
from tidewheel.message import Message, TopicPartition
from tidewheel.nacks import Nack
from tidewheel.resumes import KILLS_MAX
from tidewheel.subscriber_options import Handler, SubscriberOptions
from tidewheel.transport.librdkafka.connection import logger
from tidewheel.watermark import CommitWatermark

TRACKED_OFFSETS_MAX: Final = 50_000
FETCH_WAIT_S: Final = 0.5
ROOM_WAIT_S: Final = 0.5
"""How long a full buffer may keep us from polling before partitions are paused instead."""
YIELD_EVERY: Final = 64
"""Handlers that never wait let other tasks run after so many messages."""


class _Partition:
    """What runs of one assigned partition, and what of it may be committed."""

    __slots__ = ("committed", "held", "leaving", "running", "settled", "watermark")

    def __init__(self) -> None:
        self.watermark = CommitWatermark()
        self.committed: int | None = None
        self.running = 0
        self.leaving = asyncio.Event()
        self.settled = asyncio.Event()
        # Lanes that wait until their message is handled again.
        self.held: set[Hashable] = set()


class Subscriber:
    """One running subscription. `run` ends after `stop`, or with the error that ended it."""

    def __init__(
        self, client: Client, options: SubscriberOptions, handler: Handler, gate: Gate
    ) -> None:
        self.options = options
        self._clock = client.clock
        self._consumer = client.subscribe(
            *options.topics,
            group=options.group,
            filter=options.filter,
            subscription=options.subscription,
            retry=options.retry,
            start=options.start,
            commit="manual",
            settings=options.settings,
            key_deserializer=options.key_deserializer,
            value_deserializer=options.value_deserializer,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        nacker = self._consumer.nacker
        self._order = KeyOrder(nacker, client.clock)
        self._handling = Handling(
            handler, self._consumer.options, options.in_place, nacker, gate, self._order
        )
        self._gate = gate
        # Who cannot nack could do nothing about it.
        is_on = options.in_place.then == "nack" and options.commit == "after"
        self._killers = Killers(self._consumer, is_on=is_on)
        # Of which no more is fetched for now.
        self._stopped: set[TopicPartition] = set()
        self._holding: set[asyncio.Task[None]] = set()
        self._interval_s = self._consumer.options.settings.commit_interval_ms / 1000
        self._lanes: KeyLanes[tuple[Message, _Partition, Line]] = KeyLanes()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions handled by this process now."""
        return self._consumer.assignment

    def stop(self) -> None:
        """Fetch no more; `run` drains and returns."""
        self._stopping.set()
        self._room.set()

    async def run(self) -> None:
        """Fetch and handle until stopped. Raises HandlerFailed and consumer errors."""
        await self._consumer.open()
        await self._require_subscriptions()
        committing = asyncio.create_task(self._commit_regularly())
        try:
            while not self._stopping.is_set():
                await self._step()
        finally:
            self.stop()
            committing.cancel()
            # The task only commits: its cancellation is ours, and its errors were logged.
            await asyncio.gather(committing, return_exceptions=True)
            await self._drain()
        if self._failure is not None:
            raise self._failure

    async def _require_subscriptions(self) -> None:
        """Where what fails is nacked, that has to be possible: say so before anything fails."""
        if self.options.in_place.then != "nack":
            return
        for topic in self._consumer.options.topics:
            if topic.startswith("^"):
                continue
            if await self._consumer.nacker.is_subscription(topic):
                is_ordered = await self._order.policy_for(topic) is not None
                if is_ordered and not self.options.key_order:
                    raise ConfigurationError(
                        f'"{topic}" keeps the order of its keys, and key_order=False does not',
                        hint="Leave key_order out",
                    )
                continue
            raise ConfigurationError(
                f'"{topic}" is no subscription: what fails of it cannot be nacked',
                hint="Give retry=Exponential(...), which makes one over it, or another on_error=",
            )

    async def _step(self) -> None:
        """Wait for room, fetch, hand out."""
        if self._is_full() and not await self._wait_for_room():
            await self._hold()
            return
        await self._stop_some()
        room = max(1, self.options.buffer_max - self._waiting())
        await self._accept(await self._fetch(room))

    async def _stop_some(self) -> None:
        """Fetch no more of partitions whose last messages in line are not through: those that come
        after go by their keys again, and must not overtake them. Nor of those in which too much
        waits behind messages that are handled again later."""
        ending = self._killers.ending()
        ending |= {place for place, one in self._partitions.items() if self._holds_much(one)}
        if fresh := (ending - self._stopped) & self._consumer.assignment:
            await self._consumer.pause(fresh)
        if clear := (self._stopped - ending) & self._consumer.assignment:
            await self._consumer.resume(clear)
        self._stopped = ending

    def _behind(self, partition: _Partition) -> int:
        """Messages that are handled again later, and those behind them."""
        return sum(1 + self._lanes.waiting(lane) for lane in partition.held)

    def _holds_much(self, partition: _Partition) -> bool:
        return bool(partition.held) and (
            self._behind(partition) >= self.options.buffer_max
            or len(partition.watermark) >= TRACKED_OFFSETS_MAX
        )

    def _waiting(self) -> int:
        """Messages that wait for workers."""
        held = sum(self._behind(one) - len(one.held) for one in self._partitions.values())
        return len(self._lanes) - held

    async def _fetch(self, messages_max: int) -> list[Message]:
        fetching = asyncio.ensure_future(self._consumer.fetch(messages_max, FETCH_WAIT_S))
        await _first_of(fetching, self._stopping.wait())
        return [] if fetching.cancelled() else fetching.result()

    async def _accept(self, batch: list[Message]) -> None:
        if batch and self.options.commit == "before":
            await self._consumer.commit({m.topic_partition: m.offset + 1 for m in batch})
        firsts: dict[TopicPartition, int] = {}
        for message in batch:
            if message.topic_partition not in self._partitions:
                self._partitions[message.topic_partition] = _Partition()
                firsts[message.topic_partition] = message.offset
        ours = dict(self._partitions)
        for place, offset in (await self._killers.begin(firsts)).items():
            ours[place].committed = offset
        for message in batch:
            place = message.topic_partition
            partition = ours[place]
            if self._partitions.get(place) is not partition:
                continue  # It has just gone, and whoever has it gets this message.
            partition.watermark.started(message.offset)
            line = self._killers.place_of(place)
            lane: Hashable = None
            if line is not Line.FREE:
                lane = (place,)
            elif self.options.key_order and message.key is not None:
                lane = (place, message.key)
            self._lanes.add((message, partition, line), lane)
        self._spawn()

    def _is_full(self) -> bool:
        return self._waiting() >= self.options.buffer_max or any(
            len(p.watermark) >= TRACKED_OFFSETS_MAX and not p.held
            for p in self._partitions.values()
        )

    async def _wait_for_room(self) -> bool:
        """Whether there is room soon; else the partitions should be paused."""
        self._room.clear()
        await _first_of(self._room.wait(), self._clock.sleep(ROOM_WAIT_S))
        return self._room.is_set()

    async def _hold(self) -> None:
        """Keep the membership alive with all partitions paused until there is room."""
        paused: set[TopicPartition] = set()
        while self._is_full() and not self._stopping.is_set():
            fresh = self._consumer.assignment - paused
            if fresh:
                await self._consumer.pause(fresh)
                paused |= fresh
            await self._accept(await self._fetch(1))
        await self._consumer.resume((paused - self._stopped) & self._consumer.assignment)

    # Handling.

    def _spawn(self) -> None:
        """Start workers while there are lanes to serve and the limit is not reached."""
        wanted = min(self._lanes.ready_count, self.options.concurrency - len(self._workers))
        for _ in range(wanted):
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        """Handle messages until there is none that may be handled."""
        handled = 0
        while not self._stopping.is_set() and (taken := self._lanes.take()) is not None:
            lane, (message, partition, line) = taken
            partition.running += 1
            outcome: bool | Again = False
            try:
                if line is Line.ALONE:
                    outcome = await self._handle_alone(message, partition)
                else:
                    outcome = await self._handle(message, partition)
                    if outcome is True:
                        self._finish(message, partition, line)
            finally:
                partition.running -= 1
                if not partition.running:
                    partition.settled.set()
                if isinstance(outcome, Again):
                    self._hold_key(lane, outcome, partition, line)
                else:
                    self._lanes.done(lane)
                if self._waiting() < self.options.buffer_max:
                    self._room.set()
            handled += 1
            if handled % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            if self._lanes.ready_count > 1:
                self._spawn()

    def _hold_key(self, lane: Hashable, again: Again, partition: _Partition, line: Line) -> None:
        """The lane waits, and nobody waits with it."""
        partition.held.add(lane)

        async def wait() -> None:
            is_ours = await self._pause(again.seconds, partition)
            partition.held.discard(lane)
            if is_ours:
                self._lanes.put_back((again.message, partition, line), lane)
                self._spawn()
            else:
                self._lanes.done(lane)

        holding = asyncio.create_task(wait())
        self._holding.add(holding)
        holding.add_done_callback(self._holding.discard)

    async def _handle_alone(self, message: Message, partition: _Partition) -> bool | Again:
        """With nothing beside it, and what it does known to whoever comes after us."""
        async with self._gate.entered(alone=True):
            place = message.topic_partition
            if self._partitions.get(place) is not partition or self._stopping.is_set():
                return False
            kills = self._killers.kills(message)
            await self._killers.in_hand(message)
            outcome = await self._handle(message, partition, kills, is_alone=True)
            if outcome is True:
                self._finish(message, partition, Line.ALONE)
                await self._commit([place])
            elif outcome is not False:
                # It waits, and is in no hand: should the process die now, that was not its doing.
                await self._killers.put_down(message)
            return outcome

    async def _handle(
        self, message: Message, partition: _Partition, kills: int = 0, *, is_alone: bool = False
    ) -> bool | Again:
        """Whether the message is done: handled, skipped by the policy, or nacked; or when it is
        handled again."""
        place = message.topic_partition
        turn = Turn(
            lambda seconds: self._pause(seconds, partition),
            lambda: self._partitions.get(place) is partition,
            is_alone,
        )
        try:
            if kills >= KILLS_MAX:
                reason = f"{kills} processes have died handling it alone"
                killer = Nack(message, reason=reason, is_dead_letter=True)
                return await self._handling.nack(killer, None, turn)
            return await self._handling.handle(message, turn)
        except HandlerFailed as failure:
            if self._failure is None:
                self._failure = failure
            self.stop()
            return False

    def _finish(self, message: Message, partition: _Partition, line: Line) -> None:
        partition.watermark.finished(message.offset)
        if self._partitions.get(message.topic_partition) is partition:
            self._killers.done(message.topic_partition, line)

    async def _pause(self, seconds: float, partition: _Partition) -> bool:
        """Wait before the next attempt; False when the partition or the app goes away first."""
        await _first_of(self._clock.sleep(seconds), partition.leaving.wait(), self._stopping.wait())
        return not (partition.leaving.is_set() or self._stopping.is_set())

    # Committing, rebalancing, draining.

    async def _commit_regularly(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            await self._commit(list(self._partitions))

    async def _commit(self, places: Sequence[TopicPartition], *, is_end: bool = False) -> None:
        """Commit what is done of these partitions; a failure is logged and tried again later.
        `is_end`: they go as they should, which is noted even where nothing was done."""
        if self.options.commit == "before":
            return
        offsets: dict[TopicPartition, int] = {}
        for place in places:
            if (partition := self._partitions.get(place)) is None:
                continue
            position = partition.watermark.position
            if position not in (None, partition.committed):
                offsets[place] = position
        metadata = self._killers.moved(offsets)
        if is_end:
            known = self._killers.ended([p for p in places if p in self._partitions])
            for place in known:
                partition = self._partitions[place]
                position = partition.watermark.position
                if position is None:
                    position = partition.committed
                if position is not None:
                    offsets[place] = position
            metadata |= known
        if not offsets:
            return
        try:
            await self._consumer.commit_with(offsets, metadata)
        except CommitFailed as failed:
            logger.warning("%s", failed)
            return
        for place, offset in offsets.items():
            if place in self._partitions:
                self._partitions[place].committed = offset

    async def _on_revoked(self, places: list[TopicPartition]) -> None:
        leaving = frozenset(places)
        self._stopped -= leaving
        self._lanes.discard(lambda item: item[0].topic_partition in leaving)
        self._room.set()
        for place in places:
            if (partition := self._partitions.get(place)) is not None:
                partition.leaving.set()
        settled = asyncio.ensure_future(self._settle(places))
        await _first_of(settled, self._clock.sleep(self.options.drain_timeout_s))
        if settled.cancelled():
            logger.warning(
                "Handlers still run after %g s; their messages are delivered again",
                self.options.drain_timeout_s,
            )
        await self._commit(places, is_end=True)
        self._killers.forget(places)
        for place in places:
            self._partitions.pop(place, None)

    async def _settle(self, places: list[TopicPartition]) -> None:
        for place in places:
            partition = self._partitions.get(place)
            while partition is not None and partition.running:
                partition.settled.clear()
                await partition.settled.wait()

    async def _on_lost(self, places: list[TopicPartition]) -> None:
        lost = frozenset(places)
        self._stopped -= lost
        self._killers.forget(places)
        self._lanes.discard(lambda item: item[0].topic_partition in lost)
        self._room.set()
        for place in places:
            if (partition := self._partitions.pop(place, None)) is not None:
                partition.leaving.set()

    async def _drain(self) -> None:
        """Let running handlers finish, commit, leave the group."""
        # They end at once, as `_stopping` is set.
        await asyncio.gather(*self._holding)
        self._lanes.discard(lambda item: True)
        workers = set(self._workers)
        if workers:
            finished = asyncio.gather(*workers, return_exceptions=True)
            await _first_of(finished, self._clock.sleep(self.options.drain_timeout_s))
            if finished.cancelled():
                logger.warning("Some handlers did not finish in time and were cancelled")
                await asyncio.gather(*workers, return_exceptions=True)
        try:
            await self._commit(list(self._partitions), is_end=True)
        finally:
            await self._consumer.close()


async def _first_of(*awaitables: Awaitable[Any]) -> None:
    """Wait until one is done and cancel the others, waiting for their end too."""
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in futures:
            future.cancel()
        await asyncio.gather(*futures, return_exceptions=True)
