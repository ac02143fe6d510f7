"""Whether anybody can be there at all: a look with plain sockets before librdkafka is asked.

librdkafka goes on trying by itself and says only after a time-out that it had been refused from the
first moment, in its own words. A refused connection and a name that nobody knows are told at once
here. What takes connections is left to librdkafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from typing import Final

RESOLVE_TIMEOUT_S: Final = 2.0
"""Longer than a resolver takes that works."""


class _Look:
    """At one address, on a thread of its own that nobody waits for: a resolver may hang."""

    def __init__(self, address: str, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.is_resolved = False
        self._host, self._port = host.removeprefix("[").removesuffix("]"), int(port)
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        # None: something takes connections there; else why not.
        self.found: asyncio.Future[str | None] = self._loop.create_future()
        threading.Thread(target=self._look, name="tidewheel-look", daemon=True).start()

    def _look(self) -> None:
        why = self._connect()
        with contextlib.suppress(RuntimeError):  # The loop may have ended.
            self._loop.call_soon_threadsafe(self._settle, why)

    def _connect(self) -> str | None:
        try:
            places = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return f"{self._host} is not known"
        self.is_resolved = True
        why = ""
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(self._timeout_s)
                try:
                    probe.connect(place)
                except OSError as error:
                    words = os.strerror(error.errno) if error.errno else "No answer"
                    why = f"{self.address}: {words}"
                else:
                    return None
        return why

    def _settle(self, why: str | None) -> None:
        if not self.found.done():
            self.found.set_result(why)


async def why_unreachable(bootstrap: str, timeout_s: float) -> str | None:
    """Why nobody takes connections at any of these addresses; None when somebody does."""
    looks = [_Look(address, timeout_s) for address in bootstrap.split(",")]
    pending = {look.found for look in looks}
    resolve_s = min(RESOLVE_TIMEOUT_S, timeout_s)
    reasons: list[str] = []
    for wait_s in (resolve_s, timeout_s - resolve_s):
        deadline = asyncio.get_running_loop().time() + wait_s
        while pending:
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            done, pending = await asyncio.wait(
                pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for answer in done:
                why = answer.result()
                if why is None:
                    return None
                reasons.append(why)
        if pending and not any(look.is_resolved for look in looks if not look.found.done()):
            break
    for look in looks:
        if not look.found.done():
            what = "no answer" if look.is_resolved else "the name is not found"
            reasons.append(f"{look.address}: {what} within {timeout_s:g} s")
    return "; ".join(sorted(set(reasons)))
