"""What comes of a token: the outcomes of SASL exchanges, for all mechanisms.

An exchange is asked for the outcome of each token of its client, in order. After anything but a
Challenge it is over, and refuses what comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from data_plane.cell.credentials import LOGIN_CHARACTERS_MAX, Credential
from data_plane.wire.errors import ErrorCode

# Nothing is kept of such a login, which nobody can have.
TOO_LONG_LOGIN = f"the login has more than {LOGIN_CHARACTERS_MAX} characters"


class Challenge(NamedTuple):
    """The client has to answer this."""

    token: bytes


class Proven(NamedTuple):
    """It is known who speaks. The client is sent the token."""

    credential: Credential
    token: bytes


class Claim(NamedTuple):
    """A login and a password, to be checked elsewhere: that takes milliseconds."""

    login: str
    password: bytes


class Refused(NamedTuple):
    """`reason` is for the log. `message` is for the client, who is told nothing in particular when
    there is none: neither whether a user exists nor what was wrong. `error` is another one where
    who speaks has been proved, and may come again."""

    reason: str
    message: str | None = None
    error: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED


Outcome = Challenge | Proven | Claim | Refused

# The credential of a login; None when there is none.
FindCredential = Callable[[str], Credential | None]

OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslExchange(Protocol):
    """One attempt of a client, in one mechanism."""

    @property
    def login(self) -> str:
        """Whom it claims to be; "" before it has said so."""

    def take(self, token: bytes) -> Outcome:
        """The client's next token."""
