"""The demo's operator puts dead letters back: one redrive of each partition of a dead-letter topic,
by their reason, in the tenant's name.

Each is asked of whichever broker leads the partition. The same id is the same operation, so asking
again after an answer that was lost changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from data_plane.contract import cell_operations_pb2 as messages
from stack.cell_admin import CellAdmin, access_of_stack
from stack.demo.tenants import DemoTenant
from stack.errors import StackError
from stack.supervisor import Supervisor

ID: Final = "demo"
LOOK_UP_S: Final = 0.2
T = TypeVar("T", messages.RedriveResponse, messages.ListRedrivesResponse)
_OVER: Final = ("done", "cancelled", "gone")


@dataclass(frozen=True, slots=True)
class Redriver:
    """In the name of the tenant's account, until `seconds_max` have passed."""

    supervisor: Supervisor
    tenant: DemoTenant
    seconds_max: float

    async def redrive(self, topic: str, partitions: Sequence[int], reason: str) -> int:
        """How many letters with this reason were put back. Raises StackError."""
        return await asyncio.to_thread(self._redrive, topic, partitions, reason)

    def _redrive(self, topic: str, partitions: Sequence[int], reason: str) -> int:
        caller = messages.Caller(tenant=self.tenant.slug, principal=self.tenant.principal)
        deadline_s = time.monotonic() + self.seconds_max
        for index in partitions:
            self._begin(caller, topic, index, reason, deadline_s)
        return sum(self._moved(caller, topic, index, deadline_s) for index in partitions)

    def _begin(
        self, caller: messages.Caller, topic: str, partition: int, reason: str, deadline_s: float
    ) -> None:
        request = messages.BeginRedriveRequest(
            caller=caller,
            topic=topic,
            partition=partition,
            id=ID,
            selection=messages.DeadLetterSelection(reason=reason),
        )
        self._asked(lambda admin: admin.begin_redrive(request), deadline_s)

    def _moved(self, caller: messages.Caller, topic: str, partition: int, deadline_s: float) -> int:
        request = messages.ListRedrivesRequest(caller=caller, topic=topic, partition=partition)
        while True:
            answer = self._asked(lambda admin: admin.redrives(request), deadline_s)
            for one in answer.redrives:
                if one.id == ID and one.status in _OVER:
                    return one.moved
            if time.monotonic() >= deadline_s:
                raise StackError(f"The redrive of {topic}/{partition} is not over.")
            time.sleep(LOOK_UP_S)

    def _asked(self, ask: Callable[[CellAdmin], T], deadline_s: float) -> T:
        """What the leader answers."""
        words = "no broker answers"
        while time.monotonic() < deadline_s:
            for admin in self._brokers():
                with admin:
                    answer = ask(admin)
                if not answer.HasField("failure"):
                    return answer
                words = answer.failure.message
            time.sleep(LOOK_UP_S)
        raise StackError(f"The dead letters cannot be put back: {words}.")

    def _brokers(self) -> Iterator[CellAdmin]:
        folder = self.supervisor.folder
        access, state = access_of_stack(folder), folder.read_state()
        for broker in [] if state is None else state.living():
            yield CellAdmin(replace(access, address=f"127.0.0.1:{broker.cell_admin_port}"))
