"""How many connections a tenant may have: who comes beyond is told so once he is known."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.authentication.certificates import PeerCertificate, log_in
from data_plane.broker.authentication.sasl_session import TURNED_AWAY_MS
from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.cell.credentials import Credential, PutCredential, certificate_login
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.registry import ApiKey
from tests.broker.sasl_player import (
    ALL_MECHANISMS,
    SHA_256,
    SaslBroker,
    SaslConnection,
    ScramClient,
    credential,
)
from tests.broker.test_quotas_of_strangers import ask_versions, software
from tests.server.test_listener import Harness, lose

WORDS = "The tenant has 2 connections, and may have 2: 1 more is too much."


class LimitedBroker(SaslBroker):
    """Users of the tenants `acme` and `beta`, of which the former has limits."""

    def __init__(self, properties: dict[str, str] | None = None, **limits: Any) -> None:
        super().__init__(
            credential("alice", "secret", tenant="acme"),
            credential("bob", "secret", tenant="beta"),
            properties=properties,
        )
        services = self.services
        services.handlers.guards.update(GUARDS)
        services.quotas = self.quotas = BrokerQuotas(
            services, lambda: self.player.now_ms, lambda: 0, lambda: 0
        )
        for name in ("acme", "beta"):
            self.commit(PutTenant(TenantImage(name, f"{name}-cluster")))
        self.limit(**limits)

    def limit(self, **limits: Any) -> None:
        self.commit(PutTenantQuotas("acme", TenantQuotas(**limits)))
        self.quotas.end_period(500, self.player.now_ms)
        self.quotas.set_shares(
            dict(self.quotas.share_caps()),
            list(self.quotas.share_caps()),
            1,
            self.player.now_ms,
        )

    def log_in(self, login: str = "alice@acme", mechanism: str = SHA_256) -> SaslConnection:
        connection = self.connect()
        connection.log_in(mechanism, login, "secret")
        return connection


def turned_away(connection: SaslConnection) -> tuple[int, Any]:
    assert not connection.info.gate.is_authenticated
    connection.broker.pass_time(TURNED_AWAY_MS)
    answer = connection.receive_later()
    assert connection.is_closed
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_a_connection_too_many_is_told_so_and_closed(mechanism: str) -> None:
    broker = LimitedBroker(connections=2)
    first, second = (broker.log_in(mechanism=mechanism) for _ in range(2))
    assert second.info.gate.is_authenticated
    third = broker.log_in(mechanism=mechanism)
    assert turned_away(third) == (int(ErrorCode.THROTTLING_QUOTA_EXCEEDED), WORDS)
    assert third.listener.reasons == [f"'alice@acme' is turned away: {WORDS}"]
    assert broker.quotas.holdings.refused_connections_count == 1
    # It is nobody's wrong password: the next attempt does not wait for it.
    assert broker.authentication.failures_count == 0
    assert broker.log_in("bob@beta", mechanism).info.gate.is_authenticated
    lose(first.connection)
    assert broker.log_in(mechanism=mechanism).info.gate.is_authenticated


def test_who_is_turned_away_is_told_after_a_while_so_that_he_does_not_come_again_at_once() -> None:
    broker = LimitedBroker(connections=1)
    broker.log_in()
    connection = broker.log_in()
    broker.pass_time(TURNED_AWAY_MS - 1)
    assert not connection.is_closed
    assert connection.receive_bare() is None
    broker.pass_time(1)
    assert connection.receive_later().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert connection.is_closed


def test_who_does_not_know_the_password_learns_nothing_of_limits() -> None:
    broker = LimitedBroker(connections=1)
    broker.log_in()
    connection = broker.connect()
    assert connection.log_in(SHA_256, "alice@acme", "wrong") is None
    code, message = turned_away(connection)
    assert code == int(ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert "tenant" not in message


def test_tokens_without_a_header_have_no_answer_for_it() -> None:
    broker = LimitedBroker(connections=1)
    broker.log_in()
    connection = broker.connect()
    assert connection.handshake(SHA_256, 0).error_code == 0
    client = ScramClient(SHA_256, "alice@acme", "secret")
    connection.send_bare(client.first())
    challenge = connection.receive_bare()
    assert challenge is not None
    connection.send_bare(client.final(challenge))
    broker.pass_time(TURNED_AWAY_MS)
    assert connection.is_closed
    assert connection.receive_bare() is None


def test_who_authenticates_anew_has_his_connection() -> None:
    broker = LimitedBroker({"connections.max.reauth.ms": "60000"}, connections=1)
    connection = broker.log_in()
    broker.pass_time(30_000)
    assert connection.log_in(SHA_256, "alice@acme", "secret").error_code == 0
    assert broker.services.connections.use_of("acme") == 1


def test_a_limit_below_what_is_there_closes_nothing() -> None:
    broker = LimitedBroker()
    kept = [broker.log_in() for _ in range(3)]
    broker.limit(connections=1)
    broker.pass_time(1_000)
    assert not any(connection.is_closed for connection in kept)
    code, message = turned_away(broker.log_in())
    assert message == "The tenant has 3 connections, and may have 1: 1 more is too much."
    assert code == int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_certificates_are_counted_with_the_others() -> None:
    broker = LimitedBroker(connections=1)
    login = certificate_login("a" * 64, "DNS:client")
    by_certificate = Credential(login, "acme", "alice", {})
    broker.commit(PutCredential(by_certificate))
    wall_ms = broker.services.wall_clock.wall_ms(broker.player.now_ms)
    certificate = PeerCertificate("a" * 64, ("DNS:client",), wall_ms + 10**9)
    first = broker.connect()
    assert log_in(broker.authentication, first.info, certificate, broker.player.now_ms) == ""
    second = broker.connect()
    refused = log_in(broker.authentication, second.info, certificate, broker.player.now_ms)
    assert refused == "The tenant has 1 connections, and may have 1: 1 more is too much."
    assert not second.info.gate.is_authenticated


def test_connections_beyond_their_rate_wait_and_then_are_turned_away() -> None:
    broker = LimitedBroker(connections_per_s=1)
    muted: list[int] = []
    for _ in range(30):
        connection = broker.connect()
        connection.info.mute = muted.append
        connection.log_in(SHA_256, "alice@acme", "secret")
    assert muted == [*range(1_000, 22_000, 1_000)]
    code, message = turned_away(broker.log_in())
    assert code == int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert message.startswith("The tenant may open 1 connections per second")
    assert broker.log_in("bob@beta").info.gate.is_authenticated
    assert broker.quotas.throttled["tenant_connections"].count == 21


def test_connections_that_are_there_when_the_first_quota_comes_are_no_new_ones() -> None:
    broker = LimitedBroker()
    assert not broker.quotas.is_active
    there = [broker.log_in() for _ in range(30)]
    for _ in range(2):
        broker.limit(connections_per_s=1)
        muted: list[int] = []
        for connection in there:
            connection.info.mute = muted.append
            assert ask_versions(connection) == 0
        assert muted == []
        # Who comes now is counted.
        there.append(broker.log_in())
        assert broker.quotas.owed_ms("acme") >= 1_000
        broker.limit()
        assert not broker.quotas.is_active


@pytest.mark.parametrize("is_limited", [False, True])
def test_who_comes_without_a_login_is_new_while_there_are_quotas(is_limited: bool) -> None:
    harness = Harness()
    harness.broker.make_tenant("acme")
    services = harness.broker.services
    services.quotas = quotas = BrokerQuotas(services, lambda: 0, lambda: 0, lambda: 0)

    def limit(per_s: int | None) -> None:
        change = PutTenantQuotas("default", TenantQuotas(connections_per_s=per_s))
        version = services.image.version
        image = services.store.apply((change,), version, f"limit {version}")
        services.apply_image(image, 0)
        caps = quotas.share_caps()
        quotas.set_shares(dict(caps), list(caps), 1, 0)

    limit(1 if is_limited else None)
    connections = [harness.connect()[0] for _ in range(5)]
    limit(1)
    muted: list[int] = []
    for connection in connections:
        assert connection.info is not None
        connection.info.mute = muted.append
        for _ in range(2):
            harness.broker.ask(ApiKey.API_VERSIONS, 3, software(), connection=connection.info)
    assert muted == ([1_000, 2_000, 3_000, 4_000] if is_limited else [])


def test_where_nobody_asks_who_speaks_connections_are_counted_too() -> None:
    harness = Harness()
    harness.broker.make_tenant("acme")
    services = harness.broker.services
    services.quotas = BrokerQuotas(services, lambda: 0, lambda: 0, lambda: 0)
    image = services.store.read()
    change = PutTenantQuotas("default", TenantQuotas(connections=2))
    services.apply_image(services.store.apply((change,), image.version, "limit"), 0)
    kept = [harness.connect() for _ in range(2)]
    assert harness.connect()[1].is_aborted
    assert harness.reasons() == [WORDS]
    lose(kept[0][0])
    assert not harness.connect()[1].is_aborted
