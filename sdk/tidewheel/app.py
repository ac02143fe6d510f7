"""Applications made of handlers.

app = App()

@app.subscriber("orders", group="pay")
async def handle(message: Message) -> None: ...

app.run_forever()
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tidewheel.client import Client
from tidewheel.errors import ClientClosed, ConfigurationError
from tidewheel.gate import Gate
from tidewheel.subscriber import Subscriber
from tidewheel.subscriber_options import Handler, SubscriberOptions

H = TypeVar("H", bound=Handler)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class App:
    """Handlers and the client they share.

    Args:
        client: a Client, an address, or None for TIDEWHEEL_URL. A client that is not open yet is
            opened by `run` and closed at its end.
    """

    def __init__(self, client: Client | str | None = None) -> None:
        self._given = client
        self._client: Client | None = client if isinstance(client, Client) else None
        self._handlers: list[tuple[SubscriberOptions, Handler]] = []
        self._running: list[Subscriber] = []
        self._stop_requested = False

    @property
    def client(self) -> Client:
        """The client, e.g. for sending in handlers. There once `run` has started."""
        if self._client is None:
            raise ClientClosed(
                "The app is not running", hint="Use it in handlers, or pass a Client"
            )
        return self._client

    def subscriber(self, *topics: str, group: str, **options: Any) -> Callable[[H], H]:
        """Decorate a function `(message)`, plain or async, to handle messages of these topics.

        Of a subscription (`retry`, `filter`, or its name) the function may raise
        `RetryLater("10m")` and `DeadLetter("why")`, whatever `on_error` says of other exceptions.

        Args:
            topics: names, or regular expressions that start with "^".
            group: the consumer group.
            options: the other fields of `SubscriberOptions`:
                concurrency (16): handlers running at once.
                commit ("after"): at-least-once; "before": at-most-once.
                start ("earliest"): where to begin without a committed offset.
                retry: a policy such as `Exponential("5s", cap="2h", attempts=16)`: what the handler
                    raises for comes back by it, run by the brokers, while others go on.
                on_error: `RetryInPlace(...)`, "stop", "skip" or "nack". The default is "nack" with
                    `retry`, and else `RetryInPlace()`.
                key_order (True): messages of equal keys one at a time, in order.
                buffer_max (1000): messages fetched ahead.
                drain_timeout_s (30): how long running handlers may take when partitions or the
                    app go away.
                filter, subscription: only messages whose tags match, as for `Client.subscribe`.
                settings, key_deserializer, value_deserializer: as for `Client.subscribe`.
        """
        chosen = SubscriberOptions(topics, group, **options)

        def register(handler: H) -> H:
            self._handlers.append((chosen, handler))
            return handler

        return register

    def stop(self) -> None:
        """Let running handlers finish, commit, and end `run`, or the next one. Safe in handlers."""
        self._stop_requested = True
        for subscriber in self._running:
            subscriber.stop()

    async def run(self, *, handle_signals: bool = True) -> None:
        """Handle messages until `stop`, SIGTERM or SIGINT; then drain.

        Raises HandlerFailed when an error policy said stop, and errors of client and consumers.
        A second signal ends the process the usual way. `handle_signals=False` leaves signals
        alone (needed outside the main thread).
        """
        if not self._handlers:
            raise ConfigurationError("The app has no handlers", hint="Use @app.subscriber(...)")
        client = self._client
        if client is None:
            client = self._client = Client(self._given if isinstance(self._given, str) else None)
        opened_here = not client.is_open
        if opened_here:
            await client.open()
        restore = self._catch_signals() if handle_signals else None
        try:
            gate = Gate()
            self._running = [Subscriber(client, *handler, gate) for handler in self._handlers]
            if self._stop_requested:
                self.stop()
            await self._run_all()
        finally:
            self._running = []
            self._stop_requested = False
            if restore is not None:
                restore()
            if opened_here:
                await client.close()
                if not isinstance(self._given, Client):
                    self._client = None

    def run_forever(self) -> None:
        """`asyncio.run(app.run())`."""
        asyncio.run(self.run())

    async def _run_all(self) -> None:
        """One task per subscription; the first that ends, for whatever reason, stops the others."""
        tasks = [asyncio.create_task(subscriber.run()) for subscriber in self._running]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _catch_signals(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def restore() -> None:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

        def on_signal() -> None:
            restore()  # So that a second signal does what it does without us.
            self.stop()

        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
        return restore
