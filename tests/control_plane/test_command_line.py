"""`tidewheel login`, `topics`, `keys`, `quotas` and `audit` with a control plane that serves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from pytest_django.live_server_helper import LiveServer
from tidewheel.cli import organization, rest_topics
from tidewheel.cli.main import app
from typer.testing import CliRunner

from control_plane.access.models import ApiKey, Grant
from control_plane.messaging.models import Topic
from control_plane.quotas.models import Plan
from tests.control_plane.rest import key_of
from tests.control_plane.tenants import make_cell, make_tenant, make_user
from tests.control_plane.test_sign_up import totp

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "a long password"
Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    # Nobody tells a cell here, so topics do not become ready.
    monkeypatch.setattr(rest_topics, "READY_TIMEOUT_S", 0)
    Plan.objects.get_or_create(is_default=True, defaults={"name": "trial"})
    make_cell()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Types a command, with a folder for its logins."""

    def call(*words: str, given: str = "") -> Result:
        environment = {"XDG_CONFIG_HOME": str(tmp_path), "TIDEWHEEL_URL": None}
        ended = CliRunner().invoke(app, list(words), input=given, env=environment)
        return Result(words, ended.exit_code, ended.stdout, ended.stderr)

    return call


def ok(result: Result) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown(result: Result) -> Any:
    return json.loads(ok(result))


def person(email: str) -> Any:
    user = make_user(email)
    EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
    return user


@pytest.fixture
def at_acme(run: Run, live_server: LiveServer) -> Run:
    """Logged in by somebody who has just made the organization acme."""
    person("ann@x.example")
    words = ("login", live_server.url, "--email", "ann@x.example", "-o", "acme", "--create")
    ok(run(*words, given=f"{PASSWORD}\n"))
    return run


def test_a_wrong_password_lets_nobody_in(run: Run, live_server: LiveServer) -> None:
    person("ann@x.example")
    refused = run("login", live_server.url, "--email", "ann@x.example", given="guess\n")
    assert (refused.returncode, "not correct" in refused.stderr) == (1, True)
    assert PASSWORD not in refused.stderr
    keys = run("keys")
    assert (keys.returncode, "You are not logged in" in keys.stderr) == (1, True)


def test_a_second_factor_is_asked_for(run: Run, live_server: LiveServer) -> None:
    user = person("ann@x.example")
    secret = "JBSWY3DPEHPK3PXP"
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": secret})
    words = ("login", live_server.url, "--email", user.email, "--json")
    made = shown(run(*words, given=f"{PASSWORD}\n{totp(secret)}\n"))
    assert made == {"url": live_server.url, "who": user.email, "organization": None}


def test_who_belongs_to_several_says_which(run: Run, live_server: LiveServer) -> None:
    tenant = make_tenant("one")
    email = tenant.owner.email
    EmailAddress.objects.create(user=tenant.owner, email=email, verified=True, primary=True)
    words = ("login", live_server.url, "--email", email)
    only = shown(run(*words, "--json", given=f"{PASSWORD}\n"))
    assert only["organization"] == "one"
    ok(run("login", "--organization", "two", "--create"))
    assert shown(run("login", "--json"))["organization"] == "two"
    unknown = run("login", "--organization", "three")
    assert (unknown.returncode, "no organization three" in unknown.stderr) == (1, True)


def test_topics_are_those_of_the_organization(at_acme: Run) -> None:
    run = at_acme
    assert "No topics yet" in ok(run("topics"))
    made = run("topics", "create", "orders", "-p", "3", "--set", "retention.ms=3600000")
    assert ok(made) == "Created orders with 3 partitions\n"
    assert "It is provisioning" in made.stderr
    (listed,) = shown(run("topics", "--json"))
    assert (listed["topic"], listed["partitions"], listed["managed_by"]) == ("orders", 3, "api")
    ok(run("topics", "config", "orders", "--set", "cleanup.policy=compact"))
    ok(run("topics", "partitions", "orders", "4"))
    described = shown(run("topics", "describe", "orders", "--json"))
    assert described["spec"]["partitions"] == 4
    assert described["spec"]["configs"] == {"cleanup.policy": "compact", "retention.ms": "3600000"}
    ok(run("topics", "config", "orders", "--unset", "cleanup.policy"))
    assert "cleanup.policy" not in ok(run("topics", "describe", "orders"))

    missing = run("topics", "delete", "orders", "nothing", "--yes")
    assert (missing.returncode, 'no topic "nothing"' in missing.stderr) == (2, True)
    assert "it can be had back until" in ok(run("topics", "delete", "orders", "--yes"))
    assert "deleted" in ok(run("topics"))
    ok(run("topics", "undelete", "orders"))
    assert shown(run("topics", "--json"))[0]["status"] != "deleted"
    wrong = run("topics", "create", "wrong", "--set", "no.such=1")
    assert (wrong.returncode, "no.such" in wrong.stderr) == (1, True)


def test_who_names_brokers_means_brokers(at_acme: Run) -> None:
    ok(at_acme("topics", "create", "orders"))
    there = at_acme("topics", "--url", "127.0.0.1:1")
    assert (there.returncode, "127.0.0.1:1" in there.stderr) == (1, True)


def test_keys_with_what_they_may_do(at_acme: Run, live_server: LiveServer) -> None:
    run = at_acme
    words = ("keys", "create", "billing", "--consume", "orders*", "--produce", "invoices")
    made = shown(run(*words, "--json"))
    assert made["login"] == f"{made['id']}@acme"
    assert made["secret"].startswith("tws_")
    assert made["bootstrap_servers"] == "127.0.0.1:2"
    grants = {
        (one.role, one.resource_type, one.pattern_type, one.resource_name)
        for one in Grant.objects.across_tenants()
    }
    assert grants == {
        ("consumer", "topic", "prefixed", "orders"),
        ("consumer", "group", "literal", "*"),
        ("producer", "topic", "literal", "invoices"),
    }
    # The account and its grants are there, and are enough.
    again = ok(run(*words))
    assert "password  tws_" in again
    assert Grant.objects.across_tenants().count() == len(grants)
    keys = shown(run("keys", "--json"))
    assert [key["service_account"] for key in keys] == ["billing", "billing"]
    assert not any("secret" in key for key in keys)
    rotated = shown(run("keys", "rotate", made["id"], "--overlap-s", "60", "--json"))
    assert rotated["rotated_from_id"] == made["id"]
    ok(run("keys", "revoke", made["id"], "--yes"))
    assert ApiKey.objects.across_tenants().get(id=made["id"]).revoked_at is not None
    assert "revoked" in ok(run("keys"))
    unknown = run("keys", "create", "billing", "--scope", "all")
    assert (unknown.returncode, "kafka or rest" in unknown.stderr) == (2, True)


def test_a_key_logs_a_program_in_where_it_belongs(
    run: Run, live_server: LiveServer, tmp_path: Path
) -> None:
    tenant = make_tenant("beta")
    secret = key_of(tenant)
    made = shown(run("login", live_server.url, "--with-key", "--json", given=f"{secret}\n"))
    assert made["organization"] == "beta"
    assert secret not in json.dumps(made)
    ok(run("topics", "create", "orders"))
    assert Topic.objects.of(tenant.id).get().name == "orders"
    refused = run("login", live_server.url, "--with-key", given="tws_wrong\n")
    assert (refused.returncode, "not accepted" in refused.stderr) == (1, True)
    # The login of before is as it was.
    assert shown(run("topics", "--json"))[0]["topic"] == "orders"


def test_quotas_and_audit_of_the_organization(at_acme: Run) -> None:
    ok(at_acme("topics", "create", "orders"))
    quota = shown(at_acme("quotas", "--json"))
    assert (quota["limits"]["topics"], quota["used"]["topics"]) == (50, 1)
    assert "plan trial" in ok(at_acme("quotas"))
    events = shown(at_acme("audit", "--json"))
    assert [event["action"] for event in events] == ["topic.create", "organization.create"]
    only = ok(at_acme("audit", "--action", "topic.create", "-n", "1"))
    assert "orders" in only
    assert "ann@x.example" in only


def test_who_logs_out_is_nobody_again(at_acme: Run, tmp_path: Path) -> None:
    kept = json.loads((tmp_path / "tidewheel" / "logins.json").read_text())
    ok(at_acme("logout"))
    assert json.loads((tmp_path / "tidewheel" / "logins.json").read_text()) == {}
    assert at_acme("keys").returncode == 1
    # The session has ended there, too: who has copied it has nothing.
    (tmp_path / "tidewheel" / "logins.json").write_text(json.dumps(kept))
    ended = at_acme("keys")
    assert (ended.returncode, "Log in again" in ended.stderr) == (1, True)


def test_use_of_the_organization(at_acme: Run) -> None:
    for words in ((), ("--topics",), ("--by", "10s"), ("--topic", "orders")):
        assert ok(at_acme("usage", *words)) == "Nothing yet.\n"
        assert shown(at_acme("usage", *words, "--json")) == []
    unknown = at_acme("usage", "--by", "day")
    assert (unknown.returncode, "10s, minute, hour" in unknown.stderr) == (2, True)


def test_use_is_shown_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "orders", "produce_bytes": 1_234_567, "produce_records": 5, "fetch_bytes": 0}]
    organization._show_use("TOPIC", "topic", rows, as_json=False)
    titles, figures = capsys.readouterr().out.splitlines()
    assert titles.split() == ["TOPIC", "PRODUCE", "BYTES", "PRODUCE", "RECORDS", "FETCH", "BYTES"]
    assert figures.split() == ["orders", "1,234,567", "5", "0"]
