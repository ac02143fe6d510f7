"""Who is logged in at which control plane: what `tidewheel login` keeps.

One file beside the profiles, `~/.config/tidewheel/logins.json`, by the profile's name (`default`,
or what TIDEWHEEL_PROFILE says): the address, a session or an API key, and the organization that
commands are about. It is the command's own; profiles are written by people.

Invariants
- Only its owner may read it; one that others may read is refused.
- It is replaced as a whole: a login that is interrupted leaves the old file.
- Neither key nor session is in a repr.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tidewheel.access import DEFAULT_PROFILE, PROFILE_VARIABLE, profiles_path
from tidewheel.errors import ConfigurationError
from tidewheel.rest import Rest

FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Login:
    """`session` or `key`; `organization_id` is "" while none is chosen."""

    url: str
    who: str
    organization_id: str = ""
    organization: str = ""
    session: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    def rest(self) -> Rest:
        """Raises ConfigurationError."""
        return Rest(self.url, self.headers())

    def headers(self) -> dict[str, str]:
        if self.key:
            return {"Authorization": f"Bearer {self.key}"}
        return {"X-Session-Token": self.session}


def profile_name(environ: Mapping[str, str]) -> str:
    """The profile that the environment chooses."""
    return environ.get(PROFILE_VARIABLE) or DEFAULT_PROFILE


def logins_path(environ: Mapping[str, str]) -> Path:
    return profiles_path(environ).with_name("logins.json")


def read_login(path: Path, name: str) -> Login | None:
    """The login of a profile; None when there is none. Raises ConfigurationError."""
    return _read(path).get(name)


def write_login(path: Path, name: str, login: Login | None) -> None:
    """Keep a login, or with None forget it. Raises ConfigurationError."""
    logins = _read(path)
    logins.pop(name, None)
    if login is not None:
        logins[name] = login
    text = json.dumps({each: asdict(one) for each, one in logins.items()}, indent=2) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}", hint="Let its owner write it") from (
            error
        )


def _read(path: Path) -> dict[str, Login]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}", hint="Let its owner read it") from (
            error
        )
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigurationError(
            f"{path} has keys, and others may read it", hint=f"Run: chmod 600 {path}"
        )
    try:
        return {name: Login(**one) for name, one in json.loads(data).items()}
    except (ValueError, TypeError, AttributeError):
        # What is wrong with it may be shown with a key.
        raise ConfigurationError(
            f"{path} is damaged", hint="Delete it, and log in again: `tidewheel login`"
        ) from None
