"""The answers of one connection on their way out: in the order of their requests, and counted.

An answer that is not ready keeps a slot, and later answers queue behind it:

    requests   A  B  C          slots: [A waiting] [B ready] [C waiting]
    A done  →  A and B leave    slots: [C waiting]

What leaves its slot, or needs none, is collected until the pass ends, and goes to the transport
with one write. What the transport cannot send at once is unsent; so is, for the account of all
connections (`Listener.unsent`), what is held behind an answer that is not ready.

Invariants
- Answers leave in the order of the slots, each once; only while there are none is one sent without.
- What this counts with the listener is 0 again after `drop_all`.

Deliberately absent: when to flush, and what to do when it is full (connection.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from data_plane.broker.request.api import Buffer
from data_plane.broker.request.budget import Share

if TYPE_CHECKING:
    from data_plane.server.listener import Listener

# Answers made in one pass before the socket gets them and the other connections a turn.
PASS_BYTES_MAX = 4 << 20
# A client that leaves more than this unread is not served further. One answer may be larger; what
# is left unread is counted (`Listener.unsent`), and Fetch gives less when it is much.
UNSENT_BYTES_MAX = 64 << 10
# Answers a connection may be waiting for; beyond, its requests wait in the socket.
OPEN_SLOTS_MAX = 256


class Slot:
    """The place of an answer that is not ready, or waits for one that is not."""

    __slots__ = ("buffers", "held_bytes")

    def __init__(self) -> None:
        self.buffers: Sequence[Buffer] | None = None
        # Of an answer that is ready and waits for an earlier one.
        self.held_bytes = 0


class Outgoing:
    """What one connection has to send."""

    __slots__ = (
        "_bytes",
        "_held_bytes",
        "_listener",
        "_seen_unsent_bytes",
        "_share",
        "_unsent_bytes",
        "buffers",
        "is_paused",
        "slots",
    )

    def __init__(self, listener: Listener, share: Share) -> None:
        """`share` is that of the connection's namespace in what all leave unread."""
        self._listener = listener
        self._share = share
        # Answers that wait, or are not ready.
        self.slots: deque[Slot] = deque()
        self._held_bytes = 0
        # For the next flush.
        self.buffers: list[Buffer] = []
        self._bytes = 0
        # Whether the client leaves too much unread, and how much.
        self.is_paused = False
        self._unsent_bytes = 0
        self._seen_unsent_bytes = 0

    def is_full(self) -> bool:
        """Whether no further request is to be handled."""
        return (
            self.is_paused
            or self._bytes + self._held_bytes > PASS_BYTES_MAX
            or len(self.slots) >= OPEN_SLOTS_MAX
        )

    # Answers in

    def send(self, answer: Sequence[Buffer]) -> None:
        """An answer that no earlier one holds up: it leaves with the next flush."""
        buffers = self.buffers
        for buffer in answer:
            buffers.append(buffer)
            self._bytes += len(buffer)

    def fill(self, slot: Slot, answer: Sequence[Buffer]) -> bool:
        """The answer of this slot is ready. Whether there is something to flush now."""
        slots = self.slots
        if not slots:
            # The connection is closed.
            return False
        if slots[0] is not slot:
            self.hold(slot, answer)
            return False
        slot.buffers = answer
        while slots and slots[0].buffers is not None:
            first = slots.popleft()
            if first.held_bytes:
                self._count_held(self._held_bytes - first.held_bytes)
            self.send(first.buffers or ())
        return True

    def hold(self, slot: Slot, answer: Sequence[Buffer]) -> None:
        """Keep an answer until the earlier ones have left."""
        slot.buffers = answer
        slot.held_bytes = sum(map(len, answer))
        self._count_held(self._held_bytes + slot.held_bytes)

    # And out

    def flush(self, transport: asyncio.Transport | None) -> None:
        """Give what is ready to the transport."""
        buffers = self.buffers
        if not buffers:
            return
        self._listener.bytes_out += self._bytes
        if self.is_paused:
            self._count_unsent(self._unsent_bytes + self._bytes)
        self.buffers = []
        self._bytes = 0
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def pause(self, unsent_bytes: int) -> None:
        """The client has left so much unread that nothing more is to be written."""
        self.is_paused = True
        self._count_unsent(unsent_bytes)

    def resume(self) -> None:
        """There is room again."""
        self.is_paused = False
        self._seen_unsent_bytes = 0
        self._count_unsent(0)

    def note_progress(self, unsent_bytes: int) -> bool:
        """Whether the client has read something since this was called before; true the first time.
        That there is more than before is not the client's doing."""
        before, self._seen_unsent_bytes = self._seen_unsent_bytes, unsent_bytes
        return not before or unsent_bytes < before

    # The end

    def drop_slots(self) -> None:
        """Answers that have not left their slots never will."""
        self.slots.clear()
        self._count_held(0)

    def drop_all(self) -> None:
        """The socket is gone."""
        self.drop_slots()
        self._count_unsent(0)
        self.buffers.clear()

    # The account of all connections

    def count_with(self, share: Share) -> None:
        """The connection belongs to another namespace from now on."""
        self._share.give_back(self._unsent_bytes + self._held_bytes)
        share.add(self._unsent_bytes + self._held_bytes)
        self._share = share

    def _count_unsent(self, unsent_bytes: int) -> None:
        self._share.add(unsent_bytes - self._unsent_bytes)
        self._unsent_bytes = unsent_bytes

    def _count_held(self, held_bytes: int) -> None:
        self._share.add(held_bytes - self._held_bytes)
        self._held_bytes = held_bytes
