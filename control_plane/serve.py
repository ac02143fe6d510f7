"""The server: REST, the pages for people and the operators' site. `python -m control_plane.serve`.

uvicorn runs control_plane.asgi in one process: who needs more starts more of them behind what ends
TLS. Everything is imported before the socket is opened, so that the first request is as fast as the
others, and what cannot be imported never serves.

SIGTERM ends it: requests that have begun are answered, for GRACE_S at most.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
from importlib import import_module
from typing import Any, Final

import uvicorn

from control_plane.started import say

CONNECTIONS_MAX: Final = 500
"""Whoever is beyond gets 503 from uvicorn: behind it would be threads and memory without bound."""
GRACE_S: Final = 10


class Server(uvicorn.Server):
    """uvicorn's, which says that it serves."""

    def __init__(self, config: uvicorn.Config, ready_fd: int | None) -> None:
        super().__init__(config)
        self._ready_fd = ready_fd

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets, "it is given its socket"
        if not say(self._ready_fd, "ready", port=sockets[0].getsockname()[1]):
            self.should_exit = True


def server_config(application: Any, trusted_proxies: str) -> uvicorn.Config:
    """How uvicorn serves it. Only proxies that are named are believed whom they forward."""
    return uvicorn.Config(
        application,
        # Django has no lifespan, and logs by its own settings.
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies or None,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=GRACE_S,
    )


def listening_at(address: str) -> socket.socket:
    """A socket that is bound to `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    return listener


def _application() -> Any:
    """control_plane.asgi's, with all that its addresses lead to."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.production")
    # They are lines of the log like all others.
    logging.captureWarnings(True)
    application = import_module("control_plane.asgi").application
    # Django would import them with the first request.
    import_module("control_plane.urls")
    return application


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m control_plane.serve", allow_abbrev=False)
    parser.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT")
    parser.add_argument(
        "--trusted-proxies",
        default="",
        metavar="ADDRESSES",
        help="Whose X-Forwarded-For and -Proto are believed, separated by commas.",
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    config = server_config(_application(), options.trusted_proxies)
    with listening_at(options.listen) as listener:
        Server(config, options.ready_fd).run([listener])


if __name__ == "__main__":
    main()
