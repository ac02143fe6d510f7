"""Calls of a cell's services, CellAdmin and CellOperations: gRPC over mutual TLS.

    with cell_admin(cell) as admin:
        answer = admin.Apply(request)                       any broker of the cell
    with cell_operations(cell, endpoint) as operations:
        answer = operations.DescribeGroup(request)          this broker, and no other

A call is the stub's, and raises CellError alone. It goes to the endpoints in order, those last
that did not answer a moment ago; from one that does not answer it goes to the next, as long as its
time is not over. All calls may be repeated so but Produce, which goes to one broker.

A stream ends without an error when its time is over, if it has had a response. A broker that has
given none in that time does not answer.

Channels are kept for the process, are shared by its threads, and are made anew when a file of the
certificates has changed, and in a process that was forked.

Bounds: CHANNELS_MAX channels; CALL_TIMEOUT_S for a call, however many brokers it goes to;
CONNECT_TIMEOUT_MS for an address that does not answer; MESSAGE_BYTES_MAX for an answer.

Deliberately absent: what is asked, and when it is asked again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import grpc
from django.conf import settings

from control_plane.cells.models import Cell
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub

CALL_TIMEOUT_S: Final = 25.0
CONNECT_TIMEOUT_MS: Final = 3_000
RECONNECT_MS_MAX: Final = 2_000
MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
CHANNELS_MAX: Final = 256
# For how long a broker that did not answer is asked after the others.
SET_ASIDE_S: Final = 10.0

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # How long a connection may take to be made, and how soon it is tried again.
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
)
_STREAMS: Final = frozenset({"Watch", "ReadUsage"})
_NOT_REPEATED: Final = frozenset({"Produce"})
_NO_ANSWER: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class CellError(Exception):
    """A call that came to nothing; `code` is gRPC's."""

    def __init__(self, code: grpc.StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class CellUnavailable(CellError):
    """No broker has answered. Whether one has done it is not known."""


class CellRefused(CellError):
    """A broker has answered with a status: the same call gets it again."""


class _Pool:
    """The channels of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: Sequence[tuple[int, int, int]] = ()
        self._credentials: grpc.ChannelCredentials | None = None
        # The one that was used last is the last.
        self._channels: dict[str, grpc.Channel] = {}
        self._set_aside_until_s: dict[str, float] = {}

    def channel(self, endpoint: str) -> grpc.Channel:
        """Raises CellUnavailable when the certificates cannot be read."""
        with self._lock:
            credentials = self._read_credentials()
            channel = self._channels.pop(endpoint, None)
            if channel is None:
                channel = grpc.secure_channel(endpoint, credentials, _OPTIONS)
            self._channels[endpoint] = channel
            if len(self._channels) > CHANNELS_MAX:
                # Whoever uses it holds it, and it is closed with its last reference.
                del self._channels[next(iter(self._channels))]
            return channel

    def in_order(self, endpoints: Sequence[str]) -> list[str]:
        """The endpoints, those last that did not answer a moment ago."""
        now_s = time.monotonic()
        with self._lock:
            until_s = self._set_aside_until_s
            return sorted(endpoints, key=lambda endpoint: until_s.get(endpoint, 0.0) > now_s)

    def set_aside(self, endpoint: str) -> None:
        now_s = time.monotonic()
        with self._lock:
            over = [one for one, until_s in self._set_aside_until_s.items() if until_s <= now_s]
            for one in over:
                del self._set_aside_until_s[one]
            self._set_aside_until_s[endpoint] = now_s + SET_ASIDE_S

    def _read_credentials(self) -> grpc.ChannelCredentials:
        names = ("CELL_ADMIN_TLS_CA", "CELL_ADMIN_TLS_KEY", "CELL_ADMIN_TLS_CERTIFICATE")
        paths = [Path(getattr(settings, name)) for name in names if getattr(settings, name)]
        if len(paths) != len(names):
            raise _unavailable(f"no certificate for calls of cells: set {', '.join(names)}")
        try:
            stamps = [
                (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                for stat in (path.stat() for path in paths)
            ]
            if self._credentials is None or stamps != self._stamps:
                contents = [path.read_bytes() for path in paths]
                self._credentials = grpc.ssl_channel_credentials(*contents)
                self._stamps = stamps
                self._channels.clear()
        except OSError as error:
            raise _unavailable(f"{error.filename}: {error.strerror}") from error
        return self._credentials


_pool = _Pool()
# What a process has from the one that it was forked from. gRPC's channels do not work there, and
# closing them would wait for threads that are not there either.
_forsaken: list[_Pool] = []


def _after_fork() -> None:
    global _pool
    _forsaken.append(_pool)
    _pool = _Pool()


os.register_at_fork(after_in_child=_after_fork)


class _Stream:
    """Responses as they come, for as long as its caller wants them."""

    def __init__(self, call: Any, channel: grpc.Channel, endpoint: str) -> None:
        self._call = call
        self._channel = channel
        self._endpoint = endpoint
        self._has_response = False
        self._is_cancelled = False

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Any:
        try:
            response = next(self._call)
        except grpc.RpcError as error:
            if self._is_over(error.code()):
                raise StopIteration from None
            raise _error_of(error, self._endpoint) from error
        self._has_response = True
        return response

    def cancel(self) -> None:
        self._is_cancelled = True
        self._call.cancel()

    def _is_over(self, code: grpc.StatusCode) -> bool:
        if code is grpc.StatusCode.CANCELLED:
            return self._is_cancelled
        return code is grpc.StatusCode.DEADLINE_EXCEEDED and self._has_response


class _Caller:
    """The stub of a service, at one of some endpoints."""

    def __init__(self, stub: Any, endpoints: Sequence[str]) -> None:
        self._stub = stub
        self._endpoints = endpoints

    def __getattr__(self, method: str) -> Any:
        return partial(self._begin if method in _STREAMS else self._call, method)

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        deadline_s = time.monotonic() + (CALL_TIMEOUT_S if timeout is None else timeout)
        endpoints = _pool.in_order(self._endpoints)
        if method in _NOT_REPEATED:
            endpoints = endpoints[:1]
        failures: list[CellError] = []
        for place, endpoint in enumerate(endpoints):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            channel = _pool.channel(endpoint)
            call = getattr(self._stub(channel), method)
            try:
                return call(request, timeout=left_s / (len(endpoints) - place))
            except grpc.RpcError as error:
                failure = _error_of(error, endpoint)
                if isinstance(failure, CellRefused):
                    raise failure from error
                failures.append(failure)
        if not failures:
            raise _unavailable("the cell has no address of CellAdmin")
        raise CellUnavailable(failures[-1].code, "; ".join(each.detail for each in failures))

    def _begin(self, method: str, request: Any, timeout: float | None = None) -> _Stream:
        if not self._endpoints:
            raise _unavailable("the cell has no address of CellAdmin")
        endpoint = _pool.in_order(self._endpoints)[0]
        channel = _pool.channel(endpoint)
        call = getattr(self._stub(channel), method)(request, timeout=timeout)
        return _Stream(call, channel, endpoint)


def _error_of(error: grpc.RpcError, endpoint: str) -> CellError:
    code, detail = error.code(), error.details() or ""
    if code not in _NO_ANSWER:
        return CellRefused(code, detail)
    _pool.set_aside(endpoint)
    return CellUnavailable(code, f"{endpoint}: {detail or code.name}")


def _unavailable(detail: str) -> CellUnavailable:
    return CellUnavailable(grpc.StatusCode.UNAVAILABLE, detail)


def endpoints_of(cell: Cell) -> list[str]:
    """`host:port` of its brokers' CellAdmin, in the operator's order."""
    return [str(endpoint) for endpoint in cell.admin_endpoints]


def set_aside(endpoint: str) -> None:
    """Ask the others first for a while: what this one says is not of use."""
    _pool.set_aside(endpoint)


@contextmanager
def cell_admin(cell: Cell, endpoint: str | None = None) -> Iterator[CellAdminStub]:
    """CellAdmin of a cell, or of its broker at an endpoint. Calls raise CellError."""
    yield cast(CellAdminStub, _caller(CellAdminStub, cell, endpoint))


@contextmanager
def cell_operations(cell: Cell, endpoint: str | None = None) -> Iterator[CellOperationsStub]:
    """CellOperations likewise. A stream begins at one broker, and raises CellError while it is
    read; whoever goes on begins another one, which goes to the next."""
    yield cast(CellOperationsStub, _caller(CellOperationsStub, cell, endpoint))


class _Cancellable(Protocol):
    def cancel(self) -> Any: ...


@contextmanager
def ending_after(stream: _Cancellable, duration_s: float) -> Iterator[None]:
    """Let a stream end after so long, counted from now, if it has not by then."""
    timer = threading.Timer(duration_s, stream.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _caller(stub: Any, cell: Cell, endpoint: str | None) -> _Caller:
    return _Caller(stub, endpoints_of(cell) if endpoint is None else [endpoint])
