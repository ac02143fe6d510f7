"""What the commands share that speak REST with a control plane: who is logged in, and where."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidewheel.cli.session import reporting_errors, usage
from tidewheel.errors import ConfigurationError
from tidewheel.logins import Login, logins_path, profile_name, read_login
from tidewheel.rest import Rest


@dataclass(frozen=True, slots=True)
class Account:
    """The organization that a command is about, and who asks."""

    login: Login
    rest: Rest

    def at(self, address: str = "") -> str:
        """Below the organization."""
        base = f"/api/v1/organizations/{self.login.organization_id}"
        return f"{base}/{address}" if address else base

    def items(self, address: str, **query: object) -> Iterator[dict[str, Any]]:
        return self.rest.items(self.at(address), **query)


def present_login() -> Login | None:
    """The login of the profile in use; None when there is none. Raises ConfigurationError."""
    return read_login(logins_path(os.environ), profile_name(os.environ))


def speaks_rest(url: str | None) -> bool:
    """Whether a command that can speak both goes to the control plane: who says which brokers means
    brokers, and who is logged in otherwise means his organization."""
    if url is not None:
        return False
    with reporting_errors():
        login = present_login()
    return login is not None


def run_rest(command: Callable[[Account], None]) -> None:
    """Run a command for who is logged in; errors become messages and exit statuses."""
    with reporting_errors():
        login = present_login()
        if login is None:
            raise ConfigurationError("You are not logged in", hint="Log in: `tidewheel login`")
        if not login.organization_id:
            raise ConfigurationError(
                "No organization is chosen",
                hint="Choose one: `tidewheel login --organization SLUG`",
            )
        command(Account(login, login.rest()))


def found(items: Iterator[dict[str, Any]], what: str) -> dict[str, Any]:
    """The first; ends the command when there is none."""
    one = next(items, None)
    if one is None:
        usage(f"There is no {what}")
    return one
