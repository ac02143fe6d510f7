"""Who may speak with whom between brokers: on loopback anybody, elsewhere only by mutual TLS.

Both sides of a connection show a certificate that the cell's own authority has signed. The one that
listens takes any such certificate: who has one is a broker of this cell. The one that connects also
checks that the certificate names the host it has connected to (inter_broker_host of the image), so
that a broker's key serves to be that broker only.

    openssl req -x509 …                          the authority of the cell, once
    openssl x509 -req -CA … -extfile san.cnf     for each broker, subjectAltName = its host

What passes here are all tenants' records, unfiltered; so an address that others can reach is
refused without TLS, instead of trusting the network.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import NamedTuple

CERTIFICATE = "inter.broker.tls.certificate"
KEY = "inter.broker.tls.key"
AUTHORITY = "inter.broker.tls.ca"
LISTENER = "inter.broker.listener"


class TlsFiles(NamedTuple):
    """Paths of PEM files: this broker's certificate (with the chain) and key, and the certificate
    of the authority that signs those of the cell."""

    certificate: str
    key: str
    authority: str


class TlsContexts(NamedTuple):
    """For the listener and for the connections that this broker makes."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def find_problems(host: str, certificate: str, key: str, authority: str) -> list[tuple[str, str]]:
    """(property, reason) of what forbids to listen at `host`; files are given as "" when not set.
    Nothing is read."""
    files = {CERTIFICATE: certificate, KEY: key, AUTHORITY: authority}
    missing = [name for name, path in files.items() if not path]
    if not missing or (len(missing) == len(files) and is_loopback(host)):
        return []
    if len(missing) == len(files):
        return [
            (
                LISTENER,
                f"{host} can be reached by others, and all tenants' records pass here: give "
                f"{CERTIFICATE}, {KEY} and {AUTHORITY} for mutual TLS, or listen at 127.0.0.1",
            )
        ]
    return [(name, "is missing; the three files of TLS go together") for name in missing]


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there. Names other than localhost are not looked up:
    what they stand for may change."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_contexts(files: TlsFiles) -> TlsContexts:
    """Read the files. Raises OSError, which names them, when one cannot be read, or the key is not
    the certificate's."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(files.certificate, files.key)
            context.load_verify_locations(files.authority)
        except OSError as error:
            raise OSError(f"inter.broker.tls: {', '.join(files)}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    # Sessions are long and few: nothing is gained by resuming them.
    server.num_tickets = 0
    return TlsContexts(server, client)
