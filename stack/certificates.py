"""The authorities and certificates of a stack on this machine, in its data folder.

    tls/ca.pem, ca.key            signs what brokers show to clients; clients trust ca.pem
    tls/broker.pem                that certificate and its key, one for all brokers
    tls/operators-ca.pem, .key    signs who may call CellAdmin, and what CellAdmin shows
    tls/cell-admin.pem, .key      what it shows
    tls/operator.pem, .key        an operator of this machine: `tidewheel tenants|users|acls|…`
    tls/control-plane.pem, .key   the control plane of this stack

Keys are readable by their owner only. What is there stays; a certificate is made anew when it ends
soon. Two authorities, since a client's certificate must open nothing else.

Deliberately absent: certificates for machines that others reach; a stack is on loopback.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
RENEWED_DAYS: Final = 60
"""A certificate that ends sooner is made anew at the next start."""

_BACKDATED: Final = timedelta(hours=1)
"""Clocks of containers and of their host may differ a little."""


@dataclass(frozen=True, slots=True)
class StackCertificates:
    """The files, by what they are for."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def keystore(self) -> Path:
        """A listener's: certificate and key in one file."""
        return self.folder / "broker.pem"

    @property
    def operators_authority(self) -> Path:
        return self.folder / "operators-ca.pem"

    @property
    def cell_admin(self) -> tuple[Path, Path]:
        """What CellAdmin shows: certificate, key."""
        return self.folder / "cell-admin.pem", self.folder / "cell-admin.key"

    @property
    def operator(self) -> tuple[Path, Path]:
        """Whom CellAdmin takes for an operator: certificate, key."""
        return self.folder / "operator.pem", self.folder / "operator.key"

    @property
    def control_plane(self) -> tuple[Path, Path]:
        """Whom CellAdmin takes for the control plane: certificate, key."""
        return self.folder / "control-plane.pem", self.folder / "control-plane.key"

    def prepare(self, now: datetime | None = None) -> None:
        """Make what is missing, or ends soon."""
        now = datetime.now(UTC) if now is None else now
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        clients = _Authority(self.authority, self.folder / "ca.key", "Tidewheel stack", now)
        operators = _Authority(
            self.operators_authority,
            self.folder / "operators-ca.key",
            "Tidewheel stack operators",
            now,
        )
        clients.issue(self.keystore, self.keystore, "broker", now)
        operators.issue(*self.cell_admin, "cell-admin", now)
        operators.issue(*self.operator, "operator", now)
        operators.issue(*self.control_plane, "control-plane", now)


class _Authority:
    """One authority, read from its files or made anew."""

    def __init__(self, certificate: Path, key: Path, name: str, now: datetime) -> None:
        self._is_new = not _lasts(certificate, now) or not key.exists()
        if self._is_new:
            made = ec.generate_private_key(ec.SECP256R1())
            subject = _named(name)
            builder = (
                _builder(subject, subject, made, now, AUTHORITY_DAYS)
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(_usage(signs=True), critical=True)
            )
            _write(key, _pem_of(made))
            _write(certificate, _pem(builder.sign(made, hashes.SHA256())), mode=0o644)
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey), f"{key} is not one of ours"
        self._key = loaded
        self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes())

    def issue(self, certificate: Path, key: Path, name: str, now: datetime) -> None:
        """A certificate for this machine's loopback; with its key in one file if they are one."""
        if not self._is_new and _lasts(certificate, now) and key.exists():
            return
        made = ec.generate_private_key(ec.SECP256R1())
        addresses = [x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "::1")]
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(_named(name), self._certificate.subject, made, now, CERTIFICATE_DAYS)
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        pem = _pem(builder.sign(self._key, hashes.SHA256()))
        if certificate == key:
            _write(key, _pem_of(made) + pem)
        else:
            _write(key, _pem_of(made))
            _write(certificate, pem)


def _lasts(certificate: Path, now: datetime) -> bool:
    """Whether it is there, and does not end soon."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return found.not_valid_after_utc - now > timedelta(days=RENEWED_DAYS)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """As a whole: brokers that run read it when it changes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
    temporary.replace(path)
