"""Django's cache in Redis, over connections that all requests of a process share.

Under ASGI each request has a context of its own, and Django makes it a cache of its own, which
would connect anew: a sixth of what a request costs. A pool of connections may be used by any
thread; one that the server has closed is noticed before it is used, and made anew.
"""

from __future__ import annotations

import threading
from typing import Any

from django.core.cache.backends.redis import RedisCache, RedisCacheClient

_pools: dict[tuple[str, ...], dict[int, Any]] = {}
_pools_lock = threading.Lock()


class SharedRedisClient(RedisCacheClient):
    """One of a request's own, with the process's connections."""

    def __init__(self, servers: list[str], **options: Any) -> None:
        super().__init__(servers, **options)
        # By servers: a process has one cache of each.
        self._pools = _pools.setdefault(tuple(servers), {})

    def _get_connection_pool(self, write: bool) -> Any:
        with _pools_lock:
            return super()._get_connection_pool(write)  # type: ignore[misc]


class SharedRedisCache(RedisCache):
    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = SharedRedisClient
