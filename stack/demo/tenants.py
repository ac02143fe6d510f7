"""The demo's tenants, made as strangers make them: over REST, each with a topic of the same name
and a key. The operator of the stack only gives them room for so many flights at once.

Everything waits for "ready": what REST says then, a cell has.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from tidewheel.errors import TidewheelError
from tidewheel.rest import Rest
from tidewheel.subscriptions import HEADERS_PROPERTY

from stack.broker_process import Stopped
from stack.errors import StackError

READY_TIMEOUT_S: Final = 30.0
LOOK_UP_S: Final = 0.05
PASSWORD_RANDOM_BYTES: Final = 18
SIGN_UP: Final = "/_allauth/app/v1/auth/signup"
LOG_IN: Final = "/_allauth/app/v1/auth/login"
ROOM: Final = {
    "produce_bytes_per_second": 2 * 1024**3,
    "consume_bytes_per_second": 2 * 1024**3,
    "requests_per_second": 100_000,
}
"""What the demo sends as fast as it goes is more than who tries it may."""

GRANTS: Final = (("manager", "topic"), ("consumer", "group"))


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """`url` is what a client connects with: it has a key, of the account whose principal brokers
    know. `made_s` is from signing up to the last part being ready."""

    slug: str
    url: str
    principal: str
    made_s: float


def make_tenant(
    rest_url: str,
    operator: tuple[str, str],
    slug: str,
    topic: str,
    partitions: int,
    should_stop: Callable[[], bool],
) -> DemoTenant:
    """Sign up, and wait until everything is ready. `operator` is an address with its password.
    Raises StackError, Stopped."""
    started_s = time.perf_counter()
    try:
        person = _session(rest_url, SIGN_UP, f"{slug}@localhost.example", _password())
        organization = person.post("/api/v1/organizations", {"name": slug, "slug": slug}).body
        base = f"/api/v1/organizations/{organization['id']}"
        _session(rest_url, LOG_IN, *operator).patch(f"{base}/quota", {"spec": ROOM})
        made = _Parts(person, base)
        account = made.add("service-accounts", {"name": "demo", "role": "viewer"}, declared=False)
        # Its messages have tags, by which some can be read.
        spec = {"partitions": partitions, "configs": {HEADERS_PROPERTY: True}}
        made.add("topics", {"name": topic, "spec": spec})
        for role, kind in GRANTS:
            made.add(
                "grants",
                {
                    "spec": {
                        "service_account_id": account["id"],
                        "role": role,
                        "resource_type": kind,
                        "pattern_type": "prefixed",
                        "resource_name": topic,
                    }
                },
            )
        key = made.add("api-keys", {"service_account_id": account["id"], "scopes": ["kafka"]})
        made.wait_until_ready(should_stop)
        servers = person.get(base).body["cell"]["bootstrap_servers"]
    except TidewheelError as error:
        raise StackError(f"The tenant {slug} could not be made: {error}") from error
    login, secret = quote(key["login"], safe=""), quote(key["secret"], safe="")
    url = f"tidewheel://{login}:{secret}@{servers}"
    return DemoTenant(slug, url, f"User:{account['id']}", time.perf_counter() - started_s)


class _Parts:
    """What was declared for one tenant."""

    def __init__(self, rest: Rest, base: str) -> None:
        self._rest = rest
        self._base = base
        self._addresses = [base, f"{base}/quota"]

    def add(self, kind: str, body: dict[str, Any], *, declared: bool = True) -> dict[str, Any]:
        """`declared` is what a cell is told of."""
        made: dict[str, Any] = self._rest.post(f"{self._base}/{kind}", body).body
        if declared:
            self._addresses.append(f"{self._base}/{kind}/{made['id']}")
        return made

    def wait_until_ready(self, should_stop: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        for address in self._addresses:
            while (shown := self._rest.get(address).body["status"])["state"] != "ready":
                if should_stop():
                    raise Stopped
                if time.monotonic() >= deadline_s or shown["state"] == "failed":
                    reason = shown["reason"] or f"{READY_TIMEOUT_S:.0f} s are over"
                    raise StackError(f"{address} is {shown['state']}: {reason}")
                time.sleep(LOOK_UP_S)


def _session(rest_url: str, address: str, email: str, password: str) -> Rest:
    answer = Rest(rest_url).ask("POST", address, {"email": email, "password": password})
    token = ((answer.body or {}).get("meta") or {}).get("session_token")
    if answer.status != 200 or not token:
        raise StackError(f"{email} does not get in ({address}: status {answer.status})")
    return Rest(rest_url, {"X-Session-Token": str(token)})


def _password() -> str:
    return secrets.token_urlsafe(PASSWORD_RANDOM_BYTES)
