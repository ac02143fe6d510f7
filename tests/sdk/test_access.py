"""Where a client connects and as whom; and that nobody sees the password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tidewheel import Client
from tidewheel.access import (
    Access,
    access_from_env,
    parse_access,
    profiles_path,
    read_profile,
    redacted,
)
from tidewheel.cli.session import command_line
from tidewheel.errors import ConfigurationError

SECRET = "s3cr@t:/?"
QUOTED = "s3cr%40t%3A%2F%3F"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tidewheel://a:1,b:2", "a:1,b:2"),
        ("tidewheel://a:1/", "a:1"),
        ("a", "a:9092"),
        (" a:1 , b ", "a:1,b:9092"),
        ("[::1]:19", "[::1]:19"),
        ("[::1]", "[::1]:9092"),
        (f"tidewheel://me:{QUOTED}@a:1,b", "a:1,b:9092"),
    ],
)
def test_addresses(text: str, expected: str) -> None:
    assert parse_access(text).bootstrap == expected


@pytest.mark.parametrize("text", ["", "http://a:1", "a:0", "a:70000", "a:x", "a,,b", "a:1/x", ":1"])
def test_bad_addresses_name_themselves_and_the_form(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_access(text)
    assert repr(text) in caught.value.message
    assert "tidewheel://host:port" in caught.value.hint


def test_an_address_says_who_connects(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("authority")
    access = parse_access(f"tidewheel://me:{QUOTED}@a:1?ca={ca}&mechanism=scram-sha-512")
    assert access == Access("a:1", "me", SECRET, True, str(ca), "SCRAM-SHA-512")
    assert access.librdkafka() == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": SECRET,
        "ssl.ca.location": str(ca),
    }
    assert parse_access("a:1").librdkafka()["security.protocol"] == "PLAINTEXT"
    assert parse_access("tidewheel://a:1?tls=true").librdkafka()["security.protocol"] == "SSL"
    plain = parse_access(f"tidewheel://me:{QUOTED}@127.0.0.1:1?mechanism=PLAIN")
    assert plain.librdkafka()["security.protocol"] == "SASL_PLAINTEXT"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f"tidewheel://me:{QUOTED}@a:x", "no list|not a list"),
        (f"tidewheel://me:{QUOTED}@a:1?color=red", "has color after"),
        (f"tidewheel://me:{QUOTED}@a:1?mechanism=GSSAPI", "mechanism=GSSAPI"),
        (f"tidewheel://me:{QUOTED}@a:1?ca=/nowhere/ca.pem", "/nowhere/ca.pem cannot be read"),
        (f"tidewheel://me:{QUOTED}@a:1?tls=perhaps", "tls=perhaps"),
        (f"tidewheel://me:{QUOTED}@a:1?mechanism=PLAIN", "for everybody to read"),
        (f"tidewheel://me:{QUOTED}@localhost,b:1?mechanism=PLAIN", "password to b"),
        (f"me:{QUOTED}@a:1", "no scheme"),
        (f"https://me:{QUOTED}@a:1", "not a Tidewheel address"),
        ("tidewheel://me@a:1", "no user and password"),
        ("tidewheel://:x@a:1", "no user and password"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(text: str, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match) as caught:
        parse_access(text)
    assert QUOTED not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_nobody_sees_the_password() -> None:
    url = f"tidewheel://me:{QUOTED}@a:1"
    assert redacted(url) == "tidewheel://me:***@a:1"
    assert redacted(f"me:{QUOTED}@a:1") == "me:***@a:1"
    assert redacted("a:1") == "a:1"
    access = parse_access(url)
    client = Client(url)
    for shown in (repr(access), str(access), client.bootstrap, repr(client), command_line("lag")):
        assert QUOTED not in shown
        assert SECRET not in shown


def profile(tmp_path: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    """An environment with these profiles."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = profiles_path(environ)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return environ


TWO = f"""
[default]
url = "tidewheel://a:1"
user = "me"
password = "{SECRET}"

[other]
url = "b:2"
user = "you"
password = "x"
tls = true
mechanism = "SCRAM-SHA-512"
"""


def test_the_environment_comes_first_then_profiles_then_this_machine(tmp_path: Path) -> None:
    environ = profile(tmp_path, TWO)
    assert access_from_env({"HOME": str(tmp_path)}) == Access("127.0.0.1:9092")
    assert access_from_env(environ) == Access("a:1", "me", SECRET)
    other = access_from_env({**environ, "TIDEWHEEL_PROFILE": "other"})
    assert other == Access("b:2", "you", "x", tls=True, mechanism="SCRAM-SHA-512")
    named = {**environ, "TIDEWHEEL_URL": "tidewheel://x:1", "TIDEWHEEL_PROFILE": "other"}
    assert access_from_env(named) == Access("x:1")
    with pytest.raises(ConfigurationError, match="no profile 'third'"):
        access_from_env({**environ, "TIDEWHEEL_PROFILE": "third"})


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    environ = profile(tmp_path, TWO, 0o640)
    with pytest.raises(ConfigurationError, match="others may read it") as caught:
        access_from_env(environ)
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f'[default]\npassword = "{SECRET}', "is not TOML"),
        (f'[default]\nuser = "me"\npasswort = "{SECRET}"', "other keys"),
        ("[default]\nuser = 1", "no text"),
        ('[default]\nuser = "me"', "without a password"),
    ],
)
def test_a_wrong_profile_is_refused_without_showing_it(
    tmp_path: Path, text: str, match: str
) -> None:
    path = profiles_path(profile(tmp_path, text))
    with pytest.raises(ConfigurationError, match=match) as caught:
        read_profile(path, "default")
    assert SECRET not in str(caught.value)
    assert os.path.exists(path)
