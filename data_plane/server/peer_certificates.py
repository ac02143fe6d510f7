"""What a TLS handshake has proved of a client's certificate."""

from __future__ import annotations

import hashlib
import ssl
import sys
from typing import Any, Final

from data_plane.broker.authentication.certificates import PeerCertificate

# As Python names them, and as credentials do. Other kinds are not looked at.
_KINDS: Final = {"DNS": "DNS", "URI": "URI", "email": "email", "IP Address": "IP"}


def certificate_of(tls: ssl.SSLObject) -> PeerCertificate | None:
    """None when the client has shown none, or was not asked. OpenSSL has verified the others."""
    fields: Any = tls.getpeercert()
    if not fields:
        return None
    names = []
    for kind, name in fields.get("subjectAltName", ()):
        if kind in _KINDS:
            # Names of hosts are the same in capitals.
            names.append(f"{_KINDS[kind]}:{name.lower() if kind == 'DNS' else name}")
    not_after_ms = int(ssl.cert_time_to_seconds(fields["notAfter"]) * 1000)
    authority = hashlib.sha256(_root_of(tls)).hexdigest()
    return PeerCertificate(authority, tuple(dict.fromkeys(names)), not_after_ms)


def _root_of(tls: ssl.SSLObject) -> bytes:
    """The certificate, as DER, of the trusted authority at the end of the verified chain."""
    if sys.version_info >= (3, 13):
        chain: list[bytes] = tls.get_verified_chain()
        return chain[-1]
    # What Python 3.13 made public.
    verified: Any = tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return bytes(verified[-1].public_bytes(2))
