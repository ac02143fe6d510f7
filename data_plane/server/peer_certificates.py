"""What a TLS handshake has proved of a client's certificate.

Sessions of TLS 1.2 are resumed: OpenSSL keeps them, and `ssl` has no way to forbid it. A resumed
handshake proves that the client is the one of the first handshake, and shows the certificate again,
but not the chain that was verified. So the authority is remembered by the session. A session is
known to one context only, so it never outlives the authorities that were trusted.

Bounds: SESSIONS_MAX, the oldest goes. A client whose session nobody remembers is refused.
"""

from __future__ import annotations

import hashlib
import ssl
import sys
from collections import OrderedDict
from typing import Any, Final

from data_plane.broker.authentication.certificates import PeerCertificate

# As Python names them, and as credentials do. Other kinds are not looked at.
_KINDS: Final = {"DNS": "DNS", "URI": "URI", "email": "email", "IP Address": "IP"}


# As many as OpenSSL keeps for a context.
SESSIONS_MAX: Final = 20_480


class UnknownSession(Exception):
    """Which authority stands behind a resumed session is not remembered."""


class PeerCertificates:
    """Those of one listener's clients."""

    def __init__(self) -> None:
        # By a session's id. There are few authorities, so each is one string.
        self._authorities: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._authorities)

    def of(self, tls: ssl.SSLObject) -> PeerCertificate | None:
        """None when the client has shown none, or was not asked. OpenSSL has verified the others.
        Raises UnknownSession."""
        fields: Any = tls.getpeercert()
        if not fields:
            return None
        names = []
        for kind, name in fields.get("subjectAltName", ()):
            if kind in _KINDS:
                # Names of hosts are the same in capitals.
                names.append(f"{_KINDS[kind]}:{name.lower() if kind == 'DNS' else name}")
        not_after_ms = int(ssl.cert_time_to_seconds(fields["notAfter"]) * 1000)
        authority = self._authority_of(tls)
        return PeerCertificate(authority, tuple(dict.fromkeys(names)), not_after_ms)

    def _authority_of(self, tls: ssl.SSLObject) -> str:
        session: Any = tls.session
        if tls.session_reused:
            authority = self._authorities.get(session.id)
            if authority is None:
                raise UnknownSession
            return authority
        authority = sys.intern(hashlib.sha256(_root_of(tls)).hexdigest())
        if tls.version() == "TLSv1.2":
            self._authorities[session.id] = authority
            if len(self._authorities) > SESSIONS_MAX:
                self._authorities.popitem(last=False)
        return authority


def _root_of(tls: ssl.SSLObject) -> bytes:
    """The certificate, as DER, of the trusted authority at the end of the verified chain."""
    if sys.version_info >= (3, 13):
        chain: list[bytes] = tls.get_verified_chain()
        return chain[-1]
    # What Python 3.13 made public.
    verified: Any = tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return bytes(verified[-1].public_bytes(2))
