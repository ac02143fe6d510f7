"""Where CellAdmin is served and with which files, as the broker's properties say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from data_plane.broker.config.effective import EffectiveConfig

LISTENER = "cell.admin.listener"
CERTIFICATE = "cell.admin.tls.certificate"
KEY = "cell.admin.tls.key"
AUTHORITY = "cell.admin.tls.ca"

_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\s]+):([0-9]{1,5})")


class CellAdminFiles(NamedTuple):
    """Paths of PEM files: the broker's certificate (with the chain) and key, and the certificate of
    the authority that signs those of callers."""

    certificate: str
    key: str
    authority: str


class CellAdminSettings(NamedTuple):
    """An IPv6 `host` stands in brackets; `port` 0 is any free one."""

    host: str
    port: int
    files: CellAdminFiles


def read_settings(
    resolver: EffectiveConfig, problem: Callable[[str, str], None]
) -> CellAdminSettings | None:
    """None when it is not to be served, or cannot be: `problem` is told (property, reason)."""
    listener, *paths = (
        str(resolver.get(name) or "") for name in (LISTENER, CERTIFICATE, KEY, AUTHORITY)
    )
    files = CellAdminFiles(*paths)
    given = dict(zip((CERTIFICATE, KEY, AUTHORITY), files, strict=True))
    if not listener:
        for name, path in given.items():
            if path:
                problem(name, f"has no effect without {LISTENER}")
        return None
    match = _HOST_AND_PORT.fullmatch(listener)
    if match is None or int(match[2]) > 65535:
        problem(LISTENER, f"{listener!r} is not of the form host:port")
        return None
    missing = [name for name, path in given.items() if not path]
    for name in missing:
        problem(name, f"is missing; {LISTENER} is served over mutual TLS only")
    return None if missing else CellAdminSettings(match[1], int(match[2]), files)
