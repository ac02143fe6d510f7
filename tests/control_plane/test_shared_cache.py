"""Requests share the cache's connections, also after Valkey was killed and started again."""

from __future__ import annotations

import threading
from pathlib import Path

import redis

from control_plane.shared_cache import SharedRedisCache
from stack.valkey import ValkeyServer
from tests.kept_port import KeptPort

REQUESTS = 20


def count_in_a_context_of_its_own(url: str) -> None:
    """As a request does: with a cache and a thread of its own."""

    def count() -> None:
        cache = SharedRedisCache(url, {})
        cache.add("requests", 0)
        cache.incr("requests")

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()


def test_requests_share_connections_and_a_dead_server_is_noticed(tmp_path: Path) -> None:
    kept = KeptPort()
    valkey = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log", port=kept.port)
    valkey.start()
    try:
        for _ in range(REQUESTS):
            count_in_a_context_of_its_own(valkey.url)
        with redis.Redis.from_url(valkey.url) as asking:
            # Those of starting it, of this one, and of all requests.
            assert asking.info("stats")["total_connections_received"] < REQUESTS // 2
        valkey.kill_now()
        valkey.stop()
        valkey.start()
        count_in_a_context_of_its_own(valkey.url)
        assert SharedRedisCache(valkey.url, {}).get("requests") in (1, REQUESTS + 1)
    finally:
        valkey.stop()
