"""Hooks around sending and consuming: tracing headers, metrics, encryption, checks.

Interceptors run on the application's event loop, in the order given. One that raises never loses
a message silently: a raising `on_send` fails that send, a raising `on_consume` is raised from the
iterator (the message is in `.consumed`), and what `on_acknowledgement` raises is logged while the
receipt is delivered all the same.
"""

from __future__ import annotations

from tidewheel.errors import TidewheelError
from tidewheel.message import Message, ProducerRecord, Receipt


class ProducerInterceptor:
    """Override what you need."""

    def on_send(self, topic: str, record: ProducerRecord) -> ProducerRecord:
        """Before serializing. Return the record to send: this one, changed or not, or another."""
        return record

    def on_acknowledgement(
        self, topic: str, receipt: Receipt | None, error: TidewheelError | None
    ) -> None:
        """When the outcome is known: either a receipt or an error."""


class ConsumerInterceptor:
    """Override what you need."""

    def on_consume(self, message: Message) -> Message:
        """Before deserializing. Return the message to deliver, at the same place."""
        return message
