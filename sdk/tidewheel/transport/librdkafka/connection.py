"""What every librdkafka handle of a client shares: properties, logging, faults, blocking calls.

librdkafka's own log lines go to the logger `tidewheel.librdkafka`, silent unless the application
adds a handler; it would otherwise write them to stderr.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from tidewheel.access import Access
from tidewheel.errors import InvalidRequest, TidewheelError, from_kafka, plain
from tidewheel.settings import REQUEST_TIMEOUT_MS, ClientSettings

T = TypeVar("T")

# Any broker may be asked for a topic, and one may not have heard yet of what another has just made.
LOOK_UPS_MAX = 3
LOOK_UP_PAUSE_S = 0.2
# What librdkafka calls it when a broker does not take a client, or the client not the broker.
REFUSALS = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})

logger = logging.getLogger("tidewheel")
librdkafka_logger = logging.getLogger("tidewheel.librdkafka")
librdkafka_logger.addHandler(logging.NullHandler())
librdkafka_logger.propagate = False


class Connection:
    """Addresses and shared properties, and the last thing that went wrong on the network."""

    def __init__(self, access: Access, settings: ClientSettings) -> None:
        self.access = access
        self.bootstrap = access.bootstrap
        self.settings = settings
        self.last_network_error = ""
        # Of the user's credentials, or of TLS: it stays as long as nobody changes those.
        self._refusal: KafkaError | None = None

    @property
    def request_timeout_s(self) -> float:
        """How long an administrative request may take, in seconds."""
        return self.settings.request_timeout_ms / 1000

    def properties(self, kind: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """librdkafka properties of any handle, and those of a `kind` of them. What the application
        gives under librdkafka's names is stronger."""
        return {
            **self.access.librdkafka(),
            "client.id": self.settings.client_id,
            "socket.nagle.disable": True,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "socket.connection.setup.timeout.ms": REQUEST_TIMEOUT_MS,
            "api.version.request.timeout.ms": REQUEST_TIMEOUT_MS,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "log.connection.close": False,
            "enable.metrics.push": False,
            "error_cb": self.on_error,
            "logger": librdkafka_logger,
            **(kind or {}),
            **self.settings.librdkafka,
        }

    def on_error(self, error: KafkaError) -> None:
        """Remember why brokers cannot be reached; librdkafka goes on trying by itself."""
        if error.name() in REFUSALS:
            self._refusal = error
        if error.name() != "_ALL_BROKERS_DOWN" or not self.last_network_error:
            self.last_network_error = error.str()
        logger.debug("librdkafka: %s (%s)", error.str(), error.name())

    def raise_if_refused(self) -> None:
        """Raise NotAuthenticated or TlsFailed when that is why no broker answers."""
        if self._refusal is not None:
            who = "" if self.access.user is None else f" as {self.access.user}"
            raise from_kafka(self._refusal, f"connecting to {self.bootstrap}{who}")


@contextmanager
def faults(what: str) -> Iterator[None]:
    """Turn confluent-kafka's exceptions into ours; `what` names the attempt."""
    try:
        yield
    except KafkaException as raised:
        raise translated(raised, what) from raised
    except TidewheelError:
        raise
    except (ValueError, OverflowError) as raised:
        # librdkafka asks nobody about numbers that are out of its own ranges.
        raise InvalidRequest(f"{what} failed: {plain(str(raised))}") from raised


def translated(raised: KafkaException, what: str) -> TidewheelError:
    """The typed error of a KafkaException."""
    return from_kafka(raised.args[0], what)


async def blocking(what: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a blocking librdkafka call in a worker thread."""
    with faults(what):
        return await asyncio.to_thread(call, *args, **kwargs)


async def answered(what: str, future: Future[T]) -> T:
    """Await the answer to an administrative request."""
    with faults(what):
        return await asyncio.wrap_future(future)
