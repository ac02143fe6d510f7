"""Tags: the values of a record's headers `tw-tag`.

A record has up to TAGS_PER_RECORD_MAX tags of up to TAG_BYTES_MAX bytes of UTF-8 each. A tag is a
`name` or `name:value`; the name ends at the first colon. Tags are case-sensitive, their order and
repetitions mean nothing.

The tags of a record are passed around as the kernel finds them (`map_header_sets`): the values of
the header, one behind the other, each behind its size as a zigzag varint.

    the tags "a" and "region:eu"      02 'a'   12 'region:eu'

Deliberately absent: looking for them in records (the kernel), what the other headers mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

TAG_HEADER = b"tw-tag"
TAG_BYTES_MAX = 128
TAGS_PER_RECORD_MAX = 64
# Of a record, with their sizes, which may be longer than they need to be.
TAGS_BYTES_MAX = TAGS_PER_RECORD_MAX * (TAG_BYTES_MAX + 5)
# What the kernel gives for a record with more, or larger ones.
TOO_MANY = (-1).to_bytes(4, "big", signed=True)


def split_tags(stored: bytes) -> Iterator[bytes]:
    """The tags of a record, as they were sent. A null counts as the empty tag, which no record has
    that was checked, and no filter names.

    Takes what the kernel found, and so never meets a size that is not there."""
    position, end = 0, len(stored)
    while position < end:
        size = shift = 0
        while True:
            byte = stored[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        # 32 bits count, as for everybody who reads records.
        size &= 0xFFFFFFFF
        # Zigzag: the only negative size is that of a null.
        if size & 1:
            yield b""
            continue
        size >>= 1
        yield stored[position : position + size]
        position += size


def join_tags(tags: Iterable[bytes]) -> bytes:
    """As `split_tags` takes them, of tags that were checked."""
    stored = bytearray()
    for tag in tags:
        size = 2 * len(tag)
        while size >= 0x80:
            stored.append(size & 0x7F | 0x80)
            size >>= 7
        stored.append(size)
        stored += tag
    return bytes(stored)


def tag_problem(tag: bytes | None) -> str | None:
    """Why this is no tag, None when it is one."""
    if not tag:
        return "a tag is not empty"
    if len(tag) > TAG_BYTES_MAX:
        return f"the tag has {len(tag)} bytes, more than {TAG_BYTES_MAX}"
    try:
        tag.decode()
    except UnicodeDecodeError:
        return "the tag is not UTF-8"
    return None
