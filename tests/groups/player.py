"""Plays scripts of raw requests and writes down the answers.

A script is a function of a `Player`; it sends requests over named connections and receives their
answers. Who answers is the player's business: `kafka_player` talks to a real Apache Kafka over a
socket, `local_player` calls this project's handlers in memory with a virtual clock. Every answer
goes through the wire codecs in the request's version and ends up in the transcript, with
member ids numbered in the order of their first appearance and topic ids replaced by topic names.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any
from uuid import UUID

from data_plane.wire.errors import ErrorCode
from data_plane.wire.primitives import Message
from data_plane.wire.registry import ApiKey

_MEMBER_ID = re.compile(r"^(.*)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$", re.DOTALL)

# Lists whose order says nothing: Kafka keeps them in hash tables.
_UNORDERED = ("members", "groups", "results", "topics", "coordinators")


class Player(ABC):
    """Base of both players: the transcript and what scripts call."""

    def __init__(self) -> None:
        self.transcript: list[str] = []
        self._member_ids: dict[str, str] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._sent: dict[str, list[tuple[ApiKey, int]]] = {}

    # ---- for scripts

    def send(self, connection: str, api_key: ApiKey, version: int, request: Any) -> None:
        """Send without waiting; `receive` gets the answer."""
        self._sent.setdefault(connection, []).append((api_key, version))
        self.send_request(connection, api_key, version, request)

    def receive(self, connection: str) -> Any:
        """The answer to the oldest request of this connection that has none yet."""
        api_key, version = self._sent[connection].pop(0)
        response = self.receive_response(connection, api_key, version)
        self.transcript.append(
            f"{connection} {api_key.name} v{version}: {self._describe(response)}"
        )
        return response

    def call(self, connection: str, api_key: ApiKey, version: int, request: Any) -> Any:
        self.send(connection, api_key, version, request)
        return self.receive(connection)

    def note(self, text: str) -> None:
        """A heading in the transcript."""
        self.transcript.append(f"# {text}")

    # ---- for players

    @abstractmethod
    def send_request(
        self, connection: str, api_key: ApiKey, version: int, request: Any
    ) -> None: ...

    @abstractmethod
    def receive_response(self, connection: str, api_key: ApiKey, version: int) -> Any: ...

    @abstractmethod
    def sleep(self, duration_ms: int) -> None:
        """Let time pass, without requests."""

    @abstractmethod
    def create_topic(self, name: str, partition_count: int) -> None: ...

    # ---- transcript

    def _describe(self, value: Any, field: str = "") -> str:
        if isinstance(value, Message):
            names = [name for name in sorted(value.__slots__) if name != "throttle_time_ms"]
            # A member's own id is numbered before those in lists beside it.
            texts = {
                name: self._describe(getattr(value, name), name)
                for name in sorted(names, key=lambda name: isinstance(getattr(value, name), list))
            }
            return "{" + ", ".join(f"{name}={texts[name]}" for name in names) + "}"
        if isinstance(value, list):
            texts_of_items = [self._describe(each) for each in value]
            if field in _UNORDERED:
                texts_of_items.sort()
            return "[" + ", ".join(texts_of_items) + "]"
        if field == "error_code":
            return ErrorCode(value).name
        if isinstance(value, UUID):
            names_by_id = {topic_id: name for name, topic_id in self.topic_ids.items()}
            return f"<id of {names_by_id.get(value, '?')}>" if value.int else "0"
        if field in ("host", "client_host", "port"):
            return f"<{field}>" if value not in ("", -1) else repr(value)
        if isinstance(value, str):
            return self._describe_text(value)
        return repr(value)

    def _describe_text(self, text: str) -> str:
        match = _MEMBER_ID.match(text)
        if match is None:
            return repr(text)
        if text not in self._member_ids:
            self._member_ids[text] = f"<{match[1]}#{len(self._member_ids) + 1}>"
        return self._member_ids[text]
