"""Whether a connection's next request may be handled: one state for each connection.

Requests of a connection are handled as they come, and their answers wait for each other. Some
requests decide what those behind them mean (an authentication) or must not be overtaken (a batch
that a thread looks at). Such a request is *exclusive*: nothing behind it is handled until it is
done, and nothing ever if it fails.

| state | the next request | socket | goes over to |
|---|---|---|---|
| UNAUTHENTICATED | handled if strangers may ask it, else it fails | read | all but BUSY |
| AUTHENTICATING: a request of a stranger is not done | waits | not read | all |
| READY | handled | read | all but AUTHENTICATING |
| BUSY: an exclusive request is not done | waits | not read | READY, THROTTLED, FAILED, CLOSED |
| THROTTLED: its client has to wait | waits | not read | the state before, FAILED, CLOSED |
| FAILED: the answers of what was handled leave | dropped | not read | CLOSED |
| CLOSED | dropped | gone | none |

Invariants
- A connection whose request is exclusive and which has to wait is BUSY, then THROTTLED.
- Until a connection is authenticated each of its requests is exclusive, whatever its handler says.
- FAILED and CLOSED are final: no request is handled, whatever is done afterwards.

Deliberately absent: bytes, sockets, time. The server (or the simulator) asks `is_open` before each
request and reads on when it has become true.
"""

from __future__ import annotations

from enum import Enum, auto


class GateState(Enum):
    """The rows of the table above."""

    UNAUTHENTICATED = auto()
    AUTHENTICATING = auto()
    READY = auto()
    BUSY = auto()
    THROTTLED = auto()
    FAILED = auto()
    CLOSED = auto()


class RequestGate:
    """That of one connection."""

    __slots__ = (
        "_exclusive_count",
        "_is_closed",
        "_is_muted",
        "is_authenticated",
        "is_open",
        "is_over",
        "is_revoked",
    )

    def __init__(self, *, is_authenticated: bool = True) -> None:
        self.is_authenticated = is_authenticated
        # Whether the next request may be handled now, and whether none ever will be. Both follow
        # from the state; every request asks for them.
        self.is_open = True
        self.is_over = False
        # Nobody speaks through it any more: what of its requests still waits is not done.
        self.is_revoked = False
        self._exclusive_count = 0
        self._is_closed = False
        self._is_muted = False

    @property
    def state(self) -> GateState:
        if self._is_closed:
            return GateState.CLOSED
        if self.is_over:
            return GateState.FAILED
        if self._exclusive_count:
            return GateState.BUSY if self.is_authenticated else GateState.AUTHENTICATING
        if self._is_muted:
            return GateState.THROTTLED
        return GateState.READY if self.is_authenticated else GateState.UNAUTHENTICATED

    @property
    def is_busy(self) -> bool:
        """Whether an exclusive request is not done, of a connection that is over, too."""
        return self._exclusive_count > 0

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def begin_exclusive(self) -> None:
        """An exclusive request has begun. There may be several: one whose bytes are kept is one,
        and its answer, which comes later, may be another."""
        self._exclusive_count += 1
        self._follow()

    def end_exclusive(self) -> None:
        """It is done, whatever has become of the connection."""
        assert self._exclusive_count > 0, "an exclusive request is done once"
        self._exclusive_count -= 1
        self._follow()

    def mute(self) -> None:
        """Its client has to wait."""
        self._is_muted = True
        self._follow()

    def unmute(self) -> None:
        self._is_muted = False
        self._follow()

    def authenticate(self) -> None:
        """It is known who speaks; again, when a client authenticates anew."""
        self.is_authenticated = True

    def expire(self) -> None:
        """What it was authenticated with holds no longer: it has to authenticate anew."""
        self.is_authenticated = False

    def revoke(self) -> None:
        """What it was authenticated with was taken away. Its connection is closed as well."""
        self.is_revoked = True

    def fail(self) -> None:
        """Nothing further is handled."""
        self.is_over = True
        self._follow()

    def close(self) -> None:
        self._is_closed = self.is_over = True
        self._follow()

    def _follow(self) -> None:
        self.is_open = not (self._exclusive_count or self._is_muted or self.is_over)
