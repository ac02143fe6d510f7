"""SASL over connections: handshakes, outcomes, bounds, sessions, and what revocation closes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.authentication import password_checks
from data_plane.broker.authentication.authentication import (
    CLOSED_PER_TURN_MAX,
    EXPIRY_LOOK_MS_MAX,
    PASSWORDS_AT_ONCE_MAX,
)
from data_plane.broker.authentication.decoys import Decoys
from data_plane.broker.authentication.failure_delays import (
    DELAY_MS_MAX,
    DELAY_MS_MIN,
    PAIRS_MAX,
    WAITING_MAX,
    FailureDelays,
)
from data_plane.broker.authentication.handshake_budget import BURST, HandshakeBudget
from data_plane.broker.authentication.handshake_budget import WAITING_MAX as HANDSHAKES_WAITING_MAX
from data_plane.broker.authentication.password_checks import CHECKS_MAX, PasswordChecks
from data_plane.broker.authentication.sasl_session import TOKEN_BYTES_MAX
from data_plane.broker.authentication.scram import MESSAGE_BYTES_MAX
from data_plane.broker.produce.produce_checks import HERE_UNPACKED_BYTES_MAX
from data_plane.broker.request.fair_work import FairWork
from data_plane.broker.request.principal import ANONYMOUS, Principal
from data_plane.broker.request.timers import TimerQueue
from data_plane.cell.credentials import LOGIN_CHARACTERS_MAX, PutCredential
from data_plane.cell.tenants import BLOCKED_TENANT, PutTenant, TenantImage
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.list_offsets_request import ListOffsetsRequest
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import make_batch
from tests.broker.doubles import QueueExecutor
from tests.broker.sasl_player import (
    ALL_MECHANISMS,
    SHA_256,
    SHA_512,
    SaslBroker,
    SaslConnection,
    ScramClient,
    credential,
)

ALICE = credential("alice", "secret")
REFUSAL_MS = 100
HOST = "10.0.0.1"
FAILED = int(ErrorCode.SASL_AUTHENTICATION_FAILED)


def refused(connection: SaslConnection) -> str:
    """What a client is told whose authentication has failed: later, and nothing after it."""
    assert connection.receive_later() is None
    assert not connection.is_closed
    connection.broker.pass_time(REFUSAL_MS - 1)
    assert connection.receive_later() is None
    connection.broker.pass_time(1)
    answer = connection.receive_later()
    assert answer.error_code == FAILED
    assert connection.is_closed
    assert connection.info.principal == ANONYMOUS
    message: str = answer.error_message
    return message


def is_let_in(connection: SaslConnection, mechanism: str, login: str, password: str) -> bool:
    answer = connection.log_in(mechanism, login, password)
    return answer is not None and answer.error_code == 0


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_a_user_logs_in(mechanism: str) -> None:
    connection = SaslBroker(ALICE).connect()
    answer = connection.log_in(mechanism, "alice", "secret")
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.session_lifetime_ms == 0
    assert connection.info.principal == Principal("User", "alice")
    assert connection.info.namespace == "default"
    connection.send(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest())
    assert connection.receive(ApiKey.LIST_OFFSETS, 1) is not None


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("login", ["alice", "nobody"])
def test_who_cannot_prove_who_he_is_learns_nothing(mechanism: str, login: str) -> None:
    connection = SaslBroker(ALICE).connect()
    assert connection.log_in(mechanism, login, "wrong") is None
    assert refused(connection) == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


@pytest.mark.parametrize("login", ["alice", "nobody"])
def test_a_wrong_password_in_plain(login: str) -> None:
    connection = SaslBroker(ALICE).connect()
    assert connection.log_in("PLAIN", login, "wrong") is None
    assert refused(connection) == "Authentication failed: Invalid username or password"


def test_what_is_not_for_strangers_closes_a_strangers_connection() -> None:
    connection = SaslBroker(ALICE).connect()
    connection.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    assert connection.receive(ApiKey.API_VERSIONS, 0) is not None
    connection.send(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest())
    assert connection.is_closed
    assert not connection.transport.sent


def test_a_token_before_the_handshake_closes_the_connection() -> None:
    connection = SaslBroker(ALICE).connect()
    assert connection.authenticate(b"\0alice\0secret") is None
    assert connection.is_closed


def test_a_second_handshake_closes_the_connection() -> None:
    connection = SaslBroker(ALICE).connect()
    connection.handshake("PLAIN")
    assert connection.handshake(SHA_256) is None
    assert connection.is_closed


def test_an_unknown_mechanism_is_answered_with_those_there_are() -> None:
    broker = SaslBroker(ALICE, mechanisms=(SHA_256,))
    for mechanism in ("GSSAPI", "PLAIN", "", "x" * 10_000):
        connection = broker.connect()
        assert connection.handshake(mechanism) is None
        broker.pass_time(REFUSAL_MS)
        answer = connection.receive(ApiKey.SASL_HANDSHAKE, 1)
        assert answer.error_code == int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        assert answer.mechanisms == [SHA_256]
        assert connection.is_closed


def test_listeners_without_sasl_are_in_no_state_for_it() -> None:
    broker = SaslBroker(ALICE, mechanisms=())
    connection = broker.connect()
    connection.info.authenticate(ANONYMOUS)
    assert connection.handshake("PLAIN").error_code == int(ErrorCode.ILLEGAL_SASL_STATE)
    answer = connection.authenticate(b"\0alice\0secret")
    assert answer.error_code == int(ErrorCode.ILLEGAL_SASL_STATE)
    assert connection.info.principal == ANONYMOUS


def test_who_is_authenticated_for_good_is_not_authenticated_anew() -> None:
    connection = SaslBroker(ALICE).connect()
    assert is_let_in(connection, SHA_256, "alice", "secret")
    answer = connection.authenticate(b"n,,n=bob,r=abc")
    assert answer.error_code == int(ErrorCode.ILLEGAL_SASL_STATE)
    connection.broker.pass_time(10_000)
    assert connection.handshake(SHA_256).error_code == int(ErrorCode.ILLEGAL_SASL_STATE)
    assert connection.info.principal == Principal("User", "alice")


def test_huge_tokens_are_refused() -> None:
    connection = SaslBroker(ALICE).connect()
    connection.handshake("PLAIN")
    password = "x" * TOKEN_BYTES_MAX
    assert connection.authenticate(f"\0alice\0{password}".encode()) is None
    refused(connection)


# Tokens without headers


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_tokens_without_headers(mechanism: str) -> None:
    connection = SaslBroker(ALICE).connect()
    assert connection.handshake(mechanism, version=0).error_code == 0
    client = ScramClient(mechanism, "alice", "secret")
    connection.send_bare(client.first())
    challenge = connection.receive_bare()
    assert challenge is not None
    connection.send_bare(client.final(challenge))
    last = connection.receive_bare()
    assert last is not None
    assert client.believes(last)
    connection.send(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest())
    assert connection.receive(ApiKey.LIST_OFFSETS, 1) is not None


@pytest.mark.parametrize("login", ["alice", "$alice", "\x12", "a"])
def test_a_bare_claim_is_no_request_whatever_it_looks_like(login: str) -> None:
    broker = SaslBroker(credential(login, "s"))
    connection = broker.connect()
    connection.handshake("PLAIN", version=0)
    connection.send_bare(f"\0{login}\0s".encode())
    broker.run_jobs()
    assert connection.receive_bare() == b""
    assert connection.info.principal == Principal("User", login)


def test_a_bare_claim_that_is_wrong_closes_the_connection_later() -> None:
    broker = SaslBroker(ALICE)
    connection = broker.connect()
    connection.handshake("PLAIN", version=0)
    connection.send_bare(b"\0alice\0wrong")
    broker.run_jobs()
    assert not connection.is_closed
    broker.pass_time(REFUSAL_MS)
    assert connection.is_closed
    assert connection.receive_bare() is None


# What is around the exchanges


def test_a_right_password_is_checked_once() -> None:
    broker = SaslBroker(ALICE)
    assert is_let_in(broker.connect(), "PLAIN", "alice", "secret")
    connection = broker.connect()
    connection.handshake("PLAIN")
    assert connection.authenticate(b"\0alice\0secret").error_code == 0
    # Not when it is of another verifier.
    broker.commit(PutCredential(credential("alice", "another")))
    connection = broker.connect()
    assert not is_let_in(connection, "PLAIN", "alice", "secret")
    broker.pass_time(REFUSAL_MS)
    assert is_let_in(broker.connect(), "PLAIN", "alice", "another")


def test_a_password_counts_for_its_own_login() -> None:
    broker = SaslBroker(ALICE, credential("bob", "other"))
    assert is_let_in(broker.connect(), "PLAIN", "alice", "secret")
    assert not is_let_in(broker.connect(), "PLAIN", "bob", "secret")


def test_a_credential_that_goes_during_the_check_lets_nobody_in() -> None:
    broker = SaslBroker(ALICE)
    connection = broker.connect()
    connection.handshake("PLAIN")
    connection.authenticate(b"\0alice\0secret")
    broker.revoke("alice")
    broker.run_jobs()
    refused(connection)


def test_passwords_that_wait_to_be_checked_have_a_maximum() -> None:
    executor = QueueExecutor()
    checks = PasswordChecks(FairWork(executor, 2), Random(1), Decoys(lambda: b"k", dict))
    told: list[bool | None] = []
    for number in range(CHECKS_MAX // 2 + 1):
        checks.check(HOST, "alice", ALICE, b"%d" % number, told.append)
    assert told == [None]
    assert len(checks) == CHECKS_MAX // 2
    # There is room for other addresses.
    checks.check("10.0.0.2", "alice", ALICE, b"secret", told.append)
    assert told == [None]
    executor.run_one()
    assert told == [None, False]
    for _ in range(3):
        executor.run_one()
    assert told == [None, False, False, False, True], "and they have their turns"
    for number in range(20_000):
        checks.check(f"10.1.{number // 200}.1", "alice", ALICE, b"x%d" % number, told.append)
    assert len(checks) <= CHECKS_MAX


def test_passwords_do_not_hold_up_the_work_on_batches() -> None:
    broker = SaslBroker(ALICE)
    for number in range(5):
        connection = broker.connect(f"10.0.0.{number}")
        connection.handshake("PLAIN")
        token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
        connection.send(ApiKey.SASL_AUTHENTICATE, 2, token)
    assert len(broker.player.executor.queue) == PASSWORDS_AT_ONCE_MAX
    assert len(broker.services.request_work) == 0


def test_who_guesses_passwords_waits_before_there_is_work_for_him() -> None:
    broker = SaslBroker(ALICE)
    assert not is_let_in(broker.connect(), "PLAIN", "alice", "wrong")
    connection = broker.connect()
    connection.handshake("PLAIN")
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    connection.send(ApiKey.SASL_AUTHENTICATE, 2, token)
    assert not broker.player.executor.queue
    broker.pass_time(DELAY_MS_MIN)
    broker.run_jobs()
    assert connection.info.gate.is_authenticated


def test_passwords_that_were_right_are_remembered_up_to_a_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(password_checks, "REMEMBERED_MAX", 2)
    executor = QueueExecutor()
    checks = PasswordChecks(FairWork(executor, 2), Random(1), Decoys(lambda: b"k", dict))
    for login in ("a", "b", "c"):
        checks.check("10.0.0.1", login, replace(ALICE, login=login), b"secret", lambda _: None)
        executor.run_one()
    assert checks.remembered_count == 2


def test_who_guesses_waits_longer_and_longer_and_slows_nobody_else() -> None:
    broker = SaslBroker(ALICE)
    for waits_ms in (0, 100, 200):
        broker.pass_time(waits_ms)
        assert not is_let_in(broker.connect(), SHA_256, "alice", "wrong")
    # The right password waits as long as a wrong one would, and is the right one after it.
    connection = broker.connect()
    assert connection.log_in(SHA_256, "alice", "secret") is None
    broker.pass_time(399)
    assert connection.receive_later() is None
    # Alice herself comes from elsewhere.
    assert is_let_in(broker.connect("10.0.0.2"), SHA_256, "alice", "secret")
    broker.pass_time(1)
    assert connection.receive_later().error_code == 0
    assert is_let_in(broker.connect(), SHA_256, "alice", "secret")


def test_attempts_that_wait_have_a_maximum() -> None:
    delays = FailureDelays()
    for _ in range(100):
        delays.failed("10.0.0.1", "alice", 0)
    waits = [delays.begin("10.0.0.1", "alice", 0) for _ in range(WAITING_MAX + 1)]
    assert waits == [DELAY_MS_MAX] * WAITING_MAX + [None]
    delays.end("10.0.0.1", "alice")
    assert delays.begin("10.0.0.1", "alice", 1_000) == DELAY_MS_MAX - 1_000
    assert delays.begin("10.0.0.1", "alice", DELAY_MS_MAX) == 0


def test_the_right_password_is_not_called_wrong_because_others_wait() -> None:
    """It gets no verdict: a client that is told so gives up for good."""
    broker = SaslBroker(ALICE)
    delays = broker.authentication.delays
    connection = broker.connect()
    delays.failed(connection.info.host, "alice", broker.player.now_ms)
    for _ in range(WAITING_MAX):
        delays.begin(connection.info.host, "alice", broker.player.now_ms)
    assert connection.log_in(SHA_256, "alice", "secret") is None
    assert connection.is_closed
    assert broker.authentication.failures_count == 0


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_nothing_is_kept_of_a_login_that_nobody_can_have(mechanism: str) -> None:
    broker = SaslBroker(ALICE)
    connection = broker.connect()
    assert connection.log_in(mechanism, "é" * (LOGIN_CHARACTERS_MAX + 1), "secret") is None
    refused(connection)
    assert len(broker.authentication.delays) == 0
    assert not is_let_in(broker.connect(), mechanism, "é" * LOGIN_CHARACTERS_MAX, "secret")
    assert len(broker.authentication.delays) == 1


def test_messages_of_scram_are_short() -> None:
    connection = SaslBroker(ALICE).connect()
    connection.handshake(SHA_256)
    nonce = "n" * MESSAGE_BYTES_MAX
    assert connection.authenticate(f"n,,n=alice,r={nonce}".encode()) is None
    refused(connection)


def test_pairs_that_have_failed_are_remembered_up_to_a_maximum() -> None:
    delays = FailureDelays()
    for number in range(PAIRS_MAX + 1):
        delays.failed("10.0.0.1", str(number), 0)
    assert len(delays) == PAIRS_MAX
    assert delays.begin("10.0.0.1", "0", 0) == 0
    assert delays.begin("10.0.0.1", "1", 0) == 100


def test_handshakes_beyond_the_budget_wait_for_their_turn() -> None:
    timers = TimerQueue()
    budget = HandshakeBudget(timers.schedule)
    begun: list[int] = []

    def wanted(number: int) -> bool:
        return number != BURST + 1

    for number in range(BURST + 4):
        budget.begin(HOST, partial(wanted, number), partial(begun.append, number), 0)
    assert begun == list(range(BURST))
    timers.run_due(1)
    assert begun[BURST:] == [BURST]
    timers.run_due(2)
    assert begun[BURST:] == [BURST, BURST + 2]
    timers.run_due(1_000)
    assert begun[BURST:] == [BURST, BURST + 2, BURST + 3]
    assert len(budget) == 0
    assert timers.next_deadline_ms() is None


def test_handshakes_that_wait_have_a_maximum() -> None:
    timers = TimerQueue()
    budget = HandshakeBudget(timers.schedule)
    for _ in range(BURST + HANDSHAKES_WAITING_MAX // 2):
        assert budget.begin(HOST, lambda: True, lambda: None, 0)
    # The other half is for other addresses.
    assert not budget.begin(HOST, lambda: True, lambda: None, 0)
    begun: list[str] = []
    others = [f"10.0.1.{number}" for number in range(3)]
    for other in others:
        assert budget.begin(other, lambda: True, partial(begun.append, other), 0)
    # Nor do they wait for those that came before them.
    timers.run_due(4)
    assert begun == others


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.booleans()), max_size=300))
def test_addresses_have_handshakes_in_turn(asked: list[tuple[int, int, bool]]) -> None:
    timers = TimerQueue()
    budget = HandshakeBudget(timers.schedule)
    begun: list[tuple[int, int]] = []
    wanted: dict[int, list[int]] = {}
    for _ in range(BURST):
        budget.begin(HOST, lambda: True, lambda: None, 0)
    for number, (address, cost, is_wanted) in enumerate(asked):
        start = partial(begun.append, (address, number))
        assert budget.begin(str(address), partial(bool, is_wanted), start, 0, cost)
        if is_wanted:
            wanted.setdefault(address, []).append(number)
    while len(budget):
        deadline_ms = timers.next_deadline_ms()
        assert deadline_ms is not None
        timers.run_due(deadline_ms)
    counts = dict.fromkeys(wanted, 0)
    for address, number in begun:
        assert number == wanted[address][counts[address]], "of one address in their order"
        counts[address] += 1
        waiting = [one for one in wanted if counts[one] < len(wanted[one])]
        assert all(counts[address] <= counts[one] + 1 for one in waiting)
    assert counts == {address: len(numbers) for address, numbers in wanted.items()}


def test_who_authenticates_anew_does_not_wait_for_strangers() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(2_000)
    for _ in range(BURST + 10):
        broker.connect().handshake(SHA_256)
    assert connection.handshake(SHA_256).error_code == 0


def test_a_handshake_that_waits_is_answered_in_its_turn() -> None:
    broker = SaslBroker(ALICE)
    for _ in range(BURST):
        assert broker.connect().handshake(SHA_256).error_code == 0
    connection = broker.connect()
    assert connection.handshake(SHA_256) is None
    broker.pass_time(1)
    assert connection.receive(ApiKey.SASL_HANDSHAKE, 1).error_code == 0


def test_a_login_comes_from_its_networks() -> None:
    broker = SaslBroker(replace(ALICE, networks=("10.0.0.0/24",)))
    assert is_let_in(broker.connect("10.0.0.200"), SHA_256, "alice", "secret")
    assert not is_let_in(broker.connect("10.0.1.1"), SHA_256, "alice", "secret")


def test_a_login_of_a_tenant_that_is_not_served_is_refused() -> None:
    acme = TenantImage("acme", "acme-cluster")
    broker = SaslBroker()
    broker.commit(PutTenant(acme), PutCredential(credential("alice", "secret", tenant="acme")))
    served = "acme" in broker.services.namespaces.names
    connection = broker.connect()
    assert is_let_in(connection, SHA_256, "alice@acme", "secret") == served
    if served:
        assert connection.info.namespace == "acme"
        assert connection.info.principal == Principal("User", "alice")


def test_who_is_disabled_is_out_and_stays_out() -> None:
    broker = SaslBroker(ALICE)
    connection = broker.connect()
    assert is_let_in(connection, SHA_256, "alice", "secret")
    broker.commit(PutCredential(replace(ALICE, is_disabled=True)))
    assert connection.is_closed
    assert not is_let_in(broker.connect(), SHA_256, "alice", "secret")
    broker.commit(PutCredential(ALICE))
    broker.pass_time(DELAY_MS_MAX)
    assert is_let_in(broker.connect(), SHA_256, "alice", "secret")


def test_a_credential_is_over_at_its_date() -> None:
    broker = SaslBroker()
    wall_ms = broker.services.wall_clock.wall_ms(broker.player.now_ms)
    ends_ms = wall_ms + 2 * EXPIRY_LOOK_MS_MAX + 5
    broker.commit(PutCredential(replace(ALICE, expires_at_ms=ends_ms)))
    connection = broker.connect()
    assert is_let_in(connection, SHA_256, "alice", "secret")
    for wait_ms in (EXPIRY_LOOK_MS_MAX, EXPIRY_LOOK_MS_MAX, 4):
        broker.pass_time(wait_ms)
        assert not connection.is_closed
    broker.pass_time(1)
    assert connection.is_closed
    assert not is_let_in(broker.connect(), SHA_256, "alice", "secret")


def test_a_date_that_is_changed_is_the_one_that_holds() -> None:
    broker = SaslBroker()
    wall_ms = broker.services.wall_clock.wall_ms(broker.player.now_ms)
    broker.commit(PutCredential(replace(ALICE, expires_at_ms=wall_ms + 1_000)))
    connection = broker.connect()
    assert is_let_in(connection, SHA_256, "alice", "secret")
    broker.commit(PutCredential(replace(ALICE, expires_at_ms=wall_ms + 9_000)))
    broker.pass_time(8_999)
    assert not connection.is_closed
    broker.pass_time(1)
    assert connection.is_closed


@pytest.mark.parametrize("state", ["blocked", "deleting"])
def test_nobody_speaks_for_a_tenant_that_is_blocked_or_deleted(state: str) -> None:
    acme = TenantImage("acme", "acme-cluster")
    broker = SaslBroker(ALICE)
    broker.commit(PutTenant(acme), PutCredential(credential("bob", "secret", tenant="acme")))
    bob, alice = broker.connect(), broker.connect()
    assert is_let_in(bob, SHA_256, "bob@acme", "secret")
    assert is_let_in(alice, SHA_256, "alice", "secret")
    broker.commit(PutTenant(replace(acme, state="read-only")))
    assert not bob.is_closed
    broker.commit(PutTenant(replace(acme, state=state)))
    assert bob.is_closed
    assert not alice.is_closed
    assert not is_let_in(broker.connect(), SHA_256, "bob@acme", "secret")
    of_bob = broker.services.image.credentials["bob@acme"]
    assert broker.authentication.why_not_served(of_bob) == f"the tenant acme is {state}"
    default = broker.services.image.tenant("default")
    assert default is not None
    broker.commit(PutTenant(replace(default, state="blocked")))
    assert not alice.is_closed


# Sessions


LIFETIME_MS = 60_000
SESSIONS = {"connections.max.reauth.ms": str(LIFETIME_MS)}


def logged_in(broker: SaslBroker, mechanism: str = SHA_256) -> SaslConnection:
    connection = broker.connect()
    answer = connection.log_in(mechanism, "alice", "secret")
    assert (answer.error_code, answer.session_lifetime_ms) == (0, LIFETIME_MS)
    return connection


def test_a_session_ends_unless_its_client_authenticates_anew() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    for _ in range(3):
        broker.pass_time(LIFETIME_MS - 1)
        answer = connection.log_in(SHA_256, "alice", "secret")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, LIFETIME_MS)
    broker.pass_time(LIFETIME_MS)
    assert not connection.is_closed
    connection.send(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest())
    assert connection.is_closed
    assert connection.receive(ApiKey.LIST_OFFSETS, 1) is None


def test_a_client_may_authenticate_anew_after_the_end_of_its_session() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(LIFETIME_MS)
    assert is_let_in(connection, SHA_256, "alice", "secret")
    connection.send(ApiKey.LIST_OFFSETS, 1, ListOffsetsRequest())
    assert connection.receive(ApiKey.LIST_OFFSETS, 1) is not None


@pytest.mark.parametrize("waits_ms", [2_000, LIFETIME_MS])
def test_nobody_becomes_somebody_else(waits_ms: int) -> None:
    broker = SaslBroker(ALICE, credential("bob", "other"), properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(waits_ms)
    assert connection.log_in(SHA_256, "bob", "other") is None
    broker.pass_time(REFUSAL_MS)
    answer = connection.receive_later()
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert connection.is_closed
    assert connection.info.principal == Principal("User", "alice")


def test_a_new_login_of_the_same_principal_goes_on() -> None:
    key = replace(credential("alice", "other"), login="key-1")
    broker = SaslBroker(ALICE, key, properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(2_000)
    assert is_let_in(connection, SHA_256, "key-1", "other")
    broker.revoke("alice")
    assert not connection.is_closed
    broker.revoke("key-1")
    assert connection.is_closed


def test_the_mechanism_remains_and_so_do_headers() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(2_000)
    assert connection.handshake(SHA_512) is None
    broker.pass_time(REFUSAL_MS)
    answer = connection.receive(ApiKey.SASL_HANDSHAKE, 1)
    assert answer.error_code == int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    assert connection.is_closed
    connection = logged_in(broker)
    broker.pass_time(2_000)
    assert connection.handshake(SHA_256, version=0) is None
    assert connection.is_closed


def test_a_failure_to_authenticate_anew_closes_the_connection() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(2_000)
    assert connection.log_in(SHA_256, "alice", "wrong") is None
    broker.pass_time(REFUSAL_MS)
    assert "during re-authentication" in connection.receive_later().error_message
    assert connection.is_closed


def test_authenticating_anew_all_the_time_closes_the_connection() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    broker.pass_time(999)
    assert connection.handshake(SHA_256) is None
    assert connection.is_closed


def test_what_comes_behind_a_proof_waits_for_its_outcome() -> None:
    broker = SaslBroker(ALICE)
    connection = broker.connect()
    connection.handshake("PLAIN")
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
    connection.send(ApiKey.SASL_AUTHENTICATE, 2, token)
    # Nothing is read any more, so nothing of this is handled.
    assert not connection.transport.is_reading_now
    broker.run_jobs()
    assert "invalid" in refused(connection).lower()


# Revocation


def test_connections_of_a_credential_end_with_it() -> None:
    broker = SaslBroker(ALICE, credential("bob", "other"))
    by_mechanism = {name: broker.connect() for name in ALL_MECHANISMS}
    for mechanism, connection in by_mechanism.items():
        assert is_let_in(connection, mechanism, "alice", "secret")
    bob = broker.connect()
    assert is_let_in(bob, SHA_256, "bob", "other")
    # Of what another verifier has proved nothing has changed.
    only = {SHA_256: credential("alice", "new").verifiers[SHA_256]}
    broker.commit(PutCredential(replace(ALICE, verifiers={**ALICE.verifiers, **only})))
    assert {name for name, one in by_mechanism.items() if one.is_closed} == {"PLAIN", SHA_256}
    broker.revoke("alice")
    assert by_mechanism[SHA_512].is_closed
    assert not bob.is_closed


def test_a_credential_that_may_no_longer_come_from_there_loses_its_connections() -> None:
    broker = SaslBroker(ALICE)
    near, far = broker.connect("10.0.0.1"), broker.connect("10.9.0.1")
    for connection in (near, far):
        assert is_let_in(connection, SHA_256, "alice", "secret")
    broker.restrict("alice", "10.0.0.0/24")
    assert far.is_closed
    assert not near.is_closed


def test_a_login_that_was_made_anew_for_somebody_else_ends_the_connections() -> None:
    """Also when both commits are seen at once, and the key is the same."""
    broker = SaslBroker(ALICE)
    connection = broker.connect()
    assert is_let_in(connection, SHA_256, "alice", "secret")
    image = broker.services.image
    other = {"alice": replace(ALICE, principal="bob")}
    broker.services.apply_image(
        replace(image, version=image.version + 1, credentials=other), broker.player.now_ms
    )
    assert connection.is_closed


def test_very_many_connections_are_closed_a_few_at_a_time() -> None:
    broker = SaslBroker(ALICE)
    connections = [broker.connect() for _ in range(CLOSED_PER_TURN_MAX + 1)]
    for connection in connections:
        connection.handshake(SHA_256)
        broker.pass_time(10)
        client = ScramClient(SHA_256, "alice", "secret")
        challenge = connection.authenticate(client.first())
        connection.authenticate(client.final(challenge.auth_bytes))
    broker.revoke("alice")
    assert [one.is_closed for one in connections].count(True) == CLOSED_PER_TURN_MAX
    broker.pass_time(0)
    assert all(one.is_closed for one in connections)


@pytest.mark.parametrize("is_blocked", [False, True])
def test_what_a_revoked_credential_has_sent_is_not_appended_later(is_blocked: bool) -> None:
    """Not even what asked for no answer, and waits for a thread."""
    broker = SaslBroker(replace(ALICE, tenant="acme"))
    player = broker.player
    player.make_tenant("acme")
    player.create_topic("orders", tenant="acme")
    connection = broker.connect()
    assert is_let_in(connection, SHA_256, "alice", "secret")
    batch = bytes(make_batch([bytes(HERE_UNPACKED_BYTES_MAX)], compression=Compression.LZ4))
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=batch)])
    connection.send(ApiKey.PRODUCE, 9, ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[data]))
    assert (connection.is_closed, len(player.executor.queue)) == (False, 1)
    if is_blocked:
        tenant = broker.services.image.tenants["acme"]
        broker.commit(PutTenant(replace(tenant, state=BLOCKED_TENANT)))
    else:
        broker.revoke("alice")
    assert connection.is_closed
    player.run_jobs()
    player.services.wakes.run(player.now_ms)
    assert player.partition("orders", tenant="acme").log.log_end_offset == 0


def test_connections_that_are_gone_leave_nothing() -> None:
    broker = SaslBroker(ALICE, properties=SESSIONS)
    connection = logged_in(broker)
    connection.connection.connection_lost(None)
    assert broker.services.timers.next_deadline_ms() is None
    assert broker.authentication.mechanism_of(connection.info) is None
    broker.revoke("alice")


def test_handshakes_of_all_versions_are_known() -> None:
    connection = SaslBroker(ALICE).connect()
    connection.send(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))
    assert connection.receive(ApiKey.SASL_HANDSHAKE, 0).mechanisms == list(ALL_MECHANISMS)
