"""A broker whose tenants a test declares, and where their users log in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.server.inter_broker_tls import TlsFiles
from tests.broker_process import BrokerProcess
from tests.certificates import Authority
from tests.declared import tenant_with_user
from tests.kept_port import KeptPort
from tests.server.control_plane import channel, settings

DEADLINE_S = 20.0
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


class TenantBroker:
    """`users` is the address of a listener SASL_PLAINTEXT."""

    def __init__(self, process: BrokerProcess, users: str, files: TlsFiles) -> None:
        self.process = process
        self.users = users
        self._files = files

    def apply(self, *resources: messages.Resource) -> None:
        with channel(self.process.cell_admin_port, self._files) as opened:
            request = messages.ApplyRequest(resources=resources)
            response = CellAdminStub(opened).Apply(request, timeout=DEADLINE_S)
        outcomes = [(result.outcome, result.message) for result in response.results]
        assert outcomes == [(messages.Result.DONE, "")] * len(resources)


@contextmanager
def tenant_broker(
    folder: Path, *tenants: str, set: Mapping[str, str] | None = None
) -> Iterator[TenantBroker]:
    """Each tenant has a user `app` (declared.py)."""
    authority = Authority(folder / "ca")
    kept = KeptPort()
    process = BrokerProcess(
        folder,
        set={
            "sasl.enabled.mechanisms": MECHANISMS,
            **settings(authority.issue("broker", "IP:127.0.0.1")),
            **(set or {}),
        },
        more_listeners=f"SASL_PLAINTEXT://127.0.0.1:{kept.port}",
    )
    with process:
        files = authority.issue("control-plane", "DNS:control-plane")
        broker = TenantBroker(process, f"127.0.0.1:{kept.port}", files)
        broker.apply(*(one for tenant in tenants for one in tenant_with_user(tenant)))
        yield broker
