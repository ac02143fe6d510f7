"""The stack's side of SCRAM: the exchange of RFC 7677, and brokers that only claim to know it."""

from __future__ import annotations

import pytest
from tidewheel.sasl import NotTrusted, ScramClient, plain_message

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_exchange_of_the_rfc() -> None:
    client = exchange()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.final(SERVER_FIRST).endswith(PROOF)
    client.check(SERVER_FINAL)


def test_a_broker_has_to_know_the_user_too() -> None:
    client = exchange()
    client.final(SERVER_FIRST)
    with pytest.raises(NotTrusted, match="does not know"):
        client.check(SERVER_FINAL.replace(b"6rri", b"7rri"))


@pytest.mark.parametrize(
    "answer",
    [
        b"r=somebody-elses,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"4096", b"400000000"),
        SERVER_FIRST.replace(b"i=4096", b"e=no"),
    ],
)
def test_answers_that_are_none(answer: bytes) -> None:
    with pytest.raises(NotTrusted):
        exchange().final(answer)


def test_names_with_signs_of_the_protocol() -> None:
    assert ScramClient("SCRAM-SHA-512", "a=b,c", "p", "n").first() == b"n,,n=a=3Db=2Cc,r=n"
    assert plain_message("a", "b") == b"\0a\0b"
