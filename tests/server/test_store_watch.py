"""The thread that waits at the metadata store and pokes whoever reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from data_plane.cell.metadata_store import StoreUnavailable
from data_plane.server import shared_store
from data_plane.server.shared_store import StoreWatch

WAITED_S_MAX = 10.0
A_MOMENT_S = 0.1


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the end of a time-out waits for longer than a test does."""
    monkeypatch.setattr(shared_store, "READ_TIMEOUT_S", 3 * WAITED_S_MAX)
    monkeypatch.setattr(shared_store, "JOIN_TIMEOUT_S", WAITED_S_MAX)


class WatchedStore:
    """A store that tells of commits, and a broker that reads them when it is poked."""

    def __init__(self) -> None:
        self.committed = 0
        self.image = 0
        self.poked = threading.Semaphore(0)
        self.pokes_count = 0
        self.is_reader_slow = False
        self.outages_left = 0
        self._news = threading.Condition()
        # Runs when a wait has seen news, before whoever waits hears of it.
        self.before_told: Callable[[], None] | None = None
        anything: Any = self
        self.watch = StoreWatch(anything, anything, lambda: self.image, self._poke)

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        if self.outages_left:
            self.outages_left -= 1
            raise StoreUnavailable("away")
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
        self.pokes_count += 1
        if self.is_reader_slow:
            return
        self.read()
        self.poked.release()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAITED_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_every_commit_of_others_is_read_at_once() -> None:
    store = WatchedStore()
    store.watch.start()
    try:
        for _ in range(5):
            store.commit()
            until(lambda: store.image == store.committed)
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
        time.sleep(A_MOMENT_S)
        store.commit()
        until(lambda: store.image == store.committed)
    finally:
        store.watch.stop()
        store.watch.join()


def test_who_is_slow_to_read_is_poked_once_and_does_not_hold_up_the_stop() -> None:
    store = WatchedStore()
    store.watch.start()
    try:
        store.commit()
        until(lambda: store.image == store.committed)
        store.is_reader_slow = True
        store.commit()
        until(lambda: store.pokes_count == 2)
        time.sleep(A_MOMENT_S)
        assert store.pokes_count == 2
    finally:
        store.watch.stop()
        store.watch.join()
    assert not store.watch._thread.is_alive()


def test_a_store_that_was_away_is_watched_again() -> None:
    store = WatchedStore()
    store.outages_left = 3
    store.watch.start()
    try:
        until(lambda: not store.outages_left)
        store.commit()
        until(lambda: store.image == store.committed)
    finally:
        store.watch.stop()
        store.watch.join()
