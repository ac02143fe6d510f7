"""A cell for tests of the control plane: a broker process with CellAdmin and a listener for users.

Its address of CellAdmin is the same over restarts. Tenants of different tests have different names,
since the cell is one for a module, and rows are rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from control_plane.access.logic import do_create_grant, do_create_key, do_create_service_account
from control_plane.access.models import ApiKey, ServiceAccount
from control_plane.cells.models import Cell
from control_plane.reconciliation.rounds import reconcile_due
from data_plane.server.cell_admin_settings import LISTENER
from data_plane.server.inter_broker_tls import TlsFiles
from tests.broker_process import BrokerProcess
from tests.certificates import Authority
from tests.control_plane.tenants import Tenant
from tests.kept_port import KeptPort
from tests.server.control_plane import settings as cell_admin_settings

SECONDS_MAX = 20.0
ROUNDS_MAX = 20
MECHANISM = "SCRAM-SHA-256"


class CellProcess:
    """The broker, and the certificate with which a control plane calls it."""

    def __init__(
        self,
        folder: Path,
        authority: Authority,
        name: str = "cell",
        module: str = "data_plane.server",
        set: Mapping[str, str] | None = None,
    ) -> None:
        self._kept = KeptPort(), KeptPort()
        self.admin_endpoint, self.users = (f"127.0.0.1:{kept.port}" for kept in self._kept)
        files = authority.issue(f"{name}-broker", "IP:127.0.0.1")
        properties = cell_admin_settings(files) | {
            LISTENER: self.admin_endpoint,
            "sasl.enabled.mechanisms": MECHANISM,
            **(set or {}),
        }
        self.broker = BrokerProcess(
            folder,
            set=properties,
            more_listeners=f"SASL_PLAINTEXT://{self.users}",
            module=module,
        )

    def __enter__(self) -> CellProcess:
        self.broker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.broker.__exit__(kind, error, traceback)

    def row(self, name: str = "one") -> Cell:
        """As an operator makes it."""
        return Cell.objects.create(
            name=name, admin_endpoints=[self.admin_endpoint], bootstrap_servers=self.users
        )

    def client(self, tenant: Tenant, key: ApiKey, secret: str) -> KafkaClient:
        return KafkaClient(self.users, f"{key.id}@{tenant.organization.slug}", secret)


class KafkaClient:
    """Somebody with a key."""

    def __init__(self, users: str, login: str, secret: str) -> None:
        self.settings: dict[str, Any] = {
            "bootstrap.servers": users,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": login,
            "sasl.password": secret,
        }

    def admin(self) -> AdminClient:
        return AdminClient(self.settings)

    def produce(self, topic: str, value: bytes) -> str:
        """Why it was refused; "" when it is stored."""
        errors: list[str] = []
        producer = Producer(self.settings)

        def delivered(error: Any, _: Any) -> None:
            errors.append("" if error is None else error.name())

        producer.produce(topic, value, on_delivery=delivered)
        assert producer.flush(SECONDS_MAX) == 0
        return errors[0]

    def consume(self, topic: str, count: int, group: str = "readers") -> list[bytes]:
        """The first messages of a topic."""
        group_settings = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(self.settings | group_settings)
        consumer.subscribe([topic])
        try:
            values: list[bytes] = []
            while len(values) < count:
                message = consumer.poll(SECONDS_MAX)
                assert message is not None, f"{len(values)} of {count} messages"
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
            return values
        finally:
            consumer.close()


def trusted(settings: Any, files: TlsFiles) -> None:
    """The control plane of this test calls cells with this certificate."""
    settings.CELL_ADMIN_TLS_CERTIFICATE = files.certificate
    settings.CELL_ADMIN_TLS_KEY = files.key
    settings.CELL_ADMIN_TLS_CA = files.authority


def settle() -> None:
    """Rounds until nothing is due just now."""
    for _ in range(ROUNDS_MAX):
        if not reconcile_due():
            return
    raise AssertionError("there is always something due")


def manager_of(tenant: Tenant) -> tuple[ServiceAccount, ApiKey, str]:
    """A service account that may do everything with topics and groups, and its key."""
    account = do_create_service_account(tenant.actor, tenant.id, "app", "", "viewer", "owner")
    key, secret = do_create_key(tenant.actor, tenant.id, account.id, "owner")
    for resource_type in ("topic", "group"):
        do_create_grant(
            *(tenant.actor, tenant.id, account.id),
            role="manager",
            resource_type=resource_type,
            pattern_type="literal",
            resource_name="*",
        )
    return account, key, secret
