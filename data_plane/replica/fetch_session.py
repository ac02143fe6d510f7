"""The follower's side of an incremental fetch session (KIP-227), and the bytes of its requests.

    request   epoch 0, all partitions          →  session id s
    request   s, epoch 1, what changed         →  partitions with news
    request   s, epoch 2, nothing changed      →  partitions with news
    error     session lost                     →  epoch 0 again, all partitions

A session that is given up (its connection failed) is named in the full request that begins the next
one, so that the leader lets go of it. A leader that has no room for a session answers with session
id 0; then every request is a full one.

Deliberately absent: which partitions to name and when (fetcher.py).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import NamedTuple

API_KEY = 1
# With the high watermark that the follower knows (KIP-1166): it hears of another one even when an
# answer that told it came too late to be taken.
API_VERSION = 18

NO_SESSION_ID = 0
EPOCH_INITIAL = 0
EPOCH_FIRST = 1
EPOCH_MAX = 2**31 - 1

# A topic's id, raw, and the partition's index.
PartitionKey = tuple[bytes, int]

# max wait, min bytes, max bytes, isolation level (read_uncommitted), session id, session epoch
_HEAD = struct.Struct(">iiibii")
# index, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes; one tagged
# field: number 1, 8 bytes, the leader's high watermark as far as it is known
_PARTITION = struct.Struct(">iiqiqibbbq")
_INDEX = struct.Struct(">i")
# no rack; one tagged field: number 1, 13 bytes: replica id, replica epoch, no tags
_TAIL = struct.Struct(">bbbbiqb")


class FetchState(NamedTuple):
    """Where a follower stands: what it wants next, the epoch of what it has last (-1: nothing),
    whom it takes for the leader, and where its log begins."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


class Limits(NamedTuple):
    """What a request allows the leader: how long to wait for how many bytes, and how many bytes
    to give, in all and of one partition."""

    wait_ms_max: int
    response_bytes_min: int
    response_bytes_max: int
    partition_bytes_max: int


class FetchSession:
    """What the leader knows of this follower: a session's id, epoch and partitions."""

    __slots__ = ("epoch", "is_open", "partitions", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION_ID
        self.epoch = EPOCH_INITIAL
        # Whether `epoch` is another one.
        self.is_open = False
        # In the session as far as the requests sent so far say.
        self.partitions: set[PartitionKey] = set()

    def reset(self) -> None:
        """Begin anew with the next request."""
        self.epoch = EPOCH_INITIAL
        self.is_open = False
        self.partitions.clear()

    def lost(self) -> None:
        """As `reset`; the leader does not know this session."""
        self.session_id = NO_SESSION_ID
        self.reset()

    def opened(self, session_id: int) -> None:
        """The answer to a full request has come."""
        self.session_id = session_id
        self.is_open = session_id != NO_SESSION_ID
        self.epoch = EPOCH_FIRST if self.is_open else EPOCH_INITIAL

    def encode(
        self,
        limits: Limits,
        replica: tuple[int, int],
        named: Iterable[tuple[PartitionKey, FetchState, int]],
        forgotten: Collection[PartitionKey],
    ) -> bytearray:
        """The body of the next request; `replica` is this broker's id and epoch, the third of
        `named` the leader's high watermark as it was told last, or -1. Moves the session on to its
        next epoch."""
        body = bytearray(
            _HEAD.pack(
                limits.wait_ms_max,
                limits.response_bytes_min,
                limits.response_bytes_max,
                0,
                self.session_id,
                self.epoch,
            )
        )
        by_topic: dict[bytes, list[bytes]] = {}
        bytes_max = limits.partition_bytes_max
        for key, state, high_watermark in named:
            topic_id, index = key
            offset, last_epoch, leader_epoch, log_start = state
            packed = _PARTITION.pack(
                index,
                leader_epoch,
                offset,
                last_epoch,
                log_start,
                bytes_max,
                1,
                1,
                8,
                high_watermark,
            )
            group = by_topic.get(topic_id)
            if group is None:
                by_topic[topic_id] = [packed]
            else:
                group.append(packed)
            self.partitions.add(key)
        _append_topics(body, by_topic)
        if forgotten:
            gone: dict[bytes, list[bytes]] = {}
            for key in forgotten:
                gone.setdefault(key[0], []).append(_INDEX.pack(key[1]))
                self.partitions.discard(key)
            _append_topics(body, gone)
        else:
            body.append(1)
        body += _TAIL.pack(1, 1, 1, 13, *replica, 0)
        if self.is_open:
            self.epoch = EPOCH_FIRST if self.epoch == EPOCH_MAX else self.epoch + 1
        return body


def _append_topics(body: bytearray, topics: dict[bytes, list[bytes]]) -> None:
    if not topics:
        body.append(1)
        return
    _append_uvarint(body, len(topics) + 1)
    for topic_id, partitions in topics.items():
        body += topic_id
        _append_uvarint(body, len(partitions) + 1)
        body += b"".join(partitions)
        body.append(0)


def _append_uvarint(body: bytearray, value: int) -> None:
    while value > 0x7F:
        body.append((value & 0x7F) | 0x80)
        value >>= 7
    body.append(value)
