"""REST of a control plane, as the command line needs it: JSON over HTTP, one request at a time.

    rest = Rest("https://tidewheel.example", {"Authorization": "Bearer tws_…"})
    for topic in rest.items(f"/api/v1/organizations/{organization_id}/topics"):
        …

Invariants
- A key, a session or a password goes to the address that was given and to no other: redirects are
  not followed, and without TLS it goes to loopback alone.
- A POST has an Idempotency-Key, and is sent once more when its answer did not come: nothing is made
  twice, and a secret that is shown once is not lost on its way.

Deliberately absent: asyncio, connections that are kept, and knowledge of the resources. Programs
make clients of the schema that the control plane serves (`/api/v1/openapi.json`).
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from tidewheel.access import is_loopback
from tidewheel.errors import ConfigurationError, TidewheelError

TIMEOUT_S: Final = 30.0
PAGE_ITEMS: Final = 500
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
ATTEMPTS: Final = 2
"""Of a request whose answer does not come, where a second one does no harm."""


class ControlPlaneUnreachable(TidewheelError):
    """Nobody answers at the control plane's address, or nobody who speaks its language."""

    default_hint = "Check the address, and that the control plane runs (`tidewheel status`)"
    retriable = True


class Refused(TidewheelError):
    """The control plane says no. `status` is HTTP's, `code` the problem's."""

    def __init__(self, message: str, *, status: int, code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is None where there is none."""

    status: int
    body: Any
    etag: str | None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An answer that leads elsewhere is an answer like others."""

    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        return None


class Rest:
    """One control plane, and who asks. All calls raise Refused and ControlPlaneUnreachable."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Raises ConfigurationError for an address that cannot be one."""
        parts = urlsplit(url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigurationError(
                f"{url!r} is no address of a control plane",
                hint="Write http://host:port or https://host",
            )
        if parts.username is not None:
            raise ConfigurationError("The address has a user", hint="Log in: `tidewheel login`")
        loopback = is_loopback(parts.hostname)
        if parts.scheme == "http" and not loopback:
            raise ConfigurationError(
                f"Without TLS everybody could read what is sent to {parts.hostname}",
                hint="Write https://",
            )
        self.url = parts.geturl()
        self._headers = dict(headers or {})
        # What stands in the environment is for other machines than this one.
        proxies = [urllib.request.ProxyHandler({})] if loopback else []
        self._opener = urllib.request.build_opener(_NoRedirects, *proxies)

    def get(self, address: str, **query: object) -> Answer:
        given = {name: value for name, value in query.items() if value is not None}
        return self._send("GET", f"{address}?{urlencode(given)}" if given else address)

    def post(self, address: str, body: Mapping[str, Any] | None = None) -> Answer:
        return self._send("POST", address, body or {}, {"Idempotency-Key": uuid.uuid4().hex})

    def patch(self, address: str, body: Mapping[str, Any], etag: str | None = None) -> Answer:
        return self._send("PATCH", address, body, {} if etag is None else {"If-Match": etag})

    def delete(self, address: str) -> Answer:
        return self._send("DELETE", address)

    def items(self, address: str, **query: object) -> Iterator[dict[str, Any]]:
        """All of a list, page by page."""
        cursor: str | None = None
        while True:
            page = self.get(address, limit=PAGE_ITEMS, cursor=cursor, **query).body
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def ask(self, method: str, address: str, body: Mapping[str, Any] | None = None) -> Answer:
        """The answer whatever its status: for logging in, where 401 asks for more."""
        return self._answered(method, address, body, {}, attempts=1)

    def _send(
        self,
        method: str,
        address: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        repeatable = method == "GET" or "Idempotency-Key" in (headers or {})
        attempts = ATTEMPTS if repeatable else 1
        answer = self._answered(method, address, body, headers or {}, attempts=attempts)
        if answer.status >= 300:
            raise _refused(answer)
        return answer

    def _answered(
        self,
        method: str,
        address: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        *,
        attempts: int,
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        every = {"Accept": "application/json", "Content-Type": "application/json"}
        request = urllib.request.Request(
            self.url + address,
            data=data,
            headers={**every, **self._headers, **headers},
            method=method,
        )
        while True:
            attempts -= 1
            try:
                return self._once(request)
            except (OSError, http.client.HTTPException) as error:
                if not attempts:
                    reason = getattr(error, "reason", None) or error
                    words = getattr(reason, "strerror", None) or reason or type(error).__name__
                    raise ControlPlaneUnreachable(f"{self.url} does not answer: {words}") from error

    def _once(self, request: urllib.request.Request) -> Answer:
        try:
            response = self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            data = response.read(ANSWER_BYTES_MAX)
            etag = response.headers.get("ETag")
            status: int = response.status
        try:
            body = json.loads(data) if data else None
        except ValueError as error:
            raise ControlPlaneUnreachable(
                f"{self.url} answers with something else than JSON (status {status})"
            ) from error
        return Answer(status, body, etag)


def _refused(answer: Answer) -> Refused:
    problem = answer.body if isinstance(answer.body, dict) else {}
    message = str(problem.get("detail") or f"The control plane answers with {answer.status}")
    errors = problem.get("errors") or []
    others = [f"{one['pointer']}: {one['detail']}" for one in errors[1:]]
    hint = "; ".join(others)
    if answer.status == 401:
        hint = "Log in again: `tidewheel login`"
    return Refused(
        message.rstrip("."), status=answer.status, code=str(problem.get("code", "")), hint=hint
    )
