"""Response frames: size, correlation id, header tags, body.

A frame starts as a bytearray with room for its size; `finish_frame` writes the size once all
buffers are known. Frames of Fetch answers mix such bytearrays with slices of segment files, which
are handed to the socket as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from data_plane.broker.request.api import Buffer
from data_plane.wire.primitives import Writer
from data_plane.wire.registry import ApiSpec

_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
_SIZE = struct.Struct(">i")

API_VERSIONS_KEY = 18


def begin_frame(correlation_id: int, is_flexible: bool) -> bytearray:
    """Size (filled in later), correlation id and, for flexible versions, no header tags."""
    frame = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, correlation_id))
    if is_flexible:
        frame.append(0)
    return frame


def finish_frame(buffers: Sequence[Buffer]) -> None:
    """Write the size into the first buffer, which `begin_frame` made."""
    size = sum(map(len, buffers)) - 4
    first = buffers[0]
    assert isinstance(first, bytearray)
    _SIZE.pack_into(first, 0, size)


def encode_frame(spec: ApiSpec, version: int, correlation_id: int, message: object) -> bytearray:
    """A whole response frame from a message of the generated codecs."""
    writer = Writer()
    # ApiVersions answers always with header v0, so that a client that does not know the broker's
    # versions yet can read them (KIP-511).
    is_flexible = version >= spec.first_flexible_version and spec.key != API_VERSIONS_KEY
    frame = begin_frame(correlation_id, is_flexible)
    writer.buf += frame
    spec.encode_response(writer, message, version)
    _SIZE.pack_into(writer.buf, 0, len(writer.buf) - 4)
    return writer.buf


def new_response(spec: ApiSpec) -> Any:
    """An empty response message of that API, with the schema's defaults."""
    module = import_module(f"data_plane.wire.messages.{spec.key.name.lower()}_response")
    return getattr(module, spec.response_name)()
