"""The exchanges of SCRAM and PLAIN, token by token."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.authentication.decoys import Decoys
from data_plane.broker.authentication.plain import PlainExchange
from data_plane.broker.authentication.sasl_exchange import Challenge, Claim, Proven, Refused
from data_plane.broker.authentication.scram import (
    ScramExchange,
    is_password_of,
    salted_password,
    verifier_of,
)
from data_plane.cell.credentials import KEY_BYTES, Credential, ScramVerifier
from tests.broker.sasl_player import SHA_256, SHA_512, ScramClient, credential

ALICE = credential("alice", "secret")
USERS = {"alice": ALICE}
MECHANISMS = (SHA_256, SHA_512)


def decoy(mechanism: str, login: str) -> ScramVerifier:
    return Decoys(lambda: b"k" * 32, dict).for_mechanism(mechanism, login)


def exchange(mechanism: str = SHA_256, nonce: str = "3rfcNHYJY1ZVvWVs7j") -> ScramExchange:
    return ScramExchange(mechanism, USERS.get, decoy, nonce)


def test_the_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = verifier_of(SHA_256, salted_password(SHA_256, b"pencil", salt, 4096), salt, 4096)
    user = Credential("user", "default", "user", {SHA_256: verifier})
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = ScramExchange(SHA_256, {"user": user}.get, decoy, nonce)
    assert server.take(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.take(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == Proven(user, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_who_knows_the_password_is_let_in(mechanism: str, name: str) -> None:
    user = Credential(name, "default", name, ALICE.verifiers)
    server = ScramExchange(mechanism, {name: user}.get, decoy, "server")
    client = ScramClient(mechanism, name, "secret")
    challenge = server.take(client.first())
    assert isinstance(challenge, Challenge)
    proven = server.take(client.final(challenge.token))
    assert isinstance(proven, Proven)
    assert proven.credential is user
    assert server.login == name
    assert client.believes(proven.token)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("login", ["alice", "nobody"])
def test_a_wrong_password_and_a_wrong_name_are_refused_alike(mechanism: str, login: str) -> None:
    server, client = exchange(mechanism), ScramClient(mechanism, login, "wrong")
    challenge = server.take(client.first())
    assert isinstance(challenge, Challenge)
    assert server.take(client.final(challenge.token)) == Refused("Invalid client credentials")


def test_who_does_not_exist_has_the_same_salt_each_time() -> None:
    answers = set()
    for _ in range(3):
        challenge = exchange().take(ScramClient(SHA_256, "nobody", "x").first())
        assert isinstance(challenge, Challenge)
        answers.add(challenge.token)
    assert len(answers) == 1
    other = exchange().take(ScramClient(SHA_256, "nobody else", "x").first())
    assert isinstance(other, Challenge)
    assert other.token not in answers


def test_who_has_a_verifier_of_another_mechanism_only_is_nobody() -> None:
    user = credential("bob", "secret", SHA_256)
    server = ScramExchange(SHA_512, {"bob": user}.get, decoy, "server")
    client = ScramClient(SHA_512, "bob", "secret")
    challenge = server.take(client.first())
    assert isinstance(challenge, Challenge)
    assert server.take(client.final(challenge.token)) == Refused("Invalid client credentials")


def test_nothing_proves_the_verifier_of_who_does_not_exist() -> None:
    """Its stored key is zeros, which anybody could know: whoever finds a key with that hash…"""
    server = exchange()
    challenge = server.take(b"n,,n=nobody,r=abc")
    assert isinstance(challenge, Challenge)
    nonce = challenge.token.split(b",")[0]
    for proof in (bytes(32), b"\xff" * 32):
        answer = server.take(b"c=biws,%s,p=%s" % (nonce, b64encode(proof)))
        assert isinstance(answer, Refused)


def test_a_client_that_says_its_nonce_twice_is_let_in() -> None:
    """librdkafka before 2.6.1, as in Debian's kcat; Apache Kafka lets it in, too."""
    client = ScramClient(SHA_256, "alice", "secret", nonce="mine", before_nonces="mine")
    server = exchange()
    challenge = server.take(client.first())
    assert isinstance(challenge, Challenge)
    proven = server.take(client.final(challenge.token))
    assert isinstance(proven, Proven)
    assert client.believes(proven.token)


def test_a_recorded_proof_proves_nothing_in_another_exchange() -> None:
    recorded, client = exchange(nonce="first"), ScramClient(SHA_256, "alice", "secret")
    challenge = recorded.take(client.first())
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.token)
    assert isinstance(recorded.take(final), Proven)
    replayed = exchange(nonce="second")
    assert isinstance(replayed.take(client.first()), Challenge)
    refused = Refused("Invalid client nonce in the final client message.")
    assert replayed.take(final) == refused
    # With the new nonce in place of the old one the proof is of something else.
    replayed = exchange(nonce="second")
    replayed.take(client.first())
    assert replayed.take(final.replace(b"first", b"second")) == Refused(
        "Invalid client credentials"
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=abc",
        b"n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=must,n=alice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a c",
        b"n,,n=al\0ice,r=abc",
        b"\xff\xfe",
        b"\0alice\0secret",
    ],
)
def test_first_messages_that_are_none(message: bytes) -> None:
    server = exchange()
    assert isinstance(server.take(message), Refused)
    assert isinstance(server.take(b"n,,n=alice,r=abc"), Refused)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=%s",
        b"c=biws,r=%s,p=",
        b"c=biws,r=%s,p=AAAA",
        b"c=biws,r=%s,p=A===",
        b"c=eSws,r=%s,p=AAAA",
        b"c=biws,r=abc,p=AAAA",
        b"r=%s,p=AAAA",
        b"\xff",
    ],
)
def test_final_messages_that_prove_nothing(final: bytes) -> None:
    server = exchange(nonce="server")
    assert isinstance(server.take(b"n,,n=alice,r=abc"), Challenge)
    assert isinstance(server.take(final.replace(b"%s", b"abcserver")), Refused)


def test_an_exchange_is_over_after_its_end() -> None:
    server, client = exchange(), ScramClient(SHA_256, "alice", "secret")
    challenge = server.take(client.first())
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.token)
    assert isinstance(server.take(final), Proven)
    assert server.take(final) == Refused("a message after the last one")


def test_authorization_as_somebody_else_is_refused() -> None:
    outcome = exchange().take(b"n,a=bob,n=alice,r=abc")
    assert isinstance(outcome, Refused)
    assert outcome.message is not None
    assert isinstance(exchange().take(b"n,a=alice,n=alice,r=abc"), Challenge)


@given(st.binary(max_size=200))
def test_any_bytes_have_an_outcome(token: bytes) -> None:
    for server in (exchange(), exchange(SHA_512), PlainExchange()):
        assert isinstance(server.take(token), Challenge | Claim | Refused)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_verifier_knows_its_password(mechanism: str) -> None:
    verifier = ALICE.verifiers[mechanism]
    assert is_password_of(mechanism, verifier, b"secret")
    assert not is_password_of(mechanism, verifier, b"Secret")
    assert len(verifier.stored_key) == len(verifier.server_key) == KEY_BYTES[mechanism]


@pytest.mark.parametrize(
    ("token", "outcome"),
    [
        (b"\0alice\0secret", Claim("alice", b"secret")),
        (b"alice\0alice\0secret", Claim("alice", b"secret")),
        (b"\0alice@acme\0p\xc3\xa4ss", Claim("alice@acme", "päss".encode())),
    ],
)
def test_claims(token: bytes, outcome: Claim) -> None:
    assert PlainExchange().take(token) == outcome


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\0\0secret",
        b"\0alice\0",
        b"bob\0alice\0secret",
        b"\0\xff\0secret",
    ],
)
def test_claims_of_nothing(token: bytes) -> None:
    client = PlainExchange()
    assert isinstance(client.take(token), Refused)
    assert client.take(b"\0alice\0secret") == Refused("a token after the last one")
