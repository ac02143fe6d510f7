"""Where a client connects, and as whom: a TIDEWHEEL_URL, or a profile.

    tidewheel://alice:secret@broker-1:13092,broker-2:13092?ca=/etc/tidewheel/ca.pem
    tidewheel://127.0.0.1:9092          nobody in particular
    host:port,host:port                 the same, as other Kafka tools have it

What stands in the address is percent-encoded where it would mean something else (`@` is %40). With
`ca` (a PEM file), or with `tls=true` and the machine's own authorities, the connection is TLS;
`mechanism` is SCRAM-SHA-256 unless it says SCRAM-SHA-512 or PLAIN.

A *profile* keeps the password out of environments and shell histories. They are tables of a TOML
file that only its owner may read, `~/.config/tidewheel/profiles.toml`:

    [default]
    url = "tidewheel://broker-1:13092"
    user = "alice"
    password = "…"
    ca = "/etc/tidewheel/ca.pem"

Invariants
- A password is in no repr, no error and no hint.
- A password is not sent to another machine as it is: PLAIN without TLS is refused off loopback.

Deliberately absent: other ways to authenticate; librdkafka's own properties (`ClientSettings`) have
them all.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, unquote

from tidewheel.errors import ConfigurationError

URL_VARIABLE: Final = "TIDEWHEEL_URL"
PROFILE_VARIABLE: Final = "TIDEWHEEL_PROFILE"
DEFAULT_PROFILE: Final = "default"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_PORT: Final = 9092
DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
PROFILE_BYTES_MAX: Final = 1 << 20

_SCHEME: Final = "tidewheel://"
_HINT: Final = "Write tidewheel://host:port, or host:port,host:port"
_HINT_OF_ACCESS: Final = "Write tidewheel://user:password@host:port?ca=/path/to/ca.pem"
_PARAMETERS: Final = ("ca", "tls", "mechanism")
_PROFILE_KEYS: Final = ("url", "user", "password", *_PARAMETERS)


@dataclass(frozen=True, slots=True)
class Access:
    """`bootstrap` is host:port,host:port. Without a `user` the client is nobody in particular;
    `ca` names a PEM file, and None the machine's own authorities where there is `tls`."""

    bootstrap: str
    user: str | None = None
    password: str = field(default="", repr=False)
    tls: bool = False
    ca: str | None = None
    mechanism: str = DEFAULT_MECHANISM

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            _refuse(f"mechanism={self.mechanism}", f"Use one of {', '.join(MECHANISMS)}")
        if self.user is not None and not (self.user and self.password):
            _refuse("The address has a user without a password", _HINT_OF_ACCESS)
        if self.mechanism == "PLAIN" and self.user is not None and not self.tls:
            others = [host for host in _hosts(self.bootstrap) if not is_loopback(host)]
            if others:
                _refuse(
                    f"PLAIN would send the password to {others[0]} for everybody to read",
                    "Add ?ca=/path/to/ca.pem for TLS, or use SCRAM-SHA-256",
                )
        if self.ca is not None and not os.access(self.ca, os.R_OK):
            _refuse(f"The authority's file {self.ca} cannot be read", "Correct `ca`")

    def librdkafka(self) -> dict[str, Any]:
        """The properties that librdkafka has for this."""
        protocol = ("SASL_" if self.user is not None else "") + ("SSL" if self.tls else "PLAINTEXT")
        properties: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": protocol,
        }
        if self.user is not None:
            properties["sasl.mechanism"] = self.mechanism
            properties["sasl.username"], properties["sasl.password"] = self.user, self.password
        if self.ca is not None:
            properties["ssl.ca.location"] = self.ca
        return properties


def parse_access(text: str) -> Access:
    """What a TIDEWHEEL_URL or a plain list of addresses says. Raises ConfigurationError.

    >>> parse_access("tidewheel://alice:a%40b@b1:9092,b2").bootstrap
    'b1:9092,b2:9092'
    """
    rest, shown = text.strip(), redacted(text)
    if not rest.startswith(_SCHEME):
        if "://" in rest:
            _refuse(f"{shown!r} is not a Tidewheel address", _HINT)
        if "@" in rest:
            _refuse(f"{shown!r} has a user, and no scheme", _HINT_OF_ACCESS)
        return Access(_addresses(rest, shown))
    rest, _, query = rest[len(_SCHEME) :].partition("?")
    credentials, at, rest = rest.rpartition("@")
    bootstrap = _addresses(rest.rstrip("/"), shown)
    user, colon, password = credentials.partition(":")
    if at and not (colon and user and password):
        _refuse("The address has no user and password before the @", _HINT_OF_ACCESS)
    return _access(
        bootstrap, unquote(user) if at else None, unquote(password), _parameters(query, shown)
    )


def access_from_env(environ: Mapping[str, str] | None = None) -> Access:
    """By TIDEWHEEL_URL; else by the profile that TIDEWHEEL_PROFILE names, or the default one where
    there is one; else 127.0.0.1:9092. Raises ConfigurationError."""
    environ = os.environ if environ is None else environ
    url, name = environ.get(URL_VARIABLE), environ.get(PROFILE_VARIABLE)
    if url:
        return parse_access(url)
    found = read_profile(profiles_path(environ), name or DEFAULT_PROFILE)
    if found is not None:
        return found
    if name:
        _refuse(
            f"{profiles_path(environ)} has no profile {name!r}",
            f"Correct {PROFILE_VARIABLE}, or add [{name}] there",
        )
    return Access(DEFAULT_BOOTSTRAP)


def profiles_path(environ: Mapping[str, str]) -> Path:
    """Where profiles are."""
    folder = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '~')}/.config"
    return Path(folder).expanduser() / "tidewheel" / "profiles.toml"


def read_profile(path: Path, name: str) -> Access | None:
    """One profile of a file; None when there is none. Raises ConfigurationError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(PROFILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse(f"{path}: {error.strerror}", "Let its owner read it")
    if stat.S_IMODE(mode) & 0o077:
        _refuse(f"{path} has passwords, and others may read it", f"Run: chmod 600 {path}")
    try:
        profiles = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # What is wrong with it may be shown with a line that has a password.
        _refuse(f"{path} is not TOML", "See `tidewheel.access` for how it looks")
    profile = profiles.get(name)
    if profile is None:
        return None
    if not isinstance(profile, dict) or set(profile) - set(_PROFILE_KEYS):
        _refuse(f"Profile {name!r} in {path} has other keys than {', '.join(_PROFILE_KEYS)}", "")
    texts = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in profile.items()
    }
    if not all(isinstance(value, str) for value in texts.values()):
        _refuse(f"Profile {name!r} in {path} has a value that is no text", "Put it in quotes")
    return _of_profile(name, path, texts)


def _of_profile(name: str, path: Path, texts: dict[str, str]) -> Access:
    base = parse_access(texts.pop("url", DEFAULT_BOOTSTRAP))
    user, password = texts.pop("user", base.user), texts.pop("password", base.password)
    parameters = {"mechanism": base.mechanism, **texts}
    if base.tls:
        parameters.setdefault("tls", "true")
    if base.ca is not None:
        parameters.setdefault("ca", base.ca)
    return _access(base.bootstrap, user, password, parameters)


def redacted(text: str) -> str:
    """An address for people to see: without its password.

    >>> redacted("tidewheel://alice:secret@b1:9092")
    'tidewheel://alice:***@b1:9092'
    """
    head, at, tail = text.rpartition("@")
    if not at:
        return text
    scheme, found, credentials = head.partition("://")
    user = (credentials if found else head).partition(":")[0]
    return f"{scheme + found if found else ''}{user}:***@{tail}"


def _access(
    bootstrap: str, user: str | None, password: str, parameters: Mapping[str, str]
) -> Access:
    ca = parameters.get("ca")
    tls = parameters.get("tls", "true" if ca else "false").lower()
    if tls not in ("true", "false"):
        _refuse(f"tls={tls}", "Use true or false")
    if ca and tls == "false":
        _refuse("An authority without TLS", "Leave `ca` out, or tls=false")
    mechanism = parameters.get("mechanism", DEFAULT_MECHANISM).upper()
    return Access(
        bootstrap,
        user,
        password,
        tls == "true",
        str(Path(ca).expanduser()) if ca else None,
        mechanism,
    )


def _parameters(query: str, shown: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in found if name not in _PARAMETERS]
    if unknown:
        _refuse(
            f"{shown!r} has {', '.join(unknown)} after the ?", f"Known are {', '.join(_PARAMETERS)}"
        )
    return found


def _addresses(text: str, shown: str) -> str:
    return ",".join(_address(item.strip(), shown) for item in text.split(","))


def _address(item: str, shown: str) -> str:
    host, colon, port = item.rpartition(":")
    if not colon or item.endswith("]"):
        host, port = item, str(DEFAULT_PORT)
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not host or not is_port or any(character in host for character in " /?#"):
        _refuse(f"{shown!r} is not a list of addresses", _HINT)
    return f"{host}:{port}"


def _hosts(bootstrap: str) -> list[str]:
    return [address.rpartition(":")[0].strip("[]") for address in bootstrap.split(",")]


def is_loopback(host: str) -> bool:
    """Whether what is sent to `host` stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse(message: str, hint: str) -> NoReturn:
    raise ConfigurationError(message, hint=hint)
