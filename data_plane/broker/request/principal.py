"""Who speaks on a connection, and how its listener finds out.

Each address that a broker listens on has a name, a security protocol, and a *principal builder*:
what knows from the accepted connection who speaks. A builder that answers None leaves the
connection a stranger until an authentication says who it is (request_gate.py).

Deliberately absent: what a principal may do; namespaces (today there is one, `default`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Principal(NamedTuple):
    """As Apache Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class SecurityProtocol(Enum):
    """Those of Apache Kafka that are served."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def has_tls(self) -> bool:
        """Whether what is sent is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


class AcceptedPeer(NamedTuple):
    """What is known of a client when its connection is accepted, or its TLS handshake done."""

    host: str
    port: int


PrincipalBuilder = Callable[[AcceptedPeer], Principal | None]


def anonymous(peer: AcceptedPeer) -> Principal | None:
    """For listeners that ask nobody who it is."""
    return ANONYMOUS


def unknown(peer: AcceptedPeer) -> Principal | None:
    """For listeners whose clients have yet to say who they are."""
    return None


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """What the connections of one address have in common."""

    name: str
    security_protocol: SecurityProtocol
    build_principal: PrincipalBuilder
    # What clients may authenticate with, where they do.
    sasl_mechanisms: tuple[str, ...] = ()


PRINCIPAL_BUILDERS: dict[SecurityProtocol, PrincipalBuilder] = {
    SecurityProtocol.PLAINTEXT: anonymous,
    SecurityProtocol.SSL: anonymous,
    SecurityProtocol.SASL_PLAINTEXT: unknown,
    SecurityProtocol.SASL_SSL: unknown,
}


def listener_settings(
    name: str, security_protocol: SecurityProtocol, sasl_mechanisms: tuple[str, ...] = ()
) -> ListenerSettings:
    return ListenerSettings(
        name,
        security_protocol,
        PRINCIPAL_BUILDERS[security_protocol],
        sasl_mechanisms if security_protocol.has_sasl else (),
    )
