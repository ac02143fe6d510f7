"""A control plane's side of CellAdmin: what a broker must be told, and channels to it."""

from __future__ import annotations

from pathlib import Path

import grpc

from data_plane.server.cell_admin_settings import AUTHORITY, CERTIFICATE, KEY, LISTENER
from data_plane.server.inter_broker_tls import TlsFiles


def settings(files: TlsFiles) -> dict[str, str]:
    return {LISTENER: "127.0.0.1:0", CERTIFICATE: files[0], KEY: files[1], AUTHORITY: files[2]}


def channel(port: int, files: TlsFiles | None, ca: str = "", **options: str | int) -> grpc.Channel:
    """As somebody with these files, or with the authority `ca` only and no certificate."""
    if files is None:
        credentials = grpc.ssl_channel_credentials(Path(ca).read_bytes())
    else:
        certificate, key, trusted = (Path(path).read_bytes() for path in files)
        credentials = grpc.ssl_channel_credentials(trusted, key, certificate)
    named = [(f"grpc.{name}", value) for name, value in options.items()]
    return grpc.secure_channel(f"127.0.0.1:{port}", credentials, named)
