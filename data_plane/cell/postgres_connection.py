"""One connection to Postgres that is made when it is needed, and given up at the first doubt.

A call either gets its answer or raises StoreUnavailable within a bounded time, whatever broke: a
refused or silent host, a cut network, a stopped server, a lock that is not let go of. Nothing is
tried twice here; the next call connects again, unless the last attempt failed a moment ago.

Invariants
- After any error the connection is closed: whether the server still works on the statement cannot
  be told, and a late answer must not be taken for that of a later statement.
- One statement is one transaction (autocommit), so none is left open on the server.

The clock and the locks come from outside or from `threading`; who runs in which thread is decided
by the owner, who holds `lock` around everything.
"""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from data_plane.cell.metadata_store import StoreError, StoreUnavailable

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 1000
# How long an answer may take to come back, which is all that is known of a server that is stopped
# or cut off.
REPLY_TIMEOUT_MS = 4000
# The share of it that the server may spend on a statement, waiting for locks included: a server
# that can say what is wrong should.
STATEMENT_TIMEOUT_SHARE = 0.75
# libpq knows whole seconds, and nothing below two.
CONNECT_TIMEOUT_S = 2

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")

_RV = TypeVar("_RV")
Connection = psycopg.Connection[Any]
Row = Sequence[Any]


class _TimedConnection(psycopg.Connection[Any]):
    """A connection whose every wait for the server has an end."""

    reply_timeout_s: float

    def wait(self, gen: PQGen[_RV], interval: float = 0.1, timeout: float | None = None) -> _RV:
        return super().wait(gen, interval, self.reply_timeout_s if timeout is None else timeout)


class PostgresLink:
    """One connection, made again after it was lost. Everything but `lock` needs `lock` held."""

    def __init__(
        self,
        dsn: str,
        schema: str,
        clock_ms: Callable[[], int],
        on_connect: Callable[[Connection], None],
        on_return: Callable[[], None],
        reply_timeout_ms: int,
    ) -> None:
        """`on_connect` runs on each new connection; what it raises keeps it from being used.
        `on_return` tells that connecting has worked again."""
        self.lock = threading.Lock()
        self._parameters = connection_parameters(dsn, schema, reply_timeout_ms)
        self._reply_timeout_ms = reply_timeout_ms
        self._clock_ms = clock_ms
        self._on_connect = on_connect
        self._on_return = on_return
        self._connection: _TimedConnection | None = None
        self._failure: StoreError | None = None
        self._backoff_ms = 0
        self._retry_at_ms = 0
        self._is_closed = False

    def ensure(self) -> None:
        """Connect unless there is a connection. Raises StoreUnavailable and whatever `on_connect`
        does; the last failure once more while it is too recent for another attempt."""
        if self._connection is not None:
            return
        if self._is_closed:
            raise StoreUnavailable("this store has been closed")
        if self._failure is not None and self.backoff_ms() > 0:
            raise self._failure.with_traceback(None)
        try:
            self._connection = self._connect()
        except StoreError as error:
            self._failure = error
            self._backoff_ms = min(BACKOFF_MAX_MS, max(BACKOFF_FIRST_MS, 2 * self._backoff_ms))
            self._retry_at_ms = self._clock_ms() + self._backoff_ms
            raise
        is_back = self._failure is not None
        self._failure = None
        self._backoff_ms = 0
        if is_back:
            self._on_return()

    def _connect(self) -> _TimedConnection:
        try:
            connection = _TimedConnection.connect(autocommit=True, **self._parameters)
        except psycopg.Error as error:
            raise StoreUnavailable(f"connecting to the metadata store: {error}") from error
        connection.reply_timeout_s = self._reply_timeout_ms / 1000
        try:
            self._on_connect(connection)
        except psycopg.Error as error:
            connection.close()
            raise StoreUnavailable(f"opening the metadata store: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def execute(
        self,
        statement: LiteralString,
        values: Sequence[object],
        reply_timeout_ms: int | None = None,
    ) -> list[Row]:
        """Run one statement; its rows. Raises StoreUnavailable, after which it is unknown whether
        the statement took effect."""
        self.ensure()
        assert self._connection is not None
        self._connection.reply_timeout_s = (reply_timeout_ms or self._reply_timeout_ms) / 1000
        try:
            return self._connection.execute(statement, values).fetchall()
        except psycopg.Error as error:
            self.drop()
            raise StoreUnavailable(f"the metadata store: {error}") from error

    def wait_for_notification(self, timeout_ms: int) -> bool:
        """Whether one came, of those that `on_connect` has listened to. False, too, when the server
        had something else to say before the time was over."""
        self.ensure()
        connection = self._connection
        assert connection is not None
        try:
            # One that came along with the answer to a statement has left the socket already.
            if _has_notification(connection):
                return True
            # psycopg's own wait wakes every 100 ms, and spins through the last millisecond.
            _wait_until_readable(connection, timeout_ms)
            return _has_notification(connection)
        except psycopg.Error as error:
            self.drop()
            raise StoreUnavailable(f"the metadata store: {error}") from error

    def drop(self) -> None:
        """Close the connection; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection for good."""
        self._is_closed = True
        self.drop()

    def retry_now(self) -> None:
        """Another link has reached the database. Needs no lock."""
        self._retry_at_ms = self._clock_ms()

    def backoff_ms(self) -> int:
        """How long no new connection is tried."""
        return 0 if self._failure is None else max(0, self._retry_at_ms - self._clock_ms())


def _has_notification(connection: Connection) -> bool:
    with closing(connection.notifies(timeout=0, stop_after=1)) as notifications:
        return next(notifications, None) is not None


def _wait_until_readable(connection: Connection, timeout_ms: int) -> None:
    """A server that has gone makes its connection readable, too."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    poller.poll(timeout_ms)


def connection_parameters(
    dsn: str, schema: str, reply_timeout_ms: int = REPLY_TIMEOUT_MS
) -> dict[str, Any]:
    """libpq's parameters: those of `dsn`, and what this store relies on. Raises ValueError."""
    if _SCHEMA_NAME.fullmatch(schema) is None:
        raise ValueError(f"{schema!r} is no name for a schema: small letters, digits and _ only")
    try:
        parameters: dict[str, Any] = dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # The error quotes what it could not understand, which may be the password.
        raise ValueError("the metadata store's address is not one that Postgres knows") from None
    defaults = {
        "application_name": "tidewheel",
        "connect_timeout": CONNECT_TIMEOUT_S,
        # A cut network is noticed within these, by whichever side has something to say.
        "tcp_user_timeout": reply_timeout_ms,
        "keepalives_idle": 1,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        # Of several hosts the one that is no standby.
        "target_session_attrs": "read-write",
    }
    settings = {
        "search_path": schema,
        "statement_timeout": int(reply_timeout_ms * STATEMENT_TIMEOUT_SHARE),
        "synchronous_commit": "on",
        # A commit must see what was committed while it waited for its turn.
        "default_transaction_isolation": r"read\ committed",
        "client_min_messages": "warning",
    }
    options = [f"-c {name}={value}" for name, value in settings.items()]
    own_options = " ".join([*filter(None, [parameters.get("options")]), *options])
    return {**defaults, **parameters, "options": own_options}
