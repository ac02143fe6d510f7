"""What a running stack tells of: parts that end or are waited for, and requests that are done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stack.broker_process import StillStarting, describe_status


@dataclass(frozen=True, slots=True)
class PartEnded:
    """A part ended by itself. `part` is `broker-<id>` or `postgres`."""

    part: str
    status: int
    log: Path

    def __str__(self) -> str:
        how = describe_status(self.status)
        return f"{self.part.replace('-', ' ').capitalize()} ended with {how}; its log is {self.log}"


@dataclass(frozen=True, slots=True)
class Restarting:
    """No broker is left; these will be started again."""

    broker_ids: list[int]
    pause_s: float

    def __str__(self) -> str:
        named = ", ".join(map(str, self.broker_ids))
        one = len(self.broker_ids) == 1
        return (
            f"No broker is left; broker{'' if one else 's'} {named} "
            f"{'is' if one else 'are'} started again in {self.pause_s:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class RequestDone:
    """What another command asked for has been done, or could not be."""

    text: str

    def __str__(self) -> str:
        return self.text


StackEvent = PartEnded | RequestDone | Restarting | StillStarting
