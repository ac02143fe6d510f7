"""`tidewheel keys`: API keys of an organization, for Kafka clients and for REST, over REST.

A key is a secret of a service account, whose grants say what clients with it may do. `create` makes
the account and the grants as well, where they are not there.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidewheel.cli.help import PlainCommand, PlainGroup, examples
from tidewheel.cli.over_rest import Account, run_rest
from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    YesOption,
    confirm,
    note,
    print_json,
    print_line,
    print_table,
    table,
    usage,
)
from tidewheel.rest import Refused

app = typer.Typer(
    cls=PlainGroup,
    help="List, create, rotate and revoke API keys (after `login`).",
    no_args_is_help=False,
    rich_markup_mode=None,
)

SCOPES = ("kafka", "rest")
ROLES = ("viewer", "developer", "admin", "owner")
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Its id.")]


@app.callback(invoke_without_command=True)
def main(context: typer.Context, as_json: JsonOption = False) -> None:
    """List, create, rotate and revoke API keys (after `login`); without a command: list them."""
    if context.invoked_subcommand is None:
        list_keys(as_json=as_json)


@app.command("list", cls=PlainCommand)
def list_keys(as_json: JsonOption = False) -> None:
    """All keys, those that have ended included; secrets are not kept."""

    def command(account: Account) -> None:
        accounts = {one["id"]: one["name"] for one in account.items("service-accounts")}
        keys = list(account.items("api-keys"))
        for key in keys:
            key["service_account"] = accounts.get(key["service_account_id"], "")
        if as_json:
            print_json(keys)
            return
        if not keys:
            print_line(f"No keys yet. Make one: {PROGRAM} keys create ACCOUNT")
            return
        made = table("KEY", "ACCOUNT", "SCOPES", "STATUS", "ENDS", "LAST USED")
        for key in keys:
            status = "revoked" if key["revoked_at"] else key["status"]["state"]
            ends, used = key["expires_at"] or "never", key["last_used_at"] or "never"
            scopes = ",".join(key["scopes"])
            made.add_row(key["id"], key["service_account"], scopes, status, ends, used)
        print_table(made)

    run_rest(command)


@app.command(
    "create",
    cls=PlainCommand,
    epilog=examples(
        PROGRAM,
        "keys create billing --consume 'orders*' --produce invoices",
        "keys create ci --scope rest --role developer",
    ),
)
def create(
    service_account: Annotated[
        str, typer.Argument(metavar="ACCOUNT", help="A service account; made if there is none.")
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Where it is accepted: kafka or rest; repeatable."),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE",
            help="What a new account may do over REST: viewer (if not given), developer, admin or "
            "owner.",
        ),
    ] = None,
    produce: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Allow to produce to it; TOPIC* for a prefix."),
    ] = None,
    consume: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Allow to consume it, in any group; TOPIC* likewise."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and show its secret, this once."""
    scopes = scope or ["kafka"]
    for name in scopes:
        if name not in SCOPES:
            usage(f"--scope {name}: a scope is {' or '.join(SCOPES)}")
    if role is not None and role not in ROLES:
        usage(f"--role {role}: a role is one of {', '.join(ROLES)}")

    def command(account: Account) -> None:
        servers = _servers(account)
        owner = _service_account(account, service_account, role)
        for topic in produce or []:
            _grant(account, owner["id"], "producer", "topic", topic)
        for topic in consume or []:
            _grant(account, owner["id"], "consumer", "topic", topic)
        if consume:
            _grant(account, owner["id"], "consumer", "group", "*")
        body = {"service_account_id": owner["id"], "scopes": scopes}
        _show_secret(account.rest.post(account.at("api-keys"), body).body, servers, as_json)

    run_rest(command)


@app.command("rotate", cls=PlainCommand)
def rotate(
    key: KeyArgument,
    overlap_s: Annotated[
        int,
        typer.Option(
            metavar="SECONDS", min=0, help="For how long the old one goes on.", show_default=True
        ),
    ] = 86_400,
    as_json: JsonOption = False,
) -> None:
    """Make another key like it; the old one ends when the overlap is over."""

    def command(account: Account) -> None:
        servers = _servers(account)
        address = account.at(f"api-keys/{key}/rotate")
        made = account.rest.post(address, {"overlap_s": overlap_s}).body
        _show_secret(made, servers, as_json)

    run_rest(command)


@app.command("revoke", cls=PlainCommand)
def revoke(key: KeyArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """End a key at once."""
    confirm(f"Revoke {key}? Clients that use it are stopped.", yes)

    def command(account: Account) -> None:
        account.rest.delete(account.at(f"api-keys/{key}"))
        if as_json:
            print_json({"revoked": key})
        else:
            print_line(f"Revoked {key}")

    run_rest(command)


def _service_account(account: Account, name: str, role: str | None) -> dict[str, Any]:
    for one in account.items("service-accounts"):
        if one["name"] == name:
            if role is not None and one["role"] != role:
                note(f"{name} is there already, as {one['role']}; its role stays")
            return one
    body = {"name": name, "role": role or ROLES[0]}
    made: dict[str, Any] = account.rest.post(account.at("service-accounts"), body).body
    return made


def _grant(account: Account, owner_id: str, role: str, kind: str, pattern: str) -> None:
    """Allow it; one that is there is enough."""
    is_prefix = pattern.endswith("*") and pattern != "*"
    spec = {
        "service_account_id": owner_id,
        "role": role,
        "resource_type": kind,
        "pattern_type": "prefixed" if is_prefix else "literal",
        "resource_name": pattern[:-1] if is_prefix else pattern,
    }
    try:
        account.rest.post(account.at("grants"), {"spec": spec})
    except Refused as error:
        if error.status != 409:
            raise


def _servers(account: Account) -> str | None:
    """Where clients connect. Asked before a key is made: afterwards nothing may fail that would
    keep its secret from being shown."""
    cell = account.rest.get(account.at()).body["cell"] or {}
    servers: str | None = cell.get("bootstrap_servers")
    return servers


def _show_secret(key: dict[str, Any], servers: str | None, as_json: bool) -> None:
    if as_json:
        print_json(key | {"bootstrap_servers": servers})
        return
    print_line(f"Key {key['id']}, for {' and '.join(key['scopes'])}")
    print_line(f"  login     {key['login']}")
    print_line(f"  password  {key['secret']}")
    print_line(f"  brokers   {servers or 'not placed in a cell yet'}")
    note("The password is shown this once: keep it, or make another key.")
