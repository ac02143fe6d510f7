"""A stack's listeners: anybody's, those of users with a password, and the operators'."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stack.admin_connection import AdminConnection, NotTaken
from stack.certificates import StackCertificates
from stack.listeners import listener_settings
from stack.options import StackOptions
from stack.reassign import running_brokers
from stack.supervisor import Supervisor
from stack.up import banner

CERTIFICATES = StackCertificates(Path("/tls"))


def listeners_of(port: int, *given: str, is_secure: bool = False) -> dict[str, str]:
    settings = listener_settings(port, given, CERTIFICATES, is_secure=is_secure)
    return {name: value for name, _, value in (each.partition("=") for each in settings)}


def test_without_anybody_the_first_port_is_the_users() -> None:
    assert listeners_of(0)["listeners"] == (
        "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"
    )
    assert listeners_of(0, is_secure=True)["listeners"] == (
        "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"
    )


def test_who_sets_listeners_has_said_what_they_are() -> None:
    assert set(listeners_of(0, "listeners=PLAINTEXT://0.0.0.0:1")) == {
        "cell.admin.listener",
        "cell.admin.tls.certificate",
        "cell.admin.tls.key",
        "cell.admin.tls.ca",
    }
    assert "cell.admin.listener" not in listeners_of(0, "cell.admin.listener=127.0.0.1:1")


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_stack_serves_them(tmp_path: Path, is_secure: bool) -> None:
    options = StackOptions(tmp_path, brokers=1, port=0, more_listeners=True, is_secure=is_secure)
    with Supervisor(options) as stack:
        assert stack.state is not None
        (broker,) = stack.state.brokers
        assert broker.cell_admin_port
        assert set(broker.listeners) == {"SASL_PLAINTEXT", "SASL_SSL"} | (
            set() if is_secure else {"PLAINTEXT"}
        )
        if not is_secure:
            with AdminConnection(stack.bootstrap) as connection:
                assert running_brokers(connection) == {1}
        ca = stack.folder.tls / "ca.pem"
        shown = banner(stack.state, stack.folder, detached=True)
        assert str(ca) in shown
        assert ("users create alice" in shown) is is_secure
        for name, query in (("SASL_PLAINTEXT", ""), ("SASL_SSL", f"?ca={ca}")):
            url = f"tidewheel://nobody:wrong@127.0.0.1:{broker.listeners[name]}{query}"
            with pytest.raises(NotTaken, match="nobody"):
                AdminConnection(url)
        key = stack.folder.tls / "operator.key"
        assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
