"""Waiting for notifications: what has come already is found at once, and waiting costs nothing."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from data_plane.cell.metadata_store import StoreUnavailable
from data_plane.cell.postgres_connection import REPLY_TIMEOUT_MS, Connection, PostgresLink
from tests.cell.tcp_proxy import TcpProxy
from tests.postgres_server import PostgresDatabase, now_ms

LONG_MS = 30_000


def link_to(postgres: PostgresDatabase, dsn: str) -> PostgresLink:
    def listen(connection: Connection) -> None:
        connection.execute(f"LISTEN {postgres.schema}".encode())

    return PostgresLink(dsn, "public", now_ms, listen, lambda: None, REPLY_TIMEOUT_MS)


@pytest.fixture
def link(postgres: PostgresDatabase) -> Iterator[PostgresLink]:
    link = link_to(postgres, postgres.dsn)
    with link.lock:
        link.ensure()
        yield link
        link.close()


def notify(postgres: PostgresDatabase) -> None:
    postgres.execute(f"NOTIFY {postgres.schema}")


def begin_to_wait(threads: ThreadPoolExecutor, link: PostgresLink) -> Future[bool]:
    waiting = threads.submit(link.wait_for_notification, LONG_MS)
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    return waiting


def test_a_notification_that_waits_in_the_socket_is_taken(
    postgres: PostgresDatabase, link: PostgresLink
) -> None:
    notify(postgres)
    assert link.wait_for_notification(LONG_MS)
    assert not link.wait_for_notification(0)


def test_a_notification_that_came_with_an_answer_ends_the_wait_at_once(
    postgres: PostgresDatabase, link: PostgresLink
) -> None:
    notify(postgres)
    # What the server has to tell comes before the answer to the next statement.
    assert link.execute("SELECT 1", ()) == [(1,)]
    started = time.monotonic()
    assert link.wait_for_notification(LONG_MS)
    assert time.monotonic() - started < LONG_MS / 1000 / 2


def test_waiting_for_nothing_wakes_nobody(link: PostgresLink) -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD)
    started = time.monotonic()
    assert not link.wait_for_notification(1500)
    assert time.monotonic() - started >= 1.45
    after = resource.getrusage(resource.RUSAGE_THREAD)
    # A wake each 100 ms would be 15.
    assert after.ru_nvcsw - before.ru_nvcsw < 8


def test_a_notification_ends_a_wait_that_has_begun(
    postgres: PostgresDatabase, link: PostgresLink
) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = begin_to_wait(threads, link)
        notify(postgres)
        assert waiting.result(LONG_MS / 1000 / 2)


def test_a_server_that_goes_ends_a_wait_that_has_begun(postgres: PostgresDatabase) -> None:
    with ThreadPoolExecutor(1) as threads:
        with TcpProxy(postgres.server.port) as proxy:
            link = link_to(postgres, proxy.dsn(postgres.dsn))
            with link.lock:
                link.ensure()
            waiting = begin_to_wait(threads, link)
        with pytest.raises(StoreUnavailable):
            waiting.result(LONG_MS / 1000 / 2)
