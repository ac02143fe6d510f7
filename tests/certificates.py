"""Certificates for tests, made on the spot by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from data_plane.server.inter_broker_tls import AUTHORITY, CERTIFICATE, KEY, TlsFiles

WHY_NO_CERTIFICATES = (
    "" if shutil.which("openssl") else "there is no openssl here to make certificates with"
)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
            " -subj /CN=cell -keyout ca.key -out ca.pem"
        )

    @property
    def certificate(self) -> str:
        return str(self.folder / "ca.pem")

    def keystore(
        self, name: str, subject_alt_name: str = "IP:127.0.0.1", seconds: int | None = None
    ) -> Path:
        """A file with a certificate and its key, as a listener or a client of Kafka has them. Valid
        for so many seconds from now on, where that is not two days."""
        files = self.issue(name, subject_alt_name)
        if seconds is not None:
            self._sign_for(name, seconds)
        path = self.folder / f"{name}.keystore.pem"
        path.write_text(Path(files.key).read_text() + Path(files.certificate).read_text())
        return path

    def issue(self, name: str, subject_alt_name: str) -> TlsFiles:
        self._openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
            f" -subj /CN={name} -keyout {name}.key -out {name}.csr"
        )
        (self.folder / f"{name}.cnf").write_text(f"subjectAltName={subject_alt_name}\n")
        self._openssl(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
            f" -extfile {name}.cnf -out {name}.pem"
        )
        return TlsFiles(*(str(self.folder / f) for f in (f"{name}.pem", f"{name}.key", "ca.pem")))

    def _sign_for(self, name: str, seconds: int) -> None:
        """Days are the least that `openssl x509` knows."""
        (self.folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=ours\n[ours]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\n"
            "default_md=sha256\npolicy=any\nunique_subject=no\n[any]\ncommonName=supplied\n"
        )
        (self.folder / "index.txt").touch()
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        self._openssl(
            f"ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key -in {name}.csr"
            f" -enddate {ends:%Y%m%d%H%M%SZ} -extfile {name}.cnf -out {name}.pem"
        )

    def _openssl(self, arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments.split()], cwd=self.folder, check=True, capture_output=True
        )


def tls_settings(files: TlsFiles) -> tuple[str, ...]:
    """The broker properties that name these files."""
    return tuple(
        f"{name}={path}" for name, path in zip((CERTIFICATE, KEY, AUTHORITY), files, strict=True)
    )
