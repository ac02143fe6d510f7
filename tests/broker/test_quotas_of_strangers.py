"""Quotas and strangers: what they ask counts for no tenant, and no tenant's quotas hold them up."""

from __future__ import annotations

from data_plane.broker.authentication.certificates import PeerCertificate, log_in
from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.broker.quotas.share_exchange import ShareExchange
from data_plane.broker.quotas.tenant_rates import DEBT_S
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.principal import Principal
from data_plane.broker.request.throttling import THROTTLE_MS_MAX
from data_plane.cell.changes import Change
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity
from data_plane.cell.credentials import Credential, PutCredential, certificate_login, login_of
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.registry import ApiKey
from tests.broker.sasl_player import SHA_256, SaslBroker, SaslConnection, credential

TAKES_MS = 5


class Metered(SaslBroker):
    """A broker with quotas, two tenants, and a user of each; each look at a clock takes a while."""

    def __init__(self) -> None:
        super().__init__(credential("alice", "secret", tenant="acme"), credential("bob", "secret"))
        self.player.make_tenant("acme")
        self._clock_ns = 0
        services = self.services
        self.quotas = BrokerQuotas(services, lambda: self.player.now_ms, self._clock, self._clock)
        services.quotas = self.quotas
        self.exchange = ShareExchange(services, self.quotas, None, lambda: self.player.now_ms)
        self.quotas.on_tenants_changed = self.exchange.quotas_changed
        self.exchange.start(self.player.now_ms)

    def _clock(self) -> int:
        self._clock_ns += TAKES_MS * 1_000_000
        return self._clock_ns

    def limit(self, tenant: str, *changes: Change) -> None:
        self.commit(
            PutTenantQuotas(tenant, TenantQuotas(requests_per_s=10, handler_ms_per_s=10)), *changes
        )

    def user(self, tenant: str) -> ConnectionInfo:
        connection = self.player.connect()
        connection.authenticate(Principal("User", "bob"), tenant)
        return connection

    def spend(self, tenant: str, requests: int) -> int:
        """A user of the tenant asks so much; for how long the last answer has it wait."""
        connection = self.user(tenant)
        for _ in range(requests):
            answer = self.player.ask(
                ApiKey.API_VERSIONS, 3, software(), connection=connection, client_id="c"
            )
        waits_ms: int = answer.throttle_time_ms
        return waits_ms


def software() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="a", client_software_version="1")


def ask_versions(connection: SaslConnection) -> int:
    connection.send(ApiKey.API_VERSIONS, 3, software())
    answer = connection.receive(ApiKey.API_VERSIONS, 3)
    assert answer is not None, "it waits"
    throttle_ms: int = answer.throttle_time_ms
    return throttle_ms


def test_another_tenant_logs_in_while_default_is_over_its_caps() -> None:
    broker = Metered()
    of_each_client = QuotaEntity(None, "")
    values = (("request_percentage", 1.0),)
    broker.limit("default", AlterClientQuotas("default", of_each_client, values))
    assert broker.spend("default", 60) > 1000
    connection = broker.connect()
    assert ask_versions(connection) == 0
    answer = connection.log_in(SHA_256, login_of("acme", "alice"), "secret")
    assert answer.error_code == 0
    assert connection.info.namespace == "acme"
    assert ask_versions(connection) == 0
    names = broker.services.namespaces.names
    assert names["default"].use.throttled_requests > 0
    assert names["acme"].use.throttled_requests == 0


def test_what_strangers_ask_is_no_use_of_any_tenant() -> None:
    broker = Metered()
    broker.limit("default")
    broker.limit("acme")
    names = broker.services.namespaces.names
    for _ in range(40):
        connection = broker.connect()
        ask_versions(connection)
        assert connection.handshake(SHA_256).error_code == 0
    last = broker.connect()
    assert last.log_in(SHA_256, login_of("acme", "alice"), "secret").error_code == 0
    for tenant in ("default", "acme"):
        use = names[tenant].use
        assert (use.requests, use.throttle_ms, use.throttled_requests) == (0, 0, 0)
        assert broker.spend(tenant, 1) == 0
        assert use.requests == 1
    # Who is logged in is counted.
    ask_versions(last)
    assert names["acme"].use.requests == 2


def test_who_has_to_authenticate_anew_is_a_stranger_until_he_has() -> None:
    broker = Metered()
    broker.limit("acme")
    connection = broker.connect()
    assert connection.log_in(SHA_256, login_of("acme", "alice"), "secret").error_code == 0
    connection.info.gate.expire()
    assert broker.spend("acme", 60) > 1000
    assert ask_versions(connection) == 0


def test_nothing_is_remembered_of_what_strangers_call_themselves() -> None:
    broker = Metered()
    each_client = QuotaEntity(None, "")
    values = (("producer_byte_rate", 1000.0), ("request_percentage", 1.0))
    broker.limit("default", AlterClientQuotas("default", each_client, values))
    ask_versions(broker.connect())
    assert broker.quotas._clients.clients_count == 0
    broker.spend("default", 1)
    assert broker.quotas._clients.clients_count == 1


def test_who_owes_bytes_waits_on_his_next_connection_too() -> None:
    broker = Metered()
    broker.player.create_topic("orders", tenant="acme")
    broker.commit(PutTenantQuotas("acme", TenantQuotas(produce_bytes_per_s=1_000)))
    user = broker.user("acme")
    pending = broker.player.produce("orders", [bytes(5_000)], connection=user)
    owed_ms = pending.response.throttle_time_ms
    assert owed_ms > 3_000
    again = broker.connect()
    assert again.log_in(SHA_256, login_of("acme", "alice"), "secret").error_code == 0
    assert not again.transport.is_reading_now
    other = broker.connect()
    assert other.log_in(SHA_256, "bob", "secret").error_code == 0
    assert ask_versions(other) == 0
    # It is told of as any other wait, and is no longer than what is owed.
    assert broker.quotas.throttled["tenant_produce"].count == 2
    assert broker.services.namespaces.names["acme"].use.throttled_requests == 1
    for passed_ms, is_read in ((owed_ms - 1, False), (1, True)):
        broker.pass_time(passed_ms)
        again.listener.timers.run_due(broker.clock.ms)
        assert again.transport.is_reading_now is is_read
    assert ask_versions(again) == 0
    last = broker.connect()
    assert last.log_in(SHA_256, login_of("acme", "alice"), "secret").error_code == 0
    assert ask_versions(last) == 0


def test_who_does_not_log_in_waits_from_its_first_answer_on() -> None:
    broker = Metered()
    broker.player.create_topic("orders")
    broker.commit(PutTenantQuotas("default", TenantQuotas(produce_bytes_per_s=1_000)))
    pending = broker.player.produce("orders", [bytes(5_000)])
    owed_ms = pending.response.throttle_time_ms
    assert owed_ms > 3_000
    again = broker.player.connect()
    muted: list[int] = []
    again.mute = muted.append
    # What it asks is answered at once, and it is told of no wait of its own.
    for _ in range(2):
        answer = broker.player.ask(ApiKey.API_VERSIONS, 3, software(), connection=again)
        assert answer.throttle_time_ms == 0
    # Once, for what its tenant owes: it is not handled meanwhile.
    assert muted == [owed_ms]


def test_who_shows_a_certificate_waits_for_what_his_tenant_owes() -> None:
    broker = Metered()
    authority, name = "0a" * 32, "DNS:billing.acme.example"
    billing = Credential(certificate_login(authority, name), "acme", "billing")
    broker.commit(
        PutCredential(billing),
        PutTenantQuotas("acme", TenantQuotas(requests_per_s=1)),
    )
    assert broker.spend("acme", 4) == 3_000
    connection = broker.connect()
    muted_ms: list[int] = []
    connection.info.mute = muted_ms.append
    wall_ms = broker.services.wall_clock.wall_ms(broker.player.now_ms)
    shown = PeerCertificate(authority, (name,), wall_ms + 1_000_000)
    assert log_in(broker.authentication, connection.info, shown, broker.player.now_ms) == ""
    assert muted_ms == [3_000]


def test_nobody_owes_more_than_a_minute_of_his_rate() -> None:
    broker = Metered()
    broker.player.create_topic("orders", tenant="acme")
    broker.commit(PutTenantQuotas("acme", TenantQuotas(produce_bytes_per_s=1_000)))
    user = broker.user("acme")
    for _ in range(3):
        pending = broker.player.produce("orders", [bytes(500_000)], connection=user)
        assert pending.response.throttle_time_ms == THROTTLE_MS_MAX
    assert broker.quotas.owed_ms("acme") == DEBT_S * 1000
