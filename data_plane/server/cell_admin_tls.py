"""Who may call CellAdmin: whoever shows a certificate of its own authority.

It is another authority than that of the brokers and those of tenants: who has a certificate of it
is a control plane or an operator. The files are read again when they have changed, at the next
connection; files that cannot be read leave the old ones in force.
"""

from __future__ import annotations

import os

import grpc

from data_plane.broker.services import Logger
from data_plane.server.cell_admin_settings import CellAdminFiles


class Credentials:
    """What the server shows and asks for, kept as new as the files."""

    def __init__(self, files: CellAdminFiles, log: Logger) -> None:
        """Raises OSError when a file cannot be read."""
        self._files = files
        self._log = log
        self._stamps = self._look()
        self._current = self._read()

    def for_server(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._current, self._renewed, require_client_authentication=True
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration:
        """Called at each connection, in a thread of gRPC's."""
        try:
            stamps = self._look()
            if stamps != self._stamps:
                self._current = self._read()
                self._stamps = stamps
                self._log.info("cell_admin_certificate_read")
        except OSError as error:
            self._log.error("cell_admin_certificate_not_read", error=str(error))
        return self._current

    def _look(self) -> list[tuple[int, int, int]]:
        found = [os.stat(path) for path in self._files]
        return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in found]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        contents = []
        for path in self._files:
            with open(path, "rb") as file:
                contents.append(file.read())
        certificate, key, authority = contents
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)
