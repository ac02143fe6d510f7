"""What a listener's TLS is made of, and when its files are read again."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from data_plane.server.client_tls import (
    LOOK_INTERVAL_MS,
    CurrentTls,
    ListenerTls,
    TlsContexts,
    make_context,
)
from tests.broker.doubles import QueueExecutor, RememberingLog
from tests.certificates import WHY_NO_CERTIFICATES, Authority

pytestmark = pytest.mark.skipif(
    bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available"
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def shown_by(context: ssl.SSLContext, authority: Authority, client: Path | None = None) -> bytes:
    """The certificate that a client is shown, who shows his own if he has one."""
    client_context = ssl.create_default_context(cafile=authority.certificate)
    if client is not None:
        client_context.load_cert_chain(client)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = context.wrap_bio(to_server, to_client, server_side=True)
    client_side = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    sides = [client_side, server_side]
    while sides:
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)
    certificate = client_side.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


class Files:
    """A listener's TLS, its files, and the worker thread that looks at them."""

    def __init__(self, authority: Authority, path: Path) -> None:
        self.authority, self.path = authority, path
        self.log = RememberingLog()
        self.executor = QueueExecutor()
        self.replace(authority.keystore("first"))
        current = CurrentTls("SSL", ListenerTls(keystore=str(path)), (), self.log)
        self.contexts = TlsContexts({"SSL": current}, self.executor)
        self.now_ms = 0
        self.look()

    def replace(self, source: Path) -> None:
        other = self.path.with_suffix(".new")
        other.write_bytes(source.read_bytes())
        os.replace(other, self.path)

    def look(self) -> None:
        self.now_ms += LOOK_INTERVAL_MS
        self.contexts.look(self.now_ms)
        while self.executor.queue:
            self.executor.run_one()

    def shown(self) -> bytes:
        return shown_by(self.contexts.of("SSL"), self.authority)

    def told(self) -> list[str]:
        return [event for _, event, _ in self.log.events]


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Files:
    return Files(authority, tmp_path / "keystore.pem")


def test_a_new_certificate_is_shown_from_then_on(files: Files) -> None:
    before = files.shown()
    files.look()
    assert files.told() == []
    files.replace(files.authority.keystore("second"))
    assert files.shown() == before, "nobody has looked yet"
    files.look()
    assert files.shown() != before
    assert files.told() == ["tls_files_read"]


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_bad_file_leaves_the_old_certificate_and_says_so_once(
    files: Files, content: bytes | None
) -> None:
    before = files.shown()
    if content is None:
        files.path.unlink()
    else:
        files.path.write_bytes(content)
    files.look()
    files.look()
    assert files.shown() == before
    assert files.told() == ["tls_files_not_read"]
    files.replace(files.authority.keystore("second"))
    files.look()
    assert files.shown() != before


def test_one_look_at_a_time(files: Files) -> None:
    for _ in range(3):
        files.now_ms += LOOK_INTERVAL_MS
        files.contexts.look(files.now_ms)
    assert len(files.executor.queue) == 1


def test_what_cannot_be_used_stops_the_start(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"missing\.pem"):
        make_context(ListenerTls(keystore="missing.pem"), ())
    key_only = authority.issue("broker", "IP:127.0.0.1").key
    with pytest.raises(OSError, match=r"broker\.key"):
        make_context(ListenerTls(keystore=key_only), ())


def test_pem_may_stand_in_the_properties_themselves(authority: Authority) -> None:
    files = authority.issue("broker", "IP:127.0.0.1")
    chain, key = Path(files.certificate).read_text(), Path(files.key).read_text()
    # As they are after a properties file has joined their lines.
    joined = ListenerTls(chain=chain.replace("\n", " "), key=key.replace("\n", ""))
    assert shown_by(make_context(joined, ()), authority)


@pytest.mark.parametrize(
    "authorities",
    [
        "no PEM at all",
        "-----BEGIN CERTIFICATE----- AAAA -----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE----- \u0416 -----END CERTIFICATE-----",
    ],
)
def test_authorities_that_cannot_be_read_are_refused_by_the_property_s_name(
    authority: Authority, authorities: str
) -> None:
    tls = ListenerTls(
        keystore=str(authority.keystore("broker")), authorities=authorities, client_auth="required"
    )
    with pytest.raises(OSError, match=r"^ssl\.truststore\.certificates: \S"):
        make_context(tls, ())


def test_a_chain_that_cannot_be_read_is_refused_by_the_property_s_name() -> None:
    with pytest.raises(OSError, match=r"^ssl\.keystore\.certificate\.chain: \S"):
        make_context(ListenerTls(chain="no PEM at all", key="nor this"), ())


def test_an_encrypted_key_needs_its_password(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("broker", "IP:127.0.0.1")
    authority._openssl(f"pkcs8 -topk8 -in {files.key} -out locked.key -passout pass:secret")
    key = (authority.folder / "locked.key").read_text()
    chain = Path(files.certificate).read_text()
    make_context(ListenerTls(chain=chain, key=key, key_password="secret"), ())
    for wrong in ("", "other"):
        with pytest.raises(OSError, match=r"ssl\.keystore"):
            make_context(ListenerTls(chain=chain, key=key, key_password=wrong), ())


def test_clients_certificates_are_checked_where_they_are_asked_for(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    tls = ListenerTls(
        keystore=str(authority.keystore("broker")),
        truststore=authority.certificate,
        client_auth="required",
    )
    context = make_context(tls, ())
    assert shown_by(context, authority, authority.keystore("client"))
    for client in (None, other.keystore("client")):
        with pytest.raises(ssl.SSLError):
            shown_by(context, authority, client)
    requested = make_context(tls._replace(client_auth="requested"), ())
    assert shown_by(requested, authority)


def test_the_authorities_of_brokers_are_not_those_of_clients(
    authority: Authority, tmp_path: Path
) -> None:
    tenants = Authority(tmp_path / "tenants")
    both = tmp_path / "both.pem"
    both.write_bytes(
        Path(tenants.certificate).read_bytes() + Path(authority.certificate).read_bytes()
    )
    keystore = str(authority.keystore("broker"))
    tls = ListenerTls(keystore=keystore, truststore=str(both), client_auth="required")
    with pytest.raises(OSError, match="would let clients in"):
        make_context(tls, (authority.certificate,))
    make_context(tls._replace(truststore=tenants.certificate), (authority.certificate,))
