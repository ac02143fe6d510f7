"""What the group coordinator asks its shell to do.

The coordinator is a pure state machine: each call returns a list of effects, in the order in
which they must be carried out. The shell answers clients (`Respond`), appends to a partition of
`__consumer_offsets` (`AppendRecords`) and writes logs and metrics (`GroupEvent`); it does nothing
else, and it decides nothing.

A reply token is whatever the shell passed in with a request; the coordinator only hands it back,
exactly once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from data_plane.wire.records import NewRecord

ReplyToken: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request behind `token` with `response`, a message of `data_plane.wire`."""

    token: ReplyToken
    response: Any


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append `records` as one batch to a partition of `__consumer_offsets`, led in `epoch`.

    When the append is as durable as acks=all makes it, or has failed, call
    `GroupCoordinator.append_done(append_id, error, now_ms)`. Appends of one partition must be
    carried out, and reported, in the order in which they were asked for.
    """

    partition: int
    epoch: int
    records: list[NewRecord]
    append_id: int
    tenant: str


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Something an operator may want to read. `kind` is one of a few fixed words."""

    tenant: str
    group_id: str
    kind: str
    detail: str


Effect: TypeAlias = Respond | AppendRecords | GroupEvent


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Who asks: as the request header and the connection say."""

    client_id: str
    client_host: str
    api_version: int
