"""`tidewheel login` and `logout`: log in at a control plane, and out.

A person logs in with an e-mail address and a password, and a code where the account asks for one; a
program with an API key that has the scope `rest`. Neither stands on the command line, where others
could read it: it is asked for, or read from a pipe.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from tidewheel.cli.over_rest import present_login
from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    fail,
    print_json,
    print_line,
    reporting_errors,
    usage,
)
from tidewheel.logins import Login, logins_path, profile_name, write_login
from tidewheel.rest import Answer, Refused, Rest

DEFAULT_URL: Final = "http://127.0.0.1:16092"
"""Where the control plane of `up` is."""
LOGIN_EXAMPLES: Final = (
    "login --email ann@x.example --organization acme",
    "login https://tidewheel.example --with-key < key.txt",
)
_APP: Final = "/_allauth/app/v1/auth"
# What an account may ask for besides the password, and where the answer goes.
_CODES: Final = {
    "mfa_authenticate": ("2fa/authenticate", "code", "Code of your second factor"),
    "verify_email": ("email/verify", "key", "Code from the mail to your address"),
}
CODES_MAX: Final = 3


def login(
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="ADDRESS",
            help="The control plane's: https://host, or http://127.0.0.1:port. If not given, "
            "the last one, or that of `up`.",
        ),
    ] = None,
    email: Annotated[
        str | None, typer.Option("--email", metavar="ADDRESS", help="Log in as this person.")
    ] = None,
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Log in with an API key of the scope rest.")
    ] = False,
    organization: Annotated[
        str | None,
        typer.Option(
            "--organization",
            "-o",
            metavar="SLUG",
            help="The one that commands are about; needed if you belong to several.",
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make that organization if you have none of that name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Log in at a control plane.

    From then on `topics`, `keys`, `quotas`, `usage` and `audit` are about your organization
    there; `topics` with --url or TIDEWHEEL_URL still goes to brokers. The login is kept in
    ~/.config/tidewheel/logins.json; TIDEWHEEL_PROFILE names another one beside it. Without
    --email and --with-key a login stays, and only its organization changes.
    """
    if email is not None and with_key:
        usage("--email and --with-key do not go together")
    if create and organization is None:
        usage("--create needs --organization SLUG")
    with reporting_errors():
        made = _logged_in(present_login(), address, email, with_key=with_key)
        made = _in_organization(made, organization, create=create)
        write_login(logins_path(os.environ), profile_name(os.environ), made)
        if as_json:
            organization = made.organization or None
            print_json({"url": made.url, "who": made.who, "organization": organization})
            return
        print_line(f"Logged in at {made.url} as {made.who}")
        if made.organization:
            print_line(f"`{PROGRAM} topics` and others are about {made.organization} now")
        else:
            print_line(f"You have no organization yet: {PROGRAM} login -o SLUG --create")


def logout() -> None:
    """Log out: the session ends; a key goes on, and is forgotten here."""
    with reporting_errors():
        present = present_login()
        if present is None:
            print_line("You were not logged in")
            return
        if present.session:
            present.rest().ask("DELETE", f"{_APP}/session")
        write_login(logins_path(os.environ), profile_name(os.environ), None)
        print_line(f"Logged out at {present.url}")


def _logged_in(
    present: Login | None, address: str | None, email: str | None, *, with_key: bool
) -> Login:
    """A login that the control plane takes."""
    url = address or (present.url if present is not None else DEFAULT_URL)
    rest = Rest(url)
    if with_key:
        return _with_key(rest)
    if email is None:
        if present is not None and rest.url == present.url:
            return present
        email = _asked("E-mail address")
    session = _session_of(rest, email, _asked("Password", is_secret=True))
    return Login(rest.url, email, session=session)


def _with_key(rest: Rest) -> Login:
    made = Login(rest.url, "", key=_asked("API key", is_secret=True))
    me = made.rest().get("/api/v1/me").body
    return replace(made, who=f"{me['name']} ({me['id']})")


def _session_of(rest: Rest, email: str, password: str) -> str:
    answer = rest.ask("POST", f"{_APP}/login", {"email": email, "password": password})
    for _ in range(CODES_MAX):
        token = _token_of(answer)
        if answer.status == 200:
            return token
        pending = [flow["id"] for flow in _flows(answer) if flow.get("is_pending")]
        asked = next((_CODES[name] for name in pending if name in _CODES), None)
        if answer.status != 401 or asked is None:
            break
        where, field, question = asked
        code = {field: _asked(question)}
        answer = Rest(rest.url, {"X-Session-Token": token}).ask("POST", f"{_APP}/{where}", code)
        if not _token_of(answer):
            answer.body.setdefault("meta", {})["session_token"] = token
    raise Refused(_why_not(answer), status=answer.status, code="login")


def _token_of(answer: Answer) -> str:
    return str(((answer.body or {}).get("meta") or {}).get("session_token") or "")


def _flows(answer: Answer) -> list[dict[str, Any]]:
    data = (answer.body or {}).get("data") or {}
    flows: list[dict[str, Any]] = data.get("flows") or []
    return flows


def _why_not(answer: Answer) -> str:
    errors = (answer.body or {}).get("errors") or []
    words = [str(one.get("message", "")).rstrip(".") for one in errors]
    return "; ".join(filter(None, words)) or f"Logging in failed (status {answer.status})"


def _in_organization(made: Login, slug: str | None, *, create: bool) -> Login:
    """With the organization that is meant: the named one, that of before, or the only one."""
    rest = made.rest()
    mine = {one["slug"]: one for one in rest.items("/api/v1/organizations")}
    if slug is None and made.organization in mine:
        slug = made.organization
    if slug is None and len(mine) == 1:
        (slug,) = mine
    if slug is None and mine and not sys.stdin.isatty():
        usage(f"Say which: --organization {' or '.join(sorted(mine))}")
    if slug is None and mine:
        slug = _asked(f"Organization ({', '.join(sorted(mine))})")
    if slug is None:
        return made
    if slug not in mine and create:
        mine[slug] = rest.post("/api/v1/organizations", {"name": slug, "slug": slug}).body
    if slug not in mine:
        fail(f"You belong to no organization {slug}", "Make it: `tidewheel login -o SLUG --create`")
    return replace(made, organization_id=mine[slug]["id"], organization=slug)


def _asked(question: str, *, is_secret: bool = False) -> str:
    """An answer from the terminal, or a line of what is piped in."""
    if sys.stdin.isatty():
        text: str = typer.prompt(question, hide_input=is_secret, err=True)
    else:
        text = sys.stdin.readline()
    text = text.strip()
    if not text:
        usage(f"{question}: nothing was given")
    return text
