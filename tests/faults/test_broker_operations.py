"""What a control plane does with brokers and leaders, in a cell of three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest

from data_plane.contract import cell_admin_pb2 as admin_messages
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from data_plane.wire.errors import ErrorCode
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.faults.cell import Cell
from tests.server.control_plane import channel, settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 30.0
Elect = messages.ElectLeadersRequest


class ControlPlane:
    """Speaks to each broker of a cell."""

    def __init__(self, cell: Cell, authority: Authority, channels: ExitStack) -> None:
        self.cell = cell
        self._files = authority.issue("control-plane", "DNS:control-plane")
        self._channels = channels

    def at(self, broker_id: int) -> CellOperationsStub:
        return CellOperationsStub(self._channel(broker_id))

    def describe(self, broker_id: int = 1) -> admin_messages.DescribeCellResponse:
        stub = CellAdminStub(self._channel(broker_id))
        request = admin_messages.DescribeCellRequest()
        return stub.DescribeCell(request, timeout=DEADLINE_S)

    def held_by(self, broker_id: int) -> int:
        (found,) = (b for b in self.describe().brokers if b.node_id == broker_id)
        return found.partitions

    def set_draining(self, broker_id: int, is_draining: bool) -> int:
        request = messages.SetDrainingRequest(node_id=broker_id, is_draining=is_draining)
        return self.at(1).SetDraining(request, timeout=DEADLINE_S).version

    def elect(self, at: int, **fields: object) -> dict[int, int]:
        """Error codes by partition."""
        wanted = {"tenant": "default", "election": Elect.PREFERRED, **fields}
        request = Elect(**wanted)  # type: ignore[arg-type]
        answer = self.at(at).ElectLeaders(request, timeout=DEADLINE_S)
        return {one.partition: one.error_code for one in answer.partitions}

    def _channel(self, broker_id: int) -> grpc.Channel:
        """To where it is since its last start."""
        ready = self.cell.processes[broker_id].ready
        assert ready is not None
        return self._channels.enter_context(channel(ready.cell_admin_port, self._files))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("cell")
    authority = Authority(folder / "ca")
    files = authority.issue("broker", "IP:127.0.0.1")
    given = {**settings(files), "auto.leader.rebalance.enable": "false"}
    with Cell(folder / "cell", settings=given) as cell, ExitStack() as channels:
        yield ControlPlane(cell, authority, channels)


def status_of(call: grpc.RpcError) -> grpc.StatusCode:
    code: grpc.StatusCode = call.code()
    return code


def test_a_drained_broker_holds_nothing_until_it_may_again(plane: ControlPlane) -> None:
    cell = plane.cell
    cell.create_topic("drained", 6, replicas=2)
    assert plane.held_by(3) > 0
    plane.set_draining(3, True)
    # Said again, nothing is committed.
    assert plane.set_draining(3, True) <= plane.describe().version
    cell.wait_for(lambda: plane.held_by(3) == 0, "broker 3 holds nothing")
    cell.create_topic("meanwhile", 3, replicas=2)
    cell.wait_for(lambda: len(cell.in_sync("meanwhile", 1)) == 3, "broker 1 knows the topic")
    assert plane.held_by(3) == 0
    plane.set_draining(3, False)
    cell.wait_for(
        lambda: not any(b.is_draining for b in plane.describe().brokers), "nobody is drained"
    )
    cell.create_topic("afterwards", 3, replicas=3)
    cell.wait_for(lambda: plane.held_by(3) >= 3, "broker 3 has replicas again")


def test_there_is_no_such_broker(plane: ControlPlane) -> None:
    with pytest.raises(grpc.RpcError, match="no broker 7, only 1, 2, 3") as refused:
        plane.set_draining(7, True)
    assert status_of(refused.value) is grpc.StatusCode.NOT_FOUND


def test_preferred_leaders_are_elected_at_the_controller(plane: ControlPlane) -> None:
    cell = plane.cell
    cell.create_topic("elected", 6, replicas=2)
    preferred = cell.leaders("elected")
    victim = next(i for i in cell.ids if i != cell.controller() and i in preferred.values())
    cell.stop(victim)
    cell.wait_for(
        lambda: victim not in cell.leaders("elected").values(), "others lead what it has led"
    )
    cell.start(victim)
    cell.wait_for(
        lambda: {len(isr) for isr in cell.in_sync("elected").values()} == {2}, "both are in sync"
    )
    controller = cell.controller()
    assert plane.describe(controller).controller_id == controller
    moved = [p for p, leader in preferred.items() if leader == victim]
    elected = plane.elect(controller, topic="elected", partitions=[*moved, 17])
    assert elected == {**dict.fromkeys(moved, 0), 17: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    cell.wait_for(lambda: cell.leaders("elected") == preferred, "the preferred leaders lead")
    again = plane.elect(controller, topic="elected")
    assert again == dict.fromkeys(preferred, ErrorCode.ELECTION_NOT_NEEDED)


def test_another_broker_names_the_controller(plane: ControlPlane) -> None:
    controller = plane.cell.controller()
    other = next(i for i in plane.cell.ids if i != controller)
    plane.cell.create_topic("named", 1, replicas=1)
    with pytest.raises(
        grpc.RpcError, match=f"the controller: broker {controller} is it"
    ) as refused:
        plane.elect(other, topic="named")
    assert status_of(refused.value) is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "x", "election": Elect.ELECTION_UNSPECIFIED}, "election: is missing"),
        ({"topic": ""}, "topic: is missing"),
        ({"topic": "x", "tenant": ""}, "tenant: is missing"),
        ({"topic": "x", "partitions": [1, 1]}, "partitions: one is named twice"),
        ({"topic": "x", "partitions": list(range(1001))}, "partitions: 1001; name at most 1000"),
        ({"topic": "absent"}, "the tenant default has no topic absent"),
    ],
)
def test_requests_that_make_no_sense(
    plane: ControlPlane, fields: dict[str, object], words: str
) -> None:
    with pytest.raises(grpc.RpcError, match=words):
        plane.elect(plane.cell.controller(), **fields)
