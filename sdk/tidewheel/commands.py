"""Commands about delayed messages, for `Receipt.cancel`.

Each is sent by itself: a broker refuses a whole batch for one command that comes too late.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from tidewheel.errors import ConfigurationError, MessageRefused, SendError, TooLate, UnknownMessage
from tidewheel.headers import CANCEL_OFFSET_HEADER
from tidewheel.message import Receipt
from tidewheel.transport.port import DelayedTransport

INVALID_RECORD: Final = "INVALID_RECORD"
# As brokers say it: "header tw-cancel-offset: too late: the message is pending no more".
_REASON: Final = re.compile(r"(?:record \d+: )?header [\w-]+: (too late|unknown): ")


class Commands:
    """Sends commands; see the module. `reads_headers` says it of a topic."""

    def __init__(
        self, transport: DelayedTransport, reads_headers: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._transport = transport
        self._reads_headers = reads_headers

    async def cancel(self, receipt: Receipt) -> None:
        """Have a delayed message never delivered. Raises TooLate, UnknownMessage, SendErrors,
        NotAuthorized, and ConfigurationError for one in a topic that delays nothing."""
        if not await self._reads_headers(receipt.topic):
            raise ConfigurationError(
                f'Topic "{receipt.topic}" delays nothing: the message was delivered at once',
                hint="Create topics for delayed messages with tidewheel.headers=true",
            )
        command = (CANCEL_OFFSET_HEADER, b"%d" % receipt.offset)
        refused = await self._transport.send_commands(receipt.topic, receipt.partition, [command])
        if refused:
            where = f"{receipt.topic}[{receipt.partition}]@{receipt.offset}"
            raise refusal(where, next(iter(refused.values())))


def refusal(where: str, reason: str) -> SendError:
    """The typed error of a cancel that was refused with these words."""
    match = _REASON.match(reason)
    if match is None:
        return MessageRefused(
            f"The message at {where} was not cancelled: {reason}", kafka_name=INVALID_RECORD
        )
    if match[1] == "too late":
        words = f"The message at {where} was delivered before it could be cancelled"
        return TooLate(words, kafka_name=INVALID_RECORD)
    return UnknownMessage(f"There is no delayed message at {where}", kafka_name=INVALID_RECORD)
