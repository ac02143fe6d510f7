"""What is declared, and what becomes of it: the terms of declarations.py and of its kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol
from uuid import UUID

from data_plane.cell.declarations import API_OWNER, Declared
from data_plane.wire.errors import ErrorCode

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from data_plane.cell.changes import Change
    from data_plane.cell.declarations import Declaration
    from data_plane.cell.metadata import MetadataImage


class Outcome(IntEnum):
    """What became of one resource; the numbers are those of the contract."""

    DONE = 1
    UNCHANGED = 2
    STALE = 3
    CONFLICT = 4
    GONE = 5
    REFUSED = 6


class Result(NamedTuple):
    """`generation` is the one that the cell has now, 0 for none; `code` is Kafka's, for REFUSED."""

    resource_id: str
    outcome: Outcome
    generation: int
    message: str = ""
    code: ErrorCode = ErrorCode.NONE


class Specification(Protocol):
    """What is declared of one kind of things. Equal ones give equal texts."""

    KIND: ClassVar[str]

    def to_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as a control plane names it; `name` is what its tenant calls it. `take_over`: what
    a client has made becomes the control plane's; of topics, just the one with this id."""

    resource_id: str
    generation: int
    tenant: str
    name: str
    specification: Specification
    owner: str = API_OWNER
    take_over: UUID | bool = False

    @property
    def thing(self) -> Declared:
        return Declared(self.specification.KIND, self.tenant, self.name)


class Removal(NamedTuple):
    """A resource that is over. With `keeps_thing` its thing stays, and is its clients'."""

    resource_id: str
    generation: int
    keeps_thing: bool = False


class Unavailable(Exception):
    """This cell cannot be declared anything: all of its brokers have to know how, first."""


class Denied(Exception):
    """What is declared does not fit what is there."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class KindDecision(Protocol):
    """How the things of one kind become what is declared. Made for one batch: what it has decided
    counts for what it decides next."""

    def put(self, resource: Resource, owned: Declaration | None) -> Sequence[Change]:
        """Have the thing be as declared. `owned`: the resource as the cell has it, when the thing
        is its own already. Raises Refusal and Denied, and has decided nothing then."""

    def remove(self, owned: Declaration) -> Sequence[Change]:
        """Have the thing of a resource be no more. Raises Refusal."""

    def follow_ups(self, changes: Sequence[Change]) -> Sequence[Change]:
        """What must go with all that was decided."""


NewDecision = Callable[["Services", "MetadataImage"], KindDecision]
