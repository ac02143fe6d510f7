"""One request frame in, the buffers of its response out.

    frame = api_key i16 | api_version i16 | correlation_id i32 | client_id | (tags) | body

The hot APIs get their bytes as they are (`HandlerEntry.raw_handler`); the others go through the
generated codecs: decode, handler, encode. Requests of very many items are decoded and encoded in a
thread, and so are answers of very many items (`LongAnswer`).

What becomes of errors, as in Apache Kafka:
- a frame that cannot be read, an API or a version that is not served: the connection is closed;
  except ApiVersions, which is answered in version 0 with UNSUPPORTED_VERSION and its own versions
  (KIP-511), so that the client can ask again;
- a request of a connection that is not authenticated, for an API that strangers may not use: the
  connection is closed;
- a handler that fails: UNKNOWN_SERVER_ERROR where the response has a place for it at its top, else
  the connection is closed; logged with its traceback in both cases.

Deliberately absent: the order of answers and back-pressure, which the connection keeps.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable
from typing import Any

from data_plane.broker.request.api import (
    Buffer,
    CloseConnection,
    ConnectionInfo,
    Deferred,
    Handler,
    HandlerEntry,
    KeptRequest,
    LongAnswer,
    RequestContext,
    Slices,
)
from data_plane.broker.request.frames import API_VERSIONS_KEY, encode_frame, new_response
from data_plane.broker.request.guards import guarded
from data_plane.broker.request.large_requests import LargeRequest
from data_plane.broker.request.throttling import ASK_THEMSELVES, throttle_frames, throttle_message
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode, MalformedFrame, WireError
from data_plane.wire.primitives import Reader
from data_plane.wire.registry import ApiSpec

_HEADER = struct.Struct(">hhih")

Frames = list[Buffer] | list[bytearray]
Observe = Callable[[int, int], None]


class Dispatcher:
    """Turns frames into handler calls. One per broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._handlers = services.handlers
        self._entries = services.handlers.by_key
        self._names = services.namespaces.names
        self._request_bytes_max = services.loop_bounds.request_bytes_max
        # Client ids repeat with every request of a connection; decoding each one once is enough.
        self._client_ids: dict[bytes, str] = {}
        self._requests_by_api = services.counters.requests_by_api
        # Raised by requests that may have moved a component's next deadline.
        self.has_called_handlers = False
        # Of the request that was handled last.
        self.last_api_key = -1
        # While the time that a request takes is measured, and whose it is.
        self._is_measuring = False
        self._measured_context: RequestContext | None = None

    def dispatch(
        self,
        connection: ConnectionInfo,
        buf: bytearray | memoryview,
        position: int,
        end: int,
        now_ms: int,
    ) -> Frames | Deferred[Any] | None:
        """Handle the request in `buf[position:end]` (without its size).

        Returns the response's buffers, a Deferred of them, or None when there is no answer.
        Raises CloseConnection (with the reason for the log) or WireError when the connection
        must be closed."""
        if self._services.quotas.is_active and not self._is_measuring:
            return self._measured(connection, buf, position, end, now_ms)
        is_stranger = not connection.gate.is_authenticated
        if is_stranger and connection.take_token is not None:
            token: Deferred[Any] = connection.take_token(bytes(buf[position:end]), now_ms)
            return token
        if end - position < 10:
            raise MalformedFrame(f"request of {end - position} bytes is shorter than its header")
        api_key, version, correlation_id, client_id_size = _HEADER.unpack_from(buf, position)
        entry = self._entries.get(api_key)
        if entry is None:
            raise CloseConnection(f"request for API {api_key}, which is not served here")
        spec = entry.spec
        if is_stranger and not entry.is_for_strangers:
            raise CloseConnection(f"{spec.name} before authentication")
        self._requests_by_api[api_key] = self._requests_by_api.get(api_key, 0) + 1
        self.last_api_key, position = api_key, position + 10
        client_id: str | None = None
        if client_id_size >= 0:
            if position + client_id_size > end:
                raise MalformedFrame("client id reaches beyond the request")
            raw_client_id = bytes(buf[position : position + client_id_size])
            client_id = self._client_ids.get(raw_client_id)
            if client_id is None:
                client_id = self._remember_client_id(raw_client_id)
            position += client_id_size
        if not entry.min_version <= version <= entry.max_version:
            return self._unsupported_version(entry, spec, version, correlation_id)
        if version >= spec.first_flexible_version:
            if position < end and buf[position] == 0:
                position += 1
            else:
                reader = Reader(buf, position, end)
                reader.skip_tagged_fields()
                position = reader.pos
        try:
            names = self._names[connection.namespace]
        except KeyError:
            raise CloseConnection(f"tenant {connection.namespace} is no more") from None
        if not (is_stranger or connection.is_inter_broker):
            names.use.requests += 1
        asked = api_key, version, correlation_id, client_id
        context = RequestContext(*asked, connection, names, is_stranger)
        if self._is_measuring:
            self._measured_context = context
        if entry.raw_handler is not None:
            try:
                answer = entry.raw_handler(self._services, context, buf, position, end, now_ms)
            except (WireError, CloseConnection):
                raise
            except Exception as error:
                raise self._failed(context, error) from error
            return self._throttled(context, answer) if self._services.quotas.is_active else answer
        if entry.slices is not None and end - position > self._request_bytes_max:
            later = self._call_in_slices(entry, entry.slices, spec, context, buf, position, end)
            return self._throttled(context, later) if self._services.quotas.is_active else later
        return self._call(entry, spec, context, Reader(buf, position, end), now_ms)

    def _measured(
        self,
        connection: ConnectionInfo,
        buf: bytearray | memoryview,
        position: int,
        end: int,
        now_ms: int,
    ) -> Frames | Deferred[Any] | None:
        """As `dispatch`; the time that it takes is counted. While a quota manager is active."""
        quotas = self._services.quotas
        self._is_measuring = True
        begun_ns = quotas.clock_ns()
        try:
            return self.dispatch(connection, buf, position, end, now_ms)
        finally:
            self._is_measuring = False
            context, self._measured_context = self._measured_context, None
            if context is not None and not (context.is_stranger or connection.is_inter_broker):
                quotas.record_handler_time(context, quotas.clock_ns() - begun_ns)

    def _throttled(
        self, context: RequestContext, answer: Frames | Deferred[Any] | None
    ) -> Frames | Deferred[Any] | None:
        """An answer that is encoded already, with its throttle time. While a quota manager is
        active."""
        if answer is None or context.api_key in ASK_THEMSELVES:
            return answer
        if not isinstance(answer, Deferred):
            throttle_frames(self._services, context, answer)
            return answer
        throttled: Deferred[Any] = Deferred(is_exclusive=answer.is_exclusive)
        answer.when_complete(
            lambda frames: throttled.complete(throttle_frames(self._services, context, frames))
        )
        return throttled

    def _call(
        self,
        entry: HandlerEntry,
        spec: ApiSpec,
        context: RequestContext,
        reader: Reader,
        now_ms: int,
    ) -> Frames | Deferred[Any] | None:
        request = spec.decode_request(reader, context.api_version)
        # Bytes behind the request are passed over, as Apache Kafka does: librdkafka 2 sends some
        # behind a Metadata request for all topics.
        handler = self._handler_of(entry, context)
        self.has_called_handlers = True
        try:
            response = handler(self._services, context, request, now_ms)
        except (WireError, CloseConnection):
            raise
        except Exception as error:
            self._log_failure(context, error)
            return [self._failure_frame(spec, context)]
        if isinstance(response, Deferred):
            return self._encode_later(spec, context, response)
        return [self._encode(spec, context, response)]

    def _failed(self, context: RequestContext, error: Exception) -> CloseConnection:
        self._log_failure(context, error)
        return CloseConnection(f"request failed: {error!r}")

    def _handler_of(self, entry: HandlerEntry, context: RequestContext) -> Handler:
        handler = entry.handler
        assert handler is not None
        if context.names.rights.is_open or context.connection.is_inter_broker:
            return handler
        return guarded(handler, self._handlers.guards.get(entry.api_key))

    def _call_in_slices(
        self,
        entry: HandlerEntry,
        slices: Slices,
        spec: ApiSpec,
        context: RequestContext,
        buf: bytearray | memoryview,
        position: int,
        end: int,
    ) -> Deferred[Any]:
        cut, merge = slices
        version = context.api_version
        responses: list[Any] = []

        def decode(kept: KeptRequest) -> list[Any]:
            reader = Reader(kept.buf, position - kept.shift, end - kept.shift)
            return cut(spec.decode_request(reader, version))

        def take(response: Any) -> None:
            if isinstance(response, LongAnswer):
                # The request as a whole holds the connection, too.
                response.held.release()
            responses.append(response)

        def handle(part: Any, now_ms: int) -> Deferred[Any] | None:
            handler = self._handler_of(entry, context)
            self.has_called_handlers = True
            try:
                response = handler(self._services, context, part, now_ms)
            except (WireError, CloseConnection):
                raise
            except Exception as error:
                raise self._failed(context, error) from error
            if not isinstance(response, Deferred):
                take(response)
                return None
            taken: Deferred[Any] = Deferred()

            def take_later(message: Any) -> None:
                take(message)
                taken.complete(message)

            response.when_complete(take_later)
            return taken

        def encode() -> list[bytearray]:
            whole, *more = (
                each.make() if isinstance(each, LongAnswer) else each for each in responses
            )
            for each in more:
                merge(whole, each)
            return [encode_frame(spec, version, context.correlation_id, whole)]

        kept = context.connection.keep(buf, position, end)
        return LargeRequest(self._services, context, kept, decode, handle, encode).deferred

    def _encode_later(
        self, spec: ApiSpec, context: RequestContext, response: Deferred[Any]
    ) -> Deferred[Frames]:
        frames: Deferred[Frames] = Deferred(is_exclusive=response.is_exclusive)

        def encode(message: Any) -> None:
            if isinstance(message, LongAnswer):
                self._encode_in_thread(spec, context, message, frames)
                return
            try:
                frame = self._encode(spec, context, message)
            except CloseConnection as close:
                context.connection.close(str(close))
            else:
                frames.complete([frame])

        response.when_complete(encode)
        return frames

    def _encode_in_thread(
        self, spec: ApiSpec, context: RequestContext, answer: LongAnswer, frames: Deferred[Frames]
    ) -> None:
        connection = context.connection

        def encode() -> bytearray | None:
            if connection.closed:
                return None
            version, correlation_id = context.api_version, context.correlation_id
            return encode_frame(spec, version, correlation_id, answer.make())

        def done(frame: bytearray | None, error: BaseException | None) -> None:
            if isinstance(error, Exception):
                self._log_failure(context, error)
                connection.close(f"response could not be encoded: {error!r}")
            elif frame is not None:
                if self._services.quotas.is_active:
                    throttle_frames(self._services, context, [frame])
                frames.complete([frame])
            answer.held.release()

        self._services.request_work.submit(context, encode, done)

    def _encode(self, spec: ApiSpec, context: RequestContext, response: Any) -> bytearray:
        throttle_message(self._services, context, response)
        try:
            return encode_frame(spec, context.api_version, context.correlation_id, response)
        except Exception as error:
            self._log_failure(context, error)
            raise CloseConnection(f"response could not be encoded: {error!r}") from error

    def _failure_frame(self, spec: ApiSpec, context: RequestContext) -> bytearray:
        """UNKNOWN_SERVER_ERROR, where the response has a top-level error code."""
        response = new_response(spec)
        if not hasattr(response, "error_code"):
            raise CloseConnection(f"{spec.name} failed and its response has no place to say so")
        response.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return self._encode(spec, context, response)

    def _unsupported_version(
        self, entry: HandlerEntry, spec: ApiSpec, version: int, correlation_id: int
    ) -> Frames:
        if spec.key != API_VERSIONS_KEY:
            raise CloseConnection(f"{spec.name} version {version} is not supported")
        response = new_response(spec)
        response.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
        response.api_keys = api_version_items([entry])
        return [encode_frame(spec, 0, correlation_id, response)]

    def _remember_client_id(self, raw: bytes) -> str:
        try:
            client_id = raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedFrame("client id is not UTF-8") from error
        if len(self._client_ids) >= CLIENT_IDS_MAX:
            self._client_ids.clear()
        if len(raw) <= CLIENT_ID_CACHED_BYTES_MAX:
            self._client_ids[raw] = client_id
        return client_id

    def _log_failure(self, context: RequestContext, error: Exception) -> None:
        self._services.counters.request_errors += 1
        self._services.log.error(
            "request_failed",
            api_key=context.api_key,
            api_version=context.api_version,
            peer=context.connection.peer,
            client_id=context.client_id,
            error=repr(error),
            traceback="".join(traceback.format_exception(error)),
        )


# The cache of decoded client ids holds at most these many, of at most this size.
CLIENT_IDS_MAX = 1024
CLIENT_ID_CACHED_BYTES_MAX = 256


def api_version_items(entries: list[HandlerEntry]) -> list[Any]:
    """What ApiVersions says of these entries."""
    from data_plane.wire.messages.api_versions_response import ApiVersion

    return [
        ApiVersion(
            api_key=int(entry.api_key),
            min_version=entry.advertised_min_version,
            max_version=entry.max_version,
        )
        for entry in entries
    ]
