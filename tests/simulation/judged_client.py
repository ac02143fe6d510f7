"""A client that is told by which image a broker went when its answer left, and judges it by that.

Its broker may have a newer one by the time the answer arrives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Any

from data_plane.cell.metadata import MetadataImage
from data_plane.wire.registry import ApiKey
from tests.simulation.client import Client, Link, OnResponse


class JudgedClient(Client):
    """See the module."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # The images by which the answers went that arrive next, by connection.
        self._images: dict[Link, deque[MetadataImage]] = {}

    def link(self, node_id: int, purpose: str = "") -> Link:
        """One that says so."""
        link = super().link(node_id, purpose)
        if link not in self._images:
            link.end.sent_by = self._images[link] = deque()
        return link

    def ask(
        self,
        node_id: int,
        api_key: ApiKey,
        message: Any,
        on_response: OnResponse,
        purpose: str = "",
        version: int | None = None,
    ) -> None:
        link = self.link(node_id, purpose)

        def answered(response: Any) -> None:
            image = self.image_of(link, response)
            if image is not None:
                self.judge(node_id, api_key, response, image)
            on_response(response)

        if link.is_open:
            link.send(api_key, message, answered, version)
        else:
            # Logging in may have ended it.
            on_response(None)

    def image_of(self, link: Link, response: Any) -> MetadataImage | None:
        """By which the next answer of a connection went; None when it has ended instead."""
        if response is None:
            self._images.pop(link, None)
            return None
        return self._images[link].popleft()

    @abstractmethod
    def judge(self, node_id: int, api_key: ApiKey, response: Any, image: MetadataImage) -> None:
        """An answer, before anybody else looks at it."""
