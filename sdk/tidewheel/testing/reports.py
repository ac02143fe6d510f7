"""Reports of deliveries to a broker in memory, in the shape of the transport's port."""

from __future__ import annotations

from typing import Final

from tidewheel.message import Message

CREATE_TIME: Final = 1


class MemoryFault:
    """An error of a delivery report."""

    def __init__(self, name: str, text: str = "the test asked for this fault") -> None:
        self._name = name
        self._text = text

    def name(self) -> str:
        """Kafka's name for the error."""
        return self._name

    def str(self) -> str:
        """What happened."""
        return self._text

    def retriable(self) -> bool:
        """Never, here."""
        return False


class MemoryReport:
    """The message part of a delivery report."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def topic(self) -> str:
        """Its topic."""
        return self._message.topic

    def partition(self) -> int:
        """Its partition."""
        return self._message.partition

    def offset(self) -> int:
        """Its offset, -1 when it was not stored."""
        return self._message.offset

    def timestamp(self) -> tuple[int, int]:
        """Type and epoch ms."""
        return (CREATE_TIME, self._message.timestamp_ms)
