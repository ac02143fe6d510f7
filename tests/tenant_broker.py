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
    """`users` is the address of a listener SASL_PLAINTEXT, `users_over_tls` of one with TLS."""

    def __init__(
        self, process: BrokerProcess, users: str, files: TlsFiles, users_over_tls: str = ""
    ) -> None:
        self.process = process
        self.users = users
        self.users_over_tls = users_over_tls
        self._files = files

    @property
    def authority(self) -> str:
        """Whose certificate the broker has, as a PEM file."""
        return self._files.authority

    def apply(self, *resources: messages.Resource) -> None:
        with channel(self.process.cell_admin_port, self._files) as opened:
            request = messages.ApplyRequest(resources=resources)
            response = CellAdminStub(opened).Apply(request, timeout=DEADLINE_S)
        outcomes = [(result.outcome, result.message) for result in response.results]
        assert outcomes == [(messages.Result.DONE, "")] * len(resources)


@contextmanager
def tenant_broker(
    folder: Path,
    *tenants: str,
    set: Mapping[str, str] | None = None,
    module: str = "data_plane.server",
    tls: bool = False,
) -> Iterator[TenantBroker]:
    """Each tenant has a user `app` (declared.py). `module`: as of BrokerProcess. With `tls` its
    users may come over TLS, too."""
    authority = Authority(folder / "ca")
    kept, over_tls = KeptPort(), KeptPort()
    more = f"SASL_PLAINTEXT://127.0.0.1:{kept.port}"
    properties = dict(set or {})
    if tls:
        more += f",SASL_SSL://127.0.0.1:{over_tls.port}"
        properties["ssl.keystore.location"] = str(authority.keystore("tls"))
    process = BrokerProcess(
        folder,
        set={
            "sasl.enabled.mechanisms": MECHANISMS,
            **settings(authority.issue("broker", "IP:127.0.0.1")),
            **properties,
        },
        module=module,
        more_listeners=more,
    )
    with process:
        files = authority.issue("control-plane", "DNS:control-plane")
        users, tls_users = (f"127.0.0.1:{one.port}" for one in (kept, over_tls))
        broker = TenantBroker(process, users, files, tls_users)
        broker.apply(*(one for tenant in tenants for one in tenant_with_user(tenant)))
        yield broker
