"""A cell whose brokers also have a listener with SASL, and CellAdmin."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from tests.certificates import Authority
from tests.faults.cell import Cell
from tests.kept_port import KeptPort
from tests.server.control_plane import channel, settings

DEADLINE_S = 20.0


class SecureCell:
    """The cell, and the control plane's calls to it."""

    def __init__(
        self, cell: Cell, authority: Authority, kept_ports: Mapping[int, KeptPort]
    ) -> None:
        self.cell = cell
        self._files = authority.issue("control-plane", "DNS:control-plane")
        self._kept_ports = kept_ports

    @property
    def sasl_addresses(self) -> list[str]:
        ports = [int(self.cell.address(node_id).rsplit(":", 1)[1]) for node_id in self.cell.ids]
        return [f"127.0.0.1:{self._kept_ports[port].port}" for port in ports]

    @contextmanager
    def stub(self, node_id: int) -> Iterator[CellAdminStub]:
        with channel(self.cell.cell_admin_ports[node_id], self._files) as opened:
            yield CellAdminStub(opened)

    def apply(self, node_id: int, *resources: messages.Resource) -> float:
        """When the cell answered that it is done."""
        with self.stub(node_id) as stub:
            response = stub.Apply(messages.ApplyRequest(resources=resources), timeout=DEADLINE_S)
        outcomes = [(result.outcome, result.message) for result in response.results]
        assert outcomes == [(messages.Result.DONE, "")] * len(resources)
        return time.monotonic()


@contextmanager
def secure_cell(folder: Path, mechanisms: str, former: Path | None = None) -> Iterator[SecureCell]:
    """`former`: with what code all brokers begin, if that is another checkout's."""
    authority = Authority(folder / "ca")
    files = authority.issue("broker", "IP:127.0.0.1")
    kept: dict[int, KeptPort] = {}

    def settings_of(port: int) -> Mapping[str, str]:
        sasl = kept.setdefault(port, KeptPort()).port
        listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}"
        return {
            "listeners": listeners,
            "sasl.enabled.mechanisms": mechanisms,
            **settings(files),
        }

    cell = Cell(folder, settings_of=settings_of)
    if former is not None:
        cell.checkouts.update(dict.fromkeys(cell.ids, former))
    with cell:
        yield SecureCell(cell, authority, kept)
