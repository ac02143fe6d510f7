"""SaslHandshake (versions 0 and 1) and SaslAuthenticate (0 to 2), and tokens without a header.

After a handshake of version 0 a client sends its tokens as they are, each with its size before it,
and is answered so; older libraries do. After version 1 they come in SaslAuthenticate.

As in Apache Kafka: a listener without SASL answers ILLEGAL_SASL_STATE, and so does one whose
clients are authenticated for good; an unknown mechanism is answered with those that there are, and
the connection is closed; a token before the handshake closes it.
"""

from __future__ import annotations

import struct
from typing import Any

from data_plane.broker.authentication.sasl_session import SaslSession, Told
from data_plane.broker.request.api import (
    Buffer,
    CloseConnection,
    ConnectionInfo,
    Deferred,
    HandlerTable,
    RequestContext,
)
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from data_plane.wire.registry import ApiKey

HANDSHAKE_VERSIONS = 0, 1
AUTHENTICATE_VERSIONS = 0, 2
# The version after which tokens come in SaslAuthenticate.
FRAMED_TOKENS_VERSION = 1
MECHANISM_CHARACTERS_MAX = 64

_SIZE = struct.Struct(">i")


def handle_sasl_handshake(
    services: Services, context: RequestContext, request: SaslHandshakeRequest, now_ms: int
) -> SaslHandshakeResponse | Deferred[SaslHandshakeResponse]:
    connection = context.connection
    authentication = services.authentication
    before = authentication.mechanism_of(connection)
    is_final = before is not None and not authentication.may_authenticate_anew(connection)
    if not connection.sasl_mechanisms or is_final:
        return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
    mechanisms = list(connection.sasl_mechanisms)
    if connection.sasl is not None and not connection.sasl.is_done:
        raise CloseConnection("a second SaslHandshake")
    if authentication.is_too_soon(connection, now_ms):
        raise CloseConnection("authenticates anew too soon")
    deferred: Deferred[SaslHandshakeResponse] = Deferred(is_exclusive=True)
    if request.mechanism not in mechanisms or before not in (None, request.mechanism):
        shown = request.mechanism[:MECHANISM_CHARACTERS_MAX]
        connection.fail(f"SASL mechanism {shown!r} is not to be had")
        refusal = SaslHandshakeResponse(
            error_code=int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), mechanisms=mechanisms
        )
        services.timers.schedule(
            now_ms + authentication.failure_delay_ms, lambda _: deferred.complete(refusal)
        )
        return deferred
    if before is not None and context.api_version < FRAMED_TOKENS_VERSION:
        raise CloseConnection("authenticates anew without SaslAuthenticate")

    def start() -> None:
        connection.sasl = SaslSession(authentication, connection, request.mechanism)
        if context.api_version < FRAMED_TOKENS_VERSION:
            connection.take_token = _take_bare_tokens(connection)
        deferred.complete(SaslHandshakeResponse(mechanisms=mechanisms))

    budget = authentication.budget if before is None else authentication.renewals
    if not budget.begin(connection.host, lambda: not connection.closed, start, now_ms):
        raise CloseConnection("too many SASL handshakes wait")
    return deferred


def handle_sasl_authenticate(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest, now_ms: int
) -> SaslAuthenticateResponse | Deferred[SaslAuthenticateResponse]:
    connection = context.connection
    session: SaslSession | None = connection.sasl
    if session is None or session.is_done:
        if connection.gate.is_authenticated:
            return SaslAuthenticateResponse(
                error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
                error_message="SaslAuthenticate request received after successful authentication",
            )
        raise CloseConnection("SaslAuthenticate before SaslHandshake")
    deferred: Deferred[SaslAuthenticateResponse] = Deferred(is_exclusive=True)

    def told(what: Told) -> None:
        deferred.complete(_response(what))

    session.take(request.auth_bytes, now_ms, told)
    return deferred


def _response(told: Told) -> SaslAuthenticateResponse:
    if told.message is not None:
        return SaslAuthenticateResponse(error_code=int(told.error), error_message=told.message)
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=told.token, session_lifetime_ms=told.session_lifetime_ms
    )


def _take_bare_tokens(connection: ConnectionInfo) -> Any:
    """See `ConnectionInfo.take_token`. Who has failed is told nothing; the connection is closed."""

    def take(token: bytes, now_ms: int) -> Deferred[list[Buffer]]:
        deferred: Deferred[list[Buffer]] = Deferred(is_exclusive=True)

        def told(what: Told) -> None:
            if what.message is None:
                deferred.complete([bytearray(_SIZE.pack(len(what.token)) + what.token)])
            else:
                connection.close(what.message)

        connection.sasl.take(token, now_ms, told)
        return deferred

    return take


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.SASL_HANDSHAKE, *HANDSHAKE_VERSIONS, handle_sasl_handshake, is_for_strangers=True
    )
    table.register(
        ApiKey.SASL_AUTHENTICATE,
        *AUTHENTICATE_VERSIONS,
        handle_sasl_authenticate,
        is_for_strangers=True,
    )
