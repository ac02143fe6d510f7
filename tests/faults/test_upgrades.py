"""A rolling upgrade from the last version without feature levels, under load, and back.

What that version reads and writes is also in the tests of the cell room (first_reader.py,
written_at_level_1.json), for clones whose history does not reach so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stack.admin_connection import AdminConnection
from stack.errors import StackError
from stack.features import SAFE_DOWNGRADE, UPGRADE, describe, update
from tests.broker_process import BrokerProcess, BrokerProcessError
from tests.faults.cell import Cell
from tests.faults.former import NoFormerVersion, former_checkout
from tests.faults.load import Load

TOPIC = "orders"
PARTITIONS = 6
METADATA_VERSION = "metadata.version"


@pytest.fixture
def former(tmp_path: Path) -> Path:
    try:
        folder = tmp_path / "former"
        folder.mkdir()
        return former_checkout(folder)
    except NoFormerVersion as error:
        pytest.skip(str(error))


class Upgrade:
    """A cell whose brokers run either version, under a load."""

    def __init__(self, cell: Cell, former: Path, load: Load) -> None:
        self.cell = cell
        self._former = former
        self._load = load
        self._topics = 0

    def restart(self, broker_id: int, *, former: bool, kill: bool = False) -> None:
        cell = self.cell
        if kill:
            cell.kill9(broker_id)
        else:
            cell.stop(broker_id)
        self.choose(broker_id, former=former)
        cell.start(broker_id)
        self.settle()

    def choose(self, broker_id: int, *, former: bool) -> None:
        """Which version it runs from its next start on."""
        if former:
            self.cell.checkouts[broker_id] = self._former
        else:
            self.cell.checkouts.pop(broker_id, None)

    def settle(self) -> None:
        """Everybody in sync, every partition written to, and the metadata can be changed."""
        self.cell.wait_until_in_sync(TOPIC)
        self._load.run_until_every_partition_moves()
        self._topics += 1
        name = f"topic-{self._topics}"
        self.cell.create_topic(name, 2, configs={"retention.ms": "100000"})
        admin = self.cell.admin()
        admin.delete_topics([name], operation_timeout=20)[name].result(30)

    def todays(self) -> Iterator[int]:
        return (i for i in self.cell.ids if i not in self.cell.checkouts)

    def levels(self) -> set[int]:
        """What the brokers of today's version say that the finalized metadata.version is."""
        found = set()
        for broker_id in self.todays():
            with AdminConnection(self.cell.address(broker_id)) as connection:
                (feature,) = describe(connection)
            found.add(feature.level)
        return found

    def move_level(self, level: int, kind: int = UPGRADE, *, dry_run: bool = False) -> None:
        with AdminConnection(self.cell.address(next(self.todays()))) as connection:
            update(connection, {METADATA_VERSION: level}, kind, dry_run=dry_run)

    def until_level(self, level: int) -> None:
        self.cell.wait_for(lambda: self.levels() == {level}, f"metadata.version {level}")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_that_is_alone_goes_to_this_version_and_back(tmp_path: Path, former: Path) -> None:
    sent: list[bytes] = []

    def write_and_read() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        sent.append(b"message %d" % len(sent))
        producer.produce(TOPIC, sent[-1], partition=0)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = [consumer.poll(30) for _ in sent]
        consumer.close()
        assert [message and message.value() for message in found] == sent

    def level() -> int:
        with AdminConnection(broker.bootstrap) as connection:
            (feature,) = describe(connection)
        return feature.level

    def move_level(level: int, kind: int) -> None:
        with AdminConnection(broker.bootstrap) as connection:
            update(connection, {METADATA_VERSION: level}, kind, dry_run=False)

    def restart(checkout: Path | None) -> None:
        broker.stop()
        broker.checkout = checkout
        broker.start()
        write_and_read()

    broker = BrokerProcess(tmp_path / "broker")
    broker.checkout = former
    with broker:
        write_and_read()
        restart(None)
        assert level() == 1
        restart(former)
        restart(None)
        move_level(3, UPGRADE)
        restart(None)
        assert level() == 3
        broker.stop()
        broker.checkout = former
        with pytest.raises(BrokerProcessError, match="metadata"):
            broker.start()
        broker.checkout = None
        broker.start()
        move_level(1, SAFE_DOWNGRADE)
        restart(former)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_upgrade_broker_by_broker_and_back_under_load(tmp_path: Path, former: Path) -> None:
    cell = Cell(tmp_path)
    cell.checkouts.update(dict.fromkeys(cell.ids, former))
    with cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            upgrade = Upgrade(cell, former, load)
            upgrade.settle()
            for broker_id in cell.ids:
                upgrade.restart(broker_id, former=False)
                assert upgrade.levels() == {1}
                if cell.checkouts:
                    with pytest.raises(StackError, match=r"Broker . only supports versions 1$"):
                        upgrade.move_level(3)
            upgrade.move_level(3, dry_run=True)
            # Back, and once more, with a death in between: the level does not move by itself.
            for broker_id in cell.ids:
                upgrade.restart(broker_id, former=True, kill=broker_id == 2)
            for broker_id in reversed(cell.ids):
                upgrade.restart(broker_id, former=False, kill=broker_id == 2)
                assert upgrade.levels() == {1}
            upgrade.move_level(3)
            upgrade.until_level(3)
            upgrade.restart(1, former=False)
            # The version of before does not take part any more, and harms nothing.
            cell.stop(2)
            upgrade.choose(2, former=True)
            with pytest.raises(StackError, match="metadata"):
                cell.start(2)
            cell.processes.pop(2)
            upgrade.choose(2, former=False)
            cell.start(2)
            upgrade.settle()
            # Unless all go back to a level that it knows.
            upgrade.move_level(1, SAFE_DOWNGRADE)
            upgrade.until_level(1)
            upgrade.restart(3, former=True)
            upgrade.restart(3, former=False)
            upgrade.move_level(3)
            upgrade.until_level(3)
            upgrade.settle()
        load.check()
