"""What a handshake proves of a client's certificate, of a resumed session, too."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from data_plane.server import peer_certificates
from data_plane.server.client_tls import ListenerTls, make_context
from data_plane.server.peer_certificates import PeerCertificates, UnknownSession
from tests.certificates import WHY_NO_CERTIFICATES, Authority

pytestmark = pytest.mark.skipif(
    bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available"
)


class Handshakes:
    """Of one client, whose certificate is its own, with one listener."""

    def __init__(self, folder: Path, version: ssl.TLSVersion) -> None:
        self.authority = Authority(folder / "authority")
        self.server = make_context(
            ListenerTls(
                keystore=str(self.authority.keystore("broker")),
                truststore=self.authority.certificate,
                client_auth="requested",
            ),
            (),
        )
        self.client = ssl.create_default_context(cafile=self.authority.certificate)
        self.client.load_cert_chain(self.authority.keystore("client", "DNS:Client.example"))
        self.client.maximum_version = version

    def shake(
        self, session: ssl.SSLSession | None = None
    ) -> tuple[ssl.SSLObject, ssl.SSLSession | None]:
        """The server's side, and what the client may resume."""
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self.server.wrap_bio(to_server, to_client, server_side=True)
        client = self.client.wrap_bio(
            to_client, to_server, server_hostname="127.0.0.1", session=session
        )
        sides = [client, server]
        while sides:
            side = sides.pop(0)
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                sides.append(side)
        return server, client.session


@pytest.fixture
def handshakes(tmp_path: Path) -> Handshakes:
    return Handshakes(tmp_path, ssl.TLSVersion.TLSv1_2)


def test_a_resumed_session_proves_what_the_first_handshake_did(handshakes: Handshakes) -> None:
    certificates = PeerCertificates()
    first, session = handshakes.shake()
    proved = certificates.of(first)
    assert proved is not None
    root = ssl.PEM_cert_to_DER_cert(Path(handshakes.authority.certificate).read_text())
    assert proved.authority == hashlib.sha256(root).hexdigest()
    assert proved.names == ("DNS:client.example",)
    # OpenSSL forgets the session of a connection that goes without a word.
    kept = [first]
    for _ in range(3):
        resumed, session = handshakes.shake(session)
        kept.append(resumed)
        assert resumed.session_reused
        assert certificates.of(resumed) == proved


def test_a_session_that_nobody_remembers_proves_nothing(handshakes: Handshakes) -> None:
    first, session = handshakes.shake()
    assert not first.session_reused
    resumed, _ = handshakes.shake(session)
    with pytest.raises(UnknownSession):
        PeerCertificates().of(resumed)


def test_a_session_that_was_refused_is_not_resumed_again(handshakes: Handshakes) -> None:
    """Its connection is closed without TLS saying so."""
    first, session = handshakes.shake()
    resumed, _ = handshakes.shake(session)
    assert resumed.session_reused
    del resumed
    again, _ = handshakes.shake(session)
    assert not again.session_reused
    assert not first.session_reused


def test_so_many_sessions_are_remembered(
    handshakes: Handshakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_certificates, "SESSIONS_MAX", 3)
    certificates = PeerCertificates()
    made = [handshakes.shake() for _ in range(4)]
    for server, _ in made:
        certificates.of(server)
    assert len(certificates) == 3
    with pytest.raises(UnknownSession):
        certificates.of(handshakes.shake(made[0][1])[0])
    assert certificates.of(handshakes.shake(made[1][1])[0]) is not None


def test_sessions_of_tls_1_3_are_neither_resumed_nor_remembered(tmp_path: Path) -> None:
    handshakes = Handshakes(tmp_path, ssl.TLSVersion.TLSv1_3)
    certificates = PeerCertificates()
    first, session = handshakes.shake()
    assert certificates.of(first) is not None
    second, _ = handshakes.shake(session)
    assert not second.session_reused
    assert certificates.of(second) is not None
    assert len(certificates) == 0


def test_who_shows_no_certificate_has_none(handshakes: Handshakes) -> None:
    handshakes.client = ssl.create_default_context(cafile=handshakes.authority.certificate)
    assert PeerCertificates().of(handshakes.shake()[0]) is None
