"""A rolling upgrade from the last version without tenants: what there was is `default`'s. And back,
when the tenants that were made meanwhile have been deleted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from data_plane.contract import cell_admin_pb2 as messages
from stack.admin_connection import AdminConnection
from stack.errors import StackError
from stack.features import SAFE_DOWNGRADE, UPGRADE, update
from tests.certificates import WHY_NO_CERTIFICATES
from tests.declared import login_of, tenant_with_user, topic_of
from tests.faults.cell import Cell
from tests.faults.former import WITHOUT_TENANTS, NoFormerVersion, former_checkout
from tests.faults.secure_cell import DEADLINE_S, SecureCell, secure_cell

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

TOPIC, GROUP, PARTITIONS = "orders", "billing", 2
SENT, READ = 10, 4
RETENTION_MS = "123456789"
TENANT = "acme"
SECONDS_MAX = 30.0
METADATA_VERSION = "metadata.version"
OFFSETS_TOPIC = "__consumer_offsets"


@pytest.fixture
def former(tmp_path: Path) -> Path:
    try:
        folder = tmp_path / "former"
        folder.mkdir()
        return former_checkout(folder, WITHOUT_TENANTS)
    except NoFormerVersion as error:
        pytest.skip(str(error))


class Customer:
    """Clients of somebody, who writes to the topic and commits for the group."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    def produce(self, count: int = 1) -> None:
        producer = Producer({**self._settings, "acks": "all"})
        for index, sent in enumerate(self.sent):
            for _ in range(count):
                value = b"%d of %d" % (len(sent), index)
                producer.produce(TOPIC, value, partition=index)
                sent.append(value)
        assert producer.flush(SECONDS_MAX) == 0

    def _consumer(self) -> Consumer:
        settings = {"group.id": GROUP, "enable.auto.commit": "false"}
        return Consumer({**self._settings, **settings})

    def commit(self, offset: int) -> None:
        consumer = self._consumer()
        wanted = [TopicPartition(TOPIC, index, offset) for index in range(PARTITIONS)]
        for done in consumer.commit(offsets=wanted, asynchronous=False) or ():
            assert done.error is None
        consumer.close()

    def committed(self) -> list[int]:
        """What is committed; negative where nothing is."""
        consumer = self._consumer()
        wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        found = [one.offset for one in consumer.committed(wanted, SECONDS_MAX)]
        consumer.close()
        return found

    def read(self) -> list[list[bytes | None]]:
        """All that there is, by partition."""
        consumer = self._consumer()
        found: list[list[bytes | None]] = []
        for index, sent in enumerate(self.sent):
            consumer.assign([TopicPartition(TOPIC, index, 0)])
            got = consumer.consume(len(sent), SECONDS_MAX)
            found.append([message.value() for message in got])
        consumer.close()
        return found

    def topics(self) -> set[str]:
        return set(AdminClient({**self._settings}).list_topics(timeout=SECONDS_MAX).topics)

    def is_as_it_was(self, offset: int) -> None:
        assert self.committed() == [offset] * PARTITIONS
        assert self.read() == self.sent


def restart(cell: Cell, broker_id: int, former: Path | None) -> None:
    cell.stop(broker_id)
    if former is None:
        cell.checkouts.pop(broker_id, None)
    else:
        cell.checkouts[broker_id] = former
    cell.start(broker_id)
    for topic in (TOPIC, OFFSETS_TOPIC):
        cell.wait_until_in_sync(topic)


def move_level(cell: Cell, level: int, kind: int) -> None:
    with AdminConnection(cell.address(2)) as connection:
        update(connection, {METADATA_VERSION: level}, kind, dry_run=False)


def retention_of(cell: Cell) -> str:
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    admin = cell.admin()
    found = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    return str(found["retention.ms"].value)


def delete_tenant(secure: SecureCell) -> None:
    deletion = messages.Deletion(resource_id=tenant_with_user(TENANT)[0].resource_id, generation=2)
    with secure.stub(1) as stub:
        stub.Delete(messages.DeleteRequest(deletions=[deletion]), timeout=DEADLINE_S)

        def is_gone() -> bool:
            request = messages.ListRequest(kind=messages.KIND_TENANT)
            items = stub.List(request, timeout=DEADLINE_S).items
            return TENANT not in {item.resource.tenant for item in items}

        secure.cell.wait_for(is_gone, "nothing is left of the tenant")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_there_was_is_defaults_and_a_cell_without_tenants_goes_back(
    tmp_path: Path, former: Path
) -> None:
    with secure_cell(tmp_path, "SCRAM-SHA-256", former) as secure:
        cell = secure.cell
        cell.create_topic(TOPIC, PARTITIONS, configs={"retention.ms": RETENTION_MS})
        default = Customer({"bootstrap.servers": cell.bootstrap})
        default.produce(SENT)
        default.commit(READ)
        for broker_id in cell.ids:
            restart(cell, broker_id, None)
            default.produce()
            default.is_as_it_was(READ)
        move_level(cell, 3, UPGRADE)
        default.is_as_it_was(READ)
        assert retention_of(cell) == RETENTION_MS

        # A tenant finds nothing of it, under the same names.
        secure.apply(1, *tenant_with_user(TENANT), topic_of(TENANT, TOPIC, PARTITIONS))
        user = login_of(TENANT)
        acme = Customer(
            {
                "bootstrap.servers": ",".join(secure.sasl_addresses),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": user,
            }
        )
        cell.wait_for(lambda: acme.topics() == {TOPIC}, "the tenant has its topic")
        assert all(offset < 0 for offset in acme.committed())
        acme.produce()
        acme.commit(1)
        acme.is_as_it_was(1)
        default.is_as_it_was(READ)

        # Its version of before is for a cell without tenants.
        with pytest.raises(StackError, match="might delete metadata"):
            move_level(cell, 2, SAFE_DOWNGRADE)
        delete_tenant(secure)
        move_level(cell, 2, SAFE_DOWNGRADE)
        restart(cell, 1, former)
        default.produce()
        default.is_as_it_was(READ)
        # What was remembered of the tenant is so by a version that does not know it.
        restart(cell, 1, None)
        move_level(cell, 3, UPGRADE)
        with secure.stub(1) as stub:
            request = messages.ApplyRequest(resources=tenant_with_user(TENANT)[:1])
            (result,) = stub.Apply(request, timeout=DEADLINE_S).results
        assert result.outcome == messages.Result.GONE
        default.is_as_it_was(READ)
