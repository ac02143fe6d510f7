"""PLAIN (RFC 4616): login and password in one token. The password is checked elsewhere.

    client     [authorization id] NUL login NUL password

Deliberately absent: whether a listener may offer it; a password is only safe within TLS.
"""

from __future__ import annotations

from data_plane.broker.authentication.sasl_exchange import (
    OTHER_AUTHORIZATION_ID,
    TOO_LONG_LOGIN,
    Claim,
    Outcome,
    Refused,
)
from data_plane.cell.credentials import LOGIN_CHARACTERS_MAX

PLAIN = "PLAIN"


class PlainExchange:
    """See SaslExchange."""

    def __init__(self) -> None:
        self.login = ""
        self._is_over = False

    def take(self, token: bytes) -> Outcome:
        if self._is_over:
            return Refused("a token after the last one")
        self._is_over = True
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            return Refused("the token is not UTF-8")
        if len(parts) != 3:
            return Refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, login, password = parts
        if not login:
            return Refused("Authentication failed: username not specified")
        if not password:
            return Refused("Authentication failed: password not specified")
        if len(login) > LOGIN_CHARACTERS_MAX:
            return Refused(TOO_LONG_LOGIN)
        self.login = login
        if authorization_id not in ("", login):
            return Refused("another authorization id", OTHER_AUTHORIZATION_ID)
        return Claim(login, password.encode())
