"""Where a broker tells whoever started it that it serves.

Whoever starts a broker may be killed before it has written down whom it started. A broker that
nobody reads from any more before it serves is one that nobody knows of: it stops. One that has said
that it serves runs on without its starter.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable, Mapping

LOOK_INTERVAL_S = 0.5


class ReadyPipe:
    """`fd` is the end to write to, and is closed here. `on_abandoned` is called on `loop`, once,
    when the other end is found closed before `say`; never after it."""

    def __init__(
        self, fd: int, loop: asyncio.AbstractEventLoop, on_abandoned: Callable[[], None]
    ) -> None:
        self._fd: int | None = fd
        self._loop = loop
        self._on_abandoned = on_abandoned
        self._poll = select.poll()
        self._poll.register(fd, 0)
        self._timer = loop.call_later(LOOK_INTERVAL_S, self._look)

    def say(self, event: str, values: Mapping[str, object]) -> None:
        """Write one line of JSON, and close the pipe."""
        if self._fd is None:
            return
        line = json.dumps({"event": event, **values}) + "\n"
        try:
            os.write(self._fd, line.encode())
        except BrokenPipeError:
            self._on_abandoned()
        self.close()

    def close(self) -> None:
        self._timer.cancel()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _look(self) -> None:
        if any(events & select.POLLERR for _, events in self._poll.poll(0)):
            self.close()
            self._on_abandoned()
        else:
            self._timer = self._loop.call_later(LOOK_INTERVAL_S, self._look)
