"""TLS of the listeners for clients: from PEM, in files or properties, to what a connection uses.

The authorities of clients' certificates are others than those of brokers and of CellAdmin, whose
certificates open more than a tenant's: where a listener's truststore has one of these, it is
refused.

Files are looked at again every LOOK_INTERVAL_MS, in a worker thread, and read when they have
changed; connections that are made from then on use what was read. What cannot be used is logged,
once, and what was there before remains in force.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple

from data_plane.broker.request.api import Executor
from data_plane.broker.services import Logger

LOOK_INTERVAL_MS: Final = 5_000

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# ASCII alone: for anything else Python raises TypeError, as if the code were wrong.
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([\x00-\x7f]*?)-----END \1-----")
_PEM_LINE_CHARACTERS: Final = 64


class ListenerTls(NamedTuple):
    """What a listener's properties say. Of `keystore` (a path) and `chain` with `key` (PEM) one is
    given; `truststore` (a path) or `authorities` (PEM) where clients show certificates."""

    keystore: str = ""
    chain: str = ""
    key: str = ""
    key_password: str = ""
    truststore: str = ""
    authorities: str = ""
    client_auth: str = "none"
    versions: tuple[str, ...] = tuple(_VERSIONS)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.keystore, self.truststore) if path)


def make_context(tls: ListenerTls, other_authorities: Sequence[str]) -> ssl.SSLContext:
    """Read what `tls` names. `other_authorities` are files of authorities that it must not trust.
    Raises OSError, which says what cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in tls.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    try:
        if tls.keystore:
            # An empty password rather than none, for which OpenSSL would ask the terminal.
            context.load_cert_chain(tls.keystore, password=tls.key_password)
        else:
            _load_pem(context, tls)
    except OSError as error:
        name = f"ssl.keystore: {tls.keystore}" if tls.keystore else "ssl.keystore.certificate.chain"
        raise OSError(f"{name}: {_words(error)}") from error
    context.verify_mode = _CLIENT_AUTH[tls.client_auth]
    if tls.client_auth == "none":
        return context
    try:
        if tls.truststore:
            context.load_verify_locations(tls.truststore)
        else:
            context.load_verify_locations(cadata=pem_with_lines(tls.authorities))
    except (OSError, ValueError) as error:
        # ValueError: there is no certificate in the property.
        name = (
            f"ssl.truststore: {tls.truststore}" if tls.truststore else "ssl.truststore.certificates"
        )
        raise OSError(f"{name}: {_words(error)}") from error
    _refuse_other_authorities(context, other_authorities)
    return context


def _load_pem(context: ssl.SSLContext, tls: ListenerTls) -> None:
    # OpenSSL takes a path only. The file is its owner's alone, and gone at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem_with_lines(tls.key) + pem_with_lines(tls.chain))
        file.flush()
        context.load_cert_chain(file.name, password=tls.key_password)


def pem_with_lines(text: str) -> str:
    """PEM as OpenSSL reads it, also of a property whose lines were joined."""
    blocks = []
    for label, body in _PEM_BLOCK.findall(text):
        digits = "".join(body.split())
        lines = [
            digits[start : start + _PEM_LINE_CHARACTERS]
            for start in range(0, len(digits), _PEM_LINE_CHARACTERS)
        ]
        blocks.append("\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n")))
    return "".join(blocks)


def _refuse_other_authorities(context: ssl.SSLContext, paths: Sequence[str]) -> None:
    trusted = set(context.get_ca_certs(binary_form=True))
    for path in paths:
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            other.load_verify_locations(path)
        except OSError as error:
            raise OSError(f"{path}: {_words(error)}") from error
        if trusted.intersection(other.get_ca_certs(binary_form=True)):
            raise OSError(
                f"ssl.truststore: an authority of {path} is in it: its certificates are those of "
                "brokers or operators, and would let clients in"
            )


def _words(error: OSError | ValueError) -> str:
    """Never the file's content."""
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)


class CurrentTls:
    """The context of one listener, kept as new as its files."""

    def __init__(
        self, name: str, tls: ListenerTls, other_authorities: Sequence[str], log: Logger
    ) -> None:
        """Raises OSError when it cannot be used as it is at the start."""
        self._name = name
        self._tls = tls
        self._other_authorities = tuple(other_authorities)
        self._log = log
        # Looked at before they are read: what changes in between is read once more.
        self._stamps = self._look()
        self.context = make_context(tls, self._other_authorities)
        self._is_looking = False

    def look(self, executor: Executor) -> None:
        """See in a worker thread whether there is something new."""
        if self._is_looking or not self._tls.files:
            return
        self._is_looking = True
        executor.submit(self._read_if_changed, self._done)

    def _read_if_changed(self) -> tuple[list[_Stamp], ssl.SSLContext | str] | None:
        """The new context, or why there is none; None when nothing has changed."""
        try:
            stamps = self._look()
        except OSError as error:
            stamps = []
            if stamps == self._stamps:
                return None
            return stamps, str(error)
        if stamps == self._stamps:
            return None
        try:
            return stamps, make_context(self._tls, self._other_authorities)
        except OSError as error:
            return stamps, str(error)

    def _done(
        self,
        found: tuple[list[_Stamp], ssl.SSLContext | str] | None,
        error: BaseException | None,
    ) -> None:
        self._is_looking = False
        if error is not None:
            self._log.error("tls_files_not_read", listener=self._name, error=repr(error))
        elif found is not None:
            self._stamps, new = found
            if isinstance(new, str):
                self._log.error("tls_files_not_read", listener=self._name, error=new)
            else:
                self.context = new
                self._log.info("tls_files_read", listener=self._name)

    def _look(self) -> list[_Stamp]:
        found = [os.stat(path) for path in self._tls.files]
        return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in found]


_Stamp = tuple[int, int, int]


class TlsContexts:
    """Those of all listeners, by name. `look` is called with every tick."""

    def __init__(self, current: dict[str, CurrentTls], executor: Executor) -> None:
        self._current = current
        self._executor = executor
        self._next_look_ms = 0

    def of(self, name: str) -> ssl.SSLContext:
        return self._current[name].context

    def look(self, now_ms: int) -> None:
        if self._current and now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_INTERVAL_MS
            for current in self._current.values():
                current.look(self._executor)
