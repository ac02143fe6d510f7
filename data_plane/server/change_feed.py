"""The feed of changes for control planes: what this broker has learnt, and before that the store's.

    store's feed    1 … 4 5 6 7 8 9          what is older than the tail is read from here
    tail                      7 8 9          events of the commits that this broker has learnt
    watcher at 4              ▲              reads 5 to 9 from the store, then goes on in the tail

The tail is the same for all watchers; each holds a version and one response. So a slow one costs no
memory: he falls behind the tail, reads from the store, and behind that he is told to begin anew.

Runs on the loop of gRPC's thread. The broker's loop hands each commit over, which is all it does.

Bounds: EVENTS_KEPT_MAX events in the tail; FEED_READS_MAX watchers at a time that ask the store,
whose feed is bounded itself; events and bytes of a response; WRITE_TIMEOUT_S for one that is not
taken; WATCHES_MAX watchers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

import grpc

from data_plane.broker.cell.change_events import ChangeEvent, events_of, events_of_feed
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import Commit, FeedTruncated, StoreUnavailable
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_calls import Calls, Done, Refused
from data_plane.server.cell_operations_messages import write_event

WATCHES_MAX: Final = 8
EVENTS_KEPT_MAX: Final = 4_000
FEED_READS_MAX: Final = 1
EVENTS_PER_RESPONSE_MAX: Final = 500
RESPONSE_BYTES_MAX: Final = 1024 * 1024
# A response that says that the feed is alive.
QUIET_INTERVAL_S: Final = 10.0
# For how long a version is waited for that another broker has told of.
AHEAD_TIMEOUT_S: Final = 5.0
STORE_RETRY_S: Final = 0.5
WRITE_TIMEOUT_S: Final = 20.0


class _News(NamedTuple):
    """All events after a version, up to this one."""

    version: int
    events: Sequence[ChangeEvent]
    image: MetadataImage


class ChangeFeed:
    """One per broker."""

    def __init__(self, calls: Calls, ahead_timeout_s: float = AHEAD_TIMEOUT_S) -> None:
        self._ahead_timeout_s = ahead_timeout_s
        self._calls = calls
        self._services = calls.services
        self._events: deque[ChangeEvent] = deque()
        self._image = calls.services.image
        # The tail has all events of versions from here to that of the image.
        self._first_version = self._image.version + 1
        self._reads = asyncio.Semaphore(FEED_READS_MAX)
        self._changed = asyncio.Event()
        self._is_stopped = False

    async def start(self) -> None:
        """Learn from now on."""
        loop = asyncio.get_running_loop()
        commits = self._services.commits

        def learnt(image: MetadataImage, changes: Sequence[Change] | None) -> None:
            try:
                loop.call_soon_threadsafe(self._take, image, changes)
            except RuntimeError:
                # The loop of gRPC's thread is closed: the process is on its way out.
                commits.listeners.remove(learnt)

        def listen() -> MetadataImage:
            commits.listeners.append(learnt)
            return self._services.newest_image

        self._begin_at(await self._calls.ask(listen))

    @property
    def version(self) -> int:
        """The newest that is known here."""
        return self._image.version

    @property
    def events_kept(self) -> int:
        return len(self._events)

    def stop(self) -> None:
        """Let all watchers end."""
        self._is_stopped = True
        self._tell()

    async def pause(self, duration_s: float) -> None:
        """Wait for so long. Raises Refused when the broker stops."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + duration_s
        while (left_s := until_s - loop.time()) > 0:
            await self._wait(left_s)

    async def watch(
        self, after_version: int | None, store_id: str
    ) -> AsyncIterator[messages.WatchResponse]:
        """Responses for as long as the caller wants them. Raises Refused and StoreError."""
        identity = self._services.store.identity
        if store_id and store_id != identity:
            raise Refused(grpc.StatusCode.OUT_OF_RANGE, "this cell has another store now: List")
        version = self._image.version if after_version is None else after_version
        await self._await_version(version)
        yield messages.WatchResponse(version=version, store_id=identity)
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        while True:
            news = await self._news_after(version)
            version = news.version
            if news.events or loop.time() - told_s >= QUIET_INTERVAL_S:
                for response in _responses(news, identity):
                    yield response
                told_s = loop.time()

    async def _await_version(self, version: int) -> None:
        """Until this broker knows of it: the caller may have it from a faster one."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._ahead_timeout_s
        while version > self._image.version:
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                words = f"version {version} is not there, the newest is {self._image.version}: List"
                raise Refused(grpc.StatusCode.OUT_OF_RANGE, words)
            await self._wait(left_s)

    async def _news_after(self, version: int) -> _News:
        """What comes next, or nothing after QUIET_INTERVAL_S."""
        if version + 1 < self._first_version:
            return await self._read_store(version)
        if version >= self._image.version:
            await self._wait(QUIET_INTERVAL_S)
        if version + 1 < self._first_version:
            return await self._read_store(version)
        events = [event for event in self._events if event.version > version]
        return _News(max(version, self._image.version), events, self._image)

    async def _read_store(self, version: int) -> _News:
        services = self._services
        async with self._reads:
            while True:
                image = self._image

                def read(done: Done[Sequence[Commit]]) -> None:
                    services.store_executor.submit(lambda: services.store.feed(version), done)

                try:
                    commits = await self._calls.begin(read)
                except FeedTruncated as error:
                    words = f"version {version} is too long ago ({error}): List"
                    raise Refused(grpc.StatusCode.OUT_OF_RANGE, words) from error
                except StoreUnavailable:
                    # It comes back, or the caller goes.
                    await self._wait(STORE_RETRY_S)
                    continue
                # What is newer than the image is told when its image is there.
                known = [commit for commit in commits if commit.version <= image.version]
                versions = [commit.version for commit in known]
                if versions != list(range(version + 1, image.version + 1)):
                    # It was cut while it was read.
                    await self._wait(STORE_RETRY_S)
                    continue
                events = await asyncio.to_thread(events_of_feed, known, image)
                return _News(image.version, events, image)

    async def _wait(self, timeout_s: float) -> None:
        """For news, at most so long. Raises Refused when the broker stops."""
        if not self._is_stopped:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
        if self._is_stopped:
            raise Refused(grpc.StatusCode.UNAVAILABLE, "the broker stops")

    def _take(self, image: MetadataImage, changes: Sequence[Change] | None) -> None:
        """The next commit, or an image that came whole."""
        if image.version <= self._image.version:
            return
        if changes is None or image.version != self._image.version + 1:
            self._begin_at(image)
        else:
            self._image = image
            self._events.extend(events_of(image.version, changes, image))
            while len(self._events) > EVENTS_KEPT_MAX:
                # Versions go whole.
                self._first_version = self._events[0].version + 1
                while self._events and self._events[0].version < self._first_version:
                    self._events.popleft()
        self._tell()

    def _begin_at(self, image: MetadataImage) -> None:
        if image.version >= self._image.version:
            self._image = image
            self._first_version = image.version + 1
            self._events.clear()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _responses(news: _News, store_id: str) -> Iterator[messages.WatchResponse]:
    """As many as it takes, each made when the one before it is taken. Whoever has one has all
    versions before the next one's first event."""
    response = messages.WatchResponse(store_id=store_id)
    size = 0
    for event in news.events:
        message = write_event(event, news.image)
        size += message.ByteSize()
        is_full = len(response.events) >= EVENTS_PER_RESPONSE_MAX or size > RESPONSE_BYTES_MAX
        if response.events and is_full:
            response.version = event.version - 1
            yield response
            response = messages.WatchResponse(store_id=store_id)
            size = message.ByteSize()
        response.events.append(message)
    response.version = news.version
    yield response
