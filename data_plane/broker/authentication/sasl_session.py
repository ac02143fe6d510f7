"""One connection's SASL authentication: from the handshake to the outcome, with all its delays.

    SaslHandshake ─► mechanism? ─► turn of the budget ─► answered: the mechanisms
    tokens        ─► exchange ─► a challenge, at once
                              ├► a claim: checked off the loop
                              └► the end: told when (address, login) need not wait any more

A client sends its tokens within SaslAuthenticate, or bare after a handshake of version 0; the
outcome is the same. Error codes, messages and what closes the connection are Apache Kafka's.

Invariants
- While a token is being judged nothing else of its connection is handled: answers are exclusive.
- Whoever has failed is told so after connection.failed.authentication.delay.ms at the earliest, and
  then closed. A session that has failed or that was overtaken by a new handshake judges no token.
- A client that authenticates anew remains the same principal of the same tenant.
- Whose tenant has as many connections as it may have is told so when it is known who speaks, and
  then closed; one that authenticates anew has its connection already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from data_plane.broker.authentication.plain import PLAIN, PlainExchange
from data_plane.broker.authentication.sasl_exchange import (
    Challenge,
    Claim,
    Outcome,
    Proven,
    Refused,
    SaslExchange,
)
from data_plane.broker.authentication.scram import ScramExchange
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.principal import Principal
from data_plane.wire.errors import ErrorCode

if TYPE_CHECKING:
    from data_plane.broker.authentication.authentication import Authentication

# A client-first message has a name and a nonce; a PLAIN token a name and a password.
TOKEN_BYTES_MAX = 16_384
LOGGED_LOGIN_CHARACTERS_MAX = 64
# How long who is proven, and has no place, waits until he is told: he comes again after it, with a
# whole handshake, and all clients of his tenant that find none do.
TURNED_AWAY_MS = 2_000


class Told(NamedTuple):
    """What the client is told of a token. `message` None: `token` is the server's next one."""

    token: bytes = b""
    message: str | None = None
    error: ErrorCode = ErrorCode.NONE
    session_lifetime_ms: int = 0


OnTold = Callable[[Told], None]


class SaslSession:
    """That of one handshake."""

    def __init__(
        self, authentication: Authentication, connection: ConnectionInfo, mechanism: str
    ) -> None:
        self.mechanism = mechanism
        self._authentication = authentication
        self._connection = connection
        # Also when the last session is over, and the gate shut: it remains who it was.
        self.is_again = authentication.mechanism_of(connection) is not None
        # Whether it was let in.
        self.is_done = False
        self._is_over = False
        self._exchange: SaslExchange
        if mechanism == PLAIN:
            self._exchange = PlainExchange()
        else:
            self._exchange = ScramExchange(
                mechanism,
                authentication.find,
                authentication.decoys.for_mechanism,
                authentication.new_nonce(),
            )

    def take(self, token: bytes, now_ms: int, on_told: OnTold) -> None:
        """Judge the client's next token. `on_told` is called once, now or later."""
        outcome: Outcome
        if self._is_over:
            outcome = Refused("a token after the end of the exchange")
        elif len(token) > TOKEN_BYTES_MAX:
            outcome = Refused(f"a token of {len(token)} bytes, allowed are {TOKEN_BYTES_MAX}")
        else:
            outcome = self._exchange.take(token)
        if isinstance(outcome, Challenge):
            on_told(Told(outcome.token))
            return
        self._is_over = True
        if isinstance(outcome, Claim):
            self._check(outcome, now_ms, on_told)
        else:
            self._conclude(outcome, now_ms, on_told)

    def _check(self, claim: Claim, now_ms: int, on_told: OnTold) -> None:
        authentication, connection = self._authentication, self._connection
        credential = authentication.find(claim.login)
        if credential is not None and not credential.verifiers:
            # It is proved by a certificate, and no password is right.
            credential = None

        def checked(is_right: bool | None) -> None:
            outcome: Outcome
            if connection.closed:
                return
            if is_right is None:
                connection.close("too many passwords wait to be checked")
                return
            if is_right and credential is not None:
                outcome = Proven(credential, b"")
            else:
                outcome = Refused(
                    "wrong login or password",
                    "Authentication failed: Invalid username or password",
                )
            # Others may have failed while it was checked.
            self._conclude(outcome, authentication.now_ms(), on_told)

        def check(now_ms: int) -> None:
            authentication.passwords.check(
                connection.host, claim.login, credential, claim.password, checked
            )

        # Whoever guesses waits before there is work for him.
        self._when_it_need_not_wait(now_ms, check)

    def _conclude(self, outcome: Proven | Refused, now_ms: int, on_told: OnTold) -> None:
        """Have the end of the exchange told when it may be."""
        self._when_it_need_not_wait(now_ms, lambda now_ms: self._end(outcome, on_told, now_ms))

    def _when_it_need_not_wait(self, now_ms: int, then: Callable[[int], None]) -> None:
        """See FailureDelays."""
        delays = self._authentication.delays
        host, login = self._connection.host, self._exchange.login
        wait_ms = delays.begin(host, login, now_ms)
        if wait_ms is None:
            # Without a verdict: it may be the right password, of a client that tries again.
            self._connection.close("too many attempts of this login wait")
            return
        if wait_ms == 0:
            then(now_ms)
            return

        def waited(now_ms: int) -> None:
            delays.end(host, login)
            if not self._connection.closed:
                then(now_ms)

        self._authentication.timers.schedule(now_ms + wait_ms, waited)

    def _end(self, outcome: Proven | Refused, on_told: OnTold, now_ms: int) -> None:
        if isinstance(outcome, Proven):
            refused = self._why_not(outcome)
            if refused is None:
                on_told(self._let_in(outcome, now_ms))
                return
            outcome = refused
        self._refuse(outcome, on_told, now_ms)

    def _why_not(self, proven: Proven) -> Refused | None:
        """Why the credential is not taken although it was proven."""
        connection, credential = self._connection, proven.credential
        if self._authentication.find(credential.login) != credential:
            return Refused("the credential has changed meanwhile")
        if not credential.may_come_from(connection.host):
            return Refused("the address is in none of the credential's networks")
        reason = self._authentication.why_not_served(credential)
        if reason:
            return Refused(reason)
        before, now = connection.principal, Principal("User", credential.principal)
        if self.is_again and (before, connection.namespace) != (now, credential.tenant):
            return Refused(
                "another principal",
                "Cannot change principals during re-authentication from "
                f"{before.kind}.{before.name}: {now.kind}.{now.name}",
            )
        if not self.is_again:
            reason = self._authentication.why_no_connection(credential.tenant)
            if reason:
                # Clients take it for a reason to come again later, not for a wrong password.
                return Refused(reason, reason, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return None

    def _let_in(self, proven: Proven, now_ms: int) -> Told:
        credential, connection = proven.credential, self._connection
        self._authentication.delays.succeeded(connection.host, credential.login)
        connection.take_token = None
        self.is_done = True
        connection.authenticate(Principal("User", credential.principal), credential.tenant)
        if not self.is_again:
            self._authentication.let_in(connection)
        lifetime_ms = self._authentication.opened(connection, credential, self.mechanism, now_ms)
        return Told(proven.token, session_lifetime_ms=lifetime_ms)

    def _refuse(self, refused: Refused, on_told: OnTold, now_ms: int) -> None:
        authentication, connection, login = (
            self._authentication,
            self._connection,
            self._exchange.login,
        )
        shown = login[:LOGGED_LOGIN_CHARACTERS_MAX]
        delay_ms = authentication.failure_delay_ms
        if refused.error is ErrorCode.SASL_AUTHENTICATION_FAILED:
            if login:
                authentication.delays.failed(connection.host, login, now_ms)
            authentication.failures_count += 1
            outcome = f"{self.mechanism} authentication of {shown!r} failed"
        else:
            outcome = f"{shown!r} is turned away"
            delay_ms = max(delay_ms, TURNED_AWAY_MS)
        connection.fail(f"{outcome}: {refused.reason}")
        during = "re-authentication" if self.is_again else "authentication"
        message = refused.message or (
            f"Authentication failed during {during} due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )
        told = Told(message=message, error=refused.error)
        authentication.timers.schedule(now_ms + delay_ms, partial(_tell, on_told, told))


def _tell(on_told: OnTold, told: Told, now_ms: int) -> None:
    on_told(told)
