"""The thread that waits at the metadata store and pokes whoever reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from data_plane.server.shared_store import READ_TIMEOUT_S, StoreWatch


class WatchedStore:
    """A store that tells of commits, and a broker that reads them when it is poked."""

    def __init__(self) -> None:
        self.committed = 0
        self.image = 0
        self.poked = threading.Semaphore(0)
        self._news = threading.Condition()
        # Runs when a wait has seen news, before whoever waits hears of it.
        self.before_told: Callable[[], None] | None = None
        anything: Any = self
        self.watch = StoreWatch(anything, anything, lambda: self.image, self._poke)

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        with self._news:
            has_news = self._news.wait_for(lambda: self.committed > after_version, 0.05)
        if has_news and self.before_told is not None:
            before_told, self.before_told = self.before_told, None
            before_told()
        return has_news

    def commit(self) -> None:
        with self._news:
            self.committed += 1
            self._news.notify()

    def read(self) -> None:
        if self.image != self.committed:
            self.image = self.committed
            self.watch.image_changed()

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        call()

    def _poke(self) -> None:
        self.read()
        self.poked.release()


def until(condition: Callable[[], bool]) -> float:
    """The seconds until it is so."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + 10
        time.sleep(0.001)
    return time.monotonic() - began


def test_every_commit_of_others_is_read_at_once() -> None:
    store = WatchedStore()
    store.watch.start()
    try:
        for _ in range(5):
            store.commit()
            assert until(lambda: store.image == store.committed) < READ_TIMEOUT_S / 2
    finally:
        store.watch.stop()
        store.watch.join()


def test_an_own_commit_does_not_delay_what_others_commit_next() -> None:
    """The broker learns of its own commit from the answer, perhaps before it is told of it."""
    store = WatchedStore()
    store.before_told = store.read
    store.commit()
    store.watch.start()
    try:
        until(lambda: store.before_told is None)
        time.sleep(READ_TIMEOUT_S / 10)
        store.commit()
        assert until(lambda: store.image == store.committed) < READ_TIMEOUT_S / 2
    finally:
        store.watch.stop()
        store.watch.join()
