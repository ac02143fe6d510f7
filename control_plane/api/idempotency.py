"""`Idempotency-Key` on POST: a retry gets the first answer, and nothing is made twice.

The answer is stored in the transaction of the write itself: either both are there or neither. A
retry that comes while the first is on its way gets 409 (an advisory lock of Postgres says so), one
with another body or address 422. Only successes are kept, for an hour; what was refused is decided
anew.

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
from django.db import connection, transaction
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.operations.models import IdempotentAnswer
from control_plane.tenancy.errors import Conflict, Invalid

KEPT = timedelta(hours=1)
KEPT_HEADERS = ("Cache-Control", "ETag")
KEY_CHARACTERS_MAX = 255
FORGOTTEN_MAX = 20
NONCE_BYTES = 12
LOCK_BYTES = 8

ViewT = TypeVar("ViewT")
P = ParamSpec("P")
Handler = Callable[Concatenate[ViewT, Request, P], Response]


class InFlight(Conflict):
    """The first request with this key has not been answered yet."""

    code = "in-flight"


def idempotent(handler: Handler[ViewT, P]) -> Handler[ViewT, P]:
    """Make a POST handler honour the header; without it nothing changes."""

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
        return _once(request, key, lambda: handler(view, request, *arguments, **named))

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
            raise InFlight("The first request with this Idempotency-Key is still on its way.")
        answers = IdempotentAnswer.objects.filter(actor_id=actor_id, key_hash=key_hash)
        kept = answers.first()
        if kept is not None and kept.expires_at > timezone.now():
            if not hmac.compare_digest(kept.request_hash, request_hash):
                raise Invalid(
                    "This Idempotency-Key was used for another request.", field="/Idempotency-Key"
                )
            return _replayed(kept, _derived(actor_id, key, "answer"))
        answers.delete()
        response = make()
        if response.status_code < 300:
            _forget_expired()
            nonce = secrets.token_bytes(NONCE_BYTES)
            cipher = AESGCM(_derived(actor_id, key, "answer"))
            headers = {name: response[name] for name in KEPT_HEADERS if name in response}
            body = JSONRenderer().render({"data": response.data, "headers": headers})
            IdempotentAnswer.objects.create(
                actor_id=actor_id,
                key_hash=key_hash,
                request_hash=request_hash,
                status_code=response.status_code,
                answer=nonce + cipher.encrypt(nonce, body, key_hash.encode()),
                expires_at=timezone.now() + KEPT,
            )
        return response


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
