"""What the command line sends to a control plane, and to whom."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tidewheel.cli.main import app
from tidewheel.errors import ConfigurationError
from tidewheel.logins import Login, read_login, write_login
from tidewheel.rest import ControlPlaneUnreachable, Refused, Rest
from typer.testing import CliRunner


class Server:
    """A control plane that answers as a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.replies: list[tuple[int, dict[str, str], Any] | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                reply = outer.replies.pop(0)
                if reply is None:
                    # It was done, and nobody hears of it.
                    self.close_connection = True
                    return
                status, headers, answer = reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_pages_are_read_to_the_end(server: Server) -> None:
    server.replies += [
        (200, {}, {"items": [{"id": 1}, {"id": 2}], "next_cursor": "next"}),
        (200, {}, {"items": [{"id": 3}], "next_cursor": None}),
    ]
    rest = Rest(server.url, {"Authorization": "Bearer tws_x"})
    assert [one["id"] for one in rest.items("/things", name="a b")] == [1, 2, 3]
    assert [path for _, path, _, _ in server.asked] == [
        "/things?limit=500&name=a+b",
        "/things?limit=500&cursor=next&name=a+b",
    ]
    assert {headers["Authorization"] for _, _, headers, _ in server.asked} == {"Bearer tws_x"}


def test_a_post_whose_answer_is_lost_is_sent_again_with_its_key(server: Server) -> None:
    server.replies += [None, (201, {}, {"secret": "s"})]
    assert Rest(server.url).post("/keys", {"a": 1}).body == {"secret": "s"}
    first, second = server.asked
    assert first[2]["Idempotency-Key"] == second[2]["Idempotency-Key"]
    assert first[3] == second[3] == {"a": 1}
    # Another one is another thing.
    server.replies.append((201, {}, {}))
    Rest(server.url).post("/keys", {"a": 1})
    assert server.asked[2][2]["Idempotency-Key"] != first[2]["Idempotency-Key"]


def test_what_may_have_been_done_is_not_done_twice(server: Server) -> None:
    server.replies.append(None)
    with pytest.raises(ControlPlaneUnreachable):
        Rest(server.url).patch("/things/1", {"a": 1}, '"tag"')
    assert [(asked[0], asked[2]["If-Match"]) for asked in server.asked] == [("PATCH", '"tag"')]


def test_a_refusal_says_why_and_names_every_field(server: Server) -> None:
    errors = [{"pointer": "/name", "detail": "no."}, {"pointer": "/spec", "detail": "nor this."}]
    problem = {"code": "invalid", "detail": "/name: no.", "errors": errors}
    server.replies.append((422, {"Content-Type": "application/problem+json"}, problem))
    with pytest.raises(Refused) as refused:
        Rest(server.url).post("/things")
    error = refused.value
    assert (error.status, error.code, error.message) == (422, "invalid", "/name: no")
    assert error.hint == "/spec: nor this."


def test_a_redirect_is_not_followed_with_a_key(server: Server) -> None:
    server.replies.append((302, {"Location": f"{server.url}/elsewhere"}, {}))
    with pytest.raises(Refused) as refused:
        Rest(server.url, {"Authorization": "Bearer tws_x"}).get("/things")
    assert refused.value.status == 302
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "url",
    ["http://tidewheel.example", "ftp://127.0.0.1", "127.0.0.1:1", "https://ann:x@t.example"],
)
def test_what_would_be_read_by_others_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Rest(url)


ACME = "/api/v1/organizations/org_1"
CELL = {"cell": {"bootstrap_servers": "127.0.0.1:2"}}
ACCOUNTS = {"items": [{"id": "sa_1", "name": "ci", "role": "viewer"}], "next_cursor": None}
KEY = {"id": "key_1", "scopes": ["kafka"], "login": "key_1@acme", "secret": "tws_once"}


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (
            ("create", "ci"),
            {"": CELL, "/service-accounts?limit=500": ACCOUNTS, "/api-keys": KEY},
        ),
        (("rotate", "key_0"), {"": CELL, "/api-keys/key_0/rotate": KEY}),
    ],
)
def test_when_a_secret_is_made_nothing_is_left_that_could_fail(
    server: Server, tmp_path: Path, words: tuple[str, ...], answers: dict[str, Any]
) -> None:
    login = Login(server.url, "ann", "org_1", "acme", session="token")
    write_login(tmp_path / "tidewheel" / "logins.json", "default", login)
    server.replies += [(200, {}, answer) for answer in answers.values()]
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "TIDEWHEEL_PROFILE": None}
    ended = CliRunner().invoke(app, ["keys", *words], env=environment)
    assert ended.exit_code == 0, ended.stderr
    assert "tws_once" in ended.stdout
    assert "127.0.0.1:2" in ended.stdout
    assert [path for _, path, _, _ in server.asked] == [ACME + address for address in answers]


def test_nobody_there_is_said_so() -> None:
    with pytest.raises(ControlPlaneUnreachable, match=r"127\.0\.0\.1:1 does not answer"):
        Rest("http://127.0.0.1:1").get("/things")


def test_logins_are_their_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "config" / "logins.json"
    login = Login("https://x.example", "ann", "org_1", "acme", key="tws_secret")
    write_login(path, "default", login)
    write_login(path, "other", Login("https://y.example", "bob", session="token"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_login(path, "default") == login
    assert "secret" not in repr(login)
    assert read_login(path, "third") is None
    assert [each.name for each in path.parent.iterdir()] == ["logins.json"]
    write_login(path, "default", None)
    assert read_login(path, "default") is None
    assert read_login(path, "other") is not None
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="others may read it"):
        read_login(path, "other")
    path.chmod(0o600)
    path.write_text('{"default": {"key": "tws_secret"}}')
    with pytest.raises(ConfigurationError) as damaged:
        read_login(path, "default")
    assert "tws_secret" not in str(damaged.value)
