"""The feed of changes while the metadata store and brokers fail: nothing left out or twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from data_plane.server.inter_broker_tls import TlsFiles
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.faults.cell import Cell
from tests.server.control_plane import channel, settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 60.0


class Follower:
    """A control plane that follows the feed at one broker, and goes on at another."""

    def __init__(self, cell: Cell, files: TlsFiles) -> None:
        self._cell = cell
        self._files = files
        self.version: int | None = None
        self.made: list[str] = []

    def follow(
        self, broker_id: int, wanted: str, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """From the version that it has, until this topic was made. `meanwhile` runs when the stream
        stands."""
        ready = self._cell.processes[broker_id].ready
        assert ready is not None
        with channel(ready.cell_admin_port, self._files) as opened:
            request = messages.WatchRequest(after_version=self.version)
            stream = CellOperationsStub(opened).Watch(request, timeout=DEADLINE_S)
            self._take(next(stream))
            if meanwhile is not None:
                meanwhile()
            while wanted not in self.made:
                self._take(next(stream))
            stream.cancel()

    def _take(self, response: messages.WatchResponse) -> None:
        version = response.version if self.version is None else self.version
        assert response.version >= version
        for event in response.events:
            assert event.version > version
            if (event.kind, event.change) == (messages.Event.TOPIC, messages.Event.MADE):
                self.made.append(event.name)
        self.version = response.version


@pytest.mark.timeout(180)
def test_the_feed_survives_the_store_and_the_broker_that_it_is_read_from(tmp_path: Path) -> None:
    files = Authority(tmp_path / "ca").issue("broker", "IP:127.0.0.1")
    with Cell(tmp_path / "cell", brokers=2, settings=settings(files)) as cell:
        follower = Follower(cell, files)

        def fail_over() -> None:
            cell.create_topic("t1", 1, replicas=1)
            cell.postgres.kill_now()
            cell.postgres.start()
            cell.create_topic("t2", 1, replicas=1)

        follower.follow(1, "t2", fail_over)
        cell.create_topic("t3", 1, replicas=1)
        cell.kill9(1)
        # librdkafka asks once who the controller is, and waits for a dead one until its timeout.
        cell.wait_for(
            lambda: cell.admin(2).list_topics(timeout=5).controller_id == 2, "another controller"
        )
        cell.create_topic("t4", 1, replicas=1)
        follower.follow(2, "t4")
        cell.start(1)
        cell.create_topic("t5", 1, replicas=1)
        # Of a process that has seen none of it.
        whole = Follower(cell, files)
        whole.version = 0
        whole.follow(1, "t5")
        follower.follow(1, "t5")
        assert follower.made == whole.made == [f"t{number}" for number in range(1, 6)]
