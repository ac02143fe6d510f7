"""How much one caller may ask: so many requests a minute, counted in the cache.

Every answer says what is left (`RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`); beyond
it 429 with `Retry-After`. It protects the control plane and is no quota of a plan, so when the
cache is away everybody is served, and the log says so. It is not asked again for AWAY_S then: one
that hangs would keep each request for as long as its time is.

Who does not say who he is, or cannot show it, is a stranger. Strangers share what their address
has, and once that is used up nobody from there is asked who he is until the minute is over: to look
up wrong keys is what it protects from. So a caller is counted as soon as he is known, before
anything else is done for him.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.views import APIView

from control_plane.tenancy.addresses import range_of

log = logging.getLogger(__name__)

WINDOW_S = 60
AWAY_S = 5.0
OFF = "rate limits are off, since the cache does not answer: %s"


class Away:
    """Whether the cache did not answer a moment ago. Shared by threads, each of which may see it a
    little late."""

    def __init__(self) -> None:
        self._until_s = 0.0

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self._until_s

    def note(self, error: Exception) -> None:
        log.warning(OFF, error)
        self._until_s = time.monotonic() + AWAY_S

    def forget(self) -> None:
        """Ask it with the next request."""
        self._until_s = 0.0


away = Away()


@dataclass(frozen=True, slots=True)
class Window:
    """The present minute of one caller, or of the strangers of one address."""

    who: str
    limit: int
    now_s: float

    @property
    def reset_s(self) -> int:
        return WINDOW_S - int(self.now_s % WINDOW_S)

    def headers(self, used: int) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(max(0, self.limit - used)),
            "RateLimit-Reset": str(self.reset_s),
        }

    def used(self) -> int:
        """How many requests have been counted."""
        if away.is_away:
            return 0
        try:
            return int(cache.get(self._key, 0))
        except (RedisError, OSError) as error:
            away.note(error)
            return 0

    def count(self) -> int:
        """One more; how many those are."""
        if away.is_away:
            return 1
        try:
            cache.add(self._key, 0, timeout=2 * WINDOW_S)
            return cache.incr(self._key)
        except ValueError:
            # It went between the two calls, with its window.
            return 1
        except (RedisError, OSError) as error:
            away.note(error)
            return 1

    @property
    def _key(self) -> str:
        return f"rate:{self.who}:{int(self.now_s // WINDOW_S)}"


class RateLimitedView(APIView):
    """Every view of REST: its callers are counted, and told in every answer what they have left."""

    rate_limit_headers: Mapping[str, str] = {}

    def perform_authentication(self, request: Request) -> None:
        now_s = time.time()
        strangers = Window(_stranger(request), settings.STRANGERS_PER_MINUTE, now_s)
        used = strangers.used()
        if used >= strangers.limit:
            self._refuse(request, strangers, used)
        try:
            super().perform_authentication(request)
        except APIException:
            self.rate_limit_headers = strangers.headers(strangers.count())
            raise
        user: Any = request.user
        is_known = user is not None and user.is_authenticated
        window = Window(user.pk, settings.REQUESTS_PER_MINUTE, now_s) if is_known else strangers
        used = window.count()
        if used > window.limit:
            self._refuse(request, window, used)
        self.rate_limit_headers = window.headers(used)

    def _refuse(self, request: Request, window: Window, used: int) -> None:
        self.rate_limit_headers = window.headers(used)
        self.throttled(request, window.reset_s)

    def finalize_response(
        self, request: Request, response: Any, *arguments: Any, **named: Any
    ) -> Any:
        response = super().finalize_response(request, response, *arguments, **named)
        for name, value in self.rate_limit_headers.items():
            response[name] = value
        return response


def _stranger(request: Request) -> str:
    address = request.META.get("REMOTE_ADDR", "")
    shared = range_of(address)
    return f"address:{address if shared is None else shared[0]}"
