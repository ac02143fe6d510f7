"""Clients known by their certificates: whom one stands for, and when its connections end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.broker.authentication.authentication import EXPIRY_LOOK_MS_MAX
from data_plane.broker.authentication.certificates import NAMES_MAX, PeerCertificate, log_in
from data_plane.broker.request.principal import ANONYMOUS, Principal
from data_plane.cell.credentials import Credential, PutCredential, certificate_login
from data_plane.cell.tenants import PutTenant, TenantImage
from tests.broker.sasl_player import SaslBroker, SaslConnection

OURS, THEIRS = "0a" * 32, "0b" * 32
NAME = "DNS:billing.acme.example"
BILLING = Credential(certificate_login(OURS, NAME), "acme", "billing")
ACME = PutTenant(TenantImage("acme", "acme-cluster"))
YEAR_MS = 365 * 86_400_000


def broker_with(*credentials: Credential) -> SaslBroker:
    broker = SaslBroker()
    broker.commit(ACME, *(PutCredential(one) for one in credentials))
    return broker


def certificate(
    broker: SaslBroker, *names: str, authority: str = OURS, valid_ms: int = YEAR_MS
) -> PeerCertificate:
    wall_ms = broker.services.wall_clock.wall_ms(broker.player.now_ms)
    return PeerCertificate(authority, names or (NAME,), wall_ms + valid_ms)


def show(broker: SaslBroker, shown: PeerCertificate, host: str = "10.0.0.1") -> SaslConnection:
    connection = broker.connect(host)
    reason = log_in(broker.authentication, connection.info, shown, broker.player.now_ms)
    assert bool(reason) != connection.info.gate.is_authenticated
    return connection


def is_let_in(connection: SaslConnection) -> bool:
    return connection.info.gate.is_authenticated


def test_a_certificate_stands_for_whom_it_is_registered() -> None:
    broker = broker_with(BILLING)
    connection = show(broker, certificate(broker, "DNS:other", NAME))
    assert is_let_in(connection)
    assert connection.info.principal == Principal("User", "billing")
    assert connection.info.namespace == "acme"
    assert broker.authentication.successes_count == 1


@pytest.mark.parametrize(
    ("names", "authority"),
    [
        ((), OURS),
        (("DNS:billing.acme.example.evil",), OURS),
        (("URI:billing.acme.example",), OURS),
        ((NAME,), THEIRS),
        ((NAME,) * (NAMES_MAX + 1), OURS),
    ],
)
def test_a_certificate_that_is_not_registered_is_refused(
    names: tuple[str, ...], authority: str
) -> None:
    broker = broker_with(BILLING)
    shown = certificate(broker, authority=authority)._replace(names=names)
    connection = show(broker, shown)
    assert not is_let_in(connection)
    assert (connection.info.principal, connection.info.namespace) == (ANONYMOUS, "default")
    assert broker.authentication.failures_count == 1


def test_a_certificate_that_would_be_two_principals_is_none() -> None:
    other = Credential(certificate_login(OURS, "URI:spiffe://x"), "default", "billing")
    broker = broker_with(BILLING, other)
    assert not is_let_in(show(broker, certificate(broker, NAME, "URI:spiffe://x")))
    # Two names of one principal are two ways to say the same.
    same = replace(other, tenant="acme")
    broker = broker_with(BILLING, same)
    assert is_let_in(show(broker, certificate(broker, NAME, "URI:spiffe://x")))


def test_a_certificate_comes_from_the_networks_of_its_credential() -> None:
    broker = broker_with(replace(BILLING, networks=("10.0.0.0/24",)))
    assert is_let_in(show(broker, certificate(broker)))
    assert not is_let_in(show(broker, certificate(broker), "10.0.1.1"))


def test_a_certificate_whose_registration_is_disabled_is_refused() -> None:
    broker = broker_with(replace(BILLING, is_disabled=True))
    assert not is_let_in(show(broker, certificate(broker)))


def test_connections_end_when_the_registration_does() -> None:
    broker = broker_with(BILLING)
    kept, revoked = show(broker, certificate(broker)), show(broker, certificate(broker))
    broker.restrict(BILLING.login, "10.0.0.0/24")
    assert not kept.is_closed
    broker.revoke(BILLING.login)
    assert kept.is_closed
    assert revoked.is_closed


@pytest.mark.parametrize("valid_ms", [1_000, 3 * EXPIRY_LOOK_MS_MAX + 5])
def test_a_connection_ends_with_its_certificate(valid_ms: int) -> None:
    broker = broker_with(BILLING)
    connection = show(broker, certificate(broker, valid_ms=valid_ms))
    left_ms = valid_ms - 1
    while left_ms:
        step_ms = min(left_ms, EXPIRY_LOOK_MS_MAX)
        broker.pass_time(step_ms)
        left_ms -= step_ms
    assert not connection.is_closed
    broker.pass_time(1)
    assert connection.is_closed


def test_a_certificates_session_is_not_one_of_sasl() -> None:
    broker = broker_with(BILLING)
    config = broker.services.config
    assert config.get_int("connections.max.reauth.ms") == 0
    limited = SaslBroker(properties={"connections.max.reauth.ms": "10000"})
    limited.commit(ACME, PutCredential(BILLING))
    connection = show(limited, certificate(limited))
    limited.pass_time(20_000)
    assert is_let_in(connection)


def test_connections_that_are_gone_leave_nothing() -> None:
    broker = broker_with(BILLING)
    connection = show(broker, certificate(broker))
    connection.connection.connection_lost(None)
    assert broker.services.timers.next_deadline_ms() is None


def test_nobody_logs_in_by_password_as_a_certificate() -> None:
    broker = broker_with(BILLING)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        connection = broker.connect()
        assert connection.log_in(mechanism, BILLING.login, "secret") is None
        broker.run_jobs()
        broker.pass_time(200)
        assert not is_let_in(connection)
