"""Consuming: the async iterator, batches, commits and seeks over a `ConsumerTransport`.

A message counts as processed when the iterator is asked for the next one. With commit="after"
(at-least-once, the default) processed offsets are committed every `commit_interval_ms`, when
partitions move away, and when the consumer closes; the message in hand when the loop is left by
`break` or an exception is not, and is delivered again. With commit="before" (at-most-once)
offsets are committed before the messages are handed out. With commit="manual" nothing is
committed but by `commit`.

Invariants
- Offsets of a partition are committed only while the partition is assigned: what was lost is
  forgotten, together with the messages of it that were fetched ahead.
- Nothing is committed by itself past a message whose nack has failed (held.py).
- Application code (callbacks, deserializers, interceptors) runs on the event loop only.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self

from tidewheel.admin import Admin
from tidewheel.consumer_options import ConsumerOptions, RebalanceCallback, prepare
from tidewheel.errors import (
    ClientClosed,
    CommitFailed,
    ConfigurationError,
)
from tidewheel.headers import Duration, epoch_ms, retry_delay_ms
from tidewheel.held import HeldBack
from tidewheel.message import Message, TopicPartition
from tidewheel.nacks import Nack, Nacker, class_name
from tidewheel.subscriptions import ensure
from tidewheel.transport.librdkafka.connection import logger
from tidewheel.transport.port import ConsumerPlan, ConsumerTransport, Transport

FETCH_MESSAGES_MAX: Final = 5_000
FETCH_MESSAGES_MAX_BEFORE: Final = 100
"""With commit="before" a crash loses at most what was fetched in one go."""


class Consumer:
    """Reads topics, alone or as a member of a group. Made by `Client.subscribe`.

    Iterate it (`async for message in consumer`) or take `batches()`. It opens itself on first
    use; leave it with `close()`, `async with`, or by closing the client.
    """

    def __init__(
        self,
        transport: Transport,
        options: ConsumerOptions,
        nacker: Nacker,
        on_close: Callable[[Consumer], None] | None = None,
    ) -> None:
        self.options = options
        self.nacker = nacker
        self._held = HeldBack(nacker)
        self._parent = transport
        self._on_close = on_close
        self._transport: ConsumerTransport | None = None
        self._opening: asyncio.Task[ConsumerTransport] | None = None
        self._buffer: deque[Message] = deque()
        self._stash: list[Message] = []
        self._current: Message | None = None
        self._current_batch: list[Message] = []
        self._processed: dict[tuple[str, int], int] = {}
        self._assigning: dict[TopicPartition, int | None] = {}
        self._next_commit_s = 0.0
        self._auto = options.group is not None and options.commit == "after"
        self._before = options.group is not None and options.commit == "before"
        self._plain = not (
            options.interceptors or options.key_deserializer or options.value_deserializer
        )
        self._stopped = asyncio.Event()
        self._closed = False

    # Opening and closing.

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Subscribe or assign. Done by the first use; calling it reports errors early."""
        await self._opened()

    async def _opened(self) -> ConsumerTransport:
        """The transport. A caller that is cancelled while it opens does not stop the opening."""
        if self._transport is not None:
            return self._transport
        if self._closed:
            raise ClientClosed("The consumer is closed")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open_and_keep())
        return await asyncio.shield(self._opening)

    async def _open_and_keep(self) -> ConsumerTransport:
        try:
            self._transport = await self._open()
        finally:
            self._opening = None
        return self._transport

    async def _open(self) -> ConsumerTransport:
        options = self.options
        literal = [topic for topic in options.topics if not topic.startswith("^")]
        if options.group is None and len(literal) < len(options.topics):
            raise ConfigurationError(
                "A pattern needs a group", hint="Name the topics, or give group="
            )
        if options.subscription is not None:
            await ensure(Admin(self._parent), options.subscription, options.retry)
        reset = options.start if isinstance(options.start, str) else "earliest"
        plan = ConsumerPlan(options.topics, options.group, reset, options.settings)
        transport = await self._parent.consumer(plan, self)
        try:
            partitions = [p for topic in literal for p in await transport.partitions(topic)]
            if options.group is None:
                positions = await self._start_positions(transport, partitions)
                await transport.assign(positions)
        except BaseException:
            await transport.close()
            raise
        self._next_commit_s = self._now_s() + options.settings.commit_interval_ms / 1000
        return transport

    async def _start_positions(
        self, transport: ConsumerTransport, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        start = self.options.start
        if isinstance(start, datetime | timedelta):
            return await transport.offsets_for_times(
                dict.fromkeys(partitions, self._time_ms(start))
            )
        bounds = {p: await transport.watermarks(p) for p in partitions}
        if isinstance(start, int):
            # An offset out of range would silently mean the beginning.
            return {p: max(first, min(start, end)) for p, (first, end) in bounds.items()}
        return {p: first if start == "earliest" else end for p, (first, end) in bounds.items()}

    def _time_ms(self, when: datetime | timedelta | int) -> int:
        """Epoch ms of a time, or of a duration ago."""
        if isinstance(when, timedelta):
            return self._parent.clock.now_ms() - round(when / timedelta(milliseconds=1))
        return epoch_ms(when, what="The start time")

    def stop(self) -> None:
        """End running iterations: `async for` loops leave when they ask for the next message."""
        self._stopped.set()

    async def close(self) -> None:
        """Commit what is processed (commit="after"), leave the group, let go of connections."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._transport is not None:
            self._buffer.clear()
            self._stash.clear()
            try:
                await self._commit_quietly()
            finally:
                await self._transport.close()
        if self._on_close is not None:
            self._on_close(self)

    # Iterating.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message. Raises DeserializationFailed, InterceptorFailed (go on to skip)."""
        if self._current is not None:
            current, self._current = self._current, None
            if self._auto:
                # A plain tuple equals the TopicPartition and is made in a third of the time.
                self._processed[current.topic, current.partition] = current.offset + 1
        if self._auto and self._now_s() >= self._next_commit_s:
            await self._commit_quietly()
        while not self._buffer:
            if not await self._fill(FETCH_MESSAGES_MAX):
                raise StopAsyncIteration
        message = self._buffer.popleft()
        self._current = message
        return message if self._plain else prepare(message, self.options)

    async def batches(
        self, messages_max: int = 1000, wait_s: float | None = None
    ) -> AsyncIterator[list[Message]]:
        """Lists of 1 to `messages_max` messages: what has arrived, without waiting to fill one.

        With `wait_s`, an empty list is yielded when nothing came for so long. A batch counts as
        processed when the next one is asked for.
        """
        while True:
            self._finish_batch()
            if self._auto and self._now_s() >= self._next_commit_s:
                await self._commit_quietly()
            deadline_s = None if wait_s is None else self._now_s() + wait_s
            while not self._buffer:
                if not await self._fill(messages_max, deadline_s):
                    return
                if deadline_s is not None and self._now_s() >= deadline_s:
                    break
            if len(self._buffer) <= messages_max:
                batch = list(self._buffer)
                self._buffer.clear()
            else:
                batch = [self._buffer.popleft() for _ in range(messages_max)]
            self._current_batch = batch
            yield batch if self._plain else [prepare(message, self.options) for message in batch]

    def _finish_batch(self) -> None:
        if self._auto:
            for message in self._current_batch:
                self._processed[message.topic, message.partition] = message.offset + 1
        self._current_batch = []

    async def take(
        self,
        messages_max: int,
        wait_s: float,
        processed: Mapping[TopicPartition, int],
    ) -> list[Message]:
        """Raw messages, after noting the next offsets of what was processed; for `sync`.

        Returns [] when time is up. Raises ClientClosed when the consumer was stopped.
        """
        transport = await self._opened()
        if self._auto:
            assigned = transport.assignment()
            self._processed.update({p: o for p, o in processed.items() if p in assigned})
            if self._now_s() >= self._next_commit_s:
                await self._commit_quietly()
        deadline_s = self._now_s() + wait_s
        while not self._buffer and self._now_s() < deadline_s:
            if not await self._fill(messages_max, deadline_s):
                raise ClientClosed("The consumer is closed")
        batch = list(self._buffer)
        self._buffer.clear()
        return batch

    async def fetch(self, messages_max: int, timeout_s: float) -> list[Message]:
        """Messages as they come, raw, without counting them as processed; [] when time is up."""
        transport = await self._opened()
        return await transport.fetch(messages_max, timeout_s)

    async def _fill(self, messages_max: int, deadline_s: float | None = None) -> bool:
        """Fetch into the buffer, at most until the next commit is due. False when stopped."""
        transport = await self._opened()
        if self._stopped.is_set():
            return False
        wait_s = self.options.settings.commit_interval_ms / 1000
        if deadline_s is not None:
            wait_s = max(0.0, min(wait_s, deadline_s - self._now_s()))
        if self._before:
            messages_max = min(messages_max, FETCH_MESSAGES_MAX_BEFORE)
        if not self._stash:
            self._stash = await self._fetch_unless_stopped(transport, messages_max, wait_s)
        if self._stash and self._before:
            # Until this is done the messages are stashed: a caller cancelled here loses nothing.
            await transport.commit({m.topic_partition: m.offset + 1 for m in self._stash})
        batch, self._stash = self._stash, []
        self._buffer.extend(batch)
        if not batch and self._auto and self._now_s() >= self._next_commit_s:
            await self._commit_quietly()
        return True

    async def _fetch_unless_stopped(
        self, transport: ConsumerTransport, messages_max: int, wait_s: float
    ) -> list[Message]:
        fetching = asyncio.ensure_future(transport.fetch(messages_max, wait_s))
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({fetching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not fetching.cancel() and fetching.exception() is None:
                self._stash = fetching.result()  # It had just come.
            raise
        finally:
            stopping.cancel()
        if self._stopped.is_set():
            # Whatever it still brings, closing or nobody at all deals with it.
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            return []
        return await fetching

    # Committing and moving.

    async def commit(self, position: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Commit and wait for the broker.

        Without argument: everything handed out so far, the message in hand included. With a
        message: its partition up to and including it. With a mapping: next offsets to read.
        Raises CommitFailed when the partition has moved to another member.
        """
        transport = await self._opened()
        if self.options.group is None:
            raise ConfigurationError("There is no group to commit for", hint="Give group=")
        if isinstance(position, Message):
            offsets = {position.topic_partition: position.offset + 1}
        elif position is not None:
            offsets = dict(position)
        else:
            offsets = {TopicPartition(*p): o for p, o in self._processed.items()}
            in_hand = [*self._current_batch, *([self._current] if self._current else [])]
            for message in in_hand:
                offsets[message.topic_partition] = message.offset + 1
            offsets = self._held.committable(offsets)
        await transport.commit(offsets)
        for partition, offset in offsets.items():
            # What is due must not take back a commit that went further.
            if self._processed.get(partition, offset + 1) <= offset:
                del self._processed[partition]

    async def nack(
        self,
        messages: Message | Sequence[Message],
        *,
        delay: Duration | None = None,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """These have failed: they come back to this subscription, without keeping others waiting.

        After `delay`, or else the delay of their attempt by the subscription's policy; after the
        last attempt they are dead letters. `reason` and the class of `error` are shown with them.
        Returns when the brokers have that; from then on they count as processed as any message
        does. Repeating it changes nothing. Raises NackFailed, and InvalidRequest for messages of a
        plain topic; what was not nacked is not committed by itself, and is delivered again.
        """
        delay_ms = None if delay is None else retry_delay_ms(delay)
        await self._held.nack(
            [Nack(one, delay_ms, *_told(reason, error)) for one in _listed(messages)]
        )

    async def dead_letter(
        self,
        messages: Message | Sequence[Message],
        reason: str = "",
        *,
        error: BaseException | None = None,
    ) -> None:
        """These go to the dead-letter topic at once. Returns and raises as `nack`."""
        await self._held.nack(
            [Nack(one, None, *_told(reason, error), True) for one in _listed(messages)]
        )

    def held_back(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Next offsets, none of them past what could not be nacked; for `sync`."""
        return self._held.committable(offsets)

    async def _commit_quietly(self) -> None:
        """Commit processed offsets; when that fails they stay due for the next time."""
        self._next_commit_s = self._now_s() + self.options.settings.commit_interval_ms / 1000
        if not self._processed or self._transport is None:
            return
        due = self._held.committable({TopicPartition(*p): o for p, o in self._processed.items()})
        try:
            await self._transport.commit(due)
        except CommitFailed as failed:
            logger.warning("%s", failed)
            return
        for partition, offset in due.items():
            if self._processed.get(partition) == offset:
                del self._processed[partition]

    async def commit_with(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str]
    ) -> None:
        """Commit next offsets, with a text beside each. Raises CommitFailed."""
        await (await self._opened()).commit(offsets, metadata)

    async def committed_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Committed offsets with the texts beside them, where there are any."""
        return await (await self._opened()).committed_metadata(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this consumer reads now."""
        return self._transport.assignment() if self._transport is not None else frozenset()

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in an assigned partition."""
        await self._seek({partition: offset})

    async def seek_to_time(self, when: datetime | timedelta | int) -> None:
        """Go on from the first messages at or after a time, in all assigned partitions.

        `when` is an aware datetime, epoch milliseconds, or a timedelta back from now.
        """
        transport = await self._opened()
        times = dict.fromkeys(transport.assignment(), self._time_ms(when))
        await self._seek(await transport.offsets_for_times(times))

    async def seek_to_beginning(self) -> None:
        """Go on from the first message kept, in all assigned partitions."""
        transport = await self._opened()
        await self._seek({p: (await transport.watermarks(p))[0] for p in transport.assignment()})

    async def seek_to_end(self) -> None:
        """Go on from what is sent from now on, in all assigned partitions."""
        transport = await self._opened()
        await self._seek({p: (await transport.watermarks(p))[1] for p in transport.assignment()})

    async def _seek(self, positions: Mapping[TopicPartition, int]) -> None:
        transport = await self._opened()
        for partition, offset in positions.items():
            if partition in self._assigning:
                self._assigning[partition] = offset  # Its reading has not begun yet.
            else:
                await transport.seek(partition, offset)
        self._forget(positions)

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these until `resume`; the membership lives on while you iterate."""
        await (await self._opened()).pause(partitions)

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        await (await self._opened()).resume(partitions)

    async def committed(self) -> dict[TopicPartition, int | None]:
        """The group's committed offsets of the assigned partitions."""
        transport = await self._opened()
        return await transport.committed(transport.assignment())

    async def positions(self) -> dict[TopicPartition, int]:
        """Next offsets to be fetched of the assigned partitions, where fetching has begun."""
        return await (await self._opened()).positions()

    async def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """(first offset kept, next offset to be written) of a partition."""
        return await (await self._opened()).watermarks(partition)

    # Rebalances (RebalanceListener of the transport).

    async def on_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Start where `start=` says if the group has no committed offset, and tell the user."""
        starts: dict[TopicPartition, int] = {}
        if isinstance(self.options.start, datetime | timedelta) and self._transport is not None:
            committed = await self._transport.committed(partitions)
            fresh = [p for p in partitions if committed.get(p) is None]
            starts = await self._start_positions(self._transport, fresh)
        self._assigning = dict.fromkeys(partitions)
        try:
            await _call(self.options.on_assigned, partitions)
        finally:
            sought, self._assigning = self._assigning, {}
        return starts | {p: offset for p, offset in sought.items() if offset is not None}

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Tell the user, commit what is processed of these, forget them."""
        try:
            await _call(self.options.on_revoked, partitions)
        finally:
            if self._auto:
                await self._commit_quietly()
            self._forget(partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget these without committing, and tell the user."""
        self._forget(partitions)
        await _call(self.options.on_lost, partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = frozenset(partitions)
        self._held.forget(gone)
        self._buffer = deque(m for m in self._buffer if m.topic_partition not in gone)
        self._stash = [m for m in self._stash if m.topic_partition not in gone]
        self._current_batch = [m for m in self._current_batch if m.topic_partition not in gone]
        if self._current is not None and self._current.topic_partition in gone:
            self._current = None
        for partition in gone:
            self._processed.pop(partition, None)

    def _now_s(self) -> float:
        return self._parent.clock.now_ms() / 1000


async def _call(callback: RebalanceCallback | None, partitions: Sequence[TopicPartition]) -> None:
    if callback is not None:
        result = callback(list(partitions))
        if inspect.isawaitable(result):
            await result


def _listed(messages: Message | Sequence[Message]) -> Sequence[Message]:
    return [messages] if isinstance(messages, Message) else messages


def _told(reason: str, error: BaseException | None) -> tuple[str, str]:
    """The reason and the exception that brokers show."""
    if error is None:
        return reason, ""
    return reason or str(error) or repr(error), class_name(error)
