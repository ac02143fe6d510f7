"""From stranger to person: a verified address, a session, a second factor; who guesses waits."""

from __future__ import annotations

import base64
import hmac
import re
import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.core import mail
from django.core.cache import cache
from django.test import Client

from control_plane.accounts.models import User
from tests.control_plane.tenants import make_cell, make_tenant, make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long password"
APP = "/_allauth/app/v1"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    cache.clear()
    make_cell()
    make_tenant("present")


def call(method: str, address: str, body: Any = None, token: str = "") -> Any:
    headers = {"X-Session-Token": token} if token else {}
    send = getattr(Client(), method)
    if body is None:
        return send(address, headers=headers)
    return send(address, body, content_type="application/json", headers=headers)


def sign_up(email: str) -> Any:
    return call("post", f"{APP}/auth/signup", {"email": email, "password": PASSWORD})


def log_in(email: str, password: str = PASSWORD) -> Any:
    return call("post", f"{APP}/auth/login", {"email": email, "password": password})


def code_in(text: str) -> str:
    found = re.search(r"^\s*([A-Z0-9]{3,4}-?[A-Z0-9]{3,4})\s*$", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def totp(secret: str) -> str:
    """What an authenticator shows now (RFC 6238)."""
    counter = int(time.time() // 30).to_bytes(8, "big")
    digest = hmac.digest(base64.b32decode(secret), counter, "sha1")
    start = digest[-1] & 15
    return f"{(int.from_bytes(digest[start : start + 4], 'big') & 0x7FFFFFFF) % 1_000_000:06}"


def test_a_stranger_verifies_an_address_and_makes_an_organization() -> None:
    pending = sign_up("Ann@x.example")
    assert pending.status_code == 401
    token = pending.json()["meta"]["session_token"]
    assert call("get", "/api/v1/me", token=token).status_code == 401
    assert mail.outbox[0].to == ["ann@x.example"]
    verified = call(
        "post", f"{APP}/auth/email/verify", {"key": code_in(str(mail.outbox[0].body))}, token
    )
    assert verified.status_code == 200
    token = verified.json()["meta"].get("session_token", token)
    made = call("post", "/api/v1/organizations", {"name": "Ann's", "slug": "anns"}, token)
    assert made.status_code == 201, made.content
    assert call("get", "/api/v1/me", token=token).json()["name"] == "ann@x.example"


def test_who_signs_up_under_a_known_address_learns_nothing() -> None:
    make_user("ann@x.example")
    known, unknown = sign_up("ann@x.example"), sign_up("bob@x.example")
    assert (known.status_code, unknown.status_code) == (401, 401)
    flows = [
        {flow["id"]: flow.get("is_pending", False) for flow in answer.json()["data"]["flows"]}
        for answer in (known, unknown)
    ]
    assert flows[0] == flows[1]
    # The owner of the address is told, and no second account is made.
    assert "ann@x.example" in [message.to[0] for message in mail.outbox]
    assert User.objects.filter(email="ann@x.example").count() == 1


def test_who_guesses_a_password_has_to_wait() -> None:
    make_user("ann@x.example")
    codes = [
        log_in("ann@x.example", f"guess {number}").json()["errors"][0]["code"]
        for number in range(6)
    ]
    assert codes[0] == "email_password_mismatch"
    assert codes[-1] == "too_many_login_attempts"
    # The right one, too, or it would be known as such.
    assert log_in("ann@x.example").json()["errors"][0]["code"] == "too_many_login_attempts"


def test_a_weak_password_is_refused() -> None:
    answer = call("post", f"{APP}/auth/signup", {"email": "a@x.example", "password": "123"})
    assert answer.status_code == 400
    assert not User.objects.filter(email="a@x.example").exists()


def test_a_second_factor_is_asked_for() -> None:
    user = make_user("ann@x.example")
    user.emailaddress_set.create(email=user.email, verified=True, primary=True)  # type: ignore[attr-defined]
    assert log_in(user.email).status_code == 200
    secret = "JBSWY3DPEHPK3PXP"
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": secret})
    asked = log_in(user.email)
    assert asked.status_code == 401
    token = asked.json()["meta"]["session_token"]
    assert call("get", "/api/v1/me", token=token).status_code == 401
    body = {"code": totp(secret)}
    passed = call("post", f"{APP}/auth/2fa/authenticate", body, token)
    assert passed.status_code == 200
    token = passed.json()["meta"].get("session_token", token)
    assert call("get", "/api/v1/me", token=token).status_code == 200


def test_a_session_gets_another_key_at_login() -> None:
    user = make_user("ann@x.example")
    user.emailaddress_set.create(email=user.email, verified=True, primary=True)  # type: ignore[attr-defined]
    browser = Client()
    session = browser.session
    session["planted"] = "by somebody"
    session.save()
    browser.cookies[settings.SESSION_COOKIE_NAME] = str(session.session_key)
    answer = browser.post("/accounts/login/", {"login": user.email, "password": PASSWORD})
    assert answer.status_code == 302
    assert browser.cookies[settings.SESSION_COOKIE_NAME].value != session.session_key


def test_pages_of_accounts_are_there() -> None:
    for address in ("login", "signup", "password/reset"):
        assert Client().get(f"/accounts/{address}/").status_code == 200
