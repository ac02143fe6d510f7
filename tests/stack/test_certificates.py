"""The certificates of a stack: who trusts whom, who may read them, and when they are made anew."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stack.certificates import CERTIFICATE_DAYS, RENEWED_DAYS, StackCertificates


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """In memory. Raises ssl.SSLError."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(one, other, server_hostname="127.0.0.1"),
        server.wrap_bio(other, one, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides, "it has ended on both sides"


def test_clients_trust_the_brokers_and_cell_admin_takes_operators_only(tmp_path: Path) -> None:
    made = StackCertificates(tmp_path / "tls")
    made.prepare()
    listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listener.load_cert_chain(made.keystore)
    handshake(listener, ssl.create_default_context(cafile=made.authority))

    admin = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    admin.load_cert_chain(*made.cell_admin)
    admin.load_verify_locations(made.operators_authority)
    admin.verify_mode = ssl.CERT_REQUIRED
    operator = ssl.create_default_context(cafile=made.operators_authority)
    operator.load_cert_chain(*made.operator)
    handshake(admin, operator)
    stranger = ssl.create_default_context(cafile=made.operators_authority)
    # A certificate of the other authority.
    stranger.load_cert_chain(made.keystore)
    with pytest.raises(ssl.SSLError):
        handshake(admin, stranger)


def test_keys_are_their_owners_only(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    StackCertificates(folder).prepare()
    for path in folder.iterdir():
        if path.name not in ("ca.pem", "operators-ca.pem"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


def test_what_is_there_stays_until_it_ends_soon(tmp_path: Path) -> None:
    made = StackCertificates(tmp_path / "tls")
    now = datetime.now(UTC)
    made.prepare(now)
    before = contents(made.folder)
    made.prepare(now + timedelta(days=CERTIFICATE_DAYS - RENEWED_DAYS - 1))
    assert contents(made.folder) == before
    made.prepare(now + timedelta(days=CERTIFICATE_DAYS - RENEWED_DAYS + 1))
    after = contents(made.folder)
    assert after["ca.pem"] == before["ca.pem"]
    assert after["broker.pem"] != before["broker.pem"]


def test_with_another_authority_all_is_made_anew(tmp_path: Path) -> None:
    made = StackCertificates(tmp_path / "tls")
    made.prepare()
    before = contents(made.folder)
    made.authority.unlink()
    made.prepare()
    after = contents(made.folder)
    assert after["broker.pem"] != before["broker.pem"]
    assert after["operator.pem"] == before["operator.pem"]
