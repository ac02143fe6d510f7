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


class AcceptedPeer(NamedTuple):
    """What is known of a client when its connection is accepted."""

    host: str
    port: int


PrincipalBuilder = Callable[[AcceptedPeer], Principal | None]


def anonymous(peer: AcceptedPeer) -> Principal | None:
    """For listeners that ask nobody who it is."""
    return ANONYMOUS


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """What the connections of one address have in common."""

    name: str
    security_protocol: SecurityProtocol
    build_principal: PrincipalBuilder


PRINCIPAL_BUILDERS: dict[SecurityProtocol, PrincipalBuilder] = {
    SecurityProtocol.PLAINTEXT: anonymous,
}


def listener_settings(name: str, security_protocol: SecurityProtocol) -> ListenerSettings:
    return ListenerSettings(name, security_protocol, PRINCIPAL_BUILDERS[security_protocol])
