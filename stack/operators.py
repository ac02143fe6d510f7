"""`tenants`, `users`, `acls`, `quotas` and `deleted`: what an operator says, told to CellAdmin.

A password is drawn here, shown once, and never leaves this machine: the cell gets SCRAM verifiers.
Users of the tenant `default` log in with their names, those of others as `user@tenant`.
"""

from __future__ import annotations

import argparse
import base64
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from tidewheel.sasl import DIGESTS, keys_of

from data_plane.contract import cell_admin_pb2 as messages
from stack.cell_admin import CellAdmin
from stack.errors import EXIT_USAGE, StackError
from stack.tables import Row, show

DEFAULT_TENANT: Final = "default"
ITERATIONS: Final = 4096
SALT_BYTES: Final = 24
PASSWORD_BYTES: Final = 24
MECHANISMS: Final = (
    (messages.ScramVerifier.SCRAM_SHA_256, DIGESTS["SCRAM-SHA-256"]),
    (messages.ScramVerifier.SCRAM_SHA_512, DIGESTS["SCRAM-SHA-512"]),
)
STATES: Final = {
    messages.TENANT_STATE_UNSPECIFIED: "active",
    messages.TENANT_ACTIVE: "active",
    messages.TENANT_READ_ONLY: "read-only",
    messages.TENANT_BLOCKED: "blocked",
    messages.TENANT_DELETING: "deleting",
}
RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
}
_CONFIGS: Final = frozenset({"describe-configs", "alter-configs"})
_BASICS: Final = frozenset({"all", "describe", "delete"})
# What each can be granted for; Kafka has no more.
OPERATIONS_OF: Final = {
    "topic": _BASICS | _CONFIGS | {"read", "write", "create", "alter"},
    "group": _BASICS | _CONFIGS | {"read"},
    "cluster": _CONFIGS | {"all", "describe", "create", "alter", "idempotent-write"},
}
PATTERNS: Final = {3: "", 4: "*"}
CLUSTER_NAME: Final = "kafka-cluster"


# ---- tenants


def tenants(admin: CellAdmin, options: argparse.Namespace) -> None:
    if options.action == "list":
        rows = [_tenant_row(item) for item in admin.items(messages.KIND_TENANT)]
        show(rows, ("name", "state", "cluster_id", "declared"), as_json=options.json)
        return
    name = options.name
    if name is None:
        raise StackError("Say which tenant: its name is missing.", EXIT_USAGE)
    known = _find(admin, messages.KIND_TENANT, name)
    what = f"Tenant {name}"
    if options.action == "create":
        if known is not None:
            raise StackError(f"{what} is there already.")
        spec = messages.Tenant(cluster_id=options.cluster_id or _new_cluster_id())
        if options.undelete_ms is not None:
            spec.undelete_ms = options.undelete_ms
        admin.apply(messages.Resource(tenant=name, tenant_spec=spec), None, what)
        print(f"{what} is there. Its first user: users create USER --tenant {name}")
        return
    if known is None:
        raise StackError(f"There is no tenant {name}.")
    if options.action == "show":
        rows = [_tenant_row(known)]
        show(rows, ("name", "state", "cluster_id", "declared"), as_json=options.json)
        return
    _own(known, what)
    if options.action == "delete":
        if not options.yes:
            raise StackError(f"{what} goes with all its topics and users: add --yes.", EXIT_USAGE)
        admin.delete(known, what)
        print(f"{what} is being deleted.")
        return
    spec = messages.Tenant()
    spec.CopyFrom(known.resource.tenant_spec)
    is_over = options.action == "suspend"
    spec.state = messages.TENANT_BLOCKED if is_over else messages.TENANT_ACTIVE
    spec.state_reason = options.reason if is_over else ""
    admin.apply(messages.Resource(tenant=name, tenant_spec=spec), known, what)
    print(f"{what} is {'suspended: nobody logs in for it' if is_over else 'active again'}.")


def _tenant_row(item: messages.Item) -> Row:
    now = item.tenant_now
    return {
        "name": item.resource.tenant,
        "state": STATES.get(now.state, str(now.state)),
        "cluster_id": now.cluster_id,
        "declared": bool(item.resource.resource_id),
    }


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "A")


# ---- users


def users(admin: CellAdmin, options: argparse.Namespace) -> None:
    tenant = options.tenant
    if options.action == "list":
        rows = [
            {
                "login": item.resource.name,
                "tenant": item.resource.tenant,
                "principal": f"User:{item.credential_now.principal}",
                "declared": bool(item.resource.resource_id),
            }
            for item in admin.items(messages.KIND_CREDENTIAL, "" if options.all else tenant)
        ]
        show(rows, ("login", "tenant", "principal", "declared"), as_json=options.json)
        return
    if options.user is None:
        raise StackError("Say which user: the name is missing.", EXIT_USAGE)
    login = login_of(options.user, tenant)
    known = _find(admin, messages.KIND_CREDENTIAL, tenant, login)
    what = f"User {login}"
    if options.action == "create":
        if known is not None:
            raise StackError(f"{what} is there already; `rotate` gives it another password.")
        credential = messages.Credential(principal=options.user)
        _give_password(admin, options, login, credential, None)
        return
    if known is None:
        raise StackError(f"There is no user {login} in tenant {tenant}.")
    if options.action == "rotate":
        credential = messages.Credential()
        credential.CopyFrom(
            known.resource.credential if known.resource.resource_id else known.credential_now
        )
        _give_password(admin, options, login, credential, known)
        return
    _own(known, what)
    admin.delete(known, what)
    print(f"{what} is gone; its connections are closed.")


def login_of(user: str, tenant: str) -> str:
    """What somebody logs in with; unique in the cell."""
    return user if tenant == DEFAULT_TENANT else f"{user}@{tenant}"


def _give_password(
    admin: CellAdmin,
    options: argparse.Namespace,
    login: str,
    credential: messages.Credential,
    known: messages.Item | None,
) -> None:
    """Draw one, declare what it verifies by, and show it: nobody can find it out again."""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    del credential.verifiers[:]
    credential.verifiers.extend(verifiers_of(password))
    resource = messages.Resource(
        tenant=options.tenant,
        name=login,
        credential=credential,
        take_over=known is not None and not known.resource.resource_id,
    )
    admin.apply(resource, known, f"User {login}")
    if options.json:
        print(json.dumps({"login": login, "tenant": options.tenant, "password": password}))
        return
    print(f"User      {login}")
    print(f"Password  {password}")
    print("It is shown only now. For the SDK and the command line:")
    print(f"  TIDEWHEEL_URL=tidewheel://{login.replace('@', '%40')}:{password}@HOST:PORT?ca=FILE")


def verifiers_of(password: str) -> Iterator[messages.ScramVerifier]:
    """What RFC 5802 has a server keep of a password."""
    for mechanism, digest in MECHANISMS:
        salt = secrets.token_bytes(SALT_BYTES)
        keys = keys_of(digest, password.encode(), salt, ITERATIONS)
        yield messages.ScramVerifier(
            mechanism=mechanism,
            salt=salt,
            stored_key=keys.stored,
            server_key=keys.server,
            iterations=ITERATIONS,
        )


# ---- ACLs


def acls(admin: CellAdmin, options: argparse.Namespace) -> None:
    tenant = options.tenant
    if options.action == "list":
        rows = [row for item in _grants(admin, tenant) for row in _acl_rows(item)]
        columns = ("grant", "principal", "permission", "operation", "resource", "name")
        show(rows, columns, as_json=options.json)
        return
    if options.who is None:
        raise StackError("Say whom, or which grant: it is missing.", EXIT_USAGE)
    if options.action == "revoke":
        found = (one for one in _grants(admin, tenant) if one.resource.name == options.who)
        known = next(found, None)
        if known is None:
            raise StackError(f"There is no grant {options.who}; `acls list` shows them.")
        admin.delete(known, f"Grant {options.who}")
        print(f"Grant {options.who} is gone.")
        return
    operations = dict.fromkeys(options.operation or ["all"])
    made = [
        messages.Acl(
            resource_type=RESOURCES[kind],
            pattern_type=pattern,
            name=name,
            principal=options.who if ":" in options.who else f"User:{options.who}",
            host="*",
            operation=OPERATIONS[operation],
            permission=2 if options.deny else 3,
        )
        for kind, pattern, name in _patterns(options)
        for operation in operations
        if operation in OPERATIONS_OF[kind]
    ]
    if not made:
        raise StackError(f"Nothing named here can be granted for {', '.join(operations)}.")
    name = f"grant-{secrets.token_hex(4)}"
    resource = messages.Resource(tenant=tenant, name=name, grants=messages.Grants(acls=made))
    admin.apply(resource, None, f"The grant to {options.who}")
    print(f"Granted as {name}; `acls revoke {name}` takes it back.")


def _patterns(options: argparse.Namespace) -> list[tuple[str, int, str]]:
    """(kind, pattern type, name) of each --topic and --group; `logs-*` is a prefix."""
    found = []
    for kind, names in (("topic", options.topic), ("group", options.group)):
        for name in names or ():
            is_prefix = name.endswith("*") and len(name) > 1
            found.append((kind, 4 if is_prefix else 3, name[:-1] if is_prefix else name))
    if options.cluster:
        found.append(("cluster", 3, CLUSTER_NAME))
    if not found:
        raise StackError("Say what for: --topic NAME, --group NAME or --cluster.", EXIT_USAGE)
    return found


def _grants(admin: CellAdmin, tenant: str) -> Iterator[messages.Item]:
    return admin.items(messages.KIND_GRANTS, tenant)


def _acl_rows(item: messages.Item) -> Iterator[Row]:
    kinds = {number: name for name, number in RESOURCES.items()}
    operations = {number: name for name, number in OPERATIONS.items()}
    for acl in item.grants_now.acls:
        yield {
            "grant": item.resource.name if item.resource.resource_id else "(a client's)",
            "principal": acl.principal,
            "permission": "deny" if acl.permission == 2 else "allow",
            "operation": operations.get(acl.operation, str(acl.operation)),
            "resource": kinds.get(acl.resource_type, str(acl.resource_type)),
            "name": acl.name + PATTERNS.get(acl.pattern_type, ""),
        }


# ---- quotas


def quotas(admin: CellAdmin, options: argparse.Namespace) -> None:
    tenant = options.tenant
    items = list(admin.items(messages.KIND_QUOTA, tenant))
    if options.action == "show":
        rows = [
            {"of": _entity(item.quota_now), "limit": name, "value": f"{value:.15g}"}
            for item in items
            for name, value in sorted(item.quota_now.limits.items())
        ]
        show(rows, ("of", "limit", "value"), as_json=options.json)
        return
    known = next((one for one in items if not one.quota_now.HasField("entity")), None)
    limits = {} if known is None else dict(known.quota_now.limits)
    for text in options.limit or ():
        name, equals, value = text.partition("=")
        try:
            if value:
                limits[name] = float(value)
            else:
                limits.pop(name, None)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise StackError(f"{text}: write NAME=NUMBER; NAME= takes it away.", EXIT_USAGE)
    if not options.limit:
        raise StackError("Say what: --limit produce_bytes_per_s=1000000.", EXIT_USAGE)
    what = f"The quota of tenant {tenant}"
    if limits:
        resource = messages.Resource(tenant=tenant, quota=messages.Quota(limits=limits))
        resource.take_over = known is not None and not known.resource.resource_id
        admin.apply(resource, known, what)
    elif known is not None:
        admin.delete(known, what)
    print(f"{what} is set.")


def _entity(quota: messages.Quota) -> str:
    if not quota.HasField("entity"):
        return "tenant"
    parts = []
    if quota.entity.HasField("user"):
        parts.append(f"user {quota.entity.user or '(each)'}")
    if quota.entity.HasField("client_id"):
        parts.append(f"client {quota.entity.client_id or '(each)'}")
    return ", ".join(parts)


# ---- deleted topics


def deleted(admin: CellAdmin, options: argparse.Namespace) -> None:
    tenant, name = options.tenant, options.name
    if options.action == "list":
        rows = [
            {
                "topic": topic.name,
                "tenant": topic.tenant,
                "partitions": topic.partitions,
                "purged_at": _date(topic.purged_at_ms) if topic.HasField("purged_at_ms") else "?",
            }
            for topic in admin.deleted_topics("" if options.all else tenant)
        ]
        show(rows, ("topic", "tenant", "partitions", "purged_at"), as_json=options.json)
        return
    if name is None:
        raise StackError("Say which topic: its name is missing.", EXIT_USAGE)
    if options.action == "undelete":
        admin.undelete(tenant, name)
        print(f"Topic {name} is back.")
        return
    if not options.yes:
        raise StackError(f"Topic {name} goes for good, with its records: add --yes.", EXIT_USAGE)
    admin.purge(tenant, name)
    print(f"Topic {name} is gone for good.")


def _date(date_ms: int) -> str:
    return datetime.fromtimestamp(date_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- all of them


def _find(admin: CellAdmin, kind: int, tenant: str, name: str = "") -> messages.Item | None:
    # Who asks for the things of a tenant that is not there is refused; here it is the question.
    for item in admin.items(kind, "" if kind == messages.KIND_TENANT else tenant):
        if item.resource.tenant == tenant and item.resource.name == name:
            return item
    return None


def _own(item: messages.Item, what: str) -> None:
    if not item.resource.resource_id:
        raise StackError(
            f"{what} was not made with this command, but by a Kafka client, or is always there."
        )


COMMANDS: Final = {
    "tenants": tenants,
    "users": users,
    "acls": acls,
    "quotas": quotas,
    "deleted": deleted,
}
