"""Frames that a peer might send: valid ones of every API and version, and damaged ones.

Everything follows from a seed. Used by the fuzz of the decoders here (a small share every day, a
million and more nightly) and by whoever sends hostile frames to a live broker:

    for frame in hostile_request_frames(random.Random(seed), count=1000):
        socket.sendall(frame)

`frame` includes the four bytes of its size, which may be a lie.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from data_plane.wire.headers import RequestHeader, encode_request_header
from data_plane.wire.primitives import Writer
from scripts.wire_generator.model import Message
from tests.wire.message_cases import RandomChooser, all_messages, build, encoder, versions_of


@dataclass(frozen=True, slots=True)
class Body:
    """An encoded message without header."""

    message: Message
    version: int
    data: bytes


def valid_bodies(rng: random.Random, per_version: int = 1) -> Iterator[Body]:
    """Bodies of every message and version, `per_version` of each."""
    for message in all_messages().values():
        for version in versions_of(message):
            for _ in range(per_version):
                writer = Writer()
                encoder(message)(writer, build(message, version, RandomChooser(rng)), version)
                yield Body(message, version, bytes(writer.buf))


def request_frame(body: Body, correlation_id: int = 1, client_id: str | None = "corpus") -> bytes:
    """A whole request as it goes over the wire: size, header, body."""
    writer = Writer()
    header = RequestHeader(
        api_key=body.message.api_key or 0,
        api_version=body.version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    encode_request_header(writer, header)
    return struct.pack(">i", len(writer.buf) + len(body.data)) + bytes(writer.buf) + body.data


def valid_request_frames(rng: random.Random) -> Iterator[bytes]:
    """One valid frame of every request and version."""
    for body in valid_bodies(rng):
        if body.message.module.endswith("_request"):
            yield request_frame(body)


# Damage

HUGE_LENGTHS = (
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
)


def _flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_bytes(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))


def _huge_length(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    huge = rng.choice(HUGE_LENGTHS)
    data[at : at + len(huge)] = huge


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _drop(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 9)]


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 9))


def _repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randint(1, 40)] * rng.randint(1, 20)


def _noise(rng: random.Random, data: bytearray) -> None:
    data[:] = rng.randbytes(rng.randint(0, 64))


DAMAGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip_bits,
    _set_bytes,
    _huge_length,
    _cut,
    _drop,
    _insert,
    _repeat,
    _noise,
)


def damage(rng: random.Random, data: bytes) -> bytes:
    """`data` after one to three random damages."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not damaged:
            break
        rng.choice(DAMAGES)(rng, damaged)
    return bytes(damaged)


def hostile_request_frames(rng: random.Random, count: int) -> Iterator[bytes]:
    """`count` damaged request frames. In most the size fits what follows, so that the damage
    reaches the header or the body; in the others the size is damaged as well."""
    frames = list(valid_request_frames(rng))
    for _ in range(count):
        frame = rng.choice(frames)
        if rng.random() < 0.1:
            yield damage(rng, frame)
            continue
        # The API key and version stay in most frames, or few would get further than those.
        kept = rng.choice((4, 8, 8, 8))
        body = frame[4:kept] + damage(rng, frame[kept:])
        yield struct.pack(">i", len(body)) + body
