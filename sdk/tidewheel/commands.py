"""Commands about delayed messages, sent for `Receipt.cancel`.

A broker refuses a whole batch for one command that comes too late, so commands have a sender of
their own, which sends each by itself: nothing else is refused with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidewheel.errors import ClientClosed, ConfigurationError, MessageRefused, TooLate
from tidewheel.headers import CANCEL_OFFSET_HEADER
from tidewheel.message import Receipt
from tidewheel.sender import Delivery, Sender
from tidewheel.settings import ProducerSettings


def command_settings(settings: ProducerSettings) -> ProducerSettings:
    """Of the sender of commands, for a client that sends with `settings`."""
    return replace(
        settings,
        acks="all",
        idempotent=None,
        linger_ms=0,
        librdkafka={**settings.librdkafka, "batch.num.messages": 1},
    )


class Commands:
    """Sends commands; see the module. `reads_headers` says it of a topic."""

    def __init__(
        self,
        make_sender: Callable[[], Awaitable[Sender]],
        reads_headers: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._make_sender = make_sender
        self._reads_headers = reads_headers
        self._making = asyncio.Lock()
        self._sender: Sender | None = None
        self._closed = False

    async def cancel(self, receipt: Receipt) -> None:
        """Have a delayed message never delivered. Raises TooLate, SendErrors, and
        ConfigurationError for one in a topic that delays nothing."""
        if not await self._reads_headers(receipt.topic):
            raise ConfigurationError(
                f'Topic "{receipt.topic}" delays nothing: the message was delivered at once',
                hint="Create topics for delayed messages with tidewheel.headers=true",
            )
        try:
            await self._send(receipt)
        except MessageRefused as refused:
            raise TooLate(
                f"The message at {receipt.topic}[{receipt.partition}]@{receipt.offset} was "
                "delivered before it could be cancelled",
                kafka_name=refused.kafka_name,
            ) from refused

    async def _send(self, receipt: Receipt) -> None:
        async with self._making:
            if self._closed:
                raise ClientClosed("The client is closed")
            if self._sender is None:
                self._sender = await self._make_sender()
            sender = self._sender
        delivery = Delivery(sender, receipt.topic)
        headers = [(CANCEL_OFFSET_HEADER, b"%d" % receipt.offset)]
        sender.produce(receipt.topic, None, None, receipt.partition, delivery.settle, 0, headers)
        await delivery

    async def close(self, timeout_s: float) -> None:
        """Wait for what is on its way."""
        self._closed = True
        if self._sender is not None:
            await self._sender.close(timeout_s)
