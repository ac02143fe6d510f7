"""How much one caller may ask: so many requests a minute, counted in the cache.

Every answer says what is left (`RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`); beyond
it 429 with `Retry-After`. It protects the control plane and is no quota of a plan, so when the
cache is away everybody is served, and the log says so.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

log = logging.getLogger(__name__)

WINDOW_S = 60


class CallerRateLimit(BaseThrottle):
    """A fixed window for each key, person or, without either, address."""

    def allow_request(self, request: Request, view: Any) -> bool:
        user: Any = request.user
        is_known = user is not None and user.is_authenticated
        limit: int = settings.REQUESTS_PER_MINUTE if is_known else settings.STRANGERS_PER_MINUTE
        who = user.pk if is_known else f"address:{request.META.get('REMOTE_ADDR', '')}"
        now = time.time()
        window = int(now // WINDOW_S)
        self.reset_s = WINDOW_S - int(now % WINDOW_S)
        used: int = _count(f"rate:{who}:{window}")
        view.rate_limit_headers = {
            "RateLimit-Limit": str(limit),
            "RateLimit-Remaining": str(max(0, limit - used)),
            "RateLimit-Reset": str(self.reset_s),
        }
        return used <= limit

    def wait(self) -> float:
        return float(self.reset_s)


def _count(key: str) -> int:
    try:
        cache.add(key, 0, timeout=2 * WINDOW_S)
        return cache.incr(key)
    except ValueError:
        # It went between the two calls, with its window.
        return 1
    except (RedisError, OSError) as error:
        log.warning("rate limits are off, since the cache does not answer: %s", error)
        return 1
