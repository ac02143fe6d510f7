"""Every API that this room can code, by key, and the way to its codecs.

Importing this module is cheap: an API's message modules are imported when the first of its
messages is coded. That an API stands here does not mean that the broker answers it; what it
answers, and in which versions, is the broker's handler table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from data_plane.wire.messages.api_table import API_TABLE, ApiKey
from data_plane.wire.primitives import Reader, Writer

__all__ = ["API_BY_KEY", "ApiKey", "ApiSpec"]

Decoder = Callable[[Reader, int], Any]
Encoder = Callable[[Writer, Any, int], None]


class ApiSpec:
    """One API: its versions as the codecs know them, and its codecs.

    `first_flexible_version` is 32767 for an API that never is. The coding methods raise
    UnsupportedVersion for versions outside min_version..max_version.
    """

    __slots__ = (
        "decode_request",
        "decode_response",
        "encode_request",
        "encode_response",
        "first_flexible_version",
        "key",
        "max_version",
        "min_version",
        "name",
        "request_name",
        "response_name",
    )

    decode_request: Decoder
    encode_request: Encoder
    decode_response: Decoder
    encode_response: Encoder

    def __init__(
        self, key: ApiKey, name: str, min_version: int, max_version: int, first_flexible: int
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.first_flexible_version = first_flexible
        self.request_name = f"{name}Request"
        self.response_name = f"{name}Response"

    def __getattr__(self, attribute: str) -> Any:
        # Slots of codecs are empty until first used; then the function itself stands in the slot,
        # so that later calls cost no more than any function call.
        direction, _, kind = attribute.partition("_")
        is_known = direction in ("decode", "encode")
        if not is_known or kind not in ("request", "response"):
            raise AttributeError(attribute)
        stem = f"{self.key.name.lower()}_{kind}"
        module = import_module(f"data_plane.wire.messages.{stem}")
        codec = getattr(module, f"{direction}_{stem}")
        setattr(self, attribute, codec)
        return codec

    def __repr__(self) -> str:
        return f"ApiSpec({self.name}, versions {self.min_version} to {self.max_version})"


API_BY_KEY: Final[Mapping[int, ApiSpec]] = MappingProxyType(
    {int(row[0]): ApiSpec(*row) for row in API_TABLE}
)
