"""What is logged of connections that were closed for a cause: peer and reason, within bounds.

Each kind of client has CLOSE_LOGS_PER_SECOND_MAX lines a second, the rest is counted: so hostile
clients cannot fill a disk, and strangers by the thousand do not hide a login that is being guessed,
nor what becomes of a user's connections.

Deliberately absent: closes that the client asked for.
"""

from __future__ import annotations

from enum import StrEnum

from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.services import Logger

CLOSE_LOGS_PER_SECOND_MAX = 50
# Of what a stranger calls its software.
SOFTWARE_CHARACTERS_MAX = 64


class Kind(StrEnum):
    """Whose lines do not count for the others."""

    # Not authenticated, and without a claim.
    STRANGERS = "strangers"
    # Not authenticated, but trying to be.
    LOGINS = "logins"
    CLIENTS = "clients"


def kind_of(info: ConnectionInfo) -> Kind:
    if info.gate.is_authenticated:
        return Kind.CLIENTS
    return Kind.STRANGERS if info.sasl is None else Kind.LOGINS


class CloseLog:
    """That of one listener."""

    def __init__(self, log: Logger, listener: str) -> None:
        self._log = log
        self._listener = listener
        self._second = 0
        # In this second.
        self._counts = dict.fromkeys(Kind, 0)

    def write(self, info: ConnectionInfo, reason: str, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._tell_of_the_rest()
            self._second = second
        kind = kind_of(info)
        self._counts[kind] += 1
        if self._counts[kind] <= CLOSE_LOGS_PER_SECOND_MAX:
            self._log.warning(
                "connection_closed",
                peer=info.peer,
                reason=reason,
                listener=self._listener,
                client_software=info.client_software_name[:SOFTWARE_CHARACTERS_MAX],
            )

    def _tell_of_the_rest(self) -> None:
        for kind, count in self._counts.items():
            suppressed = count - CLOSE_LOGS_PER_SECOND_MAX
            if suppressed > 0:
                self._log.warning(
                    "connection_closed_logs_suppressed", count=suppressed, of=kind.value
                )
            self._counts[kind] = 0
