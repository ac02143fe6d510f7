"""Clients that are known by their certificates (mutual TLS): who they are, and until when.

The handshake has proved that the client has the key, and that an authority of the listener's has
signed the certificate. Which principal of which tenant that is says the metadata: a credential
whose login is made of the authority's fingerprint and a name of the certificate
(`cell.credentials.certificate_login`). What the certificate says of its subject is of no account,
so an authority that signs for one tenant cannot speak for another one.

A connection ends with its certificate, and with the credential.

Deliberately absent: TLS, and the delays of SASL. A certificate cannot be guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.principal import Principal
from data_plane.cell.credentials import Credential, certificate_login

if TYPE_CHECKING:
    from data_plane.broker.authentication.authentication import Authentication

# In place of a SASL mechanism's name.
CERTIFICATE = "certificate"
# Names of a certificate that are looked for; one with more is not a client's.
NAMES_MAX = 100
SHOWN_NAMES = 3


class PeerCertificate(NamedTuple):
    """What a handshake has proved. `authority` is the SHA-256 of the root's certificate, as hex;
    `names` are as `DNS:client.example`, `URI:…`, `email:…` or `IP:…`."""

    authority: str
    names: tuple[str, ...]
    not_after_ms: int


def log_in(
    authentication: Authentication,
    connection: ConnectionInfo,
    certificate: PeerCertificate,
    now_ms: int,
) -> str:
    """Let the client in whom this certificate stands for; or why not."""
    found = _credential_of(authentication, certificate)
    reason = found if isinstance(found, str) else _why_not(authentication, connection, found)
    if reason or isinstance(found, str):
        authentication.failures_count += 1
        return f"certificate authentication failed: {reason}"
    # There is no answer that could say it: the connection is closed.
    refused = authentication.why_no_connection(found.tenant)
    if refused:
        return refused
    connection.authenticate(Principal("User", found.principal), found.tenant)
    authentication.let_in(connection)
    if not connection.closed:
        authentication.opened(
            connection, found, CERTIFICATE, now_ms, certificate_ends_ms=certificate.not_after_ms
        )
    return ""


def _credential_of(
    authentication: Authentication, certificate: PeerCertificate
) -> Credential | str:
    names = certificate.names
    if len(names) > NAMES_MAX:
        return f"it has {len(names)} names, allowed are {NAMES_MAX}"
    found: Credential | None = None
    for name in names:
        credential = authentication.find(certificate_login(certificate.authority, name))
        if credential is None:
            continue
        whose = (credential.tenant, credential.principal)
        if found is not None and whose != (found.tenant, found.principal):
            return f"{credential.login!r} is somebody else than {found.login!r}"
        found = found or credential
    if found is None:
        shown = ", ".join(name[:64] for name in names[:SHOWN_NAMES])
        return f"none of its names is registered for {certificate.authority}: {shown!r}"
    return found


def _why_not(
    authentication: Authentication, connection: ConnectionInfo, credential: Credential
) -> str:
    if not credential.may_come_from(connection.host):
        return "the address is in none of the credential's networks"
    return authentication.why_not_served(credential)
