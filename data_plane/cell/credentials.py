"""Credentials: what proves who speaks, and for which tenant. Verifiers only, never a secret.

A login is a name that is unique in the cell, `alice` of the tenant `default` or `alice@acme` of
another one. It stands for a tenant and a principal of it: grants, quotas and logs name the
principal, so a new login for the same principal keeps what the old one was allowed.

A login that begins with `x509:` is that of a certificate: the SHA-256 of its authority's own, and
one of its names, `x509:<64 digits>:DNS:client.acme.example`. It has no verifiers, and whoever shows
such a certificate is its principal.

A verifier is what RFC 5802 has a server keep: with it somebody who knows the password can be told
from others, and the password cannot be found but by trying.

Invariants
- The tenant and the principal of a login never change; it can go, and come anew.
- Iterations are from 4,096 to 16,384, as Apache Kafka allows: an attempt costs milliseconds.
- Nothing of this is stored below metadata.version 3 (features.py).

Deliberately absent: protocols (data_plane/broker/authentication), and what a principal may do.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from data_plane.cell.named_fields import unknown_in, unknown_named
from data_plane.cell.tenants import DEFAULT_TENANT

# Mechanisms with verifiers, and the hash of each.
SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
KEY_BYTES: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
SALT_BYTES_MAX: Final = 256
CREDENTIALS_MAX: Final = 100_000
LOGIN_CHARACTERS_MAX: Final = 255
NETWORKS_MAX: Final = 100
DECOY_KEY_BYTES: Final = 32
CERTIFICATE_PREFIX: Final = "x509:"
# Kinds of a certificate's names, as OpenSSL writes them.
NAME_KINDS: Final = ("DNS", "URI", "email", "IP")
_CERTIFICATE_LOGIN: Final = re.compile(rf"x509:[0-9a-f]{{64}}:(?:{'|'.join(NAME_KINDS)}):\S+")
EXPIRES_AT_MS_MAX: Final = (1 << 53) - 1


class ScramVerifier(NamedTuple):
    """What RFC 5802 calls salt, StoredKey, ServerKey and i."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A login. `verifiers` are by mechanism; `networks` (CIDR) are where it may come from, anywhere
    when there are none; from the date `expires_at_ms` on (0: never) it is as disabled."""

    login: str
    tenant: str
    principal: str
    verifiers: Mapping[str, ScramVerifier] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    unknown_fields: str = ""
    is_disabled: bool = False
    expires_at_ms: int = 0

    def why_not_valid(self, wall_ms: int) -> str:
        """Why nobody logs in with it at this date; "" when somebody does."""
        if self.is_disabled:
            return "the credential is disabled"
        if 0 < self.expires_at_ms <= wall_ms:
            return "the credential has expired"
        return ""

    def may_come_from(self, host: str) -> bool:
        """Whether `host`, an IP address, is in one of its networks."""
        if not self.networks:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            # How a socket for both families names a client of the older one.
            address = address.ipv4_mapped
        return any(address in ipaddress.ip_network(network) for network in self.networks)


Credentials = Mapping[str, Credential]


@dataclass(frozen=True, slots=True)
class PutCredential:
    """A new login, or the new verifiers and networks of one."""

    credential: Credential


@dataclass(frozen=True, slots=True)
class DeleteCredential:
    """Nobody logs in with it any more."""

    login: str


@dataclass(frozen=True, slots=True)
class PutDecoyKey:
    """From which brokers make the salts of users that do not exist: all brokers the same ones."""

    key: bytes


def login_of(tenant: str, principal: str) -> str:
    """The login that a user of this name has in this tenant.

    >>> login_of("acme", "alice")
    'alice@acme'
    """
    return principal if tenant == DEFAULT_TENANT else f"{principal}@{tenant}"


def certificate_login(authority: str, name: str) -> str:
    """The login of certificates with this name that this authority has signed.

    >>> certificate_login("0c" * 32, "DNS:billing.acme.example")[-30:]
    '0c0c:DNS:billing.acme.example'
    """
    return f"{CERTIFICATE_PREFIX}{authority}:{name}"


def is_certificate_login(login: str) -> bool:
    return login.startswith(CERTIFICATE_PREFIX)


def why_invalid_credential(credentials: Credentials, new: Credential) -> str:
    """Why `new` cannot be put among `credentials`; "" when it can."""
    login = new.login
    if not 0 < len(login) <= LOGIN_CHARACTERS_MAX or "\0" in login or not new.principal:
        return f"a login has 1 to {LOGIN_CHARACTERS_MAX} characters, and none that is zero"
    old = credentials.get(login)
    if old is None:
        if len(credentials) >= CREDENTIALS_MAX:
            return f"there are {CREDENTIALS_MAX} credentials"
    elif (old.tenant, old.principal) != (new.tenant, new.principal):
        return f"the login {login} is that of {old.principal} in the tenant {old.tenant}"
    if is_certificate_login(login):
        if _CERTIFICATE_LOGIN.fullmatch(login) is None:
            return f"{login} is not of the form x509:SHA-256 of the authority:DNS:name"
        if new.verifiers:
            return f"the login {login} is that of a certificate, and has no verifiers"
    elif not new.verifiers:
        return f"the login {login} has nothing that could prove it"
    for mechanism, verifier in new.verifiers.items():
        reason = _why_invalid_verifier(mechanism, verifier)
        if reason:
            return f"the login {login}: {reason}"
    if not 0 <= new.expires_at_ms <= EXPIRES_AT_MS_MAX:
        return f"the login {login} expires at {new.expires_at_ms}"
    return _why_invalid_networks(new.networks)


def _why_invalid_verifier(mechanism: str, verifier: ScramVerifier) -> str:
    size = KEY_BYTES.get(mechanism)
    if size is None:
        return f"there is no mechanism {mechanism}"
    if not 0 < len(verifier.salt) <= SALT_BYTES_MAX:
        return f"a salt has 1 to {SALT_BYTES_MAX} bytes"
    if len(verifier.stored_key) != size or len(verifier.server_key) != size:
        return f"keys of {mechanism} have {size} bytes"
    if not ITERATIONS_MIN <= verifier.iterations <= ITERATIONS_MAX:
        return f"{verifier.iterations} iterations, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
    return ""


def _why_invalid_networks(networks: tuple[str, ...]) -> str:
    if len(networks) > NETWORKS_MAX:
        return f"more than {NETWORKS_MAX} networks"
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            return str(error)
    return ""


def encode_credential(credential: Credential) -> dict[str, Any]:
    """JSON-ready, all fields by name."""
    named = {
        **unknown_named(credential.unknown_fields),
        "login": credential.login,
        "tenant": credential.tenant,
        "principal": credential.principal,
        "verifiers": {
            mechanism: [encode_key(salt), encode_key(stored), encode_key(server), iterations]
            for mechanism, (salt, stored, server, iterations) in credential.verifiers.items()
        },
    }
    if credential.networks:
        named["networks"] = list(credential.networks)
    if credential.is_disabled:
        named["disabled"] = True
    if credential.expires_at_ms:
        named["expires_at_ms"] = credential.expires_at_ms
    return named


def decode_credential(item: Mapping[str, Any]) -> Credential:
    """The inverse of `encode_credential`."""
    known = ("login", "tenant", "principal", "verifiers")
    login, tenant, principal, verifiers = (item[name] for name in known)
    return Credential(
        login,
        tenant,
        principal,
        {
            mechanism: ScramVerifier(
                decode_key(salt), decode_key(stored_key), decode_key(server_key), iterations
            )
            for mechanism, (salt, stored_key, server_key, iterations) in verifiers.items()
        },
        tuple(item.get("networks", ())),
        unknown_in(item, *known, "networks", "disabled", "expires_at_ms"),
        item.get("disabled", False),
        item.get("expires_at_ms", 0),
    )


def encode_key(key: bytes) -> str:
    """As text, for JSON."""
    return b64encode(key).decode()


def decode_key(text: str) -> bytes:
    """The inverse of `encode_key`."""
    return b64decode(text, validate=True)
