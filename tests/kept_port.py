"""A loopback port for a server that a test stops and starts again, kept meanwhile.

While nobody listens, the system would give the port to the next who asks for any: a broker of
another worker's test, or a connection. The start would then fail, once in a thousand times.

A socket that is bound and does not listen holds the port: the system gives it to nobody, connecting
to it is refused, and a server that sets SO_REUSEADDR, as all of ours do, may listen there beside
it. That is how Linux has it; elsewhere two may not be bound to one port, and nothing is held.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref


class KeptPort:
    """`port` of 127.0.0.1, kept for as long as this object lives."""

    def __init__(self) -> None:
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            self.port: int = holder.getsockname()[1]
            if sys.platform == "linux":
                weakref.finalize(self, os.close, holder.detach())
