"""Files that only their owner may read: passwords and keys of a stack, and its logs, since a stack
without a mail server has its mails there, with what logs people in."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """The whole file; without the sync a power loss could leave an empty one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def open_private_log(path: Path) -> int:
    """A descriptor that appends to a log; an earlier version let all read the one that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)
    return descriptor


def secret_in(path: Path, random_bytes: int) -> str:
    """What a file keeps secret, drawn when there is none yet."""
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        write_private(temporary, secrets.token_urlsafe(random_bytes) + "\n")
        temporary.replace(path)
    return path.read_text(encoding="ascii").strip()
