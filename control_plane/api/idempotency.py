"""`Idempotency-Key` on POST: a retry gets the first answer, and nothing is made twice.

The answer is stored in the transaction of the write itself: either both are there or neither. A
retry that comes while the first is on its way gets 409 (an advisory lock of Postgres says so), one
with another body or address 422. Only successes are kept, for an hour; what was refused is decided
anew.

What a cell is asked to do is in no transaction: whether it has been done may stay unknown, when no
answer comes, or when this server dies. So that it is asked is stored before, and stays; a retry is
told that the outcome is unknown, and asks nothing.

Of the key there is kept an HMAC, and the answer is encrypted under a key derived from it. So a
secret that was shown once can be had again by who has the Idempotency-Key, and by nobody who reads
the database.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from rest_framework.exceptions import APIException
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.operations.models import IdempotentAnswer
from control_plane.tenancy.errors import Conflict, Invalid, OutcomeUnknown, Refused

KEPT = timedelta(hours=1)
KEPT_HEADERS = ("Cache-Control", "ETag")
KEY_CHARACTERS_MAX = 255
FORGOTTEN_MAX = 20
NONCE_BYTES = 12
LOCK_BYTES = 8
# Instead of a status: a cell was asked, and has not answered yet, or never will.
ASKED = 0
UNKNOWN = 1
# More than a call of a cell takes (messaging/cell_calls.py): who has not answered by then has died.
ANSWERED_WITHIN = timedelta(seconds=30)
IN_FLIGHT = "The first request with this Idempotency-Key is still on its way."

ViewT = TypeVar("ViewT")
P = ParamSpec("P")
Handler = Callable[Concatenate[ViewT, Request, P], Response]
Once = Callable[[Request, str, Callable[[], Response]], Response]


class InFlight(Conflict):
    """The first request with this key has not been answered yet."""

    code = "in-flight"


def idempotent(handler: Handler[ViewT, P]) -> Handler[ViewT, P]:
    """Make a POST handler that writes here honour the header; without it nothing changes."""
    return _honouring(handler, _once)


def idempotent_call(handler: Handler[ViewT, P]) -> Handler[ViewT, P]:
    """Make a POST handler that asks a cell honour it. It runs outside of a transaction, and raises
    OutcomeUnknown where it does not know what was done; of anything else that is refused, nothing
    was."""
    return _honouring(handler, _once_at_most)


def _honouring(handler: Handler[ViewT, P], once: Once) -> Handler[ViewT, P]:
    @wraps(handler)
    def handle(view: ViewT, request: Request, *arguments: P.args, **named: P.kwargs) -> Response:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return handler(view, request, *arguments, **named)
        if not 1 <= len(key) <= KEY_CHARACTERS_MAX or not key.isascii() or not key.isprintable():
            raise Invalid(
                f"An Idempotency-Key has 1 to {KEY_CHARACTERS_MAX} printable ASCII characters.",
                field="/Idempotency-Key",
            )
        return once(request, key, lambda: handler(view, request, *arguments, **named))

    # The schema asks, so that it shows the header where it works.
    made: Any = handle
    made.is_idempotent = True
    return cast("Handler[ViewT, P]", made)


def _once(request: Request, key: str, make: Callable[[], Response]) -> Response:
    actor_id = str(request.user.pk)
    key_hash = _derived(actor_id, key, "name").hex()
    request_hash = _request_hash(request)
    with transaction.atomic():
        if not _try_lock(key_hash):
            raise InFlight(IN_FLIGHT)
        answers = IdempotentAnswer.objects.filter(actor_id=actor_id, key_hash=key_hash)
        kept = _kept(answers, request_hash)
        if kept is not None:
            return _replayed(kept, _derived(actor_id, key, "answer"))
        answers.delete()
        response = make()
        if response.status_code < 300:
            _forget_expired()
            IdempotentAnswer.objects.create(
                actor_id=actor_id,
                key_hash=key_hash,
                request_hash=request_hash,
                status_code=response.status_code,
                answer=_sealed(response, _derived(actor_id, key, "answer"), key_hash),
                expires_at=timezone.now() + KEPT,
            )
        return response


def _once_at_most(request: Request, key: str, make: Callable[[], Response]) -> Response:
    actor_id = str(request.user.pk)
    key_hash = _derived(actor_id, key, "name").hex()
    request_hash = _request_hash(request)
    answers = IdempotentAnswer.objects.filter(actor_id=actor_id, key_hash=key_hash)
    with transaction.atomic():
        if not _try_lock(key_hash):
            raise InFlight(IN_FLIGHT)
        kept = _kept(answers, request_hash)
        if kept is not None:
            return _told_again(kept, _derived(actor_id, key, "answer"))
        answers.delete()
        _forget_expired()
        IdempotentAnswer.objects.create(
            actor_id=actor_id,
            key_hash=key_hash,
            request_hash=request_hash,
            status_code=ASKED,
            answer=b"",
            expires_at=timezone.now() + KEPT,
        )
    try:
        response = make()
    except OutcomeUnknown:
        answers.update(status_code=UNKNOWN)
        raise
    except (Refused, APIException, Http404, PermissionDenied):
        answers.delete()
        raise
    # Whatever else is raised is a bug, or the database is away: what was done is not known.
    answers.update(
        status_code=response.status_code,
        answer=_sealed(response, _derived(actor_id, key, "answer"), key_hash),
    )
    return response


def _kept(answers: QuerySet[IdempotentAnswer], request_hash: str) -> IdempotentAnswer | None:
    """What is kept under a key, if it is not over. Raises Invalid for another request."""
    kept = answers.first()
    if kept is None or kept.expires_at <= timezone.now():
        return None
    if not hmac.compare_digest(kept.request_hash, request_hash):
        raise Invalid(
            "This Idempotency-Key was used for another request.", field="/Idempotency-Key"
        )
    return kept


def _told_again(kept: IdempotentAnswer, cipher_key: bytes) -> Response:
    if kept.status_code not in (ASKED, UNKNOWN):
        return _replayed(kept, cipher_key)
    asked_at = kept.expires_at - KEPT
    if kept.status_code == ASKED and timezone.now() < asked_at + ANSWERED_WITHIN:
        raise InFlight(IN_FLIGHT)
    raise OutcomeUnknown(
        "The cell was asked to do this with this Idempotency-Key, and did not say whether it has."
    )


def _sealed(response: Response, cipher_key: bytes, key_hash: str) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    headers = {name: response[name] for name in KEPT_HEADERS if name in response}
    body = JSONRenderer().render({"data": response.data, "headers": headers})
    return nonce + AESGCM(cipher_key).encrypt(nonce, body, key_hash.encode())


def _forget_expired() -> None:
    """Each new answer takes away more than one that is over, so that they do not pile up. What
    another request is at is left to it."""
    over = IdempotentAnswer.objects.filter(expires_at__lt=timezone.now())
    ids = over.select_for_update(skip_locked=True).values_list("id", flat=True)
    IdempotentAnswer.objects.filter(id__in=list(ids[:FORGOTTEN_MAX])).delete()


def _replayed(kept: IdempotentAnswer, cipher_key: bytes) -> Response:
    sealed = bytes(kept.answer)
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        body = AESGCM(cipher_key).decrypt(nonce, ciphertext, kept.key_hash.encode())
    except InvalidTag as error:
        raise AssertionError("an answer that its own key does not open") from error
    answer: dict[str, Any] = json.loads(body)
    headers = answer["headers"] | {"Idempotency-Replayed": "true"}
    return Response(answer["data"], status=kept.status_code, headers=headers)


def _derived(actor_id: str, key: str, purpose: str) -> bytes:
    """32 bytes that only who has the Idempotency-Key and the server's secret can make."""
    text = json.dumps(["idempotency", purpose, actor_id, key])
    return hmac.digest(settings.SECRET_KEY.encode(), text.encode(), "sha256")


def _request_hash(request: Request) -> str:
    what = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    what.update(json.dumps(request.data, sort_keys=True, default=str).encode())
    return what.hexdigest()


def _try_lock(key_hash: str) -> bool:
    number = int.from_bytes(bytes.fromhex(key_hash)[:LOCK_BYTES], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])
